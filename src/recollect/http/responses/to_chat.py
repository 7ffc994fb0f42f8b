"""Requests of the Responses API translated to chat completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.http.proxy.asgi_io import BadRequest
from recollect.http.proxy.memory_options import MEMORY_FIELDS
from recollect.http.responses.items import as_object, as_objects, as_text
from recollect.http.responses.request import Json, unsupported_error

# Upstreams with chat completions only may not know `developer`, the newer name of `system`.
_ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
_CALLS = ("function_call", "custom_tool_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
# Items that no upstream needs again.
_SKIPPED = ("reasoning",)


@dataclass(frozen=True, slots=True)
class IndexedMessage:
    """A message, and the number of its first item."""

    message: Json
    item_index: int


def to_messages(items: Sequence[Mapping[str, Any]]) -> list[IndexedMessage]:
    """Translate items; those that chat completions do not have are left out.

    Calls become part of the assistant's message before them.
    """
    indexed: list[IndexedMessage] = []
    for at, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "message":
            indexed.append(IndexedMessage(_to_message(item), at))
        elif kind in _CALLS:
            last = indexed.pop() if indexed and indexed[-1].message["role"] == "assistant" else None
            message: Json = last.message if last else {"role": "assistant", "content": None}
            # In place: a message may have thousands of calls.
            message.setdefault("tool_calls", []).append(_to_tool_call(item))
            indexed.append(IndexedMessage(message, last.item_index if last else at))
        elif kind in _OUTPUTS:
            message = {
                "role": "tool",
                "tool_call_id": item.get("call_id"),
                "content": _to_tool_content(item.get("output")),
            }
            indexed.append(IndexedMessage(message, at))
    return indexed


def check_translatable(items: Sequence[Mapping[str, Any]]) -> None:
    """Raise a BadRequest for the first item or part that chat completions do not have."""
    for at, item in enumerate(items):
        kind, where = item.get("type", "message"), f"input[{at}]"
        if kind not in ("message", *_CALLS, *_OUTPUTS, *_SKIPPED):
            raise unsupported_error(f"an item of type {kind}", param=f"{where}.type", instead="leave it out")
        content = item.get("content" if kind == "message" else "output")
        for part in content if isinstance(content, list) and kind not in _SKIPPED else ():
            if not isinstance(part, dict) or _to_chat_part(part) is None:
                raise unsupported_error(
                    f"content of type {as_object(part).get('type')} in this form",
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
    """Translate a part of a message's content; returns None if chat completions do not have it."""
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


# Fields that chat completions do not have, or that mean something else there.
_RESPONSES_ONLY_FIELDS = frozenset(
    {
        "input", "instructions", "previous_response_id", "conversation", "store", "background", "include", "metadata",
        "max_output_tokens", "max_tool_calls", "truncation", "reasoning", "text", "tools", "tool_choice",
        "parallel_tool_calls", "stream", "stream_options", "top_logprobs", "prompt", "context_management",
    }
)  # fmt: skip
_LOGPROBS = "message.output_text.logprobs"


def to_chat(fields: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> Json:
    """Translate a request; unknown fields are passed on as they are."""
    if fields.get("prompt"):
        raise unsupported_error("a prompt template", param="prompt", instead="write it into instructions or input")
    instructions = fields.get("instructions")
    head = [{"role": "system", "content": instructions}] if isinstance(instructions, str) and instructions else []
    chat: Json = {name: value for name, value in fields.items() if name not in _RESPONSES_ONLY_FIELDS | MEMORY_FIELDS}
    chat["messages"] = [*head, *messages]
    # The older name, which all upstreams know.
    if (max_tokens := fields.get("max_output_tokens")) is not None:
        chat["max_tokens"] = max_tokens
    tools = fields.get("tools") or []
    if not isinstance(tools, list):
        raise BadRequest("tools must be a list", param="tools", code="invalid_type")
    if tools:
        chat["tools"] = [_to_chat_tool(tool, at) for at, tool in enumerate(tools)]
        for name in ("tool_choice", "parallel_tool_calls"):
            if fields.get(name) is not None:
                chat[name] = _to_chat_tool_choice(fields[name])
    if isinstance(reasoning := fields.get("reasoning"), dict) and reasoning.get("effort"):
        chat["reasoning_effort"] = reasoning["effort"]
    if isinstance(text := fields.get("text"), dict):
        chat |= _to_text_options(text)
    top_logprobs = fields.get("top_logprobs")
    include = fields.get("include")
    if top_logprobs or (isinstance(include, list) and _LOGPROBS in include):
        chat |= {"logprobs": True} | ({"top_logprobs": top_logprobs} if top_logprobs else {})
    if fields.get("stream"):
        chat |= {"stream": True, "stream_options": {"include_usage": True}}
    return chat


def _to_text_options(text: Mapping[str, Any]) -> Json:
    options: Json = {"verbosity": text["verbosity"]} if text.get("verbosity") else {}
    form = as_object(text.get("format"))
    match form.get("type"):
        case "json_schema":
            json_schema = {name: form[name] for name in ("name", "description", "schema", "strict") if name in form}
            options["response_format"] = {"type": "json_schema", "json_schema": json_schema}
        case "json_object":
            options["response_format"] = {"type": "json_object"}
    return options


def _to_chat_tool(tool: object, at: int) -> Json:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if kind not in ("function", "custom") or not isinstance(tool, dict):
        raise unsupported_error(
            f"the tool {kind}",
            param=f"tools[{at}]",
            instead="give functions, or set responses to native for an upstream that has this tool",
        )
    names = (
        ("name", "description", "parameters", "strict") if kind == "function" else ("name", "description", "format")
    )
    definition = {name: tool[name] for name in names if tool.get(name) is not None}
    if kind == "custom" and isinstance(form := definition.get("format"), dict) and form.get("type") == "grammar":
        definition["format"] = {"type": "grammar", "grammar": {k: v for k, v in form.items() if k != "type"}}
    return {"type": kind, kind: definition}


def _to_chat_tool_choice(choice: object) -> Any:
    if not isinstance(choice, dict):
        return choice
    kind = choice.get("type")
    if kind in ("function", "custom"):
        return {"type": kind, kind: {"name": choice.get("name")}}
    if kind == "allowed_tools":
        allowed = [_to_chat_tool_choice(each) for each in as_objects(choice.get("tools"))]
        return {"type": kind, kind: {"mode": choice.get("mode", "auto"), "tools": allowed}}
    raise unsupported_error(f"the tool choice {kind}", param="tool_choice", instead="choose a function, auto or none")
