"""Positions of the parts of a JSON text, so that one part can be replaced and every other byte stays."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from json.decoder import JSONDecoder, scanstring  # type: ignore[attr-defined]
from typing import Any, TypeAlias

_NO_OR_ONE_SPACE = ("", " ", "\t", "\n", "\r")
_SPACE = re.compile(r"[ \t\n\r]*")


def _parse_int(digits: str) -> int | float:
    """Parse an integer; one with more digits than Python accepts is infinite here, and forwarded as written."""
    try:
        return int(digits)
    except ValueError:
        return float(digits)


_decode = JSONDecoder(parse_int=_parse_int).raw_decode
# The text of an item: an existing one with its number, or a new one with None.
JsonPiece: TypeAlias = tuple[int | None, str]


@dataclass(frozen=True, slots=True)
class JsonItem:
    """A member of an object or an element of an array, with the positions of it and of its value."""

    start: int
    value_start: int
    end: int
    value: Any
    name: str = ""


@dataclass(frozen=True, slots=True)
class JsonContainer:
    """An object or an array with its items; `end` is the position after the closing bracket."""

    start: int
    end: int
    items: tuple[JsonItem, ...]

    def render(self, text: str, pieces: Iterable[JsonPiece]) -> str:
        """Return the container with these pieces; existing items that stay adjacent keep the text between them."""
        parts, inserted, expected = [text[self.start]], list[str](), 0
        for number, piece in pieces:
            if number is None:
                inserted.append(piece)
                continue
            between = self._text_before(text, number) if number == expected else ", "
            parts.append(between if len(parts) > 1 else self._text_before(text, 0))
            parts.append(", ".join([*inserted, piece]))
            inserted, expected = [], number + 1
        if inserted:
            parts.append((", " if len(parts) > 1 else "") + ", ".join(inserted))
        last = self.items[-1].end if self.items else self.start + 1
        return "".join([*parts, text[last : self.end]])

    def _text_before(self, text: str, number: int) -> str:
        start = self.items[number - 1].end if number else self.start + 1
        return text[start : self.items[number].start]


def parse_object(text: str, at: int) -> JsonContainer:
    """Parse the object that starts here; ValueError, IndexError or StopIteration if none does."""
    if text[at] != "{":
        raise ValueError(f"an object is expected at character {at}")
    start, items = at, list[JsonItem]()
    at = skip_whitespace(text, at + 1)
    while text[at] != "}":
        at = _expect(text, at, ",") if items else at
        if text[at] != '"':
            raise ValueError(f"a name is expected at character {at}")
        name, after = scanstring(text, at + 1)
        value_start = _expect(text, skip_whitespace(text, after), ":")
        value, end = _decode(text, value_start)
        items.append(JsonItem(at, value_start, end, value, name))
        at = skip_whitespace(text, end)
    return JsonContainer(start, at + 1, tuple(items))


def parse_array(text: str, at: int) -> JsonContainer:
    """Parse the array that starts here."""
    start, items = at, list[JsonItem]()
    at = skip_whitespace(text, at + 1)
    while text[at] != "]":
        at = _expect(text, at, ",") if items else at
        value, end = _decode(text, at)
        items.append(JsonItem(at, at, end, value))
        at = skip_whitespace(text, end)
    return JsonContainer(start, at + 1, tuple(items))


def _expect(text: str, at: int, mark: str) -> int:
    if text[at] != mark:
        raise ValueError(f"{mark!r} is expected at character {at}")
    return skip_whitespace(text, at + 1)


def skip_whitespace(text: str, at: int) -> int:
    """Return the position after the whitespace that may begin here."""
    # Mostly there is no space, or one; the pattern is for everything else.
    if text[at : at + 1] not in _NO_OR_ONE_SPACE:
        return at
    space = _SPACE.match(text, at)
    return space.end() if space else at
