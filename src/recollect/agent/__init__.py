"""An agent that reasons and acts with tools, and remembers: facts, episodes, conversations, working memory."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recollect.agent.agent import Agent
    from recollect.agent.answer import Answer, Event
    from recollect.agent.habits import AgentConfig, AgentLimits
    from recollect.agent.step import Step
    from recollect.agent.tools.functions import function_tool
    from recollect.agent.tools.memory_tools import MemoryLimits, memory_tools
    from recollect.agent.tools.tool import Tool
    from recollect.agent.tools.toolbox import Toolbox

__all__ = [
    "Agent",
    "AgentConfig",
    "AgentLimits",
    "Answer",
    "Event",
    "MemoryLimits",
    "Step",
    "Tool",
    "Toolbox",
    "function_tool",
    "memory_tools",
]

# LoadedSettings when first asked for: whoever needs a tool need not load the loop.
_HOMES = {
    "Agent": "agent",
    "AgentConfig": "habits",
    "Answer": "answer",
    "Event": "answer",
    "Limits": "habits",
    "MemoryLimits": "tools.memory_tools",
    "Step": "step",
    "Tool": "tools.tool",
    "Toolbox": "tools.toolbox",
    "function_tool": "tools.functions",
    "memory_tools": "tools.memory_tools",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'recollect.agent' has no attribute {name!r}")
    return getattr(import_module(f"recollect.agent.{_HOMES[name]}"), name)
