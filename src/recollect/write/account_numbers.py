"""Detect card numbers, bank accounts and US social security numbers.

Numbers of orders, phones or parcels can look alike, so check digits must be right, and where they prove little, the
words around must mention a card or social security.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from recollect.lazy_pattern import lazy_pattern

_SEPARATOR = "[ \u00a0\u2009\u202f\u2010-\u2015\u00b7\u2022._/-]"
# In one piece, or in groups as they are printed: 4-4-4-4, 4-4-4-4-3, 4-6-5, 4-6-4.
_CARD = lazy_pattern(
    rf"(?<![\w+.,/-])(?:\d{{12,19}}+|\d{{4}}{_SEPARATOR}{{1,2}}"
    rf"(?:\d{{4}}{_SEPARATOR}{{1,2}}\d{{4}}{_SEPARATOR}{{1,2}}\d{{4}}(?:{_SEPARATOR}\d{{3}})?|\d{{6}}{_SEPARATOR}\d{{4,5}}))"
    r"(?![\w/]|[.,-]\d)"
)
# In any groups, if words about a card are before it.
_GROUPED_CARD = lazy_pattern(rf"(?<![\w+])\d(?:(?:,|{_SEPARATOR}{{0,2}})\d){{11,18}}+(?![\w])")
_CARD_WORDS = lazy_pattern(
    r"card|\bcc\b|visa|amex|mastercard|maestro|karte|tarjeta|carte|carta|cartão|cartao|kaart|karta|карт|卡|カード|카드",
    re.IGNORECASE,
)
_OTHER_NUMBER_WORDS = lazy_pattern(
    r"order|track|invoice|parcel|shipment|ticket|\bref|isbn|imei|serial|\bupc|\bean\b|\bid\b|bestell|rechnung|sendung",
    re.IGNORECASE,
)
# Prefixes and lengths of the big issuers.
_ISSUER = lazy_pattern(
    r"4\d{15}(?:\d{3})?|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}"
    r"|6(?:011|4[4-9]\d|5\d\d)\d{12}|35(?:2[89]|[3-8]\d)\d{12}|3(?:0[0-5]|[68]\d)\d{11}|62\d{14,17}"
)
_IBAN = lazy_pattern(
    rf"(?<![A-Za-z0-9])[A-Za-z]{{2}}\d{{2}}{_SEPARATOR}?(?:[A-Za-z0-9]{{4}}{_SEPARATOR}?){{2,7}}+[A-Za-z0-9]{{0,4}}+"
)
_SSN = lazy_pattern(r"(?<![\w.-])(\d{3})([ -]?)(\d{2})\2(\d{4})(?![\w-]|\.\d)")
_SSN_WORDS = lazy_pattern(
    r"\bssn\b|\bitin\b|\bsocial(?:[ -](?:security|insurance|number)|['’]?s?(?= is\b| ?[:=#,.;!?]| ?$))|\bss ?#",
    re.IGNORECASE,
)
# Full-width forms of ASCII characters, and the wide space.
_WIDE = {0xFF01 + at: 0x21 + at for at in range(94)} | {0x3000: 0x20}
_DIGITS = lazy_pattern(r"\d(?:[^\n\d]{0,2}\d){8}")
# How far before a number the words about it may be.
_CONTEXT_CHARS = 60
_CLAUSE_AFTER = lazy_pattern(r"[^\n.!?\d]{0,40}+[.!?]?")


def may_contain_account_numbers(text: str) -> bool:
    """Return whether the text has as many digits together as the shortest of these numbers."""
    return _DIGITS.search(text) is not None


def find_account_numbers(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the spans of bank accounts, cards and social security numbers, by kind."""
    if not may_contain_account_numbers(text):
        return
    text = _to_ascii(text)
    yield from _ibans(text)
    yield from _cards(text)
    yield from _ssns(text)


def _to_ascii(text: str) -> str:
    """Return the text with full-width characters and digits of all scripts in ASCII, each in its place."""
    if text.isascii():
        return text
    return "".join(str(unicodedata.decimal(each)) if each.isdecimal() else each for each in text.translate(_WIDE))


def _text_before(text: str, at: int) -> str:
    return text[max(0, at - _CONTEXT_CHARS) : at]


def _cards(text: str) -> Iterator[tuple[int, int, str]]:
    from stdnum import luhn

    for pattern in (_CARD, _GROUPED_CARD):
        for match in pattern.finditer(text):
            digits = "".join(filter(str.isdigit, match[0]))
            before = _text_before(text, match.start())
            is_issued, is_card = _ISSUER.fullmatch(digits) is not None, _CARD_WORDS.search(before) is not None
            if pattern is _GROUPED_CARD:
                is_likely = is_issued and is_card
            else:
                is_likely = is_card or (is_issued and not _OTHER_NUMBER_WORDS.search(before))
            if is_likely and len(set(digits)) > 1 and luhn.is_valid(digits):
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
