"""A JSON body with the positions of its parts, so that one part can change and every other byte stays.

Parsing and printing a body would lose its number forms, whitespace and escapes.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from json.decoder import JSONDecoder, scanstring  # type: ignore[attr-defined]
from typing import Any, TypeAlias

from recollect.http.large_json import (
    SMALL_CHARS,
    Container,
    Decode,
    Item,
    check_levels,
    expect,
    json_errors,
    parse_large,
    skip_whitespace,
)


def _parse_int(digits: str) -> int | float:
    """Parse an integer; one with more digits than Python accepts is infinite here, and forwarded unchanged."""
    try:
        return int(digits)
    except ValueError:
        return float(digits)


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


# Accepts whatever an upstream may accept; the strict one only what can be stored as JSON.
_decode_lenient: Decode = JSONDecoder(parse_int=_parse_int).raw_decode
_decode_strict: Decode = JSONDecoder(parse_constant=_reject_constant).raw_decode
# Text that takes the place of an old item, by its number, or is new.
_Piece: TypeAlias = tuple[int | None, str]


def _render(container: Container, text: str, pieces: Iterable[_Piece]) -> str:
    """Return the container with these pieces; consecutive old ones keep the text between them."""
    parts, inserted, expected = [text[container.start]], list[str](), 0
    for number, piece in pieces:
        if number is None:
            inserted.append(piece)
            continue
        between = _text_before(container, text, number) if number == expected else ", "
        parts.append(between if len(parts) > 1 else _text_before(container, text, 0))
        parts.append(", ".join([*inserted, piece]))
        inserted, expected = [], number + 1
    if inserted:
        parts.append((", " if len(parts) > 1 else "") + ", ".join(inserted))
    last = container.items[-1].end if container.items else container.start + 1
    return "".join([*parts, text[last : container.end]])


def _text_before(container: Container, text: str, number: int) -> str:
    start = container.items[number - 1].end if number else container.start + 1
    return text[start : container.items[number].start]


@dataclass(frozen=True, slots=True)
class JsonBody:
    """The object in a body, its text, and its large containers by their positions."""

    text: str
    root: Container
    large: Mapping[int, Container] = field(default_factory=dict)

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
            (number, self._render_member(item, item.value, changed))
            for number, item in enumerate(self.root.items)
            if item.name not in without
        ]
        new = changed.keys() - {item.name for item in self.root.items}
        pieces += [(None, f"{json.dumps(name)}: {json.dumps(changed[name])}") for name in changed if name in new]
        rendered = _render(self.root, self.text, pieces)
        return (self.text[: self.root.start] + rendered + self.text[self.root.end :]).encode("utf-8")

    def _render_member(self, item: Item, old: Any, changed: Mapping[str, Any]) -> str:
        if item.name not in changed:
            return self.text[item.start : item.end]
        rendered = self._render_value(item.value_start, item.end, old, changed[item.name])
        return self.text[item.start : item.value_start] + rendered

    def _render_value(self, at: int, end: int, old: Any, new: Any) -> str:
        """Render a new value in place of the old one, which stands between `at` and `end`."""
        text = self.text
        if isinstance(old, str) and isinstance(new, str):
            return _render_string(text[at:end], old, new)
        if isinstance(old, str) and isinstance(new, Sequence):
            return _render_messages(text[at:end], old, new)
        if isinstance(old, list) and isinstance(new, Sequence) and not isinstance(new, str):
            root = self.large.get(at) or _parse_container(text, at)
            return _render(root, text, self._render_elements(root, old, new))
        if _has_same_keys(old, new):
            root = self.large.get(at) or _parse_container(text, at)
            changed = {name: value for name, value in new.items() if value is not old[name]}
            # Of several members with one name the last was read.
            last_numbers = {item.name: number for number, item in enumerate(root.items)}
            pieces = [
                (
                    number,
                    self._render_member(item, old[item.name], changed if last_numbers[item.name] == number else {}),
                )
                for number, item in enumerate(root.items)
            ]
            return _render(root, text, pieces)
        return json.dumps(new)

    def _render_elements(self, root: Container, old: Sequence[Any], new: Sequence[Any]) -> list[_Piece]:
        """Render the elements of a new array: old ones by their bytes, a changed one by those of its old parts."""
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
                pieces.append((number, self.text[root.items[number].start : root.items[number].end]))
                next_number = number + 1
            elif next_number < len(old) and next_number not in reused and _has_same_keys(old[next_number], value):
                item = root.items[next_number]
                pieces.append((next_number, self._render_value(item.start, item.end, old[next_number], value)))
                next_number += 1
            else:
                pieces.append((None, json.dumps(value)))
        return pieces


async def parse_body(raw: bytes, *, strict: bool = False) -> JsonBody:
    """Parse a body; raises InvalidInput if it is not a JSON object in UTF-8.

    A `strict` body has no NaN, Infinity, or integer too large to be parsed.
    """
    decode = _decode_strict if strict else _decode_lenient
    with json_errors("a JSON object"):
        text = raw.decode("utf-8")
        start = skip_whitespace(text, 0)
        if text[start] != "{":
            raise ValueError(f"an object is expected at character {start}")
        if len(text) <= SMALL_CHARS:
            check_levels(text)
            root = _parse_container(text, start, decode)
            if skip_whitespace(text, root.end) != len(text):
                raise ValueError("it continues after its end")
            return JsonBody(text, root)
        _, large = await parse_large(text, decode)
        # A small object can have a lot of space around it.
        return JsonBody(text, large.get(start) or _parse_container(text, start, decode), large)


def _render_string(raw: str, old: str, new: str) -> str:
    """Render a new string; one that only grew keeps the bytes of the old one."""
    if old and new.startswith(old):
        return raw[:-1] + json.dumps(new[len(old) :])[1:]
    if old and new.endswith(old):
        return json.dumps(new[: -len(old)])[:-1] + raw[1:]
    return json.dumps(new)


def _render_messages(raw: str, old: str, new: Sequence[Any]) -> str:
    """Render a list that replaces a string; the message whose content it is now keeps the string's bytes."""
    rendered = []
    for each in new:
        if isinstance(each, dict) and each.get("content") is old:
            head = json.dumps({name: value for name, value in each.items() if name != "content"})[:-1]
            rendered.append(f'{head}, "content": {raw}}}')
        else:
            rendered.append(json.dumps(each))
    return f"[{', '.join(rendered)}]"


def _has_same_keys(old: Any, new: Any) -> bool:
    return isinstance(old, dict) and isinstance(new, Mapping) and list(old) == list(new)


def _parse_container(text: str, at: int, decode: Decode = _decode_lenient) -> Container:
    """Parse the object or array that starts here; raises ValueError, IndexError or StopIteration if it is broken."""
    start, items, is_object = at, list[Item](), text[at] == "{"
    closing = "}" if is_object else "]"
    at = skip_whitespace(text, at + 1)
    while text[at] != closing:
        at = expect(text, at, ",") if items else at
        name, value_start = "", at
        if is_object:
            if text[at] != '"':
                raise ValueError(f"a name is expected at character {at}")
            name, after = scanstring(text, at + 1)
            value_start = expect(text, skip_whitespace(text, after), ":")
        value, end = decode(text, value_start)
        items.append(Item(at, value_start, end, value, name))
        at = skip_whitespace(text, end)
    return Container(start, at + 1, tuple(items))
