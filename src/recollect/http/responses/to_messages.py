"""Items of the Responses API as messages of chat completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.http.responses.asked import Json
from recollect.http.responses.loose import as_object, as_objects, as_text
from recollect.http.responses.wrong import unsupported_error

# What an upstream of chat completions knows; `developer` is what newer models call `system`.
_ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
_CALLS = ("function_call", "custom_tool_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
# What no upstream needs to be told again.
_SKIPPED = ("reasoning",)


@dataclass(frozen=True, slots=True)
class IndexedMessage:
    """A message, and which item it began with."""

    message: Json
    item_index: int


def to_messages(items: Sequence[Mapping[str, Any]]) -> list[IndexedMessage]:
    """The messages that say the same; what chat completions have no words for is left out.

    Calls that follow the assistant's words, or each other, are one message with them.
    """
    indexed: list[IndexedMessage] = []
    for at, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "message":
            indexed.append(IndexedMessage(_to_message(item), at))
        elif kind in _CALLS:
            last = indexed[-1].message if indexed else {}
            if last.get("role") == "assistant":
                indexed[-1] = IndexedMessage(
                    {**last, "tool_calls": [*last.get("tool_calls", ()), _to_tool_call(item)]}, indexed[-1].item_index
                )
            else:
                indexed.append(
                    IndexedMessage({"role": "assistant", "content": None, "tool_calls": [_to_tool_call(item)]}, at)
                )
        elif kind in _OUTPUTS:
            message = {
                "role": "tool",
                "tool_call_id": item.get("call_id"),
                "content": _to_tool_content(item.get("output")),
            }
            indexed.append(IndexedMessage(message, at))
    return indexed


def check_translatable(items: Sequence[Mapping[str, Any]]) -> None:
    """Raise a BadRequest for the first item or part that chat completions have no words for."""
    for at, item in enumerate(items):
        kind, where = item.get("type", "message"), f"input[{at}]"
        if kind not in ("message", *_CALLS, *_OUTPUTS, *_SKIPPED):
            raise unsupported_error(f"an item of type {kind}", param=f"{where}.type", instead="leave it out")
        content = item.get("content" if kind == "message" else "output")
        for part in content if isinstance(content, list) and kind not in _SKIPPED else ():
            if not isinstance(part, dict) or _to_chat_part(part) is None:
                raise unsupported_error(
                    f"content of type {as_object(part).get('type')} as it is given",
                    param=f"{where}.content",
                    instead="give images by image_url and files by file_data",
                )


def _to_message(item: Mapping[str, Any]) -> Json:
    role, content = _ROLES[item["role"]], item["content"]
    named = {"name": item["name"]} if isinstance(item.get("name"), str) else {}
    if isinstance(content, str):
        return {"role": role, "content": content, **named}
    if role == "assistant":
        return _to_assistant_message(content)
    parts = [part for each in content if (part := _to_chat_part(each)) is not None]
    if len(parts) == 1 and set(parts[0]) == {"type", "text"}:
        return {"role": role, "content": parts[0]["text"], **named}
    return {"role": role, "content": parts, **named}


def _to_assistant_message(content: Sequence[Mapping[str, Any]]) -> Json:
    texts = [part["text"] for part in content if isinstance(part.get("text"), str)]
    refusals = [part["refusal"] for part in content if isinstance(part.get("refusal"), str)]
    message: Json = {"role": "assistant", "content": "".join(texts) if texts or not refusals else None}
    return {**message, "refusal": "".join(refusals)} if refusals else message


def _to_chat_part(part: Mapping[str, Any]) -> Json | None:
    """A part of a message's content; None where chat completions have no word for it."""
    match part.get("type"):
        case "input_text" | "output_text" | "text":
            return {"type": "text", "text": as_text(part.get("text"))}
        case "refusal":
            return {"type": "text", "text": as_text(part.get("refusal"))}
        case "input_image" if isinstance(url := part.get("image_url"), str):
            detail = part.get("detail")
            return {"type": "image_url", "image_url": {"url": url} | ({"detail": detail} if detail else {})}
        case "input_file" if not part.get("file_url"):
            file_fields = {name: part[name] for name in ("file_data", "file_id", "filename") if part.get(name)}
            return {"type": "file", "file": file_fields} if file_fields else None
        case "input_audio" if isinstance(part.get("input_audio"), dict):
            return {"type": "input_audio", "input_audio": part["input_audio"]}
        case _:
            return None


def _to_tool_call(item: Mapping[str, Any]) -> Json:
    id, name = item.get("call_id"), item.get("name")
    if item["type"] == "custom_tool_call":
        return {"id": id, "type": "custom", "custom": {"name": name, "input": item.get("input", "")}}
    return {"id": id, "type": "function", "function": {"name": name, "arguments": item.get("arguments", "")}}


def _to_tool_content(output: object) -> Any:
    if not isinstance(output, list):
        return output if isinstance(output, str) else ""
    parts = [part for each in as_objects(output) if (part := _to_chat_part(each)) is not None]
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts
