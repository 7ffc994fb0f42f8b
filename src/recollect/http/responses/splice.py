"""A JSON object edited in its own text: what is not edited stays as it came, letter by letter."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from recollect.http.json_places import JsonItem, parse_array, parse_object, skip_whitespace


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
