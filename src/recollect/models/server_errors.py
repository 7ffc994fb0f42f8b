"""Describe errors of model servers without repeating the texts that were sent.

Servers like to repeat what they refuse, and what they say ends up in logs and beside jobs. Of their words only a
beginning is told, and only if it is theirs; what kind of error it is, and which parts of a request it names, always.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from recollect.lazy_pattern import lazy_pattern

MAX_CHARS = 200

# More of its words is not read.
_MAX_READ_CHARS = 20_000
# So many letters and digits in a row are not by chance the same as in what was sent.
_SAME_CHARS = 16
# What of a request is nobody's words.
_OWN_FIELDS = frozenset({"model", "response_format", "tools", "tool_choice", "encoding_format", "dimensions"})
# What is named by a complaint about how an answer is asked for.
_FORMS = ("tool", "response_format", "parameters")
_TOO_COMMON = frozenset({"model", "messages", "input", "query", "documents"})
_KINDS = ("type", "code", "param")
_KIND = lazy_pattern(r"[A-Za-z0-9_.\[\]-]{1,64}")
_WORDS = ("message", "detail", "msg", "error_description")
_NO_WORD = lazy_pattern(r"[\W_]+")
_TOKEN = lazy_pattern(r"[\w@+][\w@.+-]*")
_QUOTED = lazy_pattern(r"""(?<=['"`“‘])[^'"`“”‘’]{2,80}(?=['"`”’])""")
_LEFT_OUT = "…"
_REDACTED = "in words that repeat what was sent"


def describe_refusal(body: bytes, sent: Mapping[str, Any], *, secret: str = "") -> str:
    """Return one line on a failed response, without the texts `sent` and the secret."""
    text = body.decode("utf-8", "replace")
    if secret:
        # Before it is cut, lest a part of it stay at the end.
        text = text.replace(secret, "***")
    kinds, words = _parse_error(text)
    sent_text = "\n".join(_texts({name: value for name, value in sent.items() if name not in _OWN_FIELDS}))
    words = " ".join(words[:_MAX_READ_CHARS].split())
    detail = _REDACTED if _repeats(words, sent_text) else _mask(words[:MAX_CHARS], sent_text)
    named = [name for name in dict.fromkeys((*sent, *_FORMS)) if name in words and name not in _TOO_COMMON]
    missing = [name for name in named if name not in detail]
    if missing:
        unsupported = " as not supported" if "support" in words.casefold() else ""
        detail = f"{detail} (it names {', '.join(missing)}{unsupported})".strip()
    return ": ".join(filter(None, (", ".join(kinds), detail)))


def describe_error(error: Exception, texts: Sequence[str]) -> str:
    """Return one line on a library's error, without the `texts`."""
    detail = describe_refusal(str(error).encode("utf-8", "replace"), {"input": list(texts)})
    return f"{type(error).__name__}: {detail}" if detail else type(error).__name__


def _parse_error(text: str) -> tuple[list[str], str]:
    """Return the error types in a body, and its words; a body that is not JSON is all words."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return [], text
    error = parsed.get("error", parsed) if isinstance(parsed, dict) else parsed
    if not isinstance(error, dict):
        return [], error if isinstance(error, str) else _to_json(error)
    values = (error.get(name) for name in _KINDS)
    kinds = [each for each in values if isinstance(each, str) and _KIND.fullmatch(each)]
    words = next(
        (error[name] for name in _WORDS if isinstance(error.get(name), str)), "" if kinds else _to_json(error)
    )
    return list(dict.fromkeys(kinds)), words


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _repeats(words: str, sent_text: str) -> bool:
    """Return whether the words contain more than a single word of the sent texts."""
    mine, theirs = _NO_WORD.sub("", sent_text.casefold()), _NO_WORD.sub("", words.casefold())
    foreign = {char for char in theirs if not char.isascii()}
    # Where words are not parted a few signs are a sentence; what is spelled by numbers cannot be compared.
    if "\\u" in words or (foreign and any(char in foreign for char in mine)):
        return True
    parts = {theirs[at : at + _SAME_CHARS] for at in range(len(theirs) - _SAME_CHARS + 1)}
    return any(mine[at : at + _SAME_CHARS] in parts for at in range(len(mine) - _SAME_CHARS + 1)) if parts else False


def _mask(words: str, sent_text: str) -> str:
    """Return the words without names, numbers and quotations of the sent texts."""
    plain = sent_text.casefold()
    words = _QUOTED.sub(lambda match: _LEFT_OUT if match[0].casefold() in plain else match[0], words)

    def mask_token(match: re.Match[str]) -> str:
        token = match[0].rstrip(".-+")
        is_distinctive = len(token) > 1 and (not token.islower() or "@" in token)
        return match[0].replace(token, _LEFT_OUT) if is_distinctive and token.casefold() in plain else match[0]

    return _TOKEN.sub(mask_token, words)


def describe_parse_error(error: Exception) -> str:
    """Return why a response could not be parsed; our own messages are unchanged."""
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError | RecursionError):
        return "it is not JSON"
    message = str(error)
    # Python's own words speak of the code that read the answer, not of the answer.
    return message if type(error) is ValueError and message else "it is JSON of another shape"
