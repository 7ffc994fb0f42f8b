"""Numbers that pay or prove who one is: cards, bank accounts, US social security numbers.

A number of an order, a phone or a parcel can look like one. So the check digits must be right, and where they say
little, the words around must speak of a card or of social security.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

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
# How the numbers of the big issuers begin, and how many digits they have.
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
# So far before a number, and after it, the words that speak of it are looked for.
_CONTEXT_CHARS = 60
_CLAUSE_AFTER = re.compile(r"[^\n.!?\d]{0,40}+[.!?]?")


def may_contain_account_numbers(text: str) -> bool:
    """Whether there are as many digits together as the shortest of these numbers has."""
    return _DIGITS.search(text) is not None


def find_account_numbers(text: str) -> Iterator[tuple[int, int, str]]:
    """Every card, bank account and social security number in the text, by kind and then from left to right."""
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
    """How much of the candidate is a number with the right check digits; 0 when nothing is.

    The words after a number may read as its last groups, so each place where it could end is tried.
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
        # Numbers known from advertisements count too: whoever says one as theirs means it to be.
        # With hyphens the groups speak for themselves, except where the tax office gives out numbers of its own;
        # without, any nine digits would do.
        if (match[2] == "-" and area < "900") or _mentions_ssn(text, match):
            yield match.start(), match.end(), "social security number"


def _mentions_ssn(text: str, match: re.Match[str]) -> bool:
    """Whether words before the number or after it in its clause speak of social security."""
    after = _CLAUSE_AFTER.match(text, match.end())
    return bool(_SSN_WORDS.search(_text_before(text, match.start())) or (after and _SSN_WORDS.search(after[0])))
