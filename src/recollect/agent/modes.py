"""The modes of calling tools: by the endpoint, in ReAct text, or as JSON with a schema.

Each mode renders a step as messages, and parses a reply into a thought with calls or an answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from recollect.agent.tools import Tool
from recollect.agent.types import Call, Step
from recollect.models.chat import ChatReply, ToolRequest
from recollect.models.loose_json import parse_json_values

Mode: TypeAlias = Literal["native", "text", "schema"]
Message: TypeAlias = dict[str, Any]
_LABEL = re.compile(
    r"^[ \t*#]{0,6}(thought|action input|action|observation|final answer)[ \t*]{0,4}:[ \t*]{0,4}",
    re.MULTILINE | re.IGNORECASE,
)
_MAX_ECHO_CHARS = 200


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """A thought with calls, or an answer; with neither, the reply could not be parsed."""

    thought: str = ""
    calls: tuple[Call, ...] = ()
    answer: str | None = None


def _parse_native(reply: ChatReply, tools: Mapping[str, Tool], number: int) -> ParsedReply:
    """Parse native tool calls; text without a call is the answer."""
    if not reply.tool_requests:
        return ParsedReply(answer=reply.text)
    return ParsedReply(reply.text, tuple(_to_call(tool_request, tools) for tool_request in reply.tool_requests))


def _parse_text(reply: ChatReply, tools: Mapping[str, Tool], number: int) -> ParsedReply:
    """Parse a ReAct text; text without labels is the answer."""
    text = reply.text
    parts = _split_labels(text)
    sections = dict(reversed(parts))
    thought = " ".join(part for name, part in parts if name in ("thought", "")).strip()
    names = [name for name, _ in parts]
    if "final answer" in names and ("action" not in names or names.index("final answer") < names.index("action")):
        return ParsedReply(thought, answer=sections["final answer"])
    if "action" in names:
        name = sections["action"].strip("`\"'[]() ").partition("\n")[0].partition("(")[0].strip()
        tool_request = ToolRequest(id=f"call_{number}", name=name, arguments=sections.get("action input", ""))
        return ParsedReply(thought, (_to_call(tool_request, tools, allow_plain_text=True),))
    return ParsedReply(thought) if "thought" in names else ParsedReply(answer=text.strip())


def _split_labels(text: str) -> list[tuple[str, str]]:
    """Return the text after each label, up to the first observation, which the model made up."""
    labels = list(_LABEL.finditer(text))
    parts = [("", text[: labels[0].start()].strip())] if labels and text[: labels[0].start()].strip() else []
    for at, label in enumerate(labels):
        name = label[1].lower()
        if name == "observation":
            break
        end = labels[at + 1].start() if at + 1 < len(labels) else len(text)
        parts.append((name, text[label.end() : end].strip()))
    return parts


def _to_call(tool_request: ToolRequest, tools: Mapping[str, Tool], *, allow_plain_text: bool = False) -> Call:
    """Return the requested call, with an error if it is invalid."""
    tool = tools.get(tool_request.name)
    if tool is None:
        available = f"there are {', '.join(tools)}" if tools else "there are none"
        error = f"there is no tool {tool_request.name[:_MAX_ECHO_CHARS]!r}; {available}"
        return Call(
            id=tool_request.id,
            # A name that endpoints accept.
            tool=re.sub("[^A-Za-z0-9_-]", "_", tool_request.name)[:64] or "unknown",
            arguments=_parse_object(tool_request.arguments) or {},
            error=error,
        )
    arguments = _parse_object(tool_request.arguments) if tool_request.arguments.strip() else {}
    if arguments is None and allow_plain_text:
        arguments = _single_argument(tool, tool_request.arguments)
    if arguments is None:
        error = f"the arguments must be one JSON object, not {tool_request.arguments[:_MAX_ECHO_CHARS]!r}"
        return Call(id=tool_request.id, tool=tool.name, error=error)
    return Call(id=tool_request.id, tool=tool.name, arguments=arguments)


def _parse_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object in a text, leniently; None if there is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        # An incomplete object could mean something else, so it is not used.
        value = _first_object(text)
    return value if isinstance(value, dict) else None


def _first_object(text: str) -> dict[str, Any] | None:
    whole = (read.value for read in parse_json_values(text) if not read.is_incomplete)
    return next((each for each in whole if isinstance(each, dict)), None)


def _single_argument(tool: Tool, text: str) -> dict[str, Any] | None:
    """Return plain text as the tool's only argument; None if it needs another type or more."""
    needed = tool.parameters.get("required", ())
    kinds = tool.parameters.get("properties", {})
    if len(needed) != 1 or kinds.get(needed[0], {}).get("type") != "string" or text.lstrip().startswith("{"):
        return None
    return {needed[0]: text.strip().strip("\"'`")}


_TEXT = {"type": "string", "maxLength": 400}


def reply_schema(tools: Mapping[str, Tool]) -> dict[str, Any]:
    """Return the schema of a reply: a call of one of the tools, or the answer."""
    final = _object_schema({"thought": _TEXT, "answer": {"type": "string"}})
    calls = [
        _object_schema(
            {"thought": _TEXT, "tool": {"type": "string", "enum": [tool.name]}, "arguments": _arguments_schema(tool)}
        )
        for tool in tools.values()
    ]
    return {"anyOf": [*calls, final], "title": "next_step"}


def _parse_schema(reply: ChatReply, tools: Mapping[str, Tool], number: int) -> ParsedReply:
    """Parse JSON of the schema; text without JSON is the answer."""
    fields = _first_object(reply.text)
    if fields is None:
        return ParsedReply(answer=reply.text.strip())
    thought = str(fields.get("thought") or "").strip()
    if "tool" not in fields:
        return ParsedReply(thought, answer=str(fields.get("answer") or thought).strip())
    tool_request = ToolRequest(
        id=f"call_{number}", name=str(fields["tool"]), arguments=_json(fields.get("arguments") or {})
    )
    return ParsedReply(thought, (_to_call(tool_request, tools),))


def _object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _arguments_schema(tool: Tool) -> dict[str, Any]:
    """Return the schema of the arguments; one with references is only checked by the call."""
    return {"type": "object"} if "$defs" in tool.parameters else dict(tool.parameters)


def _native_messages(step: Step) -> list[Message]:
    if not step.calls:
        # A step of the history without a call.
        thought = [{"role": "assistant", "content": step.thought}] if step.thought else []
        return [*thought, *({"role": "user", "content": f"Observation: {each.text}"} for each in step.observations)]
    tool_calls = [
        {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": _json(call.arguments)}}
        for call in step.calls
    ]
    results = [{"role": "tool", "tool_call_id": each.call_id, "content": each.text} for each in step.observations]
    return [{"role": "assistant", "content": step.thought or None, "tool_calls": tool_calls}, *results]


def _text_messages(step: Step) -> list[Message]:
    lines = [f"Thought: {step.thought}"] if step.thought else []
    for call in step.calls:
        lines += [f"Action: {call.tool}", f"Action Input: {_json(call.arguments)}"]
    return [*([{"role": "assistant", "content": "\n".join(lines)}] if lines else []), *_observation_message(step)]


def _schema_messages(step: Step) -> list[Message]:
    replies: list[dict[str, Any]] = [
        {"thought": step.thought, "tool": call.tool, "arguments": dict(call.arguments)} for call in step.calls
    ]
    if not replies and step.thought:
        replies = [{"thought": step.thought}]
    return [*({"role": "assistant", "content": _json(each)} for each in replies), *_observation_message(step)]


def _observation_message(step: Step) -> list[Message]:
    if not step.observations:
        return []
    return [{"role": "user", "content": "\n".join(f"Observation: {each.text}" for each in step.observations)}]


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), ensure_ascii=False)


# Parse the reply of a model; the number becomes the id of a call that has none.
PARSERS: Mapping[Mode, Callable[[ChatReply, Mapping[str, Tool], int], ParsedReply]] = {
    "native": _parse_native,
    "text": _parse_text,
    "schema": _parse_schema,
}
# Return the messages of a step.
RENDERERS: Mapping[Mode, Callable[[Step], list[Message]]] = {
    "native": _native_messages,
    "text": _text_messages,
    "schema": _schema_messages,
}
