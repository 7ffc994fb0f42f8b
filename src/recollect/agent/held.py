"""Tools for a model that is held to a JSON schema: each of its answers is a call or the answer, whatever its size."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from recollect.agent.spoken import Spoken, call_of
from recollect.agent.step import Step
from recollect.agent.tools.tool import Tool
from recollect.models.chat import Wish
from recollect.models.loose_json import json_values

_TEXT = {"type": "string", "maxLength": 400}


def schema_of(tools: Mapping[str, Tool]) -> dict[str, Any]:
    """The schema of one answer: a call of any of the tools, or the answer."""
    final = _object({"thought": _TEXT, "answer": {"type": "string"}})
    calls = [
        _object({"thought": _TEXT, "tool": {"type": "string", "enum": [tool.name]}, "arguments": _takes(tool)})
        for tool in tools.values()
    ]
    return {"anyOf": [*calls, final], "title": "next_step"}


def by_schema(text: str, tools: Mapping[str, Tool], *, number: int) -> Spoken:
    """What a model wrote that was asked to keep to the schema; words alone are an answer."""
    said = next((read.value for read in json_values(text) if isinstance(read.value, dict) and not read.lost), None)
    if said is None:
        return Spoken(answer=text.strip())
    thought = str(said.get("thought") or "").strip()
    if "tool" not in said:
        return Spoken(thought, answer=str(said.get("answer") or thought).strip())
    wish = Wish(
        id=f"call_{number}",
        name=str(said["tool"]),
        arguments=json.dumps(said.get("arguments") or {}, ensure_ascii=False),
    )
    return Spoken(thought, (call_of(wish, tools),))


def as_messages(step: Step) -> list[dict[str, Any]]:
    """A step as such a model has it."""
    told: list[dict[str, Any]] = []
    for call in step.calls:
        said = {"thought": step.thought, "tool": call.tool, "arguments": dict(call.arguments)}
        told.append({"role": "assistant", "content": json.dumps(said, ensure_ascii=False)})
    if not step.calls and step.thought:
        told.append({"role": "assistant", "content": json.dumps({"thought": step.thought}, ensure_ascii=False)})
    if step.observed:
        seen = "\n".join(f"Observation: {each.text}" for each in step.observed)
        told.append({"role": "user", "content": seen})
    return told


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _takes(tool: Tool) -> dict[str, Any]:
    """What the tool takes; one whose schema refers to parts of itself is checked when it is called."""
    return {"type": "object"} if "$defs" in tool.parameters else dict(tool.parameters)
