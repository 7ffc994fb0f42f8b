"""Numbers in text (digits of any script, "5k", number words), and which numbers and names another text lacks."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator
from decimal import Decimal, InvalidOperation

from recollect.lazy_pattern import lazy_pattern
from recollect.text.names import capitalised_words

_WORDS = {
    word: value
    for value, words in {
        0: "zero null cero zéro nul",
        1: "one once eins eine einen uno una une um uma één een",
        2: "two twice both pair zwei dos deux due dois duas twee",
        3: "three drei tres trois tre três drie",
        4: "four vier cuatro quatre quattro quatro",
        5: "five fünf cinco cinq cinque vijf",
        6: "six sechs seis sei zes",
        7: "seven sieben siete sept sette sete zeven",
        8: "eight acht ocho huit otto oito",
        9: "nine neun nueve neuf nove negen",
        10: "ten zehn diez dix dieci dez tien",
        11: "eleven elf once onze undici",
        12: "twelve dozen zwölf doce douze dodici doze twaalf",
        13: "thirteen dreizehn trece treize tredici treze dertien",
        14: "fourteen vierzehn catorce quatorze quattordici veertien",
        15: "fifteen fünfzehn quince quinze quindici vijftien",
        16: "sixteen sechzehn dieciséis seize sedici dezesseis zestien",
        17: "seventeen siebzehn diecisiete diciassette dezessete zeventien",
        18: "eighteen achtzehn dieciocho diciotto dezoito achttien",
        19: "nineteen neunzehn diecinueve diciannove dezenove negentien",
        20: "twenty zwanzig veinte vingt venti vinte twintig",
        30: "thirty dreißig dreissig treinta trente trenta trinta dertig",
        40: "forty fourty vierzig cuarenta quarante quaranta quarenta veertig",
        50: "fifty fünfzig cincuenta cinquante cinquanta cinquenta vijftig",
        60: "sixty sechzig sesenta soixante sessanta sessenta zestig",
        70: "seventy siebzig setenta settanta zeventig",
        80: "eighty achtzig ochenta ottanta oitenta tachtig",
        90: "ninety neunzig noventa novanta negentig",
    }.items()
    for word in words.split()
}
_ORDINALS = {
    "first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9,
    "tenth": 10, "eleventh": 11, "twelfth": 12, "twentieth": 20, "thirtieth": 30,
}  # fmt: skip
_SCALES = {
    word: Decimal(scale)
    for scale, words in {
        100: "hundred hundert cien ciento cent cento cem honderd",
        1000: "k thousand tausend mil mille mila duizend grand",
        1_000_000: "m mio million millions millionen millón millones milioni milhões miljoen",
        1_000_000_000: "bn billion billions milliarde milliarden milliard mil-millones",
    }.items()
    for word in words.split()
}
_HAN = {char: value for value, char in enumerate("零一二三四五六七八九")} | {"两": 2, "〇": 0}
_HAN_SCALES = {"十": 10, "百": 100, "千": 1000, "万": 10_000, "亿": 100_000_000}
_TOKEN = lazy_pattern(r"\d+(?:[.,:'\u00a0\u202f ]\d{3}(?!\d))+(?:[.,]\d+)?|\d+(?:[.,]\d+)?|[^\W\d_]+")
_GERMAN = lazy_pattern(r"(\w+)und(\w+zig|\w+ßig)")
_ISO_DATE = lazy_pattern(r"\b(\d{4})-(\d{2})(?:-(\d{2}))?\b")


def number_values(text: str) -> set[Decimal]:
    """Return every value that a number in the text may have: "1.200" is 1.2 or 1200, "5k" is 5 or 5000."""
    return {value for _, values in find_numbers(text) for value in values}


def find_numbers(text: str) -> Iterator[tuple[str, set[Decimal]]]:
    """Yield each number of the text as written, with the values it may have."""
    folded = _decimal_digits(unicodedata.normalize("NFKC", text)).casefold()
    for run in re.findall(f"[{''.join(_HAN)}{''.join(_HAN_SCALES)}]+", folded):
        yield run, {Decimal(_han_value(run))}
    tokens = [(match[0], match.end()) for match in _TOKEN.finditer(folded)]
    at = 0
    while at < len(tokens):
        token, _ = tokens[at]
        values = _values(token)
        at += 1
        if not values:
            continue
        written = token
        while at < len(tokens) and (more := _combined(values, tokens[at][0])):
            written, values = f"{written} {tokens[at][0]}", values | more
            at += 1
        yield written, values


def without_dates(text: str) -> str:
    """Return the text without ISO dates, whose numbers are computed rather than quoted."""
    return _ISO_DATE.sub(" ", text)


def _decimal_digits(text: str) -> str:
    if text.isascii():
        return text
    return "".join(str(unicodedata.decimal(char, char)) if char.isdecimal() else char for char in text)


def _values(token: str) -> set[Decimal]:
    if token[0].isdecimal():
        return _readings(token)
    if token in _WORDS or token in _ORDINALS:
        return {Decimal(_WORDS.get(token, _ORDINALS.get(token, 0)))}
    if (compound := _GERMAN.fullmatch(token)) and compound[1] in _WORDS | {"ein": 1} and compound[2] in _WORDS:
        return {Decimal(_WORDS.get(compound[1], 1) + _WORDS[compound[2]])}
    return set()


def _readings(digits: str) -> set[Decimal]:
    """Return the values of digits with separators, which differ between countries."""
    plain = re.sub(r"[ '\u00a0\u202f:]", "", digits)
    if re.fullmatch(r"\d{1,3}([.,]\d{3})+", plain):
        forms = {re.sub("[.,]", "", plain)}
    else:
        forms = {plain.replace(",", ""), plain.replace(".", "").replace(",", "."), plain.replace(",", ".")}
    values: set[Decimal] = set()
    for form in forms:
        try:
            values.add(Decimal(form).normalize())
        except InvalidOperation:
            continue
    return values


def _combined(values: set[Decimal], word: str) -> set[Decimal]:
    """Return the values of a number that goes on with a scale ("5 thousand") or with a unit ("twenty five")."""
    if word in _SCALES:
        return {(value * _SCALES[word]).normalize() for value in values}
    unit = _WORDS.get(word)
    if unit is not None and 0 < unit < 10 and any(value % 10 == 0 and value > 0 for value in values):
        return {value + unit for value in values if value % 10 == 0 and value > 0}
    return set()


def _han_value(run: str) -> int:
    total = section = digit = 0
    for char in run:
        if char in _HAN:
            digit = digit * 10 + _HAN[char] if digit and char in _HAN else _HAN[char]
        elif (scale := _HAN_SCALES[char]) >= 10_000:
            total, section, digit = (total + section + digit) * scale, 0, 0
        else:
            section, digit = section + (digit or 1) * scale, 0
    return total + section + digit


_DATE_PARTS = lazy_pattern(r"(?<!\d)(\d{4})-(\d{2})-(\d{2})(?!\d)")
_GROUPED = lazy_pattern(r"\d{1,3}(?:[.,]\d{3})+")
_MAX_COUNT_WORD = 12
_FRACTIONS = ("half", "quarter")
_WORD = lazy_pattern(r"[^\W\d_]\w+")
_MAX_ENDING = 2
_MIN_STEM = 3


def missing_numbers(text: str, source: str) -> dict[str, set[Decimal]]:
    """Return the numbers of the text, as written and with their values, that the source does not contain."""
    source_values = number_values(source)
    missing: dict[str, set[Decimal]] = {}
    # The month of an ISO date may be a word in the other text.
    for written, values in find_numbers(_DATE_PARTS.sub(r" \1, \3, ", text)):
        if _GROUPED.fullmatch(written):
            values = {Decimal(re.sub("[.,]", "", written))}
        if _is_exact(written, values) and not values & source_values:
            missing.setdefault(written, values)
    return missing


def missing_names(text: str, source: str) -> list[str]:
    """Return the names of the text that the source does not contain, allowing for an ending such as a genitive."""
    words = {word.casefold() for word in _WORD.findall(source)}
    return [name for name in find_names(text) if not _occurs(name.casefold(), words)]


def find_names(text: str) -> list[str]:
    """Return the capitalised words that do not begin a sentence, without months and weekdays."""
    return list(dict.fromkeys(word[0] for word, opens in capitalised_words(text) if not opens))


def _is_exact(written: str, values: Collection[Decimal]) -> bool:
    if any(char.isdecimal() for char in written):
        return True
    return written not in _FRACTIONS and min(values) > _MAX_COUNT_WORD


def _occurs(name: str, words: Collection[str]) -> bool:
    return name in words or any(_differ_by_ending(name, word) for word in words)


def _differ_by_ending(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    ending = long[len(short) :]
    return len(short) >= _MIN_STEM and len(ending) <= _MAX_ENDING and ending.isalpha() and long.startswith(short)
