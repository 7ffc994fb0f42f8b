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
from recollect.http.json_spans import JsonContainer, JsonItem, JsonPiece, parse_array, parse_object, skip_whitespace


@dataclass(frozen=True, slots=True)
class JsonBody:
    """The object that a request is, and its text."""

    text: str
    root: JsonContainer

    @property
    def fields(self) -> dict[str, Any]:
        """The members by name, as any parser would give them."""
        return {item.name: item.value for item in self.root.items}

    def has_one(self, name: str) -> bool:
        """Whether there is a member of this name, and no second one that other parsers might take for it."""
        return sum(item.name == name for item in self.root.items) == 1

    def rewrite(self, changed: Mapping[str, Any], *, without: Collection[str] = ()) -> bytes:
        """The text with other values for some members, and without some; all else as it was.

        Where a new value holds parts of the old one (the very same objects), these keep their bytes.
        """
        items = enumerate(self.root.items)
        pieces = [
            (number, _render_member(self.text, item, item.value, changed))
            for number, item in items
            if item.name not in without
        ]
        whole = self.root.render(self.text, pieces)
        return (self.text[: self.root.start] + whole + self.text[self.root.end :]).encode("utf-8")


def parse_body(raw: bytes) -> JsonBody:
    """The body of a request; InvalidInput if it is not a JSON object in UTF-8."""
    try:
        text = raw.decode("utf-8")
        root = parse_object(text, skip_whitespace(text, 0))
        if skip_whitespace(text, root.end) != len(text):
            raise ValueError("it goes on after its end")
        return JsonBody(text, root)
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise InvalidInput("the body is nested too deeply") from None
    except (ValueError, StopIteration, IndexError) as error:
        raise InvalidInput(f"the body is not a JSON object: {_describe_error(error)}") from None


def _describe_error(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError) else "it ends too early"


def _render_member(text: str, item: JsonItem, old: Any, changed: Mapping[str, Any]) -> str:
    if item.name not in changed:
        return text[item.start : item.end]
    return text[item.start : item.value_start] + _render_value(text, item.value_start, old, changed[item.name])


def _render_value(text: str, at: int, old: Any, new: Any) -> str:
    """A new value in place of the old one, which stands here."""
    if isinstance(old, str) and isinstance(new, str):
        return _render_string(text, at, old, new)
    if isinstance(old, list) and isinstance(new, Sequence) and not isinstance(new, str):
        root = parse_array(text, at)
        return root.render(text, _render_elements(text, root, old, new))
    if isinstance(old, dict) and isinstance(new, Mapping) and list(old) == list(new):
        root = parse_object(text, at)
        changed = {name: value for name, value in new.items() if value is not old[name]}
        # Of several members with one name the last counts: it is the one that was read.
        last_numbers = {item.name: number for number, item in enumerate(root.items)}
        return root.render(
            text,
            [
                (
                    number,
                    _render_member(text, item, old[item.name], changed if last_numbers[item.name] == number else {}),
                )
                for number, item in enumerate(root.items)
            ],
        )
    return json.dumps(new)


def _render_string(text: str, at: int, old: str, new: str) -> str:
    """A new text in place of the old one; where it only grew, the old one is written as it was."""
    end = scanstring(text, at + 1)[1]
    if old and new.startswith(old):
        return text[at : end - 1] + json.dumps(new[len(old) :])[1:]
    if old and new.endswith(old):
        return json.dumps(new[: -len(old)])[:-1] + text[at + 1 : end]
    return json.dumps(new)


def _render_elements(text: str, root: JsonContainer, old: Sequence[Any], new: Sequence[Any]) -> list[JsonPiece]:
    """The elements of a new array: those of the old one by their bytes, one that was changed by what stayed of it."""
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


def remove_members(text: str, names: Collection[str]) -> str:
    """The object without the members of these names."""
    members = _list_members(text)
    if not any(each.name in names for each in members):
        return text
    remaining = [at for at, each in enumerate(members) if each.name not in names]
    pieces = [text[: members[0].start]]
    for at in remaining:
        if at != remaining[0]:
            pieces.append(text[members[at - 1].end : members[at].start])
        pieces.append(text[members[at].start : members[at].end])
    return "".join([*pieces, text[members[-1].end :]])


def append_member(text: str, name: str, value: str) -> str:
    """The object with one more member at its end; `value` is JSON."""
    members = _list_members(text)
    at = members[-1].end if members else text.index("{") + 1
    return f"{text[:at]}{',' if members else ''}{json.dumps(name)}:{value}{text[at:]}"


@dataclass(frozen=True, slots=True)
class InputEdit:
    """JSON that goes before an element of `input`, or takes its place."""

    index: int
    new: str
    replaces: bool = False


def edit_input(text: str, *, before: Sequence[str], edits: Sequence[InputEdit]) -> str:
    """The request with items before those of `input`, and some of them edited; all are JSON.

    An `input` that is a text becomes a list with a message of the user; one that is missing, a list.
    """
    if not before and not edits:
        return text
    input_member = next((each for each in reversed(_list_members(text)) if each.name == "input"), None)
    if input_member is None or text[input_member.value_start : input_member.end] == "null":
        return append_member(
            remove_members(text, {"input"}), "input", _render_list([*before, *(edit.new for edit in edits)])
        )
    raw = text[input_member.value_start : input_member.end]
    if raw.startswith('"'):
        user_messages = [] if any(edit.replaces for edit in edits) else [f'{{"role":"user","content":{raw}}}']
        new = _render_list([*before, *(edit.new for edit in edits), *user_messages])
        return f"{text[: input_member.value_start]}{new}{text[input_member.end :]}"
    spans, pieces, at = (
        parse_array(text, input_member.value_start).items,
        [text[: input_member.value_start + 1]],
        input_member.value_start + 1,
    )
    if not spans:
        return f"{pieces[0]}{','.join([*before, *(edit.new for edit in edits)])}{text[at:]}"
    for edit in [
        *(InputEdit(0, each) for each in before),
        *sorted(edits, key=lambda each: (each.index, each.replaces)),
    ]:
        if edit.index >= len(spans):
            pieces += [text[at : spans[-1].end], f",{edit.new}"]
            at = spans[-1].end
            continue
        start, end = spans[edit.index].start, spans[edit.index].end
        pieces += [text[at:start], edit.new if edit.replaces else f"{edit.new},"]
        at = end if edit.replaces else start
    return "".join([*pieces, text[at:]])


def _list_members(text: str) -> tuple[JsonItem, ...]:
    """The members of the object that the text is; the text must be valid."""
    return parse_object(text, skip_whitespace(text, 0)).items


def _render_list(items: Sequence[str]) -> str:
    return f"[{','.join(items)}]"
