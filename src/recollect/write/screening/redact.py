"""Redact what must not be remembered: keys, passwords, numbers of cards and accounts."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from recollect.write.screening.account_numbers import find_account_numbers, may_contain_account_numbers
from recollect.write.screening.passwords import PasswordDetector

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
