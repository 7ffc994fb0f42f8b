"""Positions of the parts of a JSON text, so that one part can change and every other character stays."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from json.decoder import JSONDecoder, scanstring  # type: ignore[attr-defined]
from typing import Any, TypeAlias

_NO_OR_ONE_SPACE = ("", " ", "\t", "\n", "\r")
_SPACE = re.compile(r"[ \t\n\r]*")


def _parse_int(digits: str) -> int | float:
    """Parse an integer; one with more digits than Python accepts is infinite here, and forwarded unchanged."""
    try:
        return int(digits)
    except ValueError:
        return float(digits)


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


Decode: TypeAlias = Callable[[str, int], tuple[Any, int]]
# Accepts whatever an upstream may accept; the strict one only what can be stored as JSON.
decode_lenient: Decode = JSONDecoder(parse_int=_parse_int).raw_decode
decode_strict: Decode = JSONDecoder(parse_constant=_reject_constant).raw_decode
# Text that takes the place of an old item, by its number, or is new.
JsonPiece: TypeAlias = tuple[int | None, str]


@dataclass(frozen=True, slots=True)
class JsonItem:
    """A member of an object or an element of an array, with its positions in the text."""

    start: int
    value_start: int
    end: int
    value: Any
    name: str = ""


@dataclass(frozen=True, slots=True)
class JsonContainer:
    """An object or an array, from its opening bracket to after the closing one, and its items."""

    start: int
    end: int
    items: tuple[JsonItem, ...]

    def render(self, text: str, pieces: Iterable[JsonPiece]) -> str:
        """Return the container with these pieces; consecutive old ones keep the text between them."""
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


def parse_object(text: str, at: int, decode: Decode = decode_lenient) -> JsonContainer:
    """Parse the object that starts here; raises ValueError, IndexError or StopIteration if none does."""
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
        value, end = decode(text, value_start)
        items.append(JsonItem(at, value_start, end, value, name))
        at = skip_whitespace(text, end)
    return JsonContainer(start, at + 1, tuple(items))


def parse_array(text: str, at: int) -> JsonContainer:
    """Parse the array that starts here."""
    start, items = at, list[JsonItem]()
    at = skip_whitespace(text, at + 1)
    while text[at] != "]":
        at = _expect(text, at, ",") if items else at
        value, end = decode_lenient(text, at)
        items.append(JsonItem(at, at, end, value))
        at = skip_whitespace(text, end)
    return JsonContainer(start, at + 1, tuple(items))


def _expect(text: str, at: int, mark: str) -> int:
    if text[at] != mark:
        raise ValueError(f"{mark!r} is expected at character {at}")
    return skip_whitespace(text, at + 1)


def skip_whitespace(text: str, at: int) -> int:
    """Return the position after any whitespace."""
    # The pattern is needed only for more than one space, which is rare.
    if text[at : at + 1] not in _NO_OR_ONE_SPACE:
        return at
    space = _SPACE.match(text, at)
    return space.end() if space else at
