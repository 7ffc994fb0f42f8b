"""Where the parts of a JSON text stand, so that one of them can change and every other letter stay."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from json.decoder import JSONDecoder, scanstring  # type: ignore[attr-defined]
from typing import Any, TypeAlias

_SPACES = ("", " ", "\t", "\n", "\r")
_SPACE = re.compile(r"[ \t\n\r]*")


def _whole(digits: str) -> int | float:
    """A whole number; one with more digits than Python takes is infinite here, and sent on as it was written."""
    try:
        return int(digits)
    except ValueError:
        return float(digits)


_decode = JSONDecoder(parse_int=_whole).raw_decode
# A piece of text that stands for an old item, by its number, or for none.
Piece: TypeAlias = tuple[int | None, str]


@dataclass(frozen=True, slots=True)
class Item:
    """A member of an object, or an element of an array, and where it and its value stand in the text."""

    start: int
    value_at: int
    end: int
    value: Any
    name: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """An object or an array: from its bracket to after the other one, and what is in it."""

    start: int
    end: int
    items: tuple[Item, ...]

    def written(self, text: str, pieces: Iterable[Piece]) -> str:
        """The pieces between the brackets; old ones that still follow each other keep what stood between them."""
        parts, fresh, expected = [text[self.start]], list[str](), 0
        for number, piece in pieces:
            if number is None:
                fresh.append(piece)
                continue
            between = self._before(text, number) if number == expected else ", "
            parts.append(between if len(parts) > 1 else self._before(text, 0))
            parts.append(", ".join([*fresh, piece]))
            fresh, expected = [], number + 1
        if fresh:
            parts.append((", " if len(parts) > 1 else "") + ", ".join(fresh))
        last = self.items[-1].end if self.items else self.start + 1
        return "".join([*parts, text[last : self.end]])

    def _before(self, text: str, number: int) -> str:
        start = self.items[number - 1].end if number else self.start + 1
        return text[start : self.items[number].start]


def object_at(text: str, at: int) -> Listed:
    """The object that starts here; a ValueError, an IndexError or a StopIteration if none does."""
    if text[at] != "{":
        raise ValueError(f"an object is expected at character {at}")
    start, items = at, list[Item]()
    at = skip(text, at + 1)
    while text[at] != "}":
        at = _past(text, at, ",") if items else at
        if text[at] != '"':
            raise ValueError(f"a name is expected at character {at}")
        name, after = scanstring(text, at + 1)
        value_at = _past(text, skip(text, after), ":")
        value, end = _decode(text, value_at)
        items.append(Item(at, value_at, end, value, name))
        at = skip(text, end)
    return Listed(start, at + 1, tuple(items))


def array_at(text: str, at: int) -> Listed:
    """The array that starts here."""
    start, items = at, list[Item]()
    at = skip(text, at + 1)
    while text[at] != "]":
        at = _past(text, at, ",") if items else at
        value, end = _decode(text, at)
        items.append(Item(at, at, end, value))
        at = skip(text, end)
    return Listed(start, at + 1, tuple(items))


def _past(text: str, at: int, mark: str) -> int:
    if text[at] != mark:
        raise ValueError(f"{mark!r} is expected at character {at}")
    return skip(text, at + 1)


def skip(text: str, at: int) -> int:
    """Where the space ends that may begin here."""
    # Mostly there is no space, or one; the pattern is for everything else.
    if text[at : at + 1] not in _SPACES:
        return at
    space = _SPACE.match(text, at)
    return space.end() if space else at
