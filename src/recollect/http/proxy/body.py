"""A JSON body with the positions of its parts, so that one part can change and every other byte stays.

Parsing and printing a body would lose its number forms, whitespace and escapes.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from recollect.errors import InvalidInput
from recollect.http.json_spans import (
    JsonContainer,
    JsonItem,
    JsonPiece,
    decode_lenient,
    decode_strict,
    parse_array,
    parse_object,
    skip_whitespace,
)


@dataclass(frozen=True, slots=True)
class JsonBody:
    """The object in a body, and its text."""

    text: str
    root: JsonContainer

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
        pieces: list[JsonPiece] = [
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
        root = parse_object(text, skip_whitespace(text, 0), decode_strict if strict else decode_lenient)
        if skip_whitespace(text, root.end) != len(text):
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


def _render_member(text: str, item: JsonItem, old: Any, changed: Mapping[str, Any]) -> str:
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
        root = parse_array(text, at)
        return root.render(text, _render_elements(text, root, old, new))
    if _has_same_keys(old, new):
        root = parse_object(text, at)
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


def _render_elements(text: str, root: JsonContainer, old: Sequence[Any], new: Sequence[Any]) -> list[JsonPiece]:
    """Render the elements of a new array: old ones by their bytes, a changed one by those of its unchanged parts."""
    numbers: dict[int, deque[int]] = {}
    for number, value in enumerate(old):
        # Several: null is one object wherever it stands.
        numbers.setdefault(id(value), deque()).append(number)
    reused = {number for value in new for number in numbers.get(id(value), ())}
    pieces: list[JsonPiece] = []
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
