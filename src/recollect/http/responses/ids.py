"""Ids in the form OpenAI's clients know: what it is, and something nobody else has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recollect.model.ids import new_id

_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
    "response": "resp",
    "conversation": "conv",
    "call": "call",
}


def make_id(kind: str) -> str:
    """A new id for something of this kind; ids sort by the time they were made."""
    return f"{_PREFIXES.get(kind, 'item')}_{new_id().replace('-', '')}"


def with_id(item: Mapping[str, Any]) -> dict[str, Any]:
    """An input item as it is kept and listed: whole, with an id."""
    kind = item.get("type", "message")
    id = item.get("id")
    complete = {**item, "id": id if isinstance(id, str) and id else make_id(kind), "type": kind}
    if kind == "message":
        complete.setdefault("status", "completed")
        if isinstance(complete["content"], str):
            complete["content"] = [_text_part(complete["role"], complete["content"])]
    elif kind in ("function_call", "function_call_output"):
        complete.setdefault("status", "completed")
    return complete


def _text_part(role: str, text: str) -> dict[str, Any]:
    if role == "assistant":
        return {"type": "output_text", "text": text, "annotations": []}
    return {"type": "input_text", "text": text}
