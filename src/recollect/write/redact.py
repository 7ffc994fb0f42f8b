"""Redact secrets: keys, passwords, and numbers of cards and accounts."""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias, TypeVar

from recollect.aio.erasable_cache import erasable_cache
from recollect.aio.slices import run_at_once, run_in_slices
from recollect.errors import InvalidInput
from recollect.model.change import Author
from recollect.model.memory import Category, MemoryRecord
from recollect.model.text import normalise_invisible, repair_text
from recollect.write.operations import ExtractedFact
from recollect.write.secret_detectors import PasswordDetector, find_account_numbers, may_contain_account_numbers

T = TypeVar("T")
_Steps: TypeAlias = Generator[None, None, T]
_MARK_FORMAT = "[redacted: {kind}]"
# The rest of a key after its prefix.
_KEY_REST = r"[A-Za-z0-9_.=-]{16,}+"
# A text without a word of this length contains no key.
_MIN_KEY_CHARS = 16
_WHITESPACE = re.compile(r"\s")
_LETTER, _DIGIT = re.compile("[A-Za-z]"), re.compile(r"\d")
# "process.env.TOKEN_2", "my-secret-key": names of secrets consist of words and numbers.
_BETWEEN_PARTS = re.compile(r"[_./~+-]++")
_PART = re.compile(r"[A-Za-z]++\d{0,3}+|\d++|")


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text with each secret replaced by its kind, and the kinds in order."""

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
        redacted = _redact_piece(normalise(text))
        return redacted if redacted.kinds else Redacted(text)
    parts, kinds, start, size = list[str](), list[str](), 0, _PIECE_CHARS
    while start < len(text):
        piece = text[start : start + size]
        plain = normalise(piece)
        redacted = _redact_piece(plain)
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


def _redact_piece(text: str) -> Redacted:
    """Return a text without secrets.

    Secrets with a known form are replaced first, since their kind is more specific than the name before them.
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
    """Return the secret if it has letters and digits; else empty."""
    return secret if _LETTER.search(secret) and _DIGIT.search(secret) else ""


def _accept_random(secret: str) -> str:
    """Return the secret if it is mixed and not the name of a variable; else empty."""
    secret = secret.rstrip(".")
    return "" if all(map(_PART.fullmatch, _BETWEEN_PARTS.split(secret))) else _accept_mixed(secret)


_CHECKS: Mapping[str, Callable[[str], str]] = {"": _accept_any, "mixed": _accept_mixed, "random": _accept_random}


@dataclass(frozen=True, slots=True)
class _SecretPatterns:
    """Compiled secrets.toml; each hint has the number of its rule."""

    rules: tuple[_SecretRule, ...]
    short_hints: tuple[tuple[str, int], ...]
    long_hints: tuple[tuple[str, int], ...]
    prefixes: tuple[tuple[str, int], ...]
    any_prefix: re.Pattern[str]
    passwords: PasswordDetector

    def matching_rules(self, lower: str) -> set[int]:
        """Return the rules that a lower-case text has hints of."""
        fitting = {at for hint, at in self.short_hints if hint in lower}
        if long := [word for word in lower.split() if len(word) >= _MIN_KEY_CHARS]:
            fitting |= {at for hint, at in self.long_hints if hint in lower}
            # One search excludes all prefixes for most texts.
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
        passwords=PasswordDetector(table["password"]),
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


# The fields of a memory that may contain secrets.
_REDACTED_FIELDS = ("content", "key", "value", "source", "tags", "metadata", "detail")
# Too short for a secret that is recognised by its form.
_PLAIN_WORD = re.compile("(?!cv)[a-z0-9_-]{0,8}|[a-z_-]{0,15}", re.IGNORECASE)
# The key of a cache or a map is no secret; an access key is.
_ACCESS_KEY_NAME = re.compile("api|access|secret|private|auth|sign|encrypt|licen[cs]e", re.IGNORECASE)
# Samples of secrets that are recognised only by their name: password, PIN, social security and card number.
_SAMPLE_SECRETS = ("x7Kq2pL9vW3nR8tZ", "4821", "457555462", "630427373398")
_MIN_NUMBER = 10**8


@dataclass(frozen=True, slots=True)
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

    def redact_author(self, by: Author) -> Author:
        """Redact the reason of an author."""
        return replace(by, why=run_at_once(_redact_normalized(by.why)).text) if by.why and self.memories else by


def _redact_fields(fields: Mapping[str, Any], key: str | None) -> _Steps[tuple[dict[str, Any], tuple[str, ...]]]:
    values = {name: fields[name] for name in _REDACTED_FIELDS if fields.get(name)}
    names = {"value": fields.get("key") or key or ""}
    kinds: list[str] = []
    clean: dict[str, Any] = {}
    try:
        for name, value in values.items():
            clean[name] = yield from _redact_value(value, kinds, name=names.get(name, ""))
    except RecursionError:
        raise InvalidInput("`metadata` and `detail` are nested too deeply; make them flatter") from None
    return ({**fields, **clean}, tuple(dict.fromkeys(kinds))) if kinds else (dict(fields), ())


def _redact_normalized(text: str) -> _Steps[Redacted]:
    """Redact a text, also secrets that invisible characters split; a text without secrets is unchanged."""
    return _redact_steps(text, normalise_invisible)


def _redact_value(value: Any, kinds: list[str], *, name: str = "") -> _Steps[Any]:
    match value:
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


_MARK_PATTERN = re.compile(r"\[redacted: [^\]\n]{1,40}\]")
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
# The minimum words of a clause that states more than a secret: without a secret in it, and with one.
_MIN_WORDS = 3
_MIN_CONTENT_WORDS = 2


@dataclass(frozen=True, slots=True)
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
    table = tomllib.loads((files(__package__) / "secrets.toml").read_text(encoding="utf-8"))["statement"]
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
