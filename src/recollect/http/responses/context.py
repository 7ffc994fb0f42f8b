"""What the Responses API is made of: memory, upstreams, the ledger, and what is under way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from recollect.errors import RecollectError
from recollect.http.auth.caller import Caller
from recollect.http.proxy.chat_memory import ChatContext, ChatMemory
from recollect.http.proxy.memory_options import MemoryOptions
from recollect.http.responses.request import Json
from recollect.http.upstream.protocol import Header, Upstream
from recollect.ledger.protocol import ResponseStore
from recollect.model.scope import Scope

_log = logging.getLogger("recollect")
_MAX_TASKS = 10_000

Mode: TypeAlias = Literal["auto", "native", "translate"]
Message: TypeAlias = Mapping[str, Any]


class ResponseStorage(Protocol):
    """The part of the service that keeps responses."""

    @property
    def responses(self) -> ResponseStore: ...

    async def epoch(self, user: str) -> int: ...


T = TypeVar("T")
_PENDING_WRITE_TIMEOUT_S = 5.0


class ResponsesSupport:
    """Which upstreams speak the Responses API; of one that is not told, what was found out is remembered."""

    def __init__(self, modes: Mapping[str, Mode] | None = None) -> None:
        self._modes = dict(modes or {})

    def mode_of(self, upstream: str) -> Mode:
        return self._modes.get(upstream, "auto")

    def record(self, upstream: str, mode: Mode) -> None:
        self._modes[upstream] = mode


class ResponseTasks:
    """Work that goes on when the client who caused it is gone; `close` waits for its end."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        # What we raise on purpose was told by who waits for it; anything else is a mistake nobody may be waiting for.
        if error is not None and not isinstance(error, RecollectError):
            _log.error("work behind a response failed", exc_info=error)

    @property
    def is_full(self) -> bool:
        """Whether so much is under way that something must be stuck."""
        return len(self._running) >= _MAX_TASKS

    async def close(self) -> None:
        while self._running:
            await asyncio.wait(set(self._running))


@dataclass(slots=True)
class InProgressResponse:
    """A response that is being answered in this process."""

    scope: Scope
    task: asyncio.Task[Any]
    response: Callable[[], Json]
    is_cancelled: bool = False
    finished: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesContext:
    """One of these for a server; `steer` is given a request's fields and headers, and who asks."""

    storage: ResponseStorage
    memory: ChatMemory
    upstream_of: Callable[[str], Upstream]
    parse_memory_options: Callable[[Mapping[str, Any], Sequence[Header], Caller], MemoryOptions]
    support: ResponsesSupport = field(default_factory=ResponsesSupport)
    retention: timedelta = timedelta(days=30)
    store_timeout_s: float = 0.3
    max_body_bytes: int = 50_000_000
    tasks: ResponseTasks = field(default_factory=ResponseTasks)
    # By user and id.
    in_progress: dict[tuple[str, str], InProgressResponse] = field(default_factory=dict)
    pending_writes: dict[tuple[str, str], asyncio.Task[None]] = field(default_factory=dict)

    def track_write(self, user: str, ids: Iterable[str], task: asyncio.Task[None]) -> None:
        """What these ids are of is being kept by a task, until that is done."""
        keys = [(user, id) for id in ids if id]
        self.pending_writes.update(dict.fromkeys(keys, task))

        def done(task: asyncio.Task[None]) -> None:
            for key in keys:
                if self.pending_writes.get(key) is task:
                    del self.pending_writes[key]

        task.add_done_callback(done)

    async def wait_for_write(self, user: str, id: str) -> None:
        """Wait for what was answered and is not in the ledger yet, since whoever asks for it was told its id."""
        if task := self.pending_writes.get((user, id)):
            await asyncio.wait({task}, timeout=_PENDING_WRITE_TIMEOUT_S)


def memory_headers(chat: ChatContext) -> list[Header]:
    """What every answer says of memory."""
    return [
        (b"x-memory-status", chat.status.encode("latin-1", "replace")),
        (b"x-memory-hits", str(len(chat.hits)).encode()),
        (b"x-memory-turn", (chat.turn_id or "").encode("latin-1", "replace")),
    ]
