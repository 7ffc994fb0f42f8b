"""Build the messages for the model: instructions, memories, the question, and the steps so far."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from recollect.agent.parse_reply import schema_messages
from recollect.agent.tools.tool import Tool
from recollect.agent.types import Step
from recollect.agent.working_memory import WorkingMemory
from recollect.prompts import prompt
from recollect.prompts.rendering import new_delimiter

# How tools are called: by the endpoint, in text, or as JSON with a schema.
Mode: TypeAlias = Literal["native", "text", "schema"]
Message: TypeAlias = dict[str, Any]

_NOW_ANSWER = "You have no steps left. Answer the user now with what you know; call no tool."
_WITH_TOOLS = "With {names} you can look for more, and keep what will matter again."


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPrompt:
    """The prompt of one run; `recalled` is None if memory is off."""

    question: str
    state: str = ""
    context: str = ""
    recalled: str | None = None
    memory_tools: Sequence[str] = ()
    # The same in all requests of a run, so that endpoints can cache the prefix.
    fence: str = field(default_factory=new_delimiter)

    def messages(
        self, mode: Mode, tools: Mapping[str, Tool], working: WorkingMemory, *, last: bool = False
    ) -> list[Message]:
        """Return the messages of the next request; with `last` the model must answer now."""
        messages: list[Message] = [{"role": "system", "content": self._system(mode, tools)}]
        if self.recalled:
            block = prompt("agent_recalled").fill(fence=self.fence, memories=self.recalled)
            messages.append({"role": "user", "content": block})
        messages.append({"role": "user", "content": self._task(working)})
        for step in working.steps:
            messages += _RENDERERS[mode](step)
        if last:
            messages.append({"role": "user", "content": _NOW_ANSWER})
        return messages

    def _system(self, mode: Mode, tools: Mapping[str, Tool]) -> str:
        parts = [prompt("agent").fill(context=self.context).strip()]
        if self.recalled is not None:
            hint = _WITH_TOOLS.format(names=", ".join(self.memory_tools)) if self.memory_tools else ""
            parts.append(prompt("agent_memory").fill(tools=hint).strip())
        if mode != "native" and tools:
            listed = "\n".join(
                f"{tool.name}: {tool.description} {json.dumps(dict(tool.parameters), ensure_ascii=False)}"
                for tool in tools.values()
            )
            parts.append(
                prompt("agent_text").fill(tools=listed, names=", ".join(tools))
                if mode == "text"
                else prompt("agent_schema").fill(tools=listed)
            )
        return "\n\n".join(parts)

    def _task(self, working: WorkingMemory) -> str:
        if self.recalled is None:
            return f"State: {self.state}\n\n{self.question}" if self.state else self.question
        return prompt("agent_task").fill(
            state=f"State: {self.state}" if self.state else "The question below.",
            working=working.summary or "- the steps below, if any",
            question=self.question,
        )


def _native_messages(step: Step) -> list[Message]:
    """Return a step as messages with native tool calls."""
    assistant: Message = {"role": "assistant", "content": step.thought or None}
    if step.calls:
        assistant["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.tool, "arguments": json.dumps(dict(call.arguments), ensure_ascii=False)},
            }
            for call in step.calls
        ]
    else:
        # A step of the history without a call.
        observations = [{"role": "user", "content": f"Observation: {each.text}"} for each in step.observations]
        return [assistant, *observations] if step.thought else observations
    results = [{"role": "tool", "tool_call_id": each.call_id, "content": each.text} for each in step.observations]
    return [assistant, *results]


def _text_messages(step: Step) -> list[Message]:
    """Return a step as ReAct text."""
    lines = [f"Thought: {step.thought}"] if step.thought else []
    for call in step.calls:
        arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
        lines += [f"Action: {call.tool}", f"Action Input: {arguments}"]
    messages: list[Message] = [{"role": "assistant", "content": "\n".join(lines)}] if lines else []
    if step.observations:
        observations = "\n".join(f"Observation: {each.text}" for each in step.observations)
        messages.append({"role": "user", "content": observations})
    return messages


_RENDERERS: Mapping[Mode, Callable[[Step], list[Message]]] = {
    "native": _native_messages,
    "text": _text_messages,
    "schema": schema_messages,
}
