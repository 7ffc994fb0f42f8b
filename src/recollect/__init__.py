"""Long-term memory for LLM applications and agents.

from recollect import Memory

memory = Memory()
memory.add("The budget for the Hawaii trip is $10,000", user_id="alex")
memory.search("How much can I spend in Hawaii?", user_id="alex")
"""

from __future__ import annotations

# Not imported from typing: a hook starts a process for each event, and typing takes as long as all else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from recollect.agent.agent import Agent
    from recollect.client import AsyncMemory
    from recollect.config.settings import Settings
    from recollect.errors import RecollectError
    from recollect.model.change import HistoryEntry, Outcome
    from recollect.model.memory import Category, MemoryRecord, MemoryType, Status, Trust
    from recollect.model.result import Hit, Page, SearchResult
    from recollect.model.scope import Level, Scope
    from recollect.model.turn import Turn
    from recollect.sync import Memory


__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AsyncMemory",
    "Category",
    "HistoryEntry",
    "Hit",
    "Level",
    "Memory",
    "MemoryRecord",
    "MemoryType",
    "Outcome",
    "Page",
    "RecollectError",
    "Scope",
    "SearchResult",
    "Settings",
    "Status",
    "Trust",
    "Turn",
    "__version__",
]

# Loaded on first access, so that `import recollect` is fast.
_MODULES = {
    "Agent": "recollect.agent.agent",
    "AsyncMemory": "recollect.client",
    "Category": "recollect.model.memory",
    "HistoryEntry": "recollect.model.change",
    "Hit": "recollect.model.result",
    "Level": "recollect.model.scope",
    "Memory": "recollect.sync",
    "MemoryRecord": "recollect.model.memory",
    "MemoryType": "recollect.model.memory",
    "Outcome": "recollect.model.change",
    "Page": "recollect.model.result",
    "RecollectError": "recollect.errors",
    "Scope": "recollect.model.scope",
    "SearchResult": "recollect.model.result",
    "Settings": "recollect.config.settings",
    "Status": "recollect.model.memory",
    "Trust": "recollect.model.memory",
    "Turn": "recollect.model.turn",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'recollect' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
