"""Keys of statements: a small table of patterns for traits that have one value at a time, such as the city."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

MAX_KEYED_VALUE_CHARS = 60


@dataclass(frozen=True, slots=True)
class KeyedValue:
    """The key and value of a statement, and its category.

    `rest` is what the statement says beside the value, if anything: of "I live in Leeds with my partner Jo", "I live
    with my partner Jo".
    """

    key: str
    value: str
    category: str
    rest: str = ""


@dataclass(frozen=True, slots=True)
class _KeyPattern:
    key: str
    category: str
    capital: bool
    expressions: tuple[re.Pattern[str], ...]


@dataclass(frozen=True, slots=True)
class _KeyPatterns:
    patterns: tuple[_KeyPattern, ...]
    value_end: re.Pattern[str]
    rest: re.Pattern[str]
    not_value: re.Pattern[str]
    keep: re.Pattern[str]
    skip: re.Pattern[str]


def find_key(statement: str) -> KeyedValue | None:
    """Return the key and value of a statement; None if it matches no pattern."""
    table = _key_patterns()
    for pattern in table.patterns:
        for expression in pattern.expressions:
            if (match := expression.match(statement)) and (value := _clean_value(match["value"], pattern, table)):
                return KeyedValue(pattern.key, value, pattern.category, _rest(match, pattern, table))
    return None


def _rest(match: re.Match[str], pattern: _KeyPattern, table: _KeyPatterns) -> str:
    """Return the statement without the value and the preposition before it; empty if it says nothing else."""
    statement = match.string
    end = table.value_end.search(match["value"])
    if (
        end is None
        or not pattern.capital
        or not table.rest.match(statement, value_end := match.start("value") + end.start())
    ):
        return ""
    subject_and_verb, _, _ = statement[: match.start("value")].rstrip().rpartition(" ")
    return subject_and_verb + statement[value_end:]


def explicit_request(sentence: str) -> str:
    """Return the text after an explicit "remember that"; empty if the sentence has none."""
    match = _key_patterns().keep.match(sentence)
    return sentence[match.end() :].strip(" .") if match else ""


def declines_memory(text: str) -> bool:
    """Return whether the user asks not to have the message remembered."""
    return _key_patterns().skip.search(text.replace("’", "'")) is not None


def _clean_value(text: str, pattern: _KeyPattern, table: _KeyPatterns) -> str:
    end = table.value_end.search(text)
    value = (text[: end.start()] if end else text).strip(" .!,;:'\"")
    if not value or len(value) > MAX_KEYED_VALUE_CHARS or table.not_value.match(value):
        return ""
    # The name of a place or company is capitalised, or, in lower-case messages, one or two words long.
    return (
        value if not pattern.capital or value[0].isupper() or len(value.split()) <= 2 or not value.isascii() else ""
    )


@cache
def _key_patterns() -> _KeyPatterns:
    table = tomllib.loads((files(__package__) / "key_patterns.toml").read_text(encoding="utf-8"))
    lead_in = "".join(table["lead_in"].split("\n"))

    def anchored(expressions: list[str]) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(lead_in + expression, re.IGNORECASE) for expression in expressions)

    return _KeyPatterns(
        patterns=tuple(
            _KeyPattern(each["key"], each["category"], each.get("capital", False), anchored(each["match"]))
            for each in table["pattern"]
        ),
        value_end=re.compile("".join(table["value_end"].split("\n")), re.IGNORECASE),
        rest=re.compile(table["rest"], re.IGNORECASE),
        not_value=re.compile("".join(table["not_value"].split("\n")), re.IGNORECASE),
        keep=re.compile(lead_in + "(?:" + "|".join(table["keep"]["match"]) + ")", re.IGNORECASE),
        skip=re.compile("|".join(table["skip"]["search"]), re.IGNORECASE),
    )
