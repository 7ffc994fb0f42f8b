"""Put another time in the place of one that was said: only the part that is new is said again."""

from __future__ import annotations

import re

_CLOCK = re.compile(
    r"(?:\b(?:at|um) )?\b(?:\d{1,2}:\d\d(?: ?[ap]\.?m\b\.?)?|\d{1,2} ?(?:[ap]\.?m\b\.?|uhr\b|o'clock\b)"
    r"|noon\b|midnight\b)",
    re.IGNORECASE,
)
_AT = re.compile(r"^(?:at|um) ", re.IGNORECASE)
_PREPOSITION = re.compile(r"(?:on|at|in|by|from) ", re.IGNORECASE)
_ENDS_IN_ONE = re.compile(r"\b(?:on|at|in) $", re.IGNORECASE)
_TAKES_NONE = re.compile(r"(?:tomorrow|tonight|today|next|this)\b", re.IGNORECASE)


def later(old: str, new: str) -> str:
    """The new time with what it leaves of the old: the day that a time of day is on, the time of day of a day."""
    was, now = _CLOCK.search(old), _CLOCK.search(new)
    if now and not _CLOCK.sub("", new, count=1).strip():
        if was is None:
            return f"{old} at {_AT.sub('', new)}" if old else new
        if _CLOCK.sub("", old, count=1).strip():
            return f"{old[: was.start()]}{_like(was.group(), new)}{old[was.end() :]}"
    elif was and now is None and _CLOCK.sub("", old, count=1).strip():
        return f"{new} {was.group()}"
    return new


def _like(was: str, new: str) -> str:
    """The time of day with the word before it that the old one had."""
    before = _AT.match(was)
    return f"{before.group() if before else ''}{_AT.sub('', new)}"


def bare(value: str) -> str:
    """The time without the word that leads to it."""
    return _PREPOSITION.sub("", value, count=1) if _PREPOSITION.match(value) else value


def fitting(before: str, value: str) -> str:
    """The words before a time, without a preposition that does not go with it: "on tomorrow", "on at 8 pm"."""
    found = _ENDS_IN_ONE.search(before)
    if found is None:
        return before
    if _PREPOSITION.match(value) or _TAKES_NONE.match(value):
        return before[: found.start()]
    if _CLOCK.match(value):
        return f"{before[: found.start()]}at "
    return f"{before[: found.start()]}on " if found.group().lower() == "at " else before
