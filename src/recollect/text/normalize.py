"""Normalised text: equal where two statements differ only in case, punctuation, spelling of numbers and units."""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal

from recollect.lazy_pattern import lazy_pattern
from recollect.text.numbers import find_numbers

_UNITS = {
    spelling: unit
    for unit, spellings in {
        "km": "kilometer kilometers kilometre kilometres kilómetros kilomètres",
        "m": "meter meters metre metres",
        "cm": "centimeter centimeters centimetre centimetres",
        "kg": "kilogram kilograms kilo kilos",
        "g": "gram grams gramm",
        "l": "liter liters litre litres",
        "h": "hour hours hr hrs",
        "min": "minute minutes mins",
        "%": "percent pct prozent",
        "€": "eur euro euros",
        "$": "usd dollar dollars bucks",
        "£": "gbp pound pounds quid",
        "am": "a.m.",
        "pm": "p.m.",
    }.items()
    for spelling in spellings.split()
}
_SIGNS = frozenset("%+$€£¥")
# A sign that belongs to its word stays ("C++", "A-", "-18", "5%"); what only ends or parts phrases goes.
_TOKEN = lazy_pattern(
    r"[+\-−]?[$€£¥]?\d[\d.,:/'-]*\d|[+\-−]?[$€£¥]?\d|[a-z]\.[a-z]\.|[\w$€£¥#@&]+(?:['’./:_-][\w#]+)*[+#%]*(?:-(?=\s|$))?|[%+$€£¥]"
)

# A longer text is no statement, and comparing its words would take long.
MAX_STATEMENT_CHARS = 8_000


def normalize(text: str) -> str:
    """Return the text for comparison; equal results mean that two statements say the same in the same words.

    A text too long for a statement is compared as it is.
    """
    if len(text) > MAX_STATEMENT_CHARS:
        return text
    folded = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    tokens: list[str] = []
    for token in _TOKEN.findall(folded):
        tokens += _spelled(token)
    return " ".join(tokens)


def _spelled(token: str) -> list[str]:
    if token in _UNITS:
        return [_UNITS[token]]
    if token in _SIGNS:
        return [token]
    currency = token[0] if token[0] in "$€£¥" else ""
    plain = token.lstrip("$€£¥")
    numbers = list(find_numbers(plain)) if plain[:1].isdigit() or plain.isalpha() else []
    if len(numbers) == 1 and numbers[0][0] == plain and plain != "once":
        value = max(numbers[0][1]) if re.fullmatch(r"\d+([.,]\d{3})+", plain) else min(numbers[0][1])
        if "." in plain or "," in plain:
            value = _decimal_reading(plain, value)
        return [f"{value.normalize():f}", *([currency] if currency else [])]
    return [plain, *([currency] if currency else [])] if currency else [token]


def _decimal_reading(plain: str, otherwise: Decimal) -> Decimal:
    if re.fullmatch(r"\d{1,3}([.,]\d{3})+", plain):
        return Decimal(re.sub("[.,]", "", plain))
    if re.fullmatch(r"\d+[.,]\d{1,2}", plain):
        return Decimal(plain.replace(",", "."))
    return otherwise
