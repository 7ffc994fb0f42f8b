"""A JSON object edited in its own text: what is not edited stays as it came, letter by letter."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from recollect.http.json_places import Item, array_at, object_at, skip


def without(text: str, names: Collection[str]) -> str:
    """The object without the members of these names."""
    found = _members(text)
    if not any(each.name in names for each in found):
        return text
    kept = [at for at, each in enumerate(found) if each.name not in names]
    pieces = [text[: found[0].start]]
    for at in kept:
        if at != kept[0]:
            pieces.append(text[found[at - 1].end : found[at].start])
        pieces.append(text[found[at].start : found[at].end])
    return "".join([*pieces, text[found[-1].end :]])


def with_member(text: str, name: str, value: str) -> str:
    """The object with one more member at its end; `value` is JSON."""
    found = _members(text)
    at = found[-1].end if found else text.index("{") + 1
    return f"{text[:at]}{',' if found else ''}{json.dumps(name)}:{value}{text[at:]}"


@dataclass(frozen=True, slots=True)
class Edit:
    """JSON that goes before an element of `input`, or takes its place."""

    at: int
    new: str
    replaces: bool = False


def with_input(text: str, *, before: Sequence[str], edits: Sequence[Edit]) -> str:
    """The request with items before those of `input`, and some of them edited; all are JSON.

    An `input` that is a text becomes a list with a message of the user; one that is missing, a list.
    """
    if not before and not edits:
        return text
    given = next((each for each in reversed(_members(text)) if each.name == "input"), None)
    if given is None or text[given.value_at : given.end] == "null":
        return with_member(without(text, {"input"}), "input", _listed([*before, *(edit.new for edit in edits)]))
    raw = text[given.value_at : given.end]
    if raw.startswith('"'):
        said = [] if any(edit.replaces for edit in edits) else [f'{{"role":"user","content":{raw}}}']
        new = _listed([*before, *(edit.new for edit in edits), *said])
        return f"{text[: given.value_at]}{new}{text[given.end :]}"
    spans, pieces, at = array_at(text, given.value_at).items, [text[: given.value_at + 1]], given.value_at + 1
    if not spans:
        return f"{pieces[0]}{','.join([*before, *(edit.new for edit in edits)])}{text[at:]}"
    for edit in [*(Edit(0, each) for each in before), *sorted(edits, key=lambda each: (each.at, each.replaces))]:
        if edit.at >= len(spans):
            pieces += [text[at : spans[-1].end], f",{edit.new}"]
            at = spans[-1].end
            continue
        start, end = spans[edit.at].start, spans[edit.at].end
        pieces += [text[at:start], edit.new if edit.replaces else f"{edit.new},"]
        at = end if edit.replaces else start
    return "".join([*pieces, text[at:]])


def _members(text: str) -> tuple[Item, ...]:
    """The members of the object that the text is; the text must be valid."""
    return object_at(text, skip(text, 0)).items


def _listed(items: Sequence[str]) -> str:
    return f"[{','.join(items)}]"
