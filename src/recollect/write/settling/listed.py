"""Statements that list several things: who takes back one of them still holds the others."""

from __future__ import annotations

import re

from recollect.write.settling.reader import read

_BETWEEN = re.compile(r",? (?:and|or) |, ")
_DENIES = re.compile(r"\b(?:no longer|not) ")
_MOST_ITEM_WORDS = 3
# What hangs on another thing is no item of a list.
_HANGS = frozenset(
    "of in on at to for by with as from near about into since during because who which that when if but".split()
)


def without(old: str, denial: str) -> str:
    """The old statement without the one listed thing that is denied; empty unless it is plainly a list of such.

    "User is allergic to nuts and eggs" without "User is no longer allergic to eggs" is "User is allergic to nuts".
    """
    denied, told = _DENIES.sub("", denial, count=1).split(), old.split()
    shared = 0
    while shared < min(len(denied), len(told)) and denied[shared].casefold() == told[shared].casefold():
        shared += 1
    item = " ".join(denied[shared:]).rstrip(".")
    head, items = told[:shared], _items(" ".join(told[shared:]).rstrip("."))
    if not item:
        # The first of them is the one: "User likes tea and coffee", "User no longer likes tea".
        head, items, item = _first_denied(told, denied)
    left = [each for each in items if each.casefold() != item.casefold()]
    if len(head) < 2 or len(left) != len(items) - 1 or not left or any(_is_more(each) for each in items):
        return ""
    return " ".join([*head, _joined(left)])


def holds_more(value: str, denial: str) -> bool:
    """Whether a value lists things of which the denial names some, but not all."""
    if not _BETWEEN.search(value):
        return False
    listed, named = read(value).words, read(denial).words
    return bool(listed & named) and not listed <= named


def _first_denied(told: list[str], denied: list[str]) -> tuple[list[str], list[str], str]:
    for size in range(1, _MOST_ITEM_WORDS + 1):
        head, items = told[: len(denied) - size], _items(" ".join(told[len(denied) - size :]).rstrip("."))
        item = " ".join(denied[len(denied) - size :]).rstrip(".")
        if len(items) > 1 and items[0].casefold() == item.casefold():
            return head, items, item
    return [], [], ""


def _items(text: str) -> list[str]:
    return [each.strip() for each in _BETWEEN.split(text) if each.strip()]


def _is_more(item: str) -> bool:
    words = item.casefold().split()
    return len(words) > _MOST_ITEM_WORDS or not _HANGS.isdisjoint(words)


def _joined(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
