"""A request for a response as a request for a chat completion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recollect.http.proxy.steering import MEMORY_FIELDS
from recollect.http.responses.asked import Json
from recollect.http.responses.loose import as_objects
from recollect.http.responses.wrong import BadRequest, unsupported_error

# RecordFields of the Responses API that say something else in chat completions, or nothing.
_RESPONSES_ONLY_FIELDS = frozenset(
    {
        "input", "instructions", "previous_response_id", "conversation", "store", "background", "include", "metadata",
        "max_output_tokens", "max_tool_calls", "truncation", "reasoning", "text", "tools", "tool_choice",
        "parallel_tool_calls", "stream", "stream_options", "top_logprobs", "prompt", "context_management",
    }
)  # fmt: skip
_LOGPROBS = "message.output_text.logprobs"


def to_chat(fields: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> Json:
    """The body that asks the same of chat completions; fields nobody knows are passed on as they are."""
    if fields.get("prompt"):
        raise unsupported_error(
            "a prompt template", param="prompt", instead="write its text into instructions or input"
        )
    instructions = fields.get("instructions")
    head = [{"role": "system", "content": instructions}] if isinstance(instructions, str) and instructions else []
    chat: Json = {name: value for name, value in fields.items() if name not in _RESPONSES_ONLY_FIELDS | MEMORY_FIELDS}
    chat["messages"] = [*head, *messages]
    # UpstreamRouter that need this translation know the older name.
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
    form = text.get("format")
    form = form if isinstance(form, dict) else {}
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
