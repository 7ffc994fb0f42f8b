"""What one MCP client may see and change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from recollect.config.settings import Settings
from recollect.errors import NotAllowed
from recollect.model.change import Author
from recollect.model.scope import Scope
from recollect.service.service import Service
from recollect.service.tool_memory import ToolMemory

# The author in history, after the name of the key, and the source of new memories.
_NAME = "mcp"


@dataclass(frozen=True, slots=True, kw_only=True)
class McpAccess:
    """The memory of a client's user and project; `service` returns the service in use, for long streams."""

    memory: ToolMemory
    service: Callable[[], Service]
    writes: bool = True
    is_stopping: Callable[[], bool] = lambda: False

    def check_can_write(self) -> None:
        if not self.writes:
            raise NotAllowed("This key may read, not write")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpClient:
    """Who uses MCP: a scope, the name of the key or token if there is one, the branch, and the rights."""

    scope: Scope
    name: str = ""
    branch: str = ""
    writes: bool = True
    own_project_only: bool = False

    def access(
        self, service: Callable[[], Service], settings: Settings, *, is_stopping: Callable[[], bool] = lambda: False
    ) -> McpAccess:
        memory = ToolMemory(
            service=service(),
            scope=self.scope,
            by=Author(f"{self.name} {_NAME}".strip()),
            source=_NAME,
            min_score=settings.search_min_score,
            time_words=settings.time_words,
            own_project_only=self.own_project_only,
            metadata={"branch": self.branch} if self.branch else {},
        )
        return McpAccess(memory=memory, service=service, writes=self.writes, is_stopping=is_stopping)
