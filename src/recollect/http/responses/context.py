"""The dependencies of the Responses API, and its state in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, Protocol, TypeAlias

from recollect.aio.task_set import TaskSet
from recollect.http.proxy.chat_memory import ChatMemory
from recollect.http.proxy.memory_options import MemoryDefaults
from recollect.http.responses.request import Json
from recollect.http.upstream.protocol import Upstream
from recollect.ledger.ledger import Ledger
from recollect.model.scope import Scope

Mode: TypeAlias = Literal["auto", "native", "translate"]
_PENDING_WRITE_TIMEOUT_S = 5.0


class ResponseStorage(Protocol):
    """The part of the service that stores responses."""

    @property
    def responses(self) -> Ledger: ...

    async def epoch(self, user: str) -> int: ...


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
    """One of these for a server; `storage` raises Unavailable until the service is open.

    `modes` says which upstreams have a Responses API; for those that are not listed it is found out.
    """

    storage: Callable[[], ResponseStorage]
    memory: ChatMemory
    upstream_of: Callable[[object], Upstream]
    defaults: MemoryDefaults = field(default_factory=MemoryDefaults)
    modes: dict[str, Mode] = field(default_factory=dict)
    retention: timedelta = timedelta(days=30)
    store_timeout_s: float = 0.3
    max_body_bytes: int = 50_000_000
    tasks: TaskSet = field(default_factory=TaskSet)
    # Both by user and id.
    in_progress: dict[tuple[str, str], InProgressResponse] = field(default_factory=dict)
    pending_writes: dict[tuple[str, str], asyncio.Task[None]] = field(default_factory=dict)

    @property
    def store(self) -> Ledger:
        return self.storage().responses

    async def epoch(self, user: str) -> int:
        return await self.storage().epoch(user)

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
        """Wait for a response that was answered and is not stored yet."""
        if task := self.pending_writes.get((user, id)):
            await asyncio.wait({task}, timeout=_PENDING_WRITE_TIMEOUT_S)
