"""Passwords in what people write: "my password is ...", "pwd=...", "Passwort: ...".

A password has no form of its own. It is told by its name, by what leads over to it, and by not being one of the words
that people say about passwords.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_BARE = r"(?!\[redacted)(?P<secret>[^\s\"'“”„«»`]{3,80}+)"
_QUOTED = r"""["'“„«`](?!\[redacted)(?P<secret>[^\n"'“”„«»`]{3,80}+)["'”“»`]"""
# After the name: the rest of a quoted key in JSON or of an index in a program.
_AFTER_NAME = r"(?![\w-]| (?i:manager|generator|app|vault|policy|hint)\b)[\"'\]]{0,2}"
_SET = rf"{_AFTER_NAME}\s{{0,2}}(?::=|=>|->|[=:：])\s{{0,2}}"
_SPACELESS = re.compile("[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")
# What stands for a value in a program, and what hides one.
_PROGRAM = re.compile(
    r"[A-Za-z_][(\[]|^[{<\[(]|[$%][{(]|^\$[A-Za-z_]+$|^%\w+%$|^%s$|\\|^[A-Za-z_]{1,40}\.[A-Za-z_]|^[-*_.#xX•]+$"
)
# A digit, a sign after a letter, a capital within: no word of a sentence.
_STRONG = re.compile(r"\d|[^\W\d_][!@#$%^&*+=?_~]|[a-z][A-Z]")
_TRAILING = ".,;:?)]}>'\"”’`*_="
# Many passwords end in it, so it goes with them; no word does.
_EXCLAMATION = "!"
# What is said of a password, rather than put into one.
_INFLECTED = re.compile("(?:ing|ed|ly|est|able)$")
# How far before its name a password can stand, and how long it must be to be no name of a thing.
_BEFORE_CHARS = 130
_MIN_BEFORE_CHARS = 6
_CLAUSE_END = r"\s*(?:[.,;:!?)\"'”’\n]|$)"


@dataclass(frozen=True, slots=True)
class PasswordDetector:
    """The words around passwords, ready to be looked for."""

    names: tuple[str, ...]
    vague_names: frozenset[str]
    short_names: frozenset[str]
    words: frozenset[str]
    copulas: frozenset[str]
    no_phrase: frozenset[str]
    phrase_names: frozenset[str]
    spoken_names: frozenset[str]
    quoted: re.Pattern[str]
    set_to: re.Pattern[str]
    stated: re.Pattern[str]
    following: re.Pattern[str]
    spaceless: re.Pattern[str]
    before: re.Pattern[str]
    ends_name: re.Pattern[str]
    phrase: re.Pattern[str]

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> PasswordDetector:
        """Made of the table `password` in secrets.toml."""
        # Of what or for what the password is may stand between: "the password for my mail is ...".
        link = rf"(?:[ \w'’()@-]|\.(?=\w)){{0,40}}?(?<!\w)(?P<link>{_any_of(table['links'])})(?!\w)\s{{0,2}}:?"
        stated = rf"{_AFTER_NAME}{link}\s{{1,2}}(?P<filler>(?:{_any_of(table['fillers'])})\s)?"
        owners = rf"(?:(?:{_any_of(table['owners'])})\s)?(?:[^\W\d]+\s){{0,2}}?"
        return cls(
            names=(*table["names"], *table["vague_names"], *table["short_names"]),
            vague_names=frozenset(table["vague_names"]),
            short_names=frozenset(table["short_names"]),
            words=frozenset(table["words"].split()),
            copulas=frozenset(table["says"]),
            no_phrase=frozenset(f"{table['words']} {table['no_phrase']}".split()) - set(table["in_phrases"].split()),
            phrase_names=frozenset(table["phrase_names"]),
            spoken_names=frozenset(table["said_names"]),
            quoted=re.compile(rf"(?:{_SET}|{stated}|{_AFTER_NAME}\s{{1,2}}){_QUOTED}", re.IGNORECASE),
            set_to=re.compile(_SET + _BARE),
            stated=re.compile(stated + _BARE, re.IGNORECASE),
            following=re.compile(rf"{_AFTER_NAME}(?:['’]s)?\s{{1,2}}(?:[-–]\s)?{_BARE}"),
            spaceless=re.compile(
                rf"(?:{_any_of(table['spaceless_links'])}|[:：=])[「『“\s]?(?P<secret>[!-~]{{3,80}}+)"
            ),
            # "... is my password", "I use ... as the wifi password".
            before=re.compile(
                rf"(?:^|[\s\"'“„(]){_BARE}[\"'”“]?\s(?:{_any_of(table['before_links'])})\s{owners}$", re.IGNORECASE
            ),
            ends_name=re.compile(rf"{_CLAUSE_END}|\s(?:{_any_of(table['after_name'])})\b", re.IGNORECASE),
            phrase=re.compile(
                rf"(?:{_SET}|{stated})(?P<secret>[a-z]{{3,12}}+(?:[ -][a-z]{{3,12}}+){{2,7}}+)(?={_CLAUSE_END})",
                re.IGNORECASE,
            ),
        )

    def names_in(self, lower: str) -> list[str]:
        """The names of passwords that a text in lower case has in it."""
        return [name for name in self.names if name in lower]

    def search(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Where passwords stand, in no order."""
        # The one letter whose small form is longer would move all that follows it.
        lower = text.replace("İ", "I").lower()
        for name in self.names_in(lower):
            at = lower.find(name)
            while at >= 0:
                at += len(name)
                if span := self._after(name, text, at) or self._before(name, text, at):
                    yield *span, "password"
                at = lower.find(name, at)

    def _after(self, name: str, text: str, at: int) -> tuple[int, int] | None:
        """Where the password is that follows the name, which ends at `at`."""
        if name in self.short_names:
            start = at - len(name)
            if start and text[start - 1].isalnum():
                return None
            match = self.set_to.match(text, at)
            if match is None and name in self.spoken_names:
                match = self.stated.match(text, at)
            is_price = match is not None and match["secret"][0] in "$€£¥"
            return self._span(match) if match and not is_price and _is_mixed(match["secret"]) else None
        if _SPACELESS.match(name) and (match := self.spaceless.match(text, at)):
            return self._span(match)
        if match := self.quoted.match(text, at):
            return self._span(match, strip="")
        if name in self.phrase_names and (match := self.phrase.match(text, at)) and self._is_phrase(name, match):
            return match.span("secret")
        if match := self.set_to.match(text, at):
            # After a colon and a space a sentence can follow as well.
            is_set = text[match.start("secret") - 1] in "=>" or _is_strong(match) or _ends(match)
            return self._span(match) if is_set else None
        if (match := self.following.match(text, at)) and _is_mixed(match["secret"]):
            return self._span(match)
        if match := self.stated.match(text, at):
            is_copula = match["link"].lower() in self.copulas and name not in self.vague_names and not match["filler"]
            is_stated = _is_strong(match) or (is_copula and _ends(match))
            return self._span(match) if is_stated else None
        return None

    def _before(self, name: str, text: str, at: int) -> tuple[int, int] | None:
        """Where the password is of which it says that it is one; `at` is where its name ends."""
        if (name in self.short_names and name not in self.spoken_names) or not self.ends_name.match(text, at):
            return None
        start = max(0, at - len(name) - _BEFORE_CHARS)
        match = self.before.search(text[start : at - len(name)])
        if match is None or len(match["secret"]) < _MIN_BEFORE_CHARS or not _is_mixed(match["secret"]):
            return None
        span = self._span(match)
        return None if span is None else (span[0] + start, span[1] + start)

    def _is_phrase(self, name: str, match: re.Match[str]) -> bool:
        """Whether the words after a name are a password of several words, and no sentence about it."""
        words = match["secret"].lower().replace("-", " ").split()
        min_words = 3 if "phrase" in name else 4
        return len(words) >= min_words and not any(
            word in self.no_phrase or _INFLECTED.search(word) for word in words
        )

    def _span(self, match: re.Match[str], strip: str = _TRAILING) -> tuple[int, int] | None:
        secret = match["secret"].rstrip(strip) if strip else match["secret"]
        plain = secret.rstrip(strip + _EXCLAMATION) if strip else secret
        if len(plain) < 3 or plain.lower() in self.words or _PROGRAM.search(secret):
            return None
        return match.start("secret"), match.start("secret") + len(secret)


def _is_mixed(secret: str) -> bool:
    return any(map(str.isdigit, secret)) and any(map(str.isalpha, secret))


def _is_strong(match: re.Match[str]) -> bool:
    return _STRONG.search(match["secret"].rstrip(_TRAILING + _EXCLAMATION)) is not None


def _ends(match: re.Match[str]) -> bool:
    """Whether nothing follows the match in its clause."""
    rest = match.string[match.end() : match.end() + 2].lstrip(" ")
    return match[0][-1] in ".,;!?" or not rest or rest[0] in "\r\n"


def _any_of(texts: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))
