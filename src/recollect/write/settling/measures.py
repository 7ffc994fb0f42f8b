"""Times and lengths told in words put in figures: "half past six" is 6:30, "an hour and a half" 90 minutes."""

from __future__ import annotations

from recollect.write.settling.lexicon import lexicon
from recollect.write.settling.tokens import Token

# How many of the smaller unit the larger one has.
_SMALLER = {"hour": ("minutes", 60), "year": ("months", 12), "metre": ("cm", 100)}
_UNITS = {
    **dict.fromkeys(("hour", "hours", "hr", "hrs"), "hour"),
    **dict.fromkeys(("year", "years"), "year"),
    **dict.fromkeys(("m", "metre", "metres", "meter", "meters"), "metre"),
}
_ONE = frozenset(["a", "an", "one"])
_PAST = {("half", "past"): 30, ("quarter", "past"): 15, ("quarter", "to"): -15}
_CUES = frozenset(["half", "quarter"])


def in_figures(tokens: list[Token]) -> list[Token]:
    """The words of a statement with halves and quarters of something put in figures."""
    words = [token[0] for token in tokens]
    if _CUES.isdisjoint(words) and not any("." in word and word[0].isdigit() for word in words):
        return tokens
    found: list[Token] = []
    at = 0
    while at < len(words):
        taken, figures = _told(words, at)
        found += [(figure, False, False) for figure in figures] if taken else [tokens[at]]
        at += taken or 1
    return found


def _told(words: list[str], at: int) -> tuple[int, tuple[str, ...]]:
    """How many words from here on tell a time or a measure, and that in figures."""
    ahead = [*words[at : at + 5], "", "", "", "", ""]
    past = _PAST.get((ahead[0], ahead[1]))
    if past is not None and (hour := _value(ahead[2])):
        minutes = int(hour) * 60 + past
        return 3, (f"{minutes // 60}:{minutes % 60:02}",)
    if ahead[0] == "half" and ahead[1] in _ONE and (unit := _UNITS.get(ahead[2])):
        return 3, _in_smaller(0.5, unit)
    number = 1.0 if ahead[0] in _ONE else _value(ahead[0])
    if number and ahead[1:4] == ["and", "a", "half"] and (unit := _UNITS.get(ahead[4])):
        return 5, _in_smaller(number + 0.5, unit)
    if number and (unit := _UNITS.get(ahead[1])):
        if ahead[2:5] == ["and", "a", "half"]:
            return 5, _in_smaller(number + 0.5, unit)
        if number % 1:
            return 2, _in_smaller(number, unit)
    return 0, ()


def _in_smaller(number: float, unit: str) -> tuple[str, str]:
    smaller, many = _SMALLER[unit]
    return f"{number * many:.0f}", smaller


def _value(word: str) -> float:
    if word[:1].isdigit():
        try:
            return float(word)
        except ValueError:
            return 0.0
    return float(lexicon().numbers.get(word, 0))
