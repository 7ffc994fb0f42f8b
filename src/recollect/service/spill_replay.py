"""Replay the spill journal into the ledger once it answers: in order, each turn once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from recollect.aio.background import BackgroundTask
from recollect.errors import Backlog, RecollectError, Unavailable
from recollect.model.change import Author
from recollect.model.result import RememberResult
from recollect.model.scope import Scope
from recollect.service.service import Service
from recollect.service.spill_journal import SpillJournal
from recollect.write.spill_file import SpilledLine, SpilledTurn, group_by_arrival, group_by_learning

_log = logging.getLogger("recollect")
CHAT_AUTHOR = Author("proxy", "chat")
# How often the ledger is tried while turns wait, and how often files of other processes are looked for.
POLL_S = 1.0
ORPHAN_SCAN_S = 10.0
_PING_S = 2.0
_APPEND_S = 15.0
_MAX_CONCURRENT_SESSIONS = 8
_BATCH_TURNS = 100


class SpillReplay:
    """A background task that empties the journal into the ledger."""

    def __init__(self, journal: SpillJournal, service: Callable[[], Service]) -> None:
        self._journal, self._service = journal, service
        self._task = BackgroundTask(self._run)
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT_SESSIONS)

    def start(self) -> None:
        """Replay from now on, also turns of processes that ended."""
        self._task.start()

    async def close(self) -> None:
        """Stop; turns that are left stay on disk."""
        await self._task.stop()

    async def _run(self) -> None:
        while True:
            pause_s = POLL_S
            try:
                await self.replay_pending()
            except (Unavailable, TimeoutError) as error:
                _log.debug("the replay of spilled turns waits for the ledger: %s", error)
            except Exception:
                _log.exception("spilled turns could not be replayed")
                pause_s = ORPHAN_SCAN_S
            waited_s = 0.0
            # Other processes rarely leave files, and looking for them costs more than checking our own.
            while self._journal.is_empty and waited_s < ORPHAN_SCAN_S:
                await asyncio.sleep(POLL_S)
                waited_s += POLL_S
            await asyncio.sleep(pause_s)

    async def replay_pending(self) -> int:
        """Replay all turns that the ledger takes; returns their number, or raises why the ledger is unavailable."""
        service = self._service()
        async with asyncio.timeout(_PING_S):
            await service.ping()
        count, blocked = 0, set[Scope]()
        for path in await self._journal.claim_files():
            count += await self._replay_file(path, service, blocked)
        if count:
            _log.info("replayed %d spilled turns", count)
        return count

    async def _replay_file(self, path: Path, service: Service, blocked: set[Scope]) -> int:
        """Replay a file's sessions concurrently, except for those with turns left in an earlier file."""
        sessions: dict[Scope, list[SpilledLine]] = {}
        for line in await self._journal.read(path):
            sessions.setdefault(line.turn.scope, []).append(line)
        results = await asyncio.gather(
            *(
                self._replay_session(path, scope, sessions[scope], service)
                for scope in sessions
                if scope not in blocked
            ),
            return_exceptions=True,
        )
        finished = [scope for scope in sessions if not self._journal.has_pending_in(path, scope)]
        if len(finished) == len(sessions):
            await self._journal.remove(path)
        elif finished:
            await self._journal.blank_lines(path, (line for scope in finished for line in sessions[scope]))
        blocked.update(sessions.keys() - set(finished))
        for result in results:
            # One user's backlog does not hold up the turns of other users.
            if isinstance(result, BaseException) and not isinstance(result, Backlog):
                raise result
        return sum(result for result in results if isinstance(result, int))

    async def _replay_session(self, path: Path, scope: Scope, lines: Sequence[SpilledLine], service: Service) -> int:
        count = 0
        async with self._slots:
            for group in group_by_learning(line.turn for line in lines):
                for start in range(0, len(group), _BATCH_TURNS):
                    batch = group[start : start + _BATCH_TURNS]
                    count += await self._replay_batch(batch, service) or await self._replay_each(path, batch, service)
        self._journal.mark_replayed(path, scope)
        return count

    async def _replay_batch(self, batch: Sequence[SpilledTurn], service: Service) -> int:
        """Store turns in one call; returns 0 unless all are stored, so that each has to be stored by itself.

        They count as received when the first of them was. No turn that an erasure reached is stored, but one that
        was received after the erasure may be left out.
        """
        try:
            stored = await self._remember(batch, service)
        except Unavailable:
            raise
        except RecollectError:
            return 0
        return len(stored) if len(stored) == len(batch) else 0

    async def _replay_each(self, path: Path, batch: Sequence[SpilledTurn], service: Service) -> int:
        count = 0
        for group in group_by_arrival(batch):
            try:
                count += len(await self._remember(group, service))
            except Unavailable:
                raise
            except RecollectError as error:
                _log.error(
                    "the ledger rejects %d spilled turns, which are moved to a .refused file: %s",
                    len(group),
                    error,
                )
                await self._journal.store_rejected(path, group)
        return count

    async def _remember(self, batch: Sequence[SpilledTurn], service: Service) -> RememberResult:
        """Store turns of one session that are learned from in the same way."""
        first = batch[0]
        async with asyncio.timeout(_APPEND_S):
            return await service.remember(
                first.scope,
                [each.message for each in batch],
                by=CHAT_AUTHOR,
                received_at=min(each.received_at for each in batch),
                model=first.model,
                mode=first.mode,
            )
