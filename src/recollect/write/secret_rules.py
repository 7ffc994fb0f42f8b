"""Find secrets that have a known form or stand in a known place: keys, headers, commands and settings.

The rules are `secrets.toml`, written for messages, and `secret_rules.json`, converted from public rule sets. A rule
is tried only on texts that contain one of its hints, since most texts contain none.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern

# The rest of a key after its prefix.
_KEY_REST = r"[A-Za-z0-9_.=-]{16,}+"
# A text without a word of this length contains no key.
_MIN_KEY_CHARS = 16
_LETTER, _DIGIT = lazy_pattern("[A-Za-z]"), lazy_pattern(r"\d")
# "process.env.TOKEN_2", "my-secret-key": names of secrets consist of words and numbers.
_BETWEEN_PARTS = lazy_pattern(r"[_./~+-]++")
_PART = lazy_pattern(r"[A-Za-z]++\d{0,3}+|\d++|")
# Placeholders and expressions in code, and masked values.
_PROGRAM = lazy_pattern(
    r"[A-Za-z_][(\[]|^[{<\[(]|[$%][{(]|^\"?\$[A-Za-z_]+[:\"]?|^https?:|^%\w+%$|^%s$|\\|^[A-Za-z_]{1,40}\.[A-Za-z_]|^[-*_.#xX•?]+$"
    r"|^\[?redacted|^(?i:your|my|the|some|user|db|new|old|hashed|plain|raw|wrong)?[_-]?(?i:password|passwd|pass|pwd|secret"
    r"|token|api[_-]?key|key)s?[\"'?;,]?$|^(?i:none|null|nil|true|false|undefined|str|string|text|required|optional|value"
    r"|hidden|changeme)[\"',;]?$"
)
_ALL_CAPS = lazy_pattern("[A-Z_]+")

Span = tuple[int, int, str]


def is_program_text(secret: str) -> bool:
    """Return whether a value is a variable, call or placeholder of a program."""
    return _PROGRAM.search(secret) is not None


@frozen_dataclass
class SecretRule:
    """A rule: the kind of secret, an expression, the group to replace, and a check that may shorten or reject it."""

    kind: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    check: Callable[[str], str]
    group: str | int = 0
    short: bool = False

    def search(self, text: str) -> Iterator[Span]:
        """Yield the spans of secrets."""
        for match in self.pattern.finditer(text):
            if secret := self.check(match[self.group] or ""):
                start = match.start(self.group)
                yield start, start + len(secret), self.kind


def _accept_any(secret: str) -> str:
    return secret


def _accept_mixed(secret: str) -> str:
    """Return the secret if it has letters and digits; else empty."""
    return secret if _LETTER.search(secret) and _DIGIT.search(secret) else ""


def _accept_random(secret: str) -> str:
    """Return the secret if it is mixed and not the name of a variable; else empty."""
    secret = secret.rstrip(".")
    return "" if all(map(_PART.fullmatch, _BETWEEN_PARTS.split(secret))) else _accept_mixed(secret)


def _accept_value(secret: str) -> str:
    """Return the secret if it is no variable, call or placeholder; else empty."""
    return "" if is_program_text(secret) or _ALL_CAPS.fullmatch(secret) else secret


def _accept_setting(secret: str) -> str:
    """Return the secret if it is a value and no plain word; else empty."""
    return "" if secret.isalpha() else _accept_value(secret)


def _accept_credentials(secret: str) -> str:
    """Return the secret if it decodes to a name and a password; else empty."""
    try:
        decoded = base64.b64decode(secret, validate=True)
    except (binascii.Error, ValueError):
        return ""
    return secret if b":" in decoded and decoded.isascii() else ""


_CHECKS: Mapping[str, Callable[[str], str]] = {
    "": _accept_any,
    "mixed": _accept_mixed,
    "random": _accept_random,
    "value": _accept_value,
    "setting": _accept_setting,
    "base64": _accept_credentials,
}


def _accept_entropy(min_bits: float) -> Callable[[str], str]:
    def check(secret: str) -> str:
        secret = _accept_random(secret)
        return secret if secret and _entropy(secret) >= min_bits else ""

    return check


def _entropy(text: str) -> float:
    """Return the Shannon entropy of the characters, in bits per character."""
    shares = [count / len(text) for count in Counter(text).values()]
    return -sum(share * math.log2(share) for share in shares)


@frozen_dataclass
class SecretRules:
    """All rules, and their numbers by hint; short hints are those of rules for texts without long words too."""

    rules: tuple[SecretRule, ...]
    by_hint: Mapping[str, Sequence[int]]
    short_hints: tuple[str, ...]
    long_hints: tuple[str, ...]
    mnemonic_words: frozenset[str]

    def matching(self, lower: str) -> list[SecretRule]:
        """Return the rules that a lower-case text has hints of."""
        hints = filter(lower.__contains__, self.short_hints)
        if max(map(len, lower.split()), default=0) >= _MIN_KEY_CHARS:
            hints = filter(lower.__contains__, (*self.short_hints, *self.long_hints))
        return [self.rules[at] for at in sorted({at for hint in hints for at in self.by_hint[hint]})]

    def find_mnemonics(self, text: str) -> Iterator[Span]:
        """Yield the spans of recovery phrases: twelve words or more of the list, also numbered or one in a line."""
        for match in _WORD_SEQUENCE.finditer(text):
            run: list[re.Match[str]] = []
            for word in [*_WORD.finditer(text, match.start(), match.end()), None]:
                if word and word[0].lower() in self.mnemonic_words:
                    run.append(word)
                else:
                    if len(run) >= _MIN_MNEMONIC_WORDS and len({each[0] for each in run}) >= _MIN_DIFFERENT_WORDS:
                        yield run[0].start(), run[-1].end(), "recovery phrase"
                    run = []

    def may_contain_mnemonic(self, lower: str) -> bool:
        """Return whether a lower-case text may have enough words of the list in sequence."""
        words = lower.split()
        if len(words) < _MIN_MNEMONIC_WORDS:
            return False
        if _MNEMONIC_RUN in bytes(map(self.mnemonic_words.__contains__, words)):
            return True
        # Numbers stand between the words, or commas after them.
        return "12" in lower or lower.count(",") >= _MIN_MNEMONIC_WORDS - 1


_WORD_SEQUENCE = lazy_pattern(r"(?<![a-zA-Z])[a-zA-Z]++(?:[\s,;]{1,3}(?:\d{1,2}[.):]?\s?)?[a-zA-Z]++){11,}+")
_WORD = lazy_pattern("[a-zA-Z]+")
_MIN_MNEMONIC_WORDS = 12
# A random phrase rarely repeats a word; "very very very ..." is no phrase.
_MIN_DIFFERENT_WORDS = 8
# Quotation marks may be attached to the first and the last word.
_MNEMONIC_RUN = b"\x01" * (_MIN_MNEMONIC_WORDS - 2)


@cache
def secret_rules() -> SecretRules:
    """Load all rules."""
    own = tomllib.loads(Path(__file__).with_name("secrets.toml").read_text(encoding="utf-8"))
    public = json.loads(Path(__file__).with_name("secret_rules.json").read_text(encoding="utf-8"))
    rules = (
        *_prefix_rules(public["prefixes"]),
        *_prefix_rules(own["prefixes"]),
        *map(_own_rule, own["rule"]),
        *map(_public_rule, public["rules"]),
    )
    short, long = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    for at, rule in enumerate(rules):
        for hint in rule.hints:
            (short if rule.short else long)[hint].append(at)
    return SecretRules(
        rules,
        by_hint={hint: (*short.get(hint, ()), *long.get(hint, ())) for hint in {*short, *long}},
        short_hints=tuple(short),
        long_hints=tuple(long),
        mnemonic_words=frozenset(public["mnemonic_words"].split()),
    )


def _prefix_rules(table: Mapping[str, Iterable[str]]) -> Iterator[SecretRule]:
    for kind, prefixes in table.items():
        longest_first = sorted(prefixes, key=len, reverse=True)
        pattern = re.compile(rf"(?<![A-Za-z0-9])(?i:{'|'.join(map(re.escape, longest_first))}){_KEY_REST}")
        yield SecretRule(kind, tuple(longest_first), pattern, _accept_random)


def _own_rule(table: Mapping[str, Any]) -> SecretRule:
    pattern = re.compile(table["pattern"])
    group = "secret" if "secret" in pattern.groupindex else 0
    check = _CHECKS[table.get("check", "")]
    return SecretRule(table["kind"], tuple(table["hints"]), pattern, check, group, table.get("short", False))


def _public_rule(table: Mapping[str, Any]) -> SecretRule:
    pattern, check = _LazyPattern(table["pattern"]), _accept_entropy(table["entropy"])
    return SecretRule(table["kind"], tuple(table["hints"]), pattern, check, table["group"])  # type: ignore[arg-type]


class _LazyPattern:
    """An expression that is compiled when it is first used: to compile all of them takes a tenth of a second."""

    __slots__ = ("_compiled", "_source")

    def __init__(self, source: str) -> None:
        self._source = source
        self._compiled: re.Pattern[str] | None = None

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        if self._compiled is None:
            self._compiled = re.compile(self._source)
        return self._compiled.finditer(text)
