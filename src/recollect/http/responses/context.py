"""The dependencies of the Responses API, and its state in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from recollect.aio.task_set import TaskSet
from recollect.config.server_fields import ResponsesMode
from recollect.http.proxy.chat_memory import ChatMemory
from recollect.http.proxy.memory_options import MemoryDefaults
from recollect.http.responses.request import Json
from recollect.http.upstream.protocol import Upstream
from recollect.model.scope import Scope
from recollect.service.service import Service

_PENDING_WRITE_TIMEOUT_S = 5.0


@dataclass(slots=True)
class InProgressResponse:
    """A response that this process is answering."""

    scope: Scope
    task: asyncio.Task[Any]
    response: Callable[[], Json]
    is_cancelled: bool = False
    finished: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesContext:
    """The dependencies and state of one server; `service` raises Unavailable until the ledger is open.

    `modes` says which upstreams have a Responses API; for those that are not listed it is detected.
    """

    service: Callable[[], Service]
    memory: ChatMemory
    upstream_of: Callable[[object], Upstream]
    defaults: MemoryDefaults = field(default_factory=MemoryDefaults)
    modes: dict[str, ResponsesMode] = field(default_factory=dict)
    retention: timedelta = timedelta(days=30)
    store_timeout_s: float = 0.3
    max_body_bytes: int = 50_000_000
    tasks: TaskSet = field(default_factory=TaskSet)
    # Both by user and id.
    in_progress: dict[tuple[str, str], InProgressResponse] = field(default_factory=dict)
    pending_writes: dict[tuple[str, str], asyncio.Task[None]] = field(default_factory=dict)

    async def epoch(self, user: str) -> int:
        """Return the number of the user's erasures; raises Unavailable when it is awaited, not before."""
        return await self.service().epoch(user)

    def track_write(self, user: str, ids: Iterable[str], task: asyncio.Task[None]) -> None:
        """Note that a task stores these ids, until it is done."""
        keys = [(user, id) for id in ids if id]
        self.pending_writes.update(dict.fromkeys(keys, task))

        def done(task: asyncio.Task[None]) -> None:
            for key in keys:
                if self.pending_writes.get(key) is task:
                    del self.pending_writes[key]

        task.add_done_callback(done)

    async def wait_for_write(self, user: str, id: str) -> None:
        """Wait for a response or conversation that is being stored."""
        if task := self.pending_writes.get((user, id)):
            await asyncio.wait({task}, timeout=_PENDING_WRITE_TIMEOUT_S)
