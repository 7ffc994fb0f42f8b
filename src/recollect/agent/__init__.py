"""An agent with tools, working memory and long-term memory."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recollect.agent.agent import Agent, AgentConfig
    from recollect.agent.loop import AgentLimits
    from recollect.agent.tools import MemoryLimits, Tool, Toolbox, function_tool, memory_tools
    from recollect.agent.types import Answer, Event, Step


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

# Imported on first use.
_MODULES = {
    **dict.fromkeys(("Agent", "AgentConfig"), "agent"),
    "AgentLimits": "loop",
    **dict.fromkeys(("MemoryLimits", "Tool", "Toolbox", "function_tool", "memory_tools"), "tools"),
    **dict.fromkeys(("Answer", "Event", "Step"), "types"),
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'recollect.agent' has no attribute {name!r}")
    return getattr(import_module(f"recollect.agent.{_MODULES[name]}"), name)
