"""Memory that never makes a chat fail: reads have a time budget, writes go to the ledger or to disk.

A read that fails or takes too long returns `Degraded`. A turn that the ledger does not take in time goes to the spill
journal, and from there to the ledger later, once. While the ledger does not answer, a breaker keeps chats from
waiting for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

from recollect.aio.background import TaskSet
from recollect.aio.breaker import Breaker, Permit
from recollect.aio.throttle import LoopThrottle
from recollect.config.settings import Settings
from recollect.errors import (
    Backlog,
    Conflict,
    DiskFull,
    InvalidInput,
    ModelUnavailable,
    NotFound,
    QuotaReached,
    RecollectError,
    Unavailable,
)
from recollect.model.change import Author
from recollect.model.result import RememberResult
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Turn
from recollect.observability.metrics import BREAKER_OPEN, JOURNAL_SESSIONS
from recollect.service.service import Service
from recollect.service.spill_journal import CHAT_AUTHOR, SpillReplay
from recollect.wiring import open_spill_journal

_log = logging.getLogger("recollect")
T = TypeVar("T")
DegradedReason: TypeAlias = Literal[
    "timeout", "store_unavailable", "embedder_unavailable", "breaker_open", "backlog", "quota", "disk_full"
]
_GRACE_S = 2.0
# The part of the budget for the work after a timeout: the loop may be late, and turns are synced to the journal.
_RESERVED_S = 0.02
# Where no LLM is configured the recalled memories are the answer, which is worth waiting for on a busy machine.
_ANSWER_BUDGET_S = 5.0
_MAX_CONCURRENT_READS = 16
# Writes that may begin before chats in progress run again.
_WRITES_PER_TICK = 4
# Errors that show that the ledger answers.
_LEDGER_ANSWERED = (Backlog, InvalidInput, Conflict, NotFound, QuotaReached)


@dataclass(frozen=True, slots=True)
class Degraded:
    """A read without a result, and why."""

    reason: DegradedReason


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The outcome of a write: `is_durable` turns are in the ledger, or on disk if there is a `reason`.

    Turns that are not in the ledger yet have position 0.
    """

    turns: tuple[Turn, ...] = ()
    is_durable: bool = True
    reason: DegradedReason | None = None


class ResilientMemory:
    """Reads and writes of chats, each with a breaker; failures of a store or a model are never raised."""

    def __init__(
        self, settings: Settings, service: Callable[[], Service], *, answers_from_memory: bool = False
    ) -> None:
        self._service, self._journal = service, open_spill_journal(settings)
        self._budget_s = max(settings.memory_timeout_s - _RESERVED_S, settings.memory_timeout_s / 2)
        self._read_budget_s = max(self._budget_s, _ANSWER_BUDGET_S) if answers_from_memory else self._budget_s
        # A read that begins to ask the stores later than this says nothing about them.
        self.max_delay_s = self._read_budget_s / 2
        self.reads, self.writes = Breaker(), Breaker()
        self.replay = SpillReplay(self._journal, service)
        # Recall takes CPU: a thousand concurrent ones would all be late, so most of them wait, and may give up.
        self._read_slots = asyncio.Semaphore(_MAX_CONCURRENT_READS)
        self._throttle = LoopThrottle(_WRITES_PER_TICK)
        self.tasks = TaskSet()

    @property
    def has_spilled_turns(self) -> bool:
        return not self._journal.is_empty

    def update_metrics(self) -> None:
        BREAKER_OPEN.set(self.reads.is_open, "reads")
        BREAKER_OPEN.set(self.writes.is_open, "writes")
        JOURNAL_SESSIONS.set(self._journal.pending_sessions)

    async def close(self) -> None:
        """Wait a little for running reads and writes, then cancel them; turns are safe either way."""
        await self.replay.close()
        await self.tasks.close(grace_s=_GRACE_S)
        await self._journal.close()

    async def read(self, call: Callable[[Service], Coroutine[Any, Any, T]]) -> T | Degraded:
        """Return the result of a call that ends in time; a late one is cancelled."""
        try:
            service = self._service()
        except Unavailable as error:
            return Degraded(classify_failure(error))
        match self.reads.permit():
            case Permit.CALL:
                return await self._read(call, service, Permit.CALL)
            case Permit.PROBE:
                # In the background: no chat waits while the breaker is open.
                self.tasks.start(self._read(call, service, Permit.PROBE))
        return Degraded("breaker_open")

    async def _read(
        self, call: Callable[[Service], Coroutine[Any, Any, T]], service: Service, permit: Permit
    ) -> T | Degraded:
        clock = asyncio.get_running_loop().time
        late_at = clock() + self.max_delay_s
        started_at = late_at
        try:
            async with asyncio.timeout(self._read_budget_s), self._read_slots:
                started_at = clock()
                result = await call(service)
        except InvalidInput:
            self.reads.record_success(permit)
            raise
        except TimeoutError:
            if started_at < late_at:
                return self._read_failed(permit, "timeout")
            # A call that had to wait for a slot says nothing about the ledger.
            return Degraded("timeout")
        except Exception as error:
            return self._read_failed(permit, classify_failure(error))
        self.reads.record_success(permit)
        return result

    def _read_failed(self, permit: Permit, reason: DegradedReason) -> Degraded:
        if self.reads.record_failure(permit) and reason in ("timeout", "store_unavailable"):
            # Writes use the same ledger, and need not run into five timeouts of their own.
            self.writes.open()
        return Degraded(reason)

    async def write(
        self,
        scope: Scope,
        messages: Sequence[Mapping[str, Any]],
        *,
        within_s: float | None = None,
        model: str = "",
        mode: str | None = None,
        by: Author = CHAT_AUTHOR,
    ) -> WriteResult:
        """Store turns in the ledger in time, or else on disk; each message names its `turn_id`.

        A ledger write that takes too long continues: if it succeeds after all, the replay changes nothing.
        """
        received_at = now()

        async def spill(reason: DegradedReason) -> WriteResult:
            try:
                turns = await self._journal.append_messages(scope, messages, received_at, model=model, mode=mode)
            except Exception as error:
                problem = "%d turns are neither in the ledger (%s) nor in the spill journal: %s"
                _log.error(problem, len(messages), reason, error)
                return WriteResult(is_durable=False, reason="disk_full" if isinstance(error, DiskFull) else reason)
            return WriteResult(turns, reason=reason if turns else None)

        await self._throttle.acquire()
        try:
            service = self._service()
        except Unavailable as error:
            return await spill(classify_failure(error))
        if self._journal.has_pending(scope):
            # Earlier turns of the session have to come first.
            return await spill("breaker_open" if self.writes.is_open else "backlog")
        permit = self.writes.permit()
        if permit is Permit.DENY:
            return await spill("breaker_open")
        remembering = self.tasks.start(
            service.remember(scope, messages, by=by, received_at=received_at, model=model, mode=mode)
        )
        ledger_write = self._await_ledger(remembering, permit, self._budget_s if within_s is None else within_s)
        if permit is Permit.PROBE:
            self.tasks.start(ledger_write)
            return await spill("breaker_open")
        result = await ledger_write
        if isinstance(result, RememberResult):
            return WriteResult(result.turns)
        if result == "quota":
            # The ledger would refuse it later too, and it must not take space in the journal.
            return WriteResult(is_durable=False, reason=result)
        return await spill(result)

    async def _await_ledger(
        self, remembering: asyncio.Task[RememberResult], permit: Permit, within_s: float
    ) -> RememberResult | DegradedReason:
        """Wait for a write until it is done, its time is up or the breaker opens; report it to the breaker."""
        awaited: list[asyncio.Future[Any]] = [remembering]
        if permit is Permit.CALL:
            awaited.append(self.writes.opened)
        await asyncio.wait(awaited, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        if not remembering.done():
            if permit is Permit.CALL and self.writes.is_open:
                return "breaker_open"
            # A shortened budget says nothing about the ledger.
            if within_s >= self._budget_s:
                self.writes.record_failure(permit)
            return "timeout"
        error = remembering.exception()
        if error is None or isinstance(error, _LEDGER_ANSWERED):
            self.writes.record_success(permit)
        else:
            self.writes.record_failure(permit)
        return remembering.result() if error is None else classify_failure(error)


def classify_failure(error: BaseException) -> DegradedReason:
    """Return the reason that X-Memory-Status names for a failure."""
    match error:
        case TimeoutError():
            return "timeout"
        case DiskFull():
            return "disk_full"
        case Backlog():
            return "backlog"
        case QuotaReached():
            return "quota"
        case ModelUnavailable():
            return "embedder_unavailable"
        case RecollectError():
            return "store_unavailable"
        case _:
            _log.error("memory failed", exc_info=error)
            return "store_unavailable"
