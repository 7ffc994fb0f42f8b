"""Build the messages for the model: instructions, memories, the question, and the steps so far."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from recollect.agent.modes import Message, Mode, step_messages
from recollect.agent.tools.tool import Tool
from recollect.agent.working_memory import WorkingMemory
from recollect.prompts import prompt
from recollect.prompts.rendering import new_delimiter

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
            messages += step_messages(mode, step)
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
