"""Detect card numbers, bank accounts, US social security numbers, and passwords.

Numbers of orders, phones or parcels can look alike, so check digits must be right, and where they prove little, the
words around must mention a card or social security.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_SEPARATOR = "[ \u00a0\u202f-]"
# In one piece, or in groups as they are printed: 4-4-4-4, 4-4-4-4-3, 4-6-5, 4-6-4.
_CARD = re.compile(
    rf"(?<![\w+.,/-])(?:\d{{12,19}}+|\d{{4}}({_SEPARATOR})(?:\d{{4}}\1\d{{4}}\1\d{{4}}(?:\1\d{{3}})?|\d{{6}}\1\d{{4,5}}))"
    r"(?![\w/]|[.,-]\d)"
)
_CARD_WORDS = re.compile(
    r"card|\bcc\b|visa|amex|mastercard|maestro|karte|tarjeta|carte|carta|cartão|cartao|kaart|karta|карт|卡|カード|카드",
    re.IGNORECASE,
)
_OTHER_NUMBER_WORDS = re.compile(
    r"order|track|invoice|parcel|shipment|ticket|\bref|isbn|imei|serial|\bupc|\bean\b|\bid\b|bestell|rechnung|sendung",
    re.IGNORECASE,
)
# Prefixes and lengths of the big issuers.
_ISSUER = re.compile(
    r"4\d{15}(?:\d{3})?|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}"
    r"|6(?:011|4[4-9]\d|5\d\d)\d{12}|35(?:2[89]|[3-8]\d)\d{12}|3(?:0[0-5]|[68]\d)\d{11}|62\d{14,17}"
)
_IBAN = re.compile(
    rf"(?<![A-Za-z0-9])[A-Za-z]{{2}}\d{{2}}{_SEPARATOR}?(?:[A-Za-z0-9]{{4}}{_SEPARATOR}?){{2,7}}+[A-Za-z0-9]{{0,4}}+"
)
_SSN = re.compile(r"(?<![\w.-])(\d{3})([ -]?)(\d{2})\2(\d{4})(?![\w-]|\.\d)")
_SSN_WORDS = re.compile(
    r"\bssn\b|\bitin\b|\bsocial(?:[ -](?:security|insurance|number)|['’]?s?(?= is\b| ?[:=#,.;!?]| ?$))|\bss ?#",
    re.IGNORECASE,
)
_DIGITS = re.compile(r"\d(?:[^\n\d]{0,2}\d){8}")
# How far before a number the words about it may be.
_CONTEXT_CHARS = 60
_CLAUSE_AFTER = re.compile(r"[^\n.!?\d]{0,40}+[.!?]?")


def may_contain_account_numbers(text: str) -> bool:
    """Return whether the text has as many digits together as the shortest of these numbers."""
    return _DIGITS.search(text) is not None


def find_account_numbers(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the spans of bank accounts, cards and social security numbers, by kind."""
    if not may_contain_account_numbers(text):
        return
    yield from _ibans(text)
    yield from _cards(text)
    yield from _ssns(text)


def _text_before(text: str, at: int) -> str:
    return text[max(0, at - _CONTEXT_CHARS) : at]


def _cards(text: str) -> Iterator[tuple[int, int, str]]:
    from stdnum import luhn

    for match in _CARD.finditer(text):
        digits = "".join(filter(str.isdigit, match[0]))
        before = _text_before(text, match.start())
        is_card = _CARD_WORDS.search(before) is not None
        if not is_card and (not _ISSUER.fullmatch(digits) or _OTHER_NUMBER_WORDS.search(before)):
            continue
        if len(set(digits)) > 1 and luhn.is_valid(digits):
            yield match.start(), match.end(), "card number"


def _ibans(text: str) -> Iterator[tuple[int, int, str]]:
    at = 0
    while match := _IBAN.search(text, at):
        at = match.start() + 4
        if size := _iban_size(match[0]):
            at = match.start() + size
            yield match.start(), at, "bank account"


def _iban_size(candidate: str) -> int:
    """Return the length of a valid number at the candidate's start; 0 if there is none.

    Words after a number may look like its last groups, so each possible end is tried.
    """
    from stdnum import iban

    digits = [int(character, 36) if character.isalnum() else -1 for character in candidate.upper()]
    lead = ((digits[0] * 100 + digits[1]) * 100 + digits[2] * 10 + digits[3]) % 97
    rest, size = 0, 0
    for at, digit in enumerate(digits[4:], start=4):
        if digit < 0:
            continue
        rest = (rest * (100 if digit > 9 else 10) + digit) % 97
        ends = at + 1 == len(digits) or digits[at + 1] < 0
        if ends and (rest * 1_000_000 + lead) % 97 == 1:
            number = "".join(filter(str.isalnum, candidate[: at + 1]))
            if iban.is_valid(number, check_country=False):
                size = at + 1
    return size


def _ssns(text: str) -> Iterator[tuple[int, int, str]]:
    for match in _SSN.finditer(text):
        area, group, serial = match[1], match[3], match[4]
        if area in ("000", "666") or group == "00" or serial == "0000":
            continue
        # Groups with hyphens are enough, except for numbers of the tax office; other digits need words about them.
        if (match[2] == "-" and area < "900") or _mentions_ssn(text, match):
            yield match.start(), match.end(), "social security number"


def _mentions_ssn(text: str, match: re.Match[str]) -> bool:
    """Return whether words before the number, or after it in its clause, mention social security."""
    after = _CLAUSE_AFTER.match(text, match.end())
    return bool(_SSN_WORDS.search(_text_before(text, match.start())) or (after and _SSN_WORDS.search(after[0])))


_BARE = r"(?!\[redacted)(?P<secret>[^\s\"'“”„«»`]{3,80}+)"
_QUOTED = r"""["'“„«`](?!\[redacted)(?P<secret>[^\n"'“”„«»`]{3,80}+)["'”“»`]"""
# After the name: the end of a quoted key or of an index in code.
_AFTER_NAME = r"(?![\w-]| (?i:manager|generator|app|vault|policy|hint)\b)[\"'\]]{0,2}"
_SET = rf"{_AFTER_NAME}\s{{0,2}}(?::=|=>|->|[=:：])\s{{0,2}}"
_SPACELESS = re.compile("[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")
# Placeholders and expressions in code, and masked values.
_PROGRAM = re.compile(
    r"[A-Za-z_][(\[]|^[{<\[(]|[$%][{(]|^\$[A-Za-z_]+$|^%\w+%$|^%s$|\\|^[A-Za-z_]{1,40}\.[A-Za-z_]|^[-*_.#xX•]+$"
)
# A digit, a sign after a letter, or an inner capital: not a normal word.
_STRONG = re.compile(r"\d|[^\W\d_][!@#$%^&*+=?_~]|[a-z][A-Z]")
_TRAILING = ".,;:?)]}>'\"”’`*_="
# Many passwords end with it.
_EXCLAMATION = "!"
# Endings of words about a password rather than in one.
_INFLECTED = re.compile("(?:ing|ed|ly|est|able)$")
# How far before its name a password may be, and its minimum length there.
_BEFORE_CHARS = 130
_MIN_BEFORE_CHARS = 6
_CLAUSE_END = r"\s*(?:[.,;:!?)\"'”’\n]|$)"


class PasswordDetector:
    """Finds passwords by the words around them, which are the table `password` of secrets.toml."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        # Words may stand between name and link: "the password for my mail is ...".
        link = rf"(?:[ \w'’()@-]|\.(?=\w)){{0,40}}?(?<!\w)(?P<link>{_any_of(table['links'])})(?!\w)\s{{0,2}}:?"
        stated = rf"{_AFTER_NAME}{link}\s{{1,2}}(?P<filler>(?:{_any_of(table['fillers'])})\s)?"
        owners = rf"(?:(?:{_any_of(table['owners'])})\s)?(?:[^\W\d]+\s){{0,2}}?"
        words, no_phrase, in_phrases = (table[name].split() for name in ("words", "no_phrase", "in_phrases"))
        self.names = (*table["names"], *table["vague_names"], *table["short_names"])
        self._vague_names = frozenset(table["vague_names"])
        self._short_names = frozenset(table["short_names"])
        self._words = frozenset(words)
        self._copulas = frozenset(table["says"])
        self._no_phrase = frozenset([*words, *no_phrase]) - set(in_phrases)
        self._phrase_names = frozenset(table["phrase_names"])
        self._spoken_names = frozenset(table["said_names"])
        self.quoted = re.compile(rf"(?:{_SET}|{stated}|{_AFTER_NAME}\s{{1,2}}){_QUOTED}", re.IGNORECASE)
        self.set_to = re.compile(_SET + _BARE)
        self.stated = re.compile(stated + _BARE, re.IGNORECASE)
        self.following = re.compile(rf"{_AFTER_NAME}(?:['’]s)?\s{{1,2}}(?:[-–]\s)?{_BARE}")
        self.spaceless = re.compile(
            rf"(?:{_any_of(table['spaceless_links'])}|[:：=])[「『“\s]?(?P<secret>[!-~]{{3,80}}+)"
        )
        # "... is my password", "I use ... as the wifi password".
        self.before = re.compile(
            rf"(?:^|[\s\"'“„(]){_BARE}[\"'”“]?\s(?:{_any_of(table['before_links'])})\s{owners}$", re.IGNORECASE
        )
        self.ends_name = re.compile(rf"{_CLAUSE_END}|\s(?:{_any_of(table['after_name'])})\b", re.IGNORECASE)
        self.phrase = re.compile(
            rf"(?:{_SET}|{stated})(?P<secret>[a-z]{{3,12}}+(?:[ -][a-z]{{3,12}}+){{2,7}}+)(?={_CLAUSE_END})",
            re.IGNORECASE,
        )

    def names_in(self, lower: str) -> list[str]:
        """Return the names of passwords in a lower-case text."""
        return [name for name in self.names if name in lower]

    def search(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield the spans of passwords, in no order."""
        # Its lower-case form is longer, which would shift all positions after it.
        lower = text.replace("İ", "I").lower()
        for name in self.names_in(lower):
            at = lower.find(name)
            while at >= 0:
                at += len(name)
                if span := self._after(name, text, at) or self._before(name, text, at):
                    yield *span, "password"
                at = lower.find(name, at)

    def _after(self, name: str, text: str, at: int) -> tuple[int, int] | None:
        """Return the span of the password after a name that ends at `at`."""
        if name in self._short_names:
            start = at - len(name)
            if start and text[start - 1].isalnum():
                return None
            match = self.set_to.match(text, at)
            if match is None and name in self._spoken_names:
                match = self.stated.match(text, at)
            is_price = match is not None and match["secret"][0] in "$€£¥"
            return self._span(match) if match and not is_price and _is_mixed(match["secret"]) else None
        if _SPACELESS.match(name) and (match := self.spaceless.match(text, at)):
            return self._span(match)
        if match := self.quoted.match(text, at):
            return self._span(match, strip="")
        if name in self._phrase_names and (match := self.phrase.match(text, at)) and self._is_phrase(name, match):
            return match.span("secret")
        if match := self.set_to.match(text, at):
            # A sentence may follow a colon and a space.
            is_set = text[match.start("secret") - 1] in "=>" or _is_strong(match) or _ends(match)
            return self._span(match) if is_set else None
        if (match := self.following.match(text, at)) and _is_mixed(match["secret"]):
            return self._span(match)
        if match := self.stated.match(text, at):
            is_copula = (
                match["link"].lower() in self._copulas and name not in self._vague_names and not match["filler"]
            )
            is_stated = _is_strong(match) or (is_copula and _ends(match))
            return self._span(match) if is_stated else None
        return None

    def _before(self, name: str, text: str, at: int) -> tuple[int, int] | None:
        """Return the span of the password before a name that ends at `at`."""
        if (name in self._short_names and name not in self._spoken_names) or not self.ends_name.match(text, at):
            return None
        start = max(0, at - len(name) - _BEFORE_CHARS)
        match = self.before.search(text[start : at - len(name)])
        if match is None or len(match["secret"]) < _MIN_BEFORE_CHARS or not _is_mixed(match["secret"]):
            return None
        span = self._span(match)
        return None if span is None else (span[0] + start, span[1] + start)

    def _is_phrase(self, name: str, match: re.Match[str]) -> bool:
        """Return whether the words after a name are a passphrase, and no sentence."""
        words = match["secret"].lower().replace("-", " ").split()
        min_words = 3 if "phrase" in name else 4
        return len(words) >= min_words and not any(
            word in self._no_phrase or _INFLECTED.search(word) for word in words
        )

    def _span(self, match: re.Match[str], strip: str = _TRAILING) -> tuple[int, int] | None:
        secret = match["secret"].rstrip(strip) if strip else match["secret"]
        plain = secret.rstrip(strip + _EXCLAMATION) if strip else secret
        if len(plain) < 3 or plain.lower() in self._words or _PROGRAM.search(secret):
            return None
        return match.start("secret"), match.start("secret") + len(secret)


def _is_mixed(secret: str) -> bool:
    return any(map(str.isdigit, secret)) and any(map(str.isalpha, secret))


def _is_strong(match: re.Match[str]) -> bool:
    return _STRONG.search(match["secret"].rstrip(_TRAILING + _EXCLAMATION)) is not None


def _ends(match: re.Match[str]) -> bool:
    """Return whether the clause ends with the match."""
    rest = match.string[match.end() : match.end() + 2].lstrip(" ")
    return match[0][-1] in ".,;!?" or not rest or rest[0] in "\r\n"


def _any_of(texts: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))
