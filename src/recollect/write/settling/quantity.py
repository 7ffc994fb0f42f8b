"""Numbers and times of day as they are compared: 10,000 and $10k are one number, 7 pm and 19:00 one time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from recollect.write.settling.lexicon import lexicon

_NUMBER = re.compile(r"(\d(?:[\d.,:/]*\d)?)(\w*)")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_ORDINALS = frozenset(["st", "nd", "rd", "th"])
_HALVES = frozenset(["am", "pm"])
# Room 3A is not room 3B; other letters are units, as in 5m.
_LETTERS = frozenset("abde")


@dataclass(frozen=True, slots=True)
class Quantity:
    """What a word of digits says, together with the next word where that belongs to it."""

    numbers: tuple[str, ...] = ()
    time: str = ""
    unit: str = ""
    taken: int = 1


def number_in(word: str, after: str) -> Quantity:
    """The number in a word that begins with a digit; `after` is the next word."""
    found = _NUMBER.match(word)
    digits, suffix = (found[1], found[2]) if found else (word, "")
    if suffix in _HALVES or (not suffix and after in _HALVES):
        return Quantity(time=clock(digits, suffix or after), taken=1 if suffix else 2)
    if ":" in digits:
        return Quantity(time=clock(digits, ""))
    if "/" in digits:
        return Quantity(numbers=tuple(part for part in digits.split("/") if part))
    scales = lexicon().scales
    if suffix in scales:
        return Quantity(numbers=(plain_number(digits, scales[suffix]),))
    if not suffix and len(after) > 1 and after in scales:
        return Quantity(numbers=(plain_number(digits, scales[after]),), taken=2)
    if suffix in _LETTERS:
        return Quantity(numbers=(plain_number(digits, 1) + suffix,))
    return Quantity(numbers=(plain_number(digits, 1),), unit="" if suffix in _ORDINALS else suffix)


def plain_number(digits: str, scale: int) -> str:
    """A number as numbers are compared; 3.10 is not 3.1, for either may be a version."""
    plain = digits.replace(",", "") if _THOUSANDS.fullmatch(digits) else digits.replace(",", ".")
    plain = plain.removesuffix(".00")
    if scale == 1:
        return plain.lstrip("0") or "0"
    try:
        value = round(float(plain) * scale, 6)
    except ValueError:
        return f"{plain}*{scale}"
    return f"{value:.0f}" if value == int(value) else f"{value}"


def clock(digits: str, half: str) -> str:
    """A time of day in minutes, such as t420 for seven in the morning."""
    hours, _, minutes = digits.partition(":")
    if len(digits) > 5 or not (hours.isdigit() and (minutes or "0").isdigit()):
        return f"t{digits}{half}"
    hour = int(hours) % 12 + (12 if half == "pm" else 0) if half else int(hours)
    return f"t{hour * 60 + int(minutes or 0)}"


def spelt_number(words: Sequence[str]) -> tuple[str, int]:
    """The number that words begin with, such as "twelve thousand", and how many of them tell it."""
    numbers, scales = lexicon().numbers, lexicon().scales
    whole, part, room, taken = 0, 0, 1_000, 0
    for word in words:
        value = numbers.get(word)
        if value is not None and value < room:
            # After "twenty" a digit may follow, after "five" none.
            part, room = part + value, (10 if value >= 20 else 1)
        elif word == "hundred" and 0 <= part < 100:
            part, room = (part or 1) * 100, 100
        elif word in scales and len(word) > 2 and word != "hundred":
            whole, part, room = whole + (part or 1) * scales[word], 0, 1_000
        else:
            break
        taken += 1
    return str(whole + part), max(taken, 1)
