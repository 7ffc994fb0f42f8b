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
_TRAILING = ".,;:!?)]}>'\"”’`*_="


@dataclass(frozen=True, slots=True)
class Passwords:
    """The words around passwords, ready to be looked for."""

    names: tuple[str, ...]
    vague_names: frozenset[str]
    short_names: frozenset[str]
    words: frozenset[str]
    says: frozenset[str]
    quoted: re.Pattern[str]
    set_to: re.Pattern[str]
    said: re.Pattern[str]
    following: re.Pattern[str]
    spaceless: re.Pattern[str]

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Passwords:
        """Made of the table `password` in secrets.toml."""
        # Of what or for what the password is may stand between: "the password for my mail is ...".
        link = rf"(?:[ \w'’()@-]|\.(?=\w)){{0,40}}?(?<!\w)(?P<link>{_any_of(table['links'])})(?!\w)\s{{0,2}}:?"
        said = rf"{_AFTER_NAME}{link}\s{{1,2}}"
        return cls(
            names=(*table["names"], *table["vague_names"], *table["short_names"]),
            vague_names=frozenset(table["vague_names"]),
            short_names=frozenset(table["short_names"]),
            words=frozenset(table["words"].split()),
            says=frozenset(table["says"]),
            quoted=re.compile(rf"(?:{_SET}|{said}|{_AFTER_NAME}\s{{1,2}}){_QUOTED}", re.IGNORECASE),
            set_to=re.compile(_SET + _BARE),
            said=re.compile(said + _BARE, re.IGNORECASE),
            following=re.compile(rf"{_AFTER_NAME}\s{{1,2}}(?:[-–]\s)?{_BARE}"),
            spaceless=re.compile(
                rf"(?:{_any_of(table['spaceless_links'])}|[:：=])[「『“\s]?(?P<secret>[!-~]{{3,80}}+)"
            ),
        )

    def named_in(self, lower: str) -> list[str]:
        """The names of passwords that a text in lower case has in it."""
        return [name for name in self.names if name in lower]

    def search(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Where passwords stand, in no order."""
        # The one letter whose small form is longer would move all that follows it.
        lower = text.replace("İ", "I").lower()
        for name in self.named_in(lower):
            at = lower.find(name)
            while at >= 0:
                at += len(name)
                if span := self._after(name, text, at):
                    yield *span, "password"
                at = lower.find(name, at)

    def _after(self, name: str, text: str, at: int) -> tuple[int, int] | None:
        """Where the password is that follows the name, which ends at `at`."""
        if name in self.short_names:
            start = at - len(name)
            if start and text[start - 1].isalnum():
                return None
            match = self.set_to.match(text, at)
            is_price = match is not None and match["secret"][0] in "$€£¥"
            return self._span(match) if match and not is_price and _is_mixed(match["secret"]) else None
        if _SPACELESS.match(name) and (match := self.spaceless.match(text, at)):
            return self._span(match)
        if match := self.quoted.match(text, at):
            return self._span(match, strip="")
        if match := self.set_to.match(text, at):
            # After a colon and a space a sentence can follow as well.
            is_set = text[match.start("secret") - 1] in "=>" or _is_strong(match) or _ends(match)
            return self._span(match) if is_set else None
        if (match := self.following.match(text, at)) and _is_mixed(match["secret"]):
            return self._span(match)
        if match := self.said.match(text, at):
            says = match["link"].lower() in self.says and name not in self.vague_names
            is_said = _is_strong(match) or (says and _ends(match))
            return self._span(match) if is_said else None
        return None

    def _span(self, match: re.Match[str], strip: str = _TRAILING) -> tuple[int, int] | None:
        secret = match["secret"].rstrip(strip) if strip else match["secret"]
        if len(secret) < 3 or secret.lower() in self.words or _PROGRAM.search(secret):
            return None
        return match.start("secret"), match.start("secret") + len(secret)


def _is_mixed(secret: str) -> bool:
    return any(map(str.isdigit, secret)) and any(map(str.isalpha, secret))


def _is_strong(match: re.Match[str]) -> bool:
    return _STRONG.search(match["secret"].rstrip(_TRAILING)) is not None


def _ends(match: re.Match[str]) -> bool:
    """Whether nothing follows the match in its clause."""
    rest = match.string[match.end() : match.end() + 2].lstrip(" ")
    return match[0][-1] in ".,;!?" or not rest or rest[0] in "\r\n"


def _any_of(texts: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))
