"""Memory that never makes a chat fail: what is read has a time budget, what is said is kept one way or another.

A read that fails or takes too long is a `Degraded`. A turn that the ledger does not take in time goes to the spill
journal, and from there to the ledger later, once. While the ledger does not answer, nobody waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias, TypeVar

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
from recollect.http.proxy.journal import Journal
from recollect.http.proxy.replay import BY, Replay
from recollect.model.result import RecallOutcome, RecallResult, RememberResult
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Turn
from recollect.observability.metrics import BREAKER_OPEN, JOURNAL_SESSIONS
from recollect.remember import normalize_turns
from recollect.service.service import Service
from recollect.wiring import spill_folder
from recollect.write.parse import parse_messages
from recollect.write.redact import Redactor
from recollect.write.spill_file import SpilledTurn

_log = logging.getLogger("recollect")
T = TypeVar("T")
DegradedReason: TypeAlias = Literal[
    "timeout", "store_unavailable", "embedder_unavailable", "breaker_open", "backlog", "quota", "disk_full"
]
_GRACE_S = 2.0
# Of the time a chat may wait for memory, this is for what comes when it is up: the loop is late, and what was said
# is synced to the journal.
_RESERVED_S = 0.02
_MAX_CONCURRENT_READS = 16
# How many writes may begin before the chats that are under way have their turn.
_WRITES_PER_TICK = 4
# Errors by which the ledger shows that it is there.
_LEDGER_ANSWERED = (Backlog, InvalidInput, Conflict, NotFound, QuotaReached)


@dataclass(frozen=True, slots=True)
class Degraded:
    """A read that came to nothing, and why."""

    reason: DegradedReason

    @property
    def status(self) -> str:
        """As the header says it."""
        return f"degraded; reason={self.reason}"


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What became of turns: in the ledger, or `safe` on disk until it answers, or neither.

    Turns that are not in the ledger yet have the position 0.
    """

    turns: tuple[Turn, ...] = ()
    is_durable: bool = True
    reason: DegradedReason | None = None

    @property
    def status(self) -> str:
        """As the header says it."""
        return "ok" if self.reason is None else f"degraded; reason={self.reason}"


@dataclass(frozen=True, slots=True)
class _WriteRequest:
    """What was said, as messages that name their turns and times, and when it came."""

    scope: Scope
    messages: Sequence[Mapping[str, Any]]
    at: datetime
    model: str = ""


class ResilientMemory:
    """Reads and writes of chats, each behind a breaker. What is wrong with a store or a model is never raised."""

    def __init__(
        self, service: Callable[[], Service], journal: Journal, *, budget_s: float, redact_turns: bool
    ) -> None:
        self._service, self._journal = service, journal
        self._budget_s, self._redactor = max(budget_s - _RESERVED_S, budget_s / 2), Redactor(turns=redact_turns)
        self.reads, self.writes = Breaker(), Breaker()
        self.replay = Replay(journal, service)
        # A recall is work for this process: of a thousand at a time all would be late, so most wait, and give up.
        self._read_slots = asyncio.Semaphore(_MAX_CONCURRENT_READS)
        self._throttle = LoopThrottle(_WRITES_PER_TICK)
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def has_spilled_turns(self) -> bool:
        """Whether turns wait on disk for the ledger."""
        return not self._journal.is_empty

    def update_metrics(self) -> None:
        """Have the numbers tell how reads, writes and the journal stand."""
        BREAKER_OPEN.set(self.reads.is_open, "reads")
        BREAKER_OPEN.set(self.writes.is_open, "writes")
        JOURNAL_SESSIONS.set(self._journal.pending_sessions)

    def start(self) -> None:
        """Begin to bring in what was spilled, now or by processes that are gone."""
        self.replay.start()

    async def close(self) -> None:
        """Let what is under way end if it does soon; what was said is safe either way."""
        await self.replay.close()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_GRACE_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        await self._journal.close()

    async def read(
        self, call: Callable[[Service], Coroutine[Any, Any, T]], *, within_s: float | None = None
    ) -> T | Degraded:
        """What the service answers, if it does in time; one that is late is cancelled."""
        try:
            service = self._service()
        except Unavailable as error:
            return Degraded(classify_failure(error))
        within_s = self._budget_s if within_s is None else within_s
        match self.reads.permit():
            case Permit.CALL:
                return await self._read(lambda: call(service), Permit.CALL, within_s)
            case Permit.PROBE:
                # The chat goes on without it: nobody waits while the breaker is open.
                self._spawn(self._read(lambda: call(service), Permit.PROBE, within_s))
        return Degraded("breaker_open")

    async def _read(
        self, call: Callable[[], Coroutine[Any, Any, T]], permit: Permit, within_s: float
    ) -> T | Degraded:
        clock = asyncio.get_running_loop().time
        late_at = clock() + within_s / 2
        started_at = late_at
        try:
            async with asyncio.timeout(within_s), self._read_slots:
                started_at = clock()
                result = await call()
        except InvalidInput:
            self.reads.record_success(permit)
            raise
        except TimeoutError:
            if started_at < late_at:
                # Whoever came late to ask, or never, says nothing about the ledger.
                return self._read_failed(permit, "timeout")
            return Degraded("timeout")
        except Exception as error:
            return self._read_failed(permit, classify_failure(error))
        if isinstance(result, RecallResult) and result.failure and result.outcome is RecallOutcome.UNAVAILABLE:
            # A recall does not raise what went wrong, but it counts.
            return self._read_failed(permit, classify_failure(result.failure))
        self.reads.record_success(permit)
        return result

    def _read_failed(self, permit: Permit, reason: DegradedReason) -> Degraded:
        if self.reads.record_failure(permit) and reason in ("timeout", "store_unavailable"):
            # A write goes to the same ledger: it need not wait five times over to learn the same.
            self.writes.open()
        return Degraded(reason)

    async def write(
        self,
        scope: Scope,
        messages: Sequence[Mapping[str, Any]],
        *,
        within_s: float | None = None,
        model: str = "",
    ) -> WriteResult:
        """Have turns in the ledger in time, or else on disk; a message may name its `turn_id`.

        A write that takes too long is not broken off, nor one whose caller goes away: should it go through after all,
        the replay finds it done.
        """
        received_at = now()
        # As they are: the ledger takes secrets out, and so does whoever spills.
        parsed = [SpilledTurn.from_turn(turn, received_at).message for turn in parse_messages(scope, messages)]
        if not parsed:
            return WriteResult()
        within_s = self._budget_s if within_s is None else within_s
        return await asyncio.shield(
            self._spawn(self._write(_WriteRequest(scope, parsed, received_at, model), within_s))
        )

    async def _write(self, request: _WriteRequest, within_s: float) -> WriteResult:
        await self._throttle.acquire()
        if self._journal.has_pending(request.scope):
            # What was said before it must come first.
            return await self._spill(request, self._spill_reason())
        try:
            service = self._service()
        except Unavailable as error:
            return await self._spill(request, classify_failure(error))
        permit = self.writes.permit()
        if permit is Permit.DENY:
            return await self._spill(request, "breaker_open")
        ledger_write = self._write_to_ledger(service, request, permit, within_s)
        if permit is Permit.PROBE:
            self._spawn(ledger_write)
            return await self._spill(request, "breaker_open")
        answer = await ledger_write
        if answer == "quota":
            # It would not be taken later either, and must not take the place of what others say.
            return WriteResult(is_durable=False, reason=answer)
        return WriteResult(answer.turns) if isinstance(answer, RememberResult) else await self._spill(request, answer)

    def _spill_reason(self) -> DegradedReason:
        try:
            self._service()
        except Unavailable as error:
            return classify_failure(error)
        return "breaker_open" if self.writes.is_open else "backlog"

    async def _write_to_ledger(
        self, service: Service, request: _WriteRequest, permit: Permit, within_s: float
    ) -> RememberResult | DegradedReason:
        write_task = self._spawn(
            service.remember(request.scope, request.messages, by=BY, received_at=request.at, model=request.model)
        )
        awaited: list[asyncio.Future[Any]] = (
            [write_task] if permit is Permit.PROBE else [write_task, self.writes.opened]
        )
        await asyncio.wait(awaited, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        if not write_task.done() and permit is Permit.CALL and self.writes.is_open:
            return "breaker_open"
        if not write_task.done():
            # A caller who had little time left says nothing about the ledger.
            if within_s >= self._budget_s:
                self.writes.record_failure(permit)
            return "timeout"
        try:
            remembered = write_task.result()
        except Exception as error:
            if isinstance(error, _LEDGER_ANSWERED):
                self.writes.record_success(permit)
            else:
                self.writes.record_failure(permit)
            return classify_failure(error)
        self.writes.record_success(permit)
        return remembered

    async def _spill(self, request: _WriteRequest, reason: DegradedReason) -> WriteResult:
        turns = tuple(normalize_turns(request.scope, request.messages, self._redactor)[0])
        if not turns:
            return WriteResult()
        try:
            await self._journal.append([SpilledTurn.from_turn(turn, request.at) for turn in turns])
        except Exception as error:
            _log.error("%d turns are neither in the ledger (%s) nor in the journal: %s", len(turns), reason, error)
            return WriteResult(turns, is_durable=False, reason="disk_full" if isinstance(error, DiskFull) else reason)
        return WriteResult(turns, reason=reason)

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Do it whether or not anyone waits for it to the end."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.debug("a chat went on without its memory: %r", error)


def classify_failure(error: BaseException) -> DegradedReason:
    """Why memory was not there, in the words of the header."""
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


def open_resilient_memory(settings: Settings, service: Callable[[], Service]) -> ResilientMemory:
    """Safekeeping as the settings say, for a service that may not be open yet."""
    journal = Journal(spill_folder(settings), max_bytes=settings.spill_mb << 20)
    return ResilientMemory(service, journal, budget_s=settings.memory_timeout_s, redact_turns=settings.redact_turns)
