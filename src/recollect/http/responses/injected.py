"""What memory put into the messages, as items for an upstream that speaks the Responses API."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from recollect.http.proxy.steering import MEMORY_FIELDS
from recollect.http.responses.asked import Json, ResponseParams
from recollect.http.responses.before import History
from recollect.http.responses.parts import Message
from recollect.http.responses.splice import InputEdit, edit_input, remove_members
from recollect.http.responses.to_messages import IndexedMessage

# What any upstream can be told again, whoever made it; without ids, which only their maker knows.
_PORTABLE = ("message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output")


def find_edits(indexed: Sequence[IndexedMessage], messages: Sequence[Message], *, count: int) -> list[InputEdit]:
    """What is new among the messages: items to go before others or in their place, or after all `count` of them."""
    at_of = {id(each.message): n for n, each in enumerate(indexed)}
    unchanged = {at_of[id(each)] for each in messages if id(each) in at_of}
    edits, next_at = [], 0
    for message in messages:
        if id(message) in at_of:
            next_at = at_of[id(message)] + 1
            continue
        replaces = next_at < len(indexed) and next_at not in unchanged
        at = indexed[next_at].item_index if next_at < len(indexed) else count
        edits.append(InputEdit(at, json.dumps(to_item(message)), replaces))
        next_at += replaces
    return edits


def native_body(
    params: ResponseParams, history_state: History, edits: Sequence[InputEdit], *, upstream: str
) -> bytes:
    """The request as it came but for our fields, with what memory adds, and with what this upstream did not see."""
    count = len(history_state.items)
    new = [InputEdit(edit.index - count, edit.new, edit.replaces) for edit in edits if edit.index >= count]
    earlier = [edit for edit in edits if edit.index < count]
    if params.previous_id and history_state.upstream == upstream:
        # The upstream has what came before. What belongs there can still come before a new question; the answers of
        # tools go on from a question that was asked with it.
        if any(item.get("role") == "user" for item in params.items):
            new = [*(InputEdit(0, edit.new) for edit in earlier if not edit.replaces), *new]
        return edit_input(remove_members(params.text, MEMORY_FIELDS), before=(), edits=new).encode()
    new += [
        InputEdit(at, json.dumps(_portable(item)), replaces=True)
        for at, item in enumerate(params.items)
        if isinstance(params.fields.get("input"), list) and params.fields["input"][at] is not item
    ]
    text = remove_members(params.text, MEMORY_FIELDS | {"conversation", "previous_response_id"})
    return edit_input(text, before=_render_history(history_state, earlier), edits=new).encode()


def _render_history(history_state: History, edits: Sequence[InputEdit]) -> list[str]:
    added = {edit.index: edit for edit in edits}
    history = []
    for at, item in enumerate(history_state.items):
        edit = added.get(at)
        if edit is not None:
            history.append(edit.new)
        if item.get("type", "message") in _PORTABLE and not (edit and edit.replaces):
            history.append(json.dumps(_portable(item)))
    return history


def _portable(item: Mapping[str, Any]) -> Json:
    return {name: value for name, value in item.items() if name not in ("id", "status")}


def to_item(message: Message) -> Json:
    """A message that memory wrote, as an item."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    return {"type": "message", "role": message["role"], "content": [_to_input_part(part) for part in parts]}


def _to_input_part(part: Mapping[str, Any]) -> Json:
    match part.get("type"):
        case "text":
            return {"type": "input_text", "text": part["text"]}
        case "image_url":
            image = part["image_url"]
            return {"type": "input_image", "image_url": image["url"], "detail": image.get("detail", "auto")}
        case "file":
            return {"type": "input_file", **part["file"]}
        case _:
            return dict(part)
