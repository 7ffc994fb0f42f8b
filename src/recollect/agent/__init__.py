"""An agent with tools, working memory and long-term memory."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recollect.agent.agent import Agent
    from recollect.agent.config import AgentConfig, AgentLimits
    from recollect.agent.tools.memory_tools import MemoryLimits, memory_tools
    from recollect.agent.tools.tool import Tool, Toolbox, function_tool
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
    "Agent": "agent",
    **dict.fromkeys(("AgentConfig", "AgentLimits"), "config"),
    **dict.fromkeys(("Answer", "Event", "Step"), "types"),
    **dict.fromkeys(("MemoryLimits", "memory_tools"), "tools.memory_tools"),
    **dict.fromkeys(("Tool", "Toolbox", "function_tool"), "tools.tool"),
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'recollect.agent' has no attribute {name!r}")
    return getattr(import_module(f"recollect.agent.{_MODULES[name]}"), name)
