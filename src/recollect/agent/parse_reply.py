"""Parse a reply of a model into a thought with calls or an answer, in each of the three modes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recollect.agent.tools.tool import Tool
from recollect.agent.types import Call, Step
from recollect.models.chat import ChatReply, ToolRequest
from recollect.models.loose_json import parse_json_values

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


def parse_native_reply(reply: ChatReply, tools: Mapping[str, Tool]) -> ParsedReply:
    """Parse the reply of an endpoint with native tool calls; text without a call is the answer."""
    if not reply.tool_requests:
        return ParsedReply(answer=reply.text)
    return ParsedReply(reply.text, tuple(to_call(tool_request, tools) for tool_request in reply.tool_requests))


def parse_text_reply(text: str, tools: Mapping[str, Tool], *, number: int) -> ParsedReply:
    """Parse a ReAct text; `number` becomes the id of its call. Text without labels is the answer."""
    parts = _split_labels(text)
    sections = dict(reversed(parts))
    thought = " ".join(part for name, part in parts if name in ("thought", "")).strip()
    names = [name for name, _ in parts]
    if "final answer" in names and ("action" not in names or names.index("final answer") < names.index("action")):
        return ParsedReply(thought, answer=sections["final answer"])
    if "action" in names:
        name = sections["action"].strip("`\"'[]() ").partition("\n")[0].partition("(")[0].strip()
        tool_request = ToolRequest(id=f"call_{number}", name=name, arguments=sections.get("action input", ""))
        return ParsedReply(thought, (to_call(tool_request, tools, allow_plain_text=True),))
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


def to_call(tool_request: ToolRequest, tools: Mapping[str, Tool], *, allow_plain_text: bool = False) -> Call:
    """Return the requested call, with an error if it is invalid."""
    tool = tools.get(tool_request.name)
    if tool is None:
        available = f"there are {', '.join(tools)}" if tools else "there are none"
        error = f"there is no tool {tool_request.name[:_MAX_ECHO_CHARS]!r}; {available}"
        return Call(
            id=tool_request.id,
            tool=_safe_name(tool_request.name),
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


def _safe_name(text: str) -> str:
    """Return a name that endpoints accept."""
    return re.sub("[^A-Za-z0-9_-]", "_", text)[:64] or "unknown"


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


def parse_schema_reply(text: str, tools: Mapping[str, Tool], *, number: int) -> ParsedReply:
    """Parse the reply of a model that was given the schema; text without JSON is the answer."""
    reply = _first_object(text)
    if reply is None:
        return ParsedReply(answer=text.strip())
    thought = str(reply.get("thought") or "").strip()
    if "tool" not in reply:
        return ParsedReply(thought, answer=str(reply.get("answer") or thought).strip())
    tool_request = ToolRequest(
        id=f"call_{number}",
        name=str(reply["tool"]),
        arguments=json.dumps(reply.get("arguments") or {}, ensure_ascii=False),
    )
    return ParsedReply(thought, (to_call(tool_request, tools),))


def schema_messages(step: Step) -> list[dict[str, Any]]:
    """Return a step as messages of the schema mode."""
    messages: list[dict[str, Any]] = []
    for call in step.calls:
        reply = {"thought": step.thought, "tool": call.tool, "arguments": dict(call.arguments)}
        messages.append({"role": "assistant", "content": json.dumps(reply, ensure_ascii=False)})
    if not step.calls and step.thought:
        messages.append({"role": "assistant", "content": json.dumps({"thought": step.thought}, ensure_ascii=False)})
    if step.observations:
        observations = "\n".join(f"Observation: {each.text}" for each in step.observations)
        messages.append({"role": "user", "content": observations})
    return messages


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
