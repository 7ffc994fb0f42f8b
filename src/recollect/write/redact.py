"""Redact what must not be remembered: keys, passwords, numbers of cards and accounts."""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from recollect.aio.erasable_cache import erasable_cache
from recollect.errors import InvalidInput
from recollect.model.change import Author
from recollect.model.extracted_fact import ExtractedFact
from recollect.model.memory import Category, MemoryRecord
from recollect.model.text import normalise_invisible, repair_text
from recollect.write.secret_detectors import PasswordDetector, find_account_numbers, may_contain_account_numbers

_MARK_FORMAT = "[redacted: {kind}]"
# What a key goes on with, however it begins.
_KEY_REST = r"[A-Za-z0-9_.=-]{16,}+"
# A text without a word of this length holds no key.
_MIN_KEY_CHARS = 16
_LETTER, _DIGIT = re.compile("[A-Za-z]"), re.compile(r"\d")
# "process.env.TOKEN_2", "my-secret-key": parts that are words or numbers are what programs call a secret.
_BETWEEN_PARTS = re.compile(r"[_./~+-]++")
_PART = re.compile(r"[A-Za-z]++\d{0,3}+|\d++|")


@dataclass(frozen=True, slots=True)
class Redacted:
    """The text with each secret replaced by its kind, and the kinds in the order they were found."""

    text: str
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _SecretRule:
    kind: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    check: Callable[[str], str]
    short: bool = False

    def search(self, text: str) -> Iterator[tuple[int, int, str]]:
        group = "secret" if "secret" in self.pattern.groupindex else 0
        for match in self.pattern.finditer(text):
            if secret := self.check(match[group]):
                start = match.start(group)
                yield start, start + len(secret), self.kind


def redact(text: str) -> Redacted:
    """The text without its secrets; text without any comes back as it is.

    What is known by its form goes first: the words before a key may name it in a way that tells less.
    """
    patterns = _secret_patterns()
    lower = text.lower()
    fitting = patterns.matching_rules(lower)
    if not fitting and not patterns.passwords.names_in(lower) and not may_contain_account_numbers(text):
        return Redacted(text)
    kinds: list[str] = []
    for at in sorted(fitting):
        text = _replace_secrets(text, patterns.rules[at].search(text), kinds)
    text = _replace_secrets(text, patterns.passwords.search(text), kinds)
    text = _replace_secrets(text, find_account_numbers(text), kinds)
    return Redacted(text, tuple(kinds))


def _replace_secrets(text: str, secrets: Iterable[tuple[int, int, str]], kinds: list[str]) -> str:
    parts: list[str] = []
    last = 0
    for start, end, kind in sorted(secrets):
        if start >= last:
            parts += [text[last:start], _MARK_FORMAT.format(kind=kind)]
            kinds.append(kind)
            last = end
    return "".join([*parts, text[last:]]) if parts else text


def _accept_any(secret: str) -> str:
    return secret


def _accept_mixed(secret: str) -> str:
    """The secret if it has letters and digits; else empty."""
    return secret if _LETTER.search(secret) and _DIGIT.search(secret) else ""


def _accept_random(secret: str) -> str:
    """The secret if it is mixed and not what a program calls one; else empty."""
    secret = secret.rstrip(".")
    return "" if all(map(_PART.fullmatch, _BETWEEN_PARTS.split(secret))) else _accept_mixed(secret)


_CHECKS: Mapping[str, Callable[[str], str]] = {"": _accept_any, "mixed": _accept_mixed, "random": _accept_random}


@dataclass(frozen=True, slots=True)
class _SecretPatterns:
    """All that secrets.toml says; each hint is with the number of the rule it is of."""

    rules: tuple[_SecretRule, ...]
    short_hints: tuple[tuple[str, int], ...]
    long_hints: tuple[tuple[str, int], ...]
    prefixes: tuple[tuple[str, int], ...]
    any_prefix: re.Pattern[str]
    passwords: PasswordDetector

    def matching_rules(self, lower: str) -> set[int]:
        """The rules that a text in lower case has hints of."""
        fitting = {at for hint, at in self.short_hints if hint in lower}
        if long := [word for word in lower.split() if len(word) >= _MIN_KEY_CHARS]:
            fitting |= {at for hint, at in self.long_hints if hint in lower}
            # Most texts hold none of the many beginnings, which one look tells.
            if any(map(self.any_prefix.search, long)):
                fitting |= {at for hint, at in self.prefixes if hint in lower}
        return fitting


@cache
def _secret_patterns() -> _SecretPatterns:
    table = tomllib.loads((files(__package__) / "secrets.toml").read_text(encoding="utf-8"))
    prefix_rules = tuple(_prefix_rules(table["beginnings"]))
    rules = (*prefix_rules, *map(_build_rule, table["rule"]))
    hints = [(hint, at) for at, rule in enumerate(rules) for hint in rule.hints]
    prefixes = tuple(each for each in hints if each[1] < len(prefix_rules))
    other_hints = hints[len(prefixes) :]
    return _SecretPatterns(
        rules,
        short_hints=tuple(each for each in other_hints if rules[each[1]].short),
        long_hints=tuple(each for each in other_hints if not rules[each[1]].short),
        prefixes=prefixes,
        any_prefix=re.compile("|".join(re.escape(hint) for hint, _ in prefixes)),
        passwords=PasswordDetector.from_table(table["password"]),
    )


def _prefix_rules(table: Mapping[str, Iterable[str]]) -> Iterator[_SecretRule]:
    for kind, prefixes in table.items():
        longest_first = sorted(prefixes, key=len, reverse=True)
        pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, longest_first))}){_KEY_REST}")
        yield _SecretRule(kind, tuple(each.lower() for each in longest_first), pattern, _accept_random)


def _build_rule(table: Mapping[str, Any]) -> _SecretRule:
    check = _CHECKS[table.get("check", "")]
    return _SecretRule(
        table["kind"], tuple(table["hints"]), re.compile(table["pattern"]), check, table.get("short", False)
    )


# What of a memory holds words of its giver.
_REDACTED_FIELDS = ("content", "key", "value", "source", "tags", "metadata", "detail")
# A word too short for any secret that says of itself what it is.
_PLAIN_WORD = re.compile("(?!cv)[a-z0-9_-]{0,8}|[a-z_-]{0,15}", re.IGNORECASE)
# The key of a cache, a row or a map is no secret; one that opens something is.
_ACCESS_KEY_NAME = re.compile("api|access|secret|private|auth|sign|encrypt|licen[cs]e", re.IGNORECASE)
# What is a secret only by its name: a password or token, a PIN, a social security number, a short card number.
_SAMPLE_SECRETS = ("x7Kq2pL9vW3nR8tZ", "4821", "457555462", "630427373398")
_MIN_NUMBER = 10**8


@dataclass(frozen=True, slots=True)
class Redactor:
    """What secrets are kept out of; each verb gives what it was given without them, and the kinds it found."""

    memories: bool = True
    turns: bool = True

    def redact_record(self, record: MemoryRecord) -> tuple[MemoryRecord, tuple[str, ...]]:
        """A memory or a turn."""
        if not (self.turns if record.category is Category.TURN else self.memories):
            return record, ()
        clean, kinds = self._redact_values({name: getattr(record, name) for name in _REDACTED_FIELDS}, None)
        return (replace(record, **clean), kinds) if kinds else (record, ())

    def redact_fields(
        self, fields: Mapping[str, Any], *, key: str | None = None
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Checked fields of a memory; `key` is what a value is of, if they do not say."""
        return self._redact_values(fields, key) if self.memories else (dict(fields), ())

    def redact_turn_text(self, text: str) -> tuple[str, tuple[str, ...]]:
        """The words of a turn."""
        return _redact_normalized(text) if self.turns else (text, ())

    def redact_author(self, by: Author) -> Author:
        """Who changes something; it is the reasons that are looked at."""
        return replace(by, why=_redact_normalized(by.why)[0]) if by.why and self.memories else by

    def _redact_values(self, fields: Mapping[str, Any], key: str | None) -> tuple[dict[str, Any], tuple[str, ...]]:
        values = {name: fields[name] for name in _REDACTED_FIELDS if fields.get(name)}
        names = {"value": fields.get("key") or key or ""}
        kinds: list[str] = []
        try:
            clean = {name: _redact_value(value, kinds, name=names.get(name, "")) for name, value in values.items()}
        except RecursionError:
            raise InvalidInput("metadata and detail are too deep to be looked into; make them flatter") from None
        return ({**fields, **clean}, tuple(dict.fromkeys(kinds))) if kinds else (dict(fields), ())


def _redact_normalized(text: str) -> tuple[str, tuple[str, ...]]:
    """The text without secrets, also those that hidden characters cut in two; one that has none stays as it is."""
    redacted = redact(normalise_invisible(text))
    return (redacted.text, redacted.kinds) if redacted.kinds else (text, ())


def _redact_value(value: Any, kinds: list[str], *, name: str = "") -> Any:
    match value:
        case str():
            return _redact_named_text(value, kinds, name)
        case Mapping():
            return {
                _redact_named_text(str(each), kinds, ""): _redact_value(item, kinds, name=each)
                for each, item in value.items()
            }
        case list() | tuple():
            return type(value)([_redact_value(each, kinds, name=name) for each in value])
        case bool():
            return value
        case int() if value >= _MIN_NUMBER or (name and _is_secret_name(name)):
            text = _redact_named_text(str(value), kinds, name)
            return value if text == str(value) else text
    return value


def _redact_named_text(text: str, kinds: list[str], name: str) -> str:
    is_named_secret = bool(name) and _is_secret_name(name)
    if not is_named_secret and _PLAIN_WORD.fullmatch(text):
        return text
    labelled = f"{name}: {text}" if is_named_secret else text
    start = len(labelled) - len(text)
    redacted, new_kinds = _redact_normalized(labelled)
    if new_kinds and not redacted.startswith(labelled[:start]):
        # The name itself is not to be told, and says nothing of what it names.
        start, (redacted, new_kinds) = 0, _redact_normalized(text)
    kinds += new_kinds
    return redacted[start:] if new_kinds else text


@erasable_cache(1024)
def _is_secret_name(name: str) -> bool:
    """Whether a value is a secret by what it is called."""
    is_any_key = name[-3:].lower() == "key" and not _ACCESS_KEY_NAME.search(name)
    return not is_any_key and any(redact(f"{name}: {each}").kinds for each in _SAMPLE_SECRETS)


_MARK_PATTERN = re.compile(r"\[redacted: [^\]\n]{1,40}\]")
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
# A part of a sentence without the secret tells something if it has so many words; one with it, so many of weight.
_MIN_WORDS = 3
_MIN_CONTENT_WORDS = 2
_REDACTOR = Redactor()


@dataclass(frozen=True, slots=True)
class _SecretStatementCues:
    light: frozenset[str]
    joins: re.Pattern[str]
    stated: re.Pattern[str]


def clean_model_text(text: str) -> str:
    """The text that a model wrote as it may be kept."""
    return redact(normalise_invisible(repair_text(text))).text


def drop_secret_facts(facts: Sequence[ExtractedFact]) -> tuple[list[ExtractedFact], list[str]]:
    """What was learned without its secrets, and what was left out since it said nothing else."""
    accepted: list[ExtractedFact] = []
    dropped: list[str] = []
    for each in facts:
        clean = _redact_fact(each)
        if (each.content and not clean.content) or is_only_secret(clean.content):
            dropped.append(f"it only says what a secret is: {clean.content}")
        else:
            accepted.append(clean)
    return accepted, dropped


def is_only_secret(text: str) -> bool:
    """Whether a text without its secrets only said what they were."""
    if not _MARK_PATTERN.search(text):
        return False
    return not any(map(_has_content, _secret_statement_cues().joins.split(text)))


def _redact_fact(fact: ExtractedFact) -> ExtractedFact:
    content = normalise_invisible(fact.content).strip()
    value = normalise_invisible(fact.value).strip() if fact.value else fact.value
    fields, kinds = _REDACTOR.redact_fields({"content": content, "key": fact.key, "value": value})
    if kinds and (fields["value"] != value or fields["key"] != fact.key):
        # A profile has no use for a value that nobody may know.
        fields |= {"key": None, "value": None}
    if not kinds and (content, value) == (fact.content, fact.value):
        return fact
    return replace(fact, **fields)


def _has_content(part: str) -> bool:
    """Whether a part of a sentence says anything but a secret."""
    cues = _secret_statement_cues()
    words = _WORD.findall(_MARK_PATTERN.sub(" ", part).lower())
    if not _MARK_PATTERN.search(part):
        return len(words) >= _MIN_WORDS
    return (
        not cues.stated.search(part) and len([word for word in words if word not in cues.light]) >= _MIN_CONTENT_WORDS
    )


@cache
def _secret_statement_cues() -> _SecretStatementCues:
    table = tomllib.loads((files(__package__) / "secrets.toml").read_text(encoding="utf-8"))["statement"]
    leads, names = "|".join(table["leads"].split()), "|".join(table["names"].split())
    mark = r"[\"'“„«`(]?\[redacted: "
    light = frozenset(word for name in ("leads", "names", "light") for word in table[name].split())
    return _SecretStatementCues(
        light=light,
        joins=re.compile(rf"[.;!?](?:\s+|$)|,\s|\n|\s(?:{'|'.join(table['joins'].split())})\s", re.IGNORECASE),
        # Right after what leads over to it or what it is called, or as what is spoken of.
        stated=re.compile(
            rf"(?:\b(?:{leads}|{names})|[:=])\s*{mark}[^\]]*\](?!@)|^\W*\[redacted: [^\]]*\]\W*\s(?:{leads})\b",
            re.IGNORECASE,
        ),
    )


class RedactingLogFilter(logging.Filter):
    """Lets every line pass, redacted, its traceback with it."""

    def filter(self, record: logging.LogRecord) -> bool:
        if redact(record.getMessage()).kinds:
            if isinstance(record.args, tuple):
                # The server's own format takes its arguments apart.
                record.args = tuple(redact(each).text if isinstance(each, str) else each for each in record.args)
            if (clean := redact(record.getMessage())).kinds:
                record.msg, record.args = clean.text, ()
        if record.exc_info and (trace := redact(logging.Formatter().formatException(record.exc_info))).kinds:
            record.exc_info, record.exc_text = None, trace.text
        return True


def install_log_filter() -> None:
    """Have all lines of this package, and of the server it runs in, redacted from now on."""
    for name in ("recollect", "uvicorn.error", "uvicorn.access"):
        log = logging.getLogger(name)
        if not any(isinstance(each, RedactingLogFilter) for each in log.filters):
            log.addFilter(RedactingLogFilter())
