"""A JSON body with the positions of its parts, so that one part can change and every other byte stays.

Parsing and printing a body would lose its number forms, whitespace and escapes.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from json.decoder import JSONDecoder, scanstring  # type: ignore[attr-defined]
from typing import Any, TypeAlias

from recollect.errors import InvalidInput

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


_Decode: TypeAlias = Callable[[str, int], tuple[Any, int]]
# Accepts whatever an upstream may accept; the strict one only what can be stored as JSON.
_decode_lenient: _Decode = JSONDecoder(parse_int=_parse_int).raw_decode
_decode_strict: _Decode = JSONDecoder(parse_constant=_reject_constant).raw_decode
# Text that takes the place of an old item, by its number, or is new.
_Piece: TypeAlias = tuple[int | None, str]


@dataclass(frozen=True, slots=True)
class _Item:
    """A member of an object or an element of an array, with its positions in the text."""

    start: int
    value_start: int
    end: int
    value: Any
    name: str = ""


@dataclass(frozen=True, slots=True)
class _Container:
    """An object or an array, from its opening bracket to after the closing one, and its items."""

    start: int
    end: int
    items: tuple[_Item, ...]

    def render(self, text: str, pieces: Iterable[_Piece]) -> str:
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


@dataclass(frozen=True, slots=True)
class JsonBody:
    """The object in a body, and its text."""

    text: str
    root: _Container

    @property
    def fields(self) -> dict[str, Any]:
        """The members by name, as any parser would return them."""
        return {item.name: item.value for item in self.root.items}

    def has_one(self, name: str) -> bool:
        """Return whether exactly one member has this name: of several, parsers choose different ones."""
        return sum(item.name == name for item in self.root.items) == 1

    def rewrite(self, changed: Mapping[str, Any], *, without: Collection[str] = ()) -> bytes:
        """Return the text with new values for some members, new members at the end, and without some.

        Where a new value contains parts of the old one (the same objects), these keep their bytes.
        """
        pieces: list[_Piece] = [
            (number, _render_member(self.text, item, item.value, changed))
            for number, item in enumerate(self.root.items)
            if item.name not in without
        ]
        new = changed.keys() - {item.name for item in self.root.items}
        pieces += [(None, f"{json.dumps(name)}: {json.dumps(changed[name])}") for name in changed if name in new]
        rendered = self.root.render(self.text, pieces)
        return (self.text[: self.root.start] + rendered + self.text[self.root.end :]).encode("utf-8")


def parse_body(raw: bytes, *, strict: bool = False) -> JsonBody:
    """Parse a body; raises InvalidInput if it is not a JSON object in UTF-8.

    A `strict` body has no NaN, Infinity, or integer too large to be parsed.
    """
    try:
        text = raw.decode("utf-8")
        root = _parse_object(text, _skip_whitespace(text, 0), _decode_strict if strict else _decode_lenient)
        if _skip_whitespace(text, root.end) != len(text):
            raise ValueError("it continues after its end")
        return JsonBody(text, root)
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise InvalidInput("the body is nested too deeply") from None
    except ValueError as error:
        raise InvalidInput(f"the body is not a JSON object: {error}") from None
    except (StopIteration, IndexError):
        raise InvalidInput("the body is not a JSON object: it ends too early") from None


def _render_member(text: str, item: _Item, old: Any, changed: Mapping[str, Any]) -> str:
    if item.name not in changed:
        return text[item.start : item.end]
    return text[item.start : item.value_start] + _render_value(text, item.value_start, old, changed[item.name])


def _render_value(text: str, at: int, old: Any, new: Any) -> str:
    """Render a new value in place of the old one, which starts at `at`."""
    if isinstance(old, str) and isinstance(new, str):
        return _render_string(text, at, old, new)
    if isinstance(old, str) and isinstance(new, Sequence):
        return _render_messages(text, at, old, new)
    if isinstance(old, list) and isinstance(new, Sequence) and not isinstance(new, str):
        root = _parse_array(text, at)
        return root.render(text, _render_elements(text, root, old, new))
    if _has_same_keys(old, new):
        root = _parse_object(text, at)
        changed = {name: value for name, value in new.items() if value is not old[name]}
        # Of several members with one name the last was read.
        last_numbers = {item.name: number for number, item in enumerate(root.items)}
        pieces = [
            (number, _render_member(text, item, old[item.name], changed if last_numbers[item.name] == number else {}))
            for number, item in enumerate(root.items)
        ]
        return root.render(text, pieces)
    return json.dumps(new)


def _render_string(text: str, at: int, old: str, new: str) -> str:
    """Render a new string; one that only grew keeps the bytes of the old one."""
    end = scanstring(text, at + 1)[1]
    if old and new.startswith(old):
        return text[at : end - 1] + json.dumps(new[len(old) :])[1:]
    if old and new.endswith(old):
        return json.dumps(new[: -len(old)])[:-1] + text[at + 1 : end]
    return json.dumps(new)


def _render_messages(text: str, at: int, old: str, new: Sequence[Any]) -> str:
    """Render a list that replaces a string; the message whose content it is now keeps the string's bytes."""
    raw = text[at : scanstring(text, at + 1)[1]]
    rendered = []
    for each in new:
        if isinstance(each, dict) and each.get("content") is old:
            head = json.dumps({name: value for name, value in each.items() if name != "content"})[:-1]
            rendered.append(f'{head}, "content": {raw}}}')
        else:
            rendered.append(json.dumps(each))
    return f"[{', '.join(rendered)}]"


def _render_elements(text: str, root: _Container, old: Sequence[Any], new: Sequence[Any]) -> list[_Piece]:
    """Render the elements of a new array: old ones by their bytes, a changed one by those of its unchanged parts."""
    numbers: dict[int, deque[int]] = {}
    for number, value in enumerate(old):
        # Several: null is one object wherever it stands.
        numbers.setdefault(id(value), deque()).append(number)
    reused = {number for value in new for number in numbers.get(id(value), ())}
    pieces: list[_Piece] = []
    next_number = 0
    for value in new:
        if positions := numbers.get(id(value)):
            number = positions.popleft()
            pieces.append((number, text[root.items[number].start : root.items[number].end]))
            next_number = number + 1
        elif next_number < len(old) and next_number not in reused and _has_same_keys(old[next_number], value):
            pieces.append((next_number, _render_value(text, root.items[next_number].start, old[next_number], value)))
            next_number += 1
        else:
            pieces.append((None, json.dumps(value)))
    return pieces


def _has_same_keys(old: Any, new: Any) -> bool:
    return isinstance(old, dict) and isinstance(new, Mapping) and list(old) == list(new)


def _parse_object(text: str, at: int, decode: _Decode = _decode_lenient) -> _Container:
    """Parse the object that starts here; raises ValueError, IndexError or StopIteration if none does."""
    if text[at] != "{":
        raise ValueError(f"an object is expected at character {at}")
    start, items = at, list[_Item]()
    at = _skip_whitespace(text, at + 1)
    while text[at] != "}":
        at = _expect(text, at, ",") if items else at
        if text[at] != '"':
            raise ValueError(f"a name is expected at character {at}")
        name, after = scanstring(text, at + 1)
        value_start = _expect(text, _skip_whitespace(text, after), ":")
        value, end = decode(text, value_start)
        items.append(_Item(at, value_start, end, value, name))
        at = _skip_whitespace(text, end)
    return _Container(start, at + 1, tuple(items))


def _parse_array(text: str, at: int) -> _Container:
    """Parse the array that starts here."""
    start, items = at, list[_Item]()
    at = _skip_whitespace(text, at + 1)
    while text[at] != "]":
        at = _expect(text, at, ",") if items else at
        value, end = _decode_lenient(text, at)
        items.append(_Item(at, at, end, value))
        at = _skip_whitespace(text, end)
    return _Container(start, at + 1, tuple(items))


def _expect(text: str, at: int, mark: str) -> int:
    if text[at] != mark:
        raise ValueError(f"{mark!r} is expected at character {at}")
    return _skip_whitespace(text, at + 1)


def _skip_whitespace(text: str, at: int) -> int:
    """Return the position after any whitespace."""
    # The pattern is needed only for more than one space, which is rare.
    if text[at : at + 1] not in _NO_OR_ONE_SPACE:
        return at
    space = _SPACE.match(text, at)
    return space.end() if space else at
