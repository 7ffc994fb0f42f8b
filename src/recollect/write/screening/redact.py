"""Redact what must not be remembered: keys, passwords, numbers of cards and accounts."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from recollect.write.screening.account_numbers import account_numbers, may_hold_numbers
from recollect.write.screening.passwords import Passwords

_MARK = "[redacted: {kind}]"
# What a key goes on with, however it begins.
_REST = r"[A-Za-z0-9_.=-]{16,}+"
# A text without a word of this length holds no key.
_LONG = 16
_LETTER, _DIGIT = re.compile("[A-Za-z]"), re.compile(r"\d")
# "process.env.TOKEN_2", "my-secret-key": parts that are words or numbers are what programs call a secret.
_BETWEEN_PARTS = re.compile(r"[_./~+-]++")
_PART = re.compile(r"[A-Za-z]++\d{0,3}+|\d++|")


@dataclass(frozen=True, slots=True)
class Redacted:
    """The text with each secret replaced by its kind, and the kinds in the order they were found."""

    text: str
    found: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Rule:
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
    known = _known()
    lower = text.lower()
    fitting = known.fitting(lower)
    if not fitting and not known.passwords.named_in(lower) and not may_hold_numbers(text):
        return Redacted(text)
    found: list[str] = []
    for at in sorted(fitting):
        text = _replaced(text, known.rules[at].search(text), found)
    text = _replaced(text, known.passwords.search(text), found)
    text = _replaced(text, account_numbers(text), found)
    return Redacted(text, tuple(found))


def _replaced(text: str, secrets: Iterable[tuple[int, int, str]], found: list[str]) -> str:
    parts: list[str] = []
    last = 0
    for start, end, kind in sorted(secrets):
        if start >= last:
            parts += [text[last:start], _MARK.format(kind=kind)]
            found.append(kind)
            last = end
    return "".join([*parts, text[last:]]) if parts else text


def _whole(secret: str) -> str:
    return secret


def _mixed(secret: str) -> str:
    """The secret if it has letters and digits; else empty."""
    return secret if _LETTER.search(secret) and _DIGIT.search(secret) else ""


def _random(secret: str) -> str:
    """The secret if it is mixed and not what a program calls one; else empty."""
    secret = secret.rstrip(".")
    return "" if all(map(_PART.fullmatch, _BETWEEN_PARTS.split(secret))) else _mixed(secret)


_CHECKS: Mapping[str, Callable[[str], str]] = {"": _whole, "mixed": _mixed, "random": _random}


@dataclass(frozen=True, slots=True)
class _Known:
    """All that secrets.toml says; each hint is with the number of the rule it is of."""

    rules: tuple[_Rule, ...]
    short_hints: tuple[tuple[str, int], ...]
    long_hints: tuple[tuple[str, int], ...]
    beginnings: tuple[tuple[str, int], ...]
    any_beginning: re.Pattern[str]
    passwords: Passwords

    def fitting(self, lower: str) -> set[int]:
        """The rules that a text in lower case has hints of."""
        fitting = {at for hint, at in self.short_hints if hint in lower}
        if long := [word for word in lower.split() if len(word) >= _LONG]:
            fitting |= {at for hint, at in self.long_hints if hint in lower}
            # Most texts hold none of the many beginnings, which one look tells.
            if any(map(self.any_beginning.search, long)):
                fitting |= {at for hint, at in self.beginnings if hint in lower}
        return fitting


@cache
def _known() -> _Known:
    table = tomllib.loads((files(__package__) / "secrets.toml").read_text(encoding="utf-8"))
    by_beginning = tuple(_by_beginning(table["beginnings"]))
    rules = (*by_beginning, *map(_rule, table["rule"]))
    hints = [(hint, at) for at, rule in enumerate(rules) for hint in rule.hints]
    beginnings = tuple(each for each in hints if each[1] < len(by_beginning))
    others = hints[len(beginnings) :]
    return _Known(
        rules,
        short_hints=tuple(each for each in others if rules[each[1]].short),
        long_hints=tuple(each for each in others if not rules[each[1]].short),
        beginnings=beginnings,
        any_beginning=re.compile("|".join(re.escape(hint) for hint, _ in beginnings)),
        passwords=Passwords.of(table["password"]),
    )


def _by_beginning(table: Mapping[str, Iterable[str]]) -> Iterator[_Rule]:
    for kind, beginnings in table.items():
        longest_first = sorted(beginnings, key=len, reverse=True)
        pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, longest_first))}){_REST}")
        yield _Rule(kind, tuple(each.lower() for each in longest_first), pattern, _random)


def _rule(table: Mapping[str, Any]) -> _Rule:
    check = _CHECKS[table.get("check", "")]
    return _Rule(table["kind"], tuple(table["hints"]), re.compile(table["pattern"]), check, table.get("short", False))
