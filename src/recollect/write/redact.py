"""Redact secrets: keys, passwords, and numbers of cards and accounts."""

from __future__ import annotations

import logging
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from recollect.aio.erasable_cache import erasable_cache
from recollect.aio.slices import run_at_once, run_in_slices
from recollect.errors import InvalidInput
from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern
from recollect.model.change import Author
from recollect.model.memory import Category, MemoryRecord
from recollect.model.text import normalise_invisible, repair_text
from recollect.model.turn import Turn
from recollect.write.account_numbers import find_account_numbers, may_contain_account_numbers
from recollect.write.credential_model import find_credentials, has_cue
from recollect.write.operations import ExtractedFact
from recollect.write.secret_rules import secret_rules

T = TypeVar("T")
_Steps: TypeAlias = Generator[None, None, T]
_WHITESPACE = lazy_pattern(r"\s")
_MARK_START = "[redacted: "
# A text is redacted several times on its way into the ledger. Only hashes are kept, no text.
_CLEAN_HASHES: set[int] = set()
_MAX_CLEAN_HASHES = 4096
_MARK_PATTERN = lazy_pattern(r"\[redacted: [^\]\n]{1,40}\]")


@frozen_dataclass
class Redacted:
    """A text with each secret replaced by its kind, and the kinds in order."""

    text: str
    kinds: tuple[str, ...] = ()


def redact(text: str) -> Redacted:
    """Return the text without secrets."""
    return run_at_once(_redact_steps(text))


async def redact_in_slices(text: str) -> Redacted:
    """Return a text of any length without secrets; other requests run meanwhile."""
    return await run_in_slices(_redact_steps(text))


# Longer texts are redacted in pieces, and a piece whose end is a secret is made longer, up to a maximum.
_PIECE_CHARS = 1 << 12
_MAX_PIECE_CHARS = 1 << 14
# So many characters at the end of a piece, if they hold no secret, are redacted again with the next one, so that
# every secret is seen with the words around it.
_OVERLAPS = (512, 256, 128, 64)


def _redact_steps(text: str, normalise: Callable[[str], str] = str) -> _Steps[Redacted]:
    """Return the normalised text without secrets, or else the text as it is; yields between pieces."""
    if len(text) <= _PIECE_CHARS:
        redacted = yield from _redact_piece(normalise(text))
        return redacted if redacted.kinds else Redacted(text)
    parts, kinds, start, size = list[str](), list[str](), 0, _PIECE_CHARS
    while start < len(text):
        piece = text[start : start + size]
        plain = normalise(piece)
        redacted = yield from _redact_piece(plain)
        yield
        is_last = start + size >= len(text)
        overlap = 0 if is_last else _overlap(piece, plain, redacted.text)
        if not is_last and not overlap and size < _MAX_PIECE_CHARS:
            size *= 2
            continue
        parts.append(redacted.text[: len(redacted.text) - overlap])
        kinds += redacted.kinds
        start, size = start + len(piece) - overlap, _PIECE_CHARS
    return Redacted("".join(parts), tuple(kinds)) if kinds else Redacted(text)


def _overlap(piece: str, plain: str, redacted: str) -> int:
    """Return how many unchanged characters at the end of a piece to redact again; they begin with a space."""
    for chars in _OVERLAPS:
        end = plain[-chars:]
        if piece.endswith(end) and redacted.endswith(end):
            space = _WHITESPACE.search(end)
            return len(end) - space.start() if space else 0
    return 0


def _redact_piece(text: str) -> _Steps[Redacted]:
    """Return a text without secrets.

    Secrets with a known form are replaced first, since their kind is more specific than the name before them.
    """
    if hash(text) in _CLEAN_HASHES:
        return Redacted(text)
    lower, rules = text.lower(), secret_rules()
    fitting, is_cued = rules.matching(lower), has_cue(lower)
    has_numbers, has_mnemonic = may_contain_account_numbers(text), rules.may_contain_mnemonic(lower)
    clean = text
    for rule in fitting:
        clean = _replace_secrets(clean, rule.search(clean))
        yield
    if has_mnemonic:
        clean = _replace_secrets(clean, rules.find_mnemonics(clean))
    if has_numbers:
        clean = _replace_secrets(clean, find_account_numbers(clean))
        yield
    if is_cued:
        clean = _replace_secrets(clean, (yield from find_credentials(clean)))
    if len(_CLEAN_HASHES) >= _MAX_CLEAN_HASHES:
        _CLEAN_HASHES.clear()
    # Redaction of its own output changes nothing.
    _CLEAN_HASHES.add(hash(clean))
    return Redacted(text) if clean == text else Redacted(clean, _new_kinds(text, clean))


def _new_kinds(before: str, after: str) -> tuple[str, ...]:
    """Return the kinds of the secrets that were replaced, in order."""
    earlier = Counter(_MARK_PATTERN.findall(before))
    marks = _MARK_PATTERN.findall(after)
    kinds = []
    for mark in marks:
        earlier[mark] -= 1
        if earlier[mark] < 0:
            kinds.append(mark[len(_MARK_START) : -1])
    return tuple(kinds)


def _replace_secrets(text: str, secrets: Iterable[tuple[int, int, str]]) -> str:
    parts: list[str] = []
    last = 0
    for start, end, kind in sorted(secrets):
        if start >= last:
            parts += [text[last:start], f"{_MARK_START}{kind}]"]
            last = end
    return "".join([*parts, text[last:]]) if parts else text


# The fields of a memory that may contain secrets.
_REDACTED_FIELDS = ("content", "key", "value", "source", "tags", "metadata", "detail")
# Too short for a secret that is recognised by its form.
_PLAIN_WORD = lazy_pattern("(?!cv)[a-z0-9_-]{0,8}|[a-z_-]{0,15}", re.IGNORECASE)
# The key of a cache or a map is no secret; an access key is.
_ACCESS_KEY_NAME = lazy_pattern("api|access|secret|private|auth|sign|encrypt|licen[cs]e", re.IGNORECASE)
# Samples of secrets that are recognised only by their name: password, PIN, social security and card number.
_SAMPLE_SECRETS = ("x7Kq2pL9vW3nR8tZ", "4821", "457555462", "630427373398")
_MIN_NUMBER = 10**8
# Binary data in base64.
_MIN_BLOB_CHARS = 1024
_BLOB = lazy_pattern(r"(?:data:[\w.+/;=-]{1,100};base64,)?[A-Za-z0-9+/_=-]++")


@frozen_dataclass
class Redactor:
    """Redacts memories and turns, as configured; methods return the redacted value and the kinds of secrets."""

    memories: bool = True
    turns: bool = True

    async def redact_record(self, record: MemoryRecord) -> tuple[MemoryRecord, tuple[str, ...]]:
        """Redact a memory or a turn."""
        if not (self.turns if record.category is Category.TURN else self.memories):
            return record, ()
        fields = {name: getattr(record, name) for name in _REDACTED_FIELDS}
        clean, kinds = await run_in_slices(_redact_fields(fields, None))
        return (replace(record, **clean), kinds) if kinds else (record, ())

    async def redact_fields(
        self, fields: Mapping[str, Any], *, key: str | None = None
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Redact validated fields; `key` names the value if the fields have no key."""
        return await run_in_slices(_redact_fields(fields, key)) if self.memories else (dict(fields), ())

    async def redact_turn_text(self, text: str) -> tuple[str, tuple[str, ...]]:
        """Redact the text of a turn."""
        if not self.turns:
            return text, ()
        redacted = await run_in_slices(_redact_normalized(text))
        return redacted.text, redacted.kinds

    async def redact_turn(self, turn: Turn) -> tuple[Turn, tuple[str, ...]]:
        """Redact the text of a turn, the name of its speaker and its metadata."""
        if not self.turns:
            return turn, ()
        content, kinds = await self.redact_turn_text(turn.content)
        name, name_kinds = await self.redact_turn_text(turn.name) if turn.name else (turn.name, ())
        kinds = tuple(dict.fromkeys((*kinds, *name_kinds)))
        clean = replace(turn, content=content, name=name) if kinds else turn
        if turn.metadata:
            clean = replace(clean, metadata=await self.redact_json(turn.metadata))
        if turn.exported_record is None:
            return clean, kinds
        record, record_kinds = await self.redact_record(turn.exported_record)
        return replace(clean, exported_record=record), tuple(dict.fromkeys((*kinds, *record_kinds)))

    def redact_author(self, by: Author) -> Author:
        """Redact the name and the reason of an author."""
        if not self.memories:
            return by
        who, why = self.redact_label(by.who), self.redact_label(by.why)
        return by if (who, why) == (by.who, by.why) else replace(by, who=who, why=why)

    def redact_label(self, text: str) -> str:
        """Redact a short text that is always stored without secrets: a name, a reason or an error."""
        if not text or hash(text) in _CLEAN_HASHES:
            return text
        return run_at_once(_redact_normalized(text)).text

    async def redact_json(self, value: Any) -> Any:
        """Redact plain JSON that is stored with turns: responses, conversations, results."""
        if not self.turns:
            return value
        try:
            return await run_in_slices(_redact_value(value, []))
        except RecursionError:
            raise InvalidInput("the JSON is nested too deeply; make it flatter") from None


def _redact_fields(fields: Mapping[str, Any], key: str | None) -> _Steps[tuple[dict[str, Any], tuple[str, ...]]]:
    values = {name: fields[name] for name in _REDACTED_FIELDS if fields.get(name)}
    names = {"value": fields.get("key") or key or ""}
    kinds: list[str] = []
    clean: dict[str, Any] = {}
    for name, value in values.items():
        clean[name] = yield from _redact_value(value, kinds, name=names.get(name, ""))
    return ({**fields, **clean}, tuple(dict.fromkeys(kinds))) if kinds else (dict(fields), ())


def _redact_normalized(text: str) -> _Steps[Redacted]:
    """Redact a text, also secrets that invisible characters split; a text without secrets is unchanged."""
    return _redact_steps(text, normalise_invisible)


def _redact_value(value: Any, kinds: list[str], *, name: str = "") -> _Steps[Any]:
    match value:
        case str() if len(value) >= _MIN_BLOB_CHARS and _BLOB.fullmatch(value):
            # An image or encrypted reasoning; a change would destroy it.
            return value
        case str():
            return (yield from _redact_named_text(value, kinds, name))
        case Mapping():
            clean = {}
            for each, item in value.items():
                clean_name = yield from _redact_named_text(str(each), kinds, "")
                clean[clean_name] = yield from _redact_value(item, kinds, name=each)
                yield
            return clean
        case list() | tuple():
            items = []
            for each in value:
                items.append((yield from _redact_value(each, kinds, name=name)))
                yield
            return type(value)(items)
        case bool():
            return value
        case int() if value >= _MIN_NUMBER or (name and _is_secret_name(name)):
            text = yield from _redact_named_text(str(value), kinds, name)
            return value if text == str(value) else text
    return value


def _redact_named_text(text: str, kinds: list[str], name: str) -> _Steps[str]:
    is_named_secret = bool(name) and _is_secret_name(name)
    if not is_named_secret and _PLAIN_WORD.fullmatch(text):
        return text
    labelled = f"{name}: {text}" if is_named_secret else text
    start = len(labelled) - len(text)
    redacted = yield from _redact_normalized(labelled)
    if redacted.kinds and not redacted.text.startswith(labelled[:start]):
        # The name itself is a secret, so it tells nothing about the value.
        start, redacted = 0, (yield from _redact_normalized(text))
    kinds += redacted.kinds
    return redacted.text[start:] if redacted.kinds else text


@erasable_cache(1024)
def _is_secret_name(name: str) -> bool:
    """Return whether values with this name are secrets."""
    is_any_key = name[-3:].lower() == "key" and not _ACCESS_KEY_NAME.search(name)
    return not is_any_key and any(redact(f"{name}: {each}").kinds for each in _SAMPLE_SECRETS)


_WORD = lazy_pattern(r"[^\W_]+(?:['’-][^\W_]+)*")
# The minimum words of a clause that states more than a secret: without a secret in it, and with one.
_MIN_WORDS = 3
_MIN_CONTENT_WORDS = 2


@frozen_dataclass
class _SecretStatementCues:
    light: frozenset[str]
    joins: re.Pattern[str]
    stated: re.Pattern[str]


def clean_model_text(text: str) -> str:
    """Return a model's text without secrets, invisible characters and characters that cannot be stored."""
    return redact(normalise_invisible(repair_text(text))).text


def drop_secret_facts(facts: Sequence[ExtractedFact]) -> tuple[list[ExtractedFact], list[str]]:
    """Return the facts without secrets, and the reasons for dropping those that state nothing else."""
    accepted: list[ExtractedFact] = []
    dropped: list[str] = []
    for each in facts:
        clean = _redact_fact(each)
        if (each.content and not clean.content) or is_only_secret(clean.content):
            dropped.append(f"it only states a secret: {clean.content}")
        else:
            accepted.append(clean)
    return accepted, dropped


def is_only_secret(text: str) -> bool:
    """Return whether a redacted text states nothing but a secret."""
    if not _MARK_PATTERN.search(text):
        return False
    return not any(map(_has_content, _secret_statement_cues().joins.split(text)))


def _redact_fact(fact: ExtractedFact) -> ExtractedFact:
    content = normalise_invisible(fact.content).strip()
    value = normalise_invisible(fact.value).strip() if fact.value else fact.value
    fields, kinds = run_at_once(_redact_fields({"content": content, "key": fact.key, "value": value}, None))
    if kinds and (fields["value"] != value or fields["key"] != fact.key):
        # A redacted value is useless as a keyed fact.
        fields |= {"key": None, "value": None}
    if not kinds and (content, value) == (fact.content, fact.value):
        return fact
    return replace(fact, **fields)


def _has_content(part: str) -> bool:
    """Return whether a clause states more than a secret."""
    cues = _secret_statement_cues()
    words = _WORD.findall(_MARK_PATTERN.sub(" ", part).lower())
    if not _MARK_PATTERN.search(part):
        return len(words) >= _MIN_WORDS
    return (
        not cues.stated.search(part) and len([word for word in words if word not in cues.light]) >= _MIN_CONTENT_WORDS
    )


@cache
def _secret_statement_cues() -> _SecretStatementCues:
    table = tomllib.loads(Path(__file__).with_name("secrets.toml").read_text(encoding="utf-8"))["statement"]
    leads, names = "|".join(table["leads"].split()), "|".join(table["names"].split())
    mark = r"[\"'“„«`(]?\[redacted: "
    light = frozenset(word for name in ("leads", "names", "light") for word in table[name].split())
    return _SecretStatementCues(
        light=light,
        joins=re.compile(rf"[.;!?](?:\s+|$)|,\s|\n|\s(?:{'|'.join(table['joins'].split())})\s", re.IGNORECASE),
        # A mark after a copula or a name, or as the subject.
        stated=re.compile(
            rf"(?:\b(?:{leads}|{names})|[:=])\s*{mark}[^\]]*\](?!@)|^\W*\[redacted: [^\]]*\]\W*\s(?:{leads})\b",
            re.IGNORECASE,
        ),
    )


class RedactingLogFilter(logging.Filter):
    """Redacts every log record and its traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        if redact(record.getMessage()).kinds:
            if isinstance(record.args, tuple):
                # uvicorn's formatter uses the arguments.
                record.args = tuple(redact(each).text if isinstance(each, str) else each for each in record.args)
            if (clean := redact(record.getMessage())).kinds:
                record.msg, record.args = clean.text, ()
        if record.exc_info and (trace := redact(logging.Formatter().formatException(record.exc_info))).kinds:
            record.exc_info, record.exc_text = None, trace.text
        return True


def install_log_filter() -> None:
    """Redact the logs of this package and of uvicorn from now on."""
    for name in ("recollect", "uvicorn.error", "uvicorn.access"):
        log = logging.getLogger(name)
        if not any(isinstance(each, RedactingLogFilter) for each in log.filters):
            log.addFilter(RedactingLogFilter())
