"""A JSON body as it came, with the places of its parts, so that a part can change and every other byte stay.

Parsed and printed again, a body would lose the forms of its numbers, its spaces and its escapes; what is put in and
taken out by place changes nothing else.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from recollect.errors import InvalidInput
from recollect.http.json_places import Item, Listed, Piece, array_at, object_at, skip


@dataclass(frozen=True, slots=True)
class Body:
    """The object that a request is, and its text."""

    text: str
    listed: Listed

    @property
    def fields(self) -> dict[str, Any]:
        """The members by name, as any parser would give them."""
        return {item.name: item.value for item in self.listed.items}

    def has_one(self, name: str) -> bool:
        """Whether there is a member of this name, and no second one that other parsers might take for it."""
        return sum(item.name == name for item in self.listed.items) == 1

    def rewritten(self, changed: Mapping[str, Any], *, without: Collection[str] = ()) -> bytes:
        """The text with other values for some members, and without some; all else as it was.

        Where a new value holds parts of the old one (the very same objects), these keep their bytes.
        """
        items = enumerate(self.listed.items)
        pieces = [
            (number, _member(self.text, item, item.value, changed))
            for number, item in items
            if item.name not in without
        ]
        whole = self.listed.written(self.text, pieces)
        return (self.text[: self.listed.start] + whole + self.text[self.listed.end :]).encode("utf-8")


def read_body(raw: bytes) -> Body:
    """The body of a request; InvalidInput if it is not a JSON object in UTF-8."""
    try:
        text = raw.decode("utf-8")
        listed = object_at(text, skip(text, 0))
        if skip(text, listed.end) != len(text):
            raise ValueError("it goes on after its end")
        return Body(text, listed)
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise InvalidInput("the body is nested too deeply") from None
    except (ValueError, StopIteration, IndexError) as error:
        raise InvalidInput(f"the body is not a JSON object: {_told(error)}") from None


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError) else "it ends too early"


def _member(text: str, item: Item, old: Any, changed: Mapping[str, Any]) -> str:
    if item.name not in changed:
        return text[item.start : item.end]
    return text[item.start : item.value_at] + _value(text, item.value_at, old, changed[item.name])


def _value(text: str, at: int, old: Any, new: Any) -> str:
    """A new value in place of the old one, which stands here."""
    if isinstance(old, str) and isinstance(new, str):
        return _string(text, at, old, new)
    if isinstance(old, list) and isinstance(new, Sequence) and not isinstance(new, str):
        listed = array_at(text, at)
        return listed.written(text, _elements(text, listed, old, new))
    if isinstance(old, dict) and isinstance(new, Mapping) and list(old) == list(new):
        listed = object_at(text, at)
        changed = {name: value for name, value in new.items() if value is not old[name]}
        # Of several members with one name the last counts: it is the one that was read.
        counts = {item.name: number for number, item in enumerate(listed.items)}
        return listed.written(
            text,
            [
                (number, _member(text, item, old[item.name], changed if counts[item.name] == number else {}))
                for number, item in enumerate(listed.items)
            ],
        )
    return json.dumps(new)


def _string(text: str, at: int, old: str, new: str) -> str:
    """A new text in place of the old one; where it only grew, the old one is written as it was."""
    end = scanstring(text, at + 1)[1]
    if old and new.startswith(old):
        return text[at : end - 1] + json.dumps(new[len(old) :])[1:]
    if old and new.endswith(old):
        return json.dumps(new[: -len(old)])[:-1] + text[at + 1 : end]
    return json.dumps(new)


def _elements(text: str, listed: Listed, old: Sequence[Any], new: Sequence[Any]) -> list[Piece]:
    """The elements of a new array: those of the old one by their bytes, one that was changed by what stayed of it."""
    numbers: dict[int, deque[int]] = {}
    for number, value in enumerate(old):
        # Several: null is one object wherever it stands.
        numbers.setdefault(id(value), deque()).append(number)
    kept = {number for value in new for number in numbers.get(id(value), ())}
    pieces: list[Piece] = []
    following = 0
    for value in new:
        if places := numbers.get(id(value)):
            number = places.popleft()
            pieces.append((number, text[listed.items[number].start : listed.items[number].end]))
            following = number + 1
        elif following < len(old) and following not in kept and _alike(old[following], value):
            pieces.append((following, _value(text, listed.items[following].start, old[following], value)))
            following += 1
        else:
            pieces.append((None, json.dumps(value)))
    return pieces


def _alike(old: Any, new: Any) -> bool:
    return isinstance(old, dict) and isinstance(new, Mapping) and list(old) == list(new)
