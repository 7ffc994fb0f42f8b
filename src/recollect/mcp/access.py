"""What one MCP client may see and change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from recollect.errors import NotAllowed
from recollect.service.service import Service
from recollect.service.tool_memory import ToolMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The memory of a client's user and project; `service` returns the service in use, for long streams."""

    memory: ToolMemory
    service: Callable[[], Service]
    writes: bool = True
    is_stopping: Callable[[], bool] = lambda: False

    def check_can_write(self) -> None:
        """Raise NotAllowed if the client may only read."""
        if not self.writes:
            raise NotAllowed("This key may read, not write")
