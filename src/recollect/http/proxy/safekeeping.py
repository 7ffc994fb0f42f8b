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
from recollect.model.breaker import Breaker, Leave
from recollect.model.outcome import RecallOutcome
from recollect.model.remembered import Remembered
from recollect.model.result import Recalled
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Turn
from recollect.model.turns import Turns
from recollect.observe.metrics import BREAKER_OPEN, JOURNAL_SESSIONS
from recollect.remember import heard
from recollect.service import Service
from recollect.settings import Settings
from recollect.upkeep.spilled import Spilled
from recollect.wiring import spill_folder
from recollect.write.listen import listen
from recollect.write.screening.given import Redacting

_log = logging.getLogger("recollect")
T = TypeVar("T")
Reason: TypeAlias = Literal[
    "timeout", "store_unavailable", "embedder_unavailable", "breaker_open", "backlog", "quota", "disk_full"
]
_GRACE_S = 2.0
# Of the time a chat may wait for memory, this is for what comes when it is up: the loop is late, and what was said
# is synced to the journal.
_SPARE_S = 0.02
_AT_ONCE = 16
# How many writes may begin before the chats that are under way have their turn.
_IN_A_TURN = 4
# Errors by which the ledger shows that it is there.
_ANSWERS = (Backlog, InvalidInput, Conflict, NotFound, QuotaReached)


@dataclass(frozen=True, slots=True)
class Degraded:
    """A read that came to nothing, and why."""

    reason: Reason

    @property
    def status(self) -> str:
        """As the header says it."""
        return f"degraded; reason={self.reason}"


@dataclass(frozen=True, slots=True)
class Kept:
    """What became of turns: in the ledger, or `safe` on disk until it answers, or neither.

    Turns that are not in the ledger yet have the position 0.
    """

    turns: tuple[Turn, ...] = ()
    safe: bool = True
    reason: Reason | None = None

    @property
    def status(self) -> str:
        """As the header says it."""
        return "ok" if self.reason is None else f"degraded; reason={self.reason}"


@dataclass(frozen=True, slots=True)
class _Given:
    """What was said, as messages that name their turns and times, and when it came."""

    scope: Scope
    messages: Sequence[Mapping[str, Any]]
    at: datetime
    model: str = ""


class Safekeeping:
    """Reads and writes of chats, each behind a breaker. What is wrong with a store or a model is never raised."""

    def __init__(self, service: Callable[[], Service], journal: Journal, *, budget_s: float, redacted: bool) -> None:
        self._service, self._journal = service, journal
        self._budget_s, self._redacting = max(budget_s - _SPARE_S, budget_s / 2), Redacting(turns=redacted)
        self.reads, self.writes = Breaker(), Breaker()
        self.replay = Replay(journal, service)
        # A recall is work for this process: of a thousand at a time all would be late, so most wait, and give up.
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._turns = Turns(_IN_A_TURN)
        self._under_way: set[asyncio.Task[Any]] = set()

    @property
    def is_waiting(self) -> bool:
        """Whether turns wait on disk for the ledger."""
        return not self._journal.is_empty

    def count(self) -> None:
        """Have the numbers tell how reads, writes and the journal stand."""
        BREAKER_OPEN.set(self.reads.is_open, "reads")
        BREAKER_OPEN.set(self.writes.is_open, "writes")
        JOURNAL_SESSIONS.set(self._journal.waiting)

    def start(self) -> None:
        """Begin to bring in what was spilled, now or by processes that are gone."""
        self.replay.start()

    async def close(self) -> None:
        """Let what is under way end if it does soon; what was said is safe either way."""
        await self.replay.close()
        if self._under_way:
            _, late = await asyncio.wait(self._under_way, timeout=_GRACE_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        await self._journal.close()

    async def read(
        self, ask: Callable[[Service], Coroutine[Any, Any, T]], *, within_s: float | None = None
    ) -> T | Degraded:
        """What the service answers, if it does in time; one that is late is cancelled."""
        try:
            service = self._service()
        except Unavailable as error:
            return Degraded(reason_of(error))
        within_s = self._budget_s if within_s is None else within_s
        match self.reads.leave():
            case Leave.ASK:
                return await self._read(lambda: ask(service), Leave.ASK, within_s)
            case Leave.PROBE:
                # The chat goes on without it: nobody waits while the breaker is open.
                self._go_on(self._read(lambda: ask(service), Leave.PROBE, within_s))
        return Degraded("breaker_open")

    async def _read(self, ask: Callable[[], Coroutine[Any, Any, T]], leave: Leave, within_s: float) -> T | Degraded:
        clock = asyncio.get_running_loop().time
        late_at = clock() + within_s / 2
        asked_at = late_at
        try:
            async with asyncio.timeout(within_s), self._at_once:
                asked_at = clock()
                found = await ask()
        except InvalidInput:
            self.reads.went_well(leave)
            raise
        except TimeoutError:
            if asked_at < late_at:
                # Whoever came late to ask, or never, says nothing about the ledger.
                return self._read_failed(leave, "timeout")
            return Degraded("timeout")
        except Exception as error:
            return self._read_failed(leave, reason_of(error))
        if isinstance(found, Recalled) and found.failure and found.outcome is RecallOutcome.UNAVAILABLE:
            # A recall does not raise what went wrong, but it counts.
            return self._read_failed(leave, reason_of(found.failure))
        self.reads.went_well(leave)
        return found

    def _read_failed(self, leave: Leave, reason: Reason) -> Degraded:
        if self.reads.failed(leave) and reason in ("timeout", "store_unavailable"):
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
    ) -> Kept:
        """Have turns in the ledger in time, or else on disk; a message may name its `turn_id`.

        A write that takes too long is not broken off, nor one whose caller goes away: should it go through after all,
        the replay finds it done.
        """
        given_at = now()
        # As they are: the ledger takes secrets out, and so does whoever spills.
        said = [Spilled.of(turn, given_at).message for turn in listen(scope, messages)]
        if not said:
            return Kept()
        within_s = self._budget_s if within_s is None else within_s
        return await asyncio.shield(self._go_on(self._write(_Given(scope, said, given_at, model), within_s)))

    async def _write(self, given: _Given, within_s: float) -> Kept:
        await self._turns.take()
        if self._journal.waits(given.scope):
            # What was said before it must come first.
            return await self._spill(given, self._why_behind())
        try:
            service = self._service()
        except Unavailable as error:
            return await self._spill(given, reason_of(error))
        leave = self.writes.leave()
        if leave is Leave.NO:
            return await self._spill(given, "breaker_open")
        asking = self._ask_ledger(service, given, leave, within_s)
        if leave is Leave.PROBE:
            self._go_on(asking)
            return await self._spill(given, "breaker_open")
        answer = await asking
        if answer == "quota":
            # It would not be taken later either, and must not take the place of what others say.
            return Kept(safe=False, reason=answer)
        return Kept(answer.turns) if isinstance(answer, Remembered) else await self._spill(given, answer)

    def _why_behind(self) -> Reason:
        try:
            self._service()
        except Unavailable as error:
            return reason_of(error)
        return "breaker_open" if self.writes.is_open else "backlog"

    async def _ask_ledger(
        self, service: Service, given: _Given, leave: Leave, within_s: float
    ) -> Remembered | Reason:
        writing = self._go_on(
            service.remember(given.scope, given.messages, by=BY, given_at=given.at, model=given.model)
        )
        waited_for: list[asyncio.Future[Any]] = [writing] if leave is Leave.PROBE else [writing, self.writes.opened]
        await asyncio.wait(waited_for, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        if not writing.done() and leave is Leave.ASK and self.writes.is_open:
            return "breaker_open"
        if not writing.done():
            # A caller who had little time left says nothing about the ledger.
            if within_s >= self._budget_s:
                self.writes.failed(leave)
            return "timeout"
        try:
            remembered = writing.result()
        except Exception as error:
            if isinstance(error, _ANSWERS):
                self.writes.went_well(leave)
            else:
                self.writes.failed(leave)
            return reason_of(error)
        self.writes.went_well(leave)
        return remembered

    async def _spill(self, given: _Given, reason: Reason) -> Kept:
        turns = tuple(heard(given.scope, given.messages, self._redacting)[0])
        if not turns:
            return Kept()
        try:
            await self._journal.keep([Spilled.of(turn, given.at) for turn in turns])
        except Exception as error:
            _log.error("%d turns are neither in the ledger (%s) nor in the journal: %s", len(turns), reason, error)
            return Kept(turns, safe=False, reason="disk_full" if isinstance(error, DiskFull) else reason)
        return Kept(turns, reason=reason)

    def _go_on(self, doing: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Do it whether or not anyone waits for it to the end."""
        task = asyncio.create_task(doing)
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.debug("a chat went on without its memory: %r", error)


def reason_of(error: BaseException) -> Reason:
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


def open_safekeeping(settings: Settings, service: Callable[[], Service]) -> Safekeeping:
    """Safekeeping as the settings say, for a service that may not be open yet."""
    journal = Journal(spill_folder(settings), most_bytes=settings.spill_mb << 20)
    return Safekeeping(service, journal, budget_s=settings.memory_timeout_s, redacted=settings.redact_turns)
