"""What memory put into the messages, as items for an upstream that speaks the Responses API."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from recollect.http.proxy.steering import FIELDS
from recollect.http.responses.asked import Asked, Json
from recollect.http.responses.before import Before
from recollect.http.responses.parts import Message
from recollect.http.responses.splice import Edit, with_input, without
from recollect.http.responses.to_messages import Placed

# What any upstream can be told again, whoever made it; without ids, which only their maker knows.
_PORTABLE = ("message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output")


def edits_of(placed: Sequence[Placed], messages: Sequence[Message], *, count: int) -> list[Edit]:
    """What is new among the messages: items to go before others or in their place, or after all `count` of them."""
    at_of = {id(each.message): n for n, each in enumerate(placed)}
    kept = {at_of[id(each)] for each in messages if id(each) in at_of}
    edits, next_at = [], 0
    for message in messages:
        if id(message) in at_of:
            next_at = at_of[id(message)] + 1
            continue
        replaces = next_at < len(placed) and next_at not in kept
        at = placed[next_at].item if next_at < len(placed) else count
        edits.append(Edit(at, json.dumps(to_item(message)), replaces))
        next_at += replaces
    return edits


def native_body(asked: Asked, before: Before, edits: Sequence[Edit], *, upstream: str) -> bytes:
    """The request as it came but for our fields, with what memory adds, and with what this upstream did not see."""
    count = len(before.items)
    new = [Edit(edit.at - count, edit.new, edit.replaces) for edit in edits if edit.at >= count]
    earlier = [edit for edit in edits if edit.at < count]
    if asked.previous_id and before.upstream == upstream:
        # The upstream has what came before. What belongs there can still come before a new question; the answers of
        # tools go on from a question that was asked with it.
        if any(item.get("role") == "user" for item in asked.items):
            new = [*(Edit(0, edit.new) for edit in earlier if not edit.replaces), *new]
        return with_input(without(asked.text, FIELDS), before=(), edits=new).encode()
    new += [
        Edit(at, json.dumps(_portable(item)), replaces=True)
        for at, item in enumerate(asked.items)
        if isinstance(asked.fields.get("input"), list) and asked.fields["input"][at] is not item
    ]
    text = without(asked.text, FIELDS | {"conversation", "previous_response_id"})
    return with_input(text, before=_history(before, earlier), edits=new).encode()


def _history(before: Before, edits: Sequence[Edit]) -> list[str]:
    added = {edit.at: edit for edit in edits}
    history = []
    for at, item in enumerate(before.items):
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
    return {"type": "message", "role": message["role"], "content": [_part(part) for part in parts]}


def _part(part: Mapping[str, Any]) -> Json:
    match part.get("type"):
        case "text":
            return {"type": "input_text", "text": part["text"]}
        case "image_url":
            shown = part["image_url"]
            return {"type": "input_image", "image_url": shown["url"], "detail": shown.get("detail", "auto")}
        case "file":
            return {"type": "input_file", **part["file"]}
        case _:
            return dict(part)
