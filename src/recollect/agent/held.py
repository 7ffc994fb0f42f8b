"""Tools for a model that is held to a JSON schema: each of its answers is a call or the answer, whatever its size."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from recollect.agent.spoken import ParsedReply, to_call
from recollect.agent.step import Step
from recollect.agent.tools.tool import Tool
from recollect.models.chat import ToolRequest
from recollect.models.loose_json import parse_json_values

_TEXT = {"type": "string", "maxLength": 400}


def reply_schema(tools: Mapping[str, Tool]) -> dict[str, Any]:
    """The schema of one answer: a call of any of the tools, or the answer."""
    final = _object_schema({"thought": _TEXT, "answer": {"type": "string"}})
    calls = [
        _object_schema(
            {"thought": _TEXT, "tool": {"type": "string", "enum": [tool.name]}, "arguments": _arguments_schema(tool)}
        )
        for tool in tools.values()
    ]
    return {"anyOf": [*calls, final], "title": "next_step"}


def parse_schema_reply(text: str, tools: Mapping[str, Tool], *, number: int) -> ParsedReply:
    """What a model wrote that was asked to keep to the schema; words alone are an answer."""
    reply = next(
        (
            parsed.value
            for parsed in parse_json_values(text)
            if isinstance(parsed.value, dict) and not parsed.is_incomplete
        ),
        None,
    )
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
    """A step as such a model has it."""
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
    """What the tool takes; one whose schema refers to parts of itself is checked when it is called."""
    return {"type": "object"} if "$defs" in tool.parameters else dict(tool.parameters)
