"""Bring what was spilled to the ledger, once it answers again: in order, each turn once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from recollect.errors import Backlog, RecollectError, Unavailable
from recollect.http.proxy.journal import Journal
from recollect.model.change import Author
from recollect.model.result import RememberResult
from recollect.model.scope import Scope
from recollect.service.service import Service
from recollect.write.spill_file import SpilledLine, SpilledTurn, group_by_arrival

_log = logging.getLogger("recollect")
BY = Author("proxy", "chat")
# How often it is looked whether the ledger answers while something waits, and else for files left behind by others.
POLL_S = 1.0
ORPHAN_SCAN_S = 10.0
_PING_S = 2.0
_APPEND_S = 15.0
_MAX_CONCURRENT_SESSIONS = 8
_BATCH_TURNS = 100


class Replay:
    """A task that empties the journal into the ledger."""

    def __init__(self, journal: Journal, service: Callable[[], Service]) -> None:
        self._journal, self._service = journal, service
        self._task: asyncio.Task[None] | None = None
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT_SESSIONS)

    def start(self) -> None:
        """Begin, and go on until this is closed."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop; what is left waits on disk."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while True:
            pause_s = POLL_S
            try:
                await self.replay_pending()
            except (Unavailable, TimeoutError) as error:
                _log.debug("what was spilled goes on waiting: %s", error)
            except Exception:
                _log.exception("what was spilled could not be brought to the ledger")
                pause_s = ORPHAN_SCAN_S
            waited_s = 0.0
            # Others leave files behind seldom, and to look for them costs more than to look at our own.
            while self._journal.is_empty and waited_s < ORPHAN_SCAN_S:
                await asyncio.sleep(POLL_S)
                waited_s += POLL_S
            await asyncio.sleep(pause_s)

    async def replay_pending(self) -> int:
        """Bring in all that waits and can be; gives how many turns that were, or raises why the ledger is away."""
        service = self._service()
        async with asyncio.timeout(_PING_S):
            await service.ping()
        count, blocked = 0, set[Scope]()
        for path in await self._journal.claim_files():
            count += await self._replay_file(path, service, blocked)
        if count:
            _log.info("%d turns that were spilled are in the ledger", count)
        return count

    async def _replay_file(self, path: Path, service: Service, blocked: set[Scope]) -> int:
        """Bring in a file, sessions side by side, but those of which something before it is still waiting."""
        sessions: dict[Scope, list[SpilledLine]] = {}
        for line in await self._journal.read(path):
            sessions.setdefault(line.turn.scope, []).append(line)
        attempted = [scope for scope in sessions if scope not in blocked]
        results = await asyncio.gather(
            *(self._replay_session(path, scope, sessions[scope], service) for scope in attempted),
            return_exceptions=True,
        )
        finished = [scope for scope in sessions if not self._journal.has_pending_in(path, scope)]
        if len(finished) == len(sessions):
            await self._journal.remove(path)
        elif finished:
            await self._journal.blank_lines(path, (line for scope in finished for line in sessions[scope]))
        blocked.update(sessions.keys() - set(finished))
        for result in results:
            # What one user has too much of does not keep back what others said.
            if isinstance(result, BaseException) and not isinstance(result, Backlog):
                raise result
        return sum(result for result in results if isinstance(result, int))

    async def _replay_session(self, path: Path, scope: Scope, lines: Sequence[SpilledLine], service: Service) -> int:
        count = 0
        async with self._slots:
            for start in range(0, len(lines), _BATCH_TURNS):
                batch = [line.turn for line in lines[start : start + _BATCH_TURNS]]
                count += await self._replay_batch(batch, service) or await self._replay_each(path, batch, service)
        self._journal.mark_replayed(path, scope)
        return count

    async def _replay_batch(self, batch: Sequence[SpilledTurn], service: Service) -> int:
        """Bring in turns in one go; gives 0 unless all of them are there: each must then be looked at by itself.

        They count as given when the first of them was. So none comes in that an erasure reached, but one that was
        given after the erasure may stay out.
        """
        messages, received_at = [each.message for each in batch], min(each.received_at for each in batch)
        try:
            stored = await self._remember(batch[0].scope, messages, received_at, service)
        except (Unavailable, TimeoutError):
            raise
        except RecollectError:
            return 0
        return len(stored) if len(stored) == len(batch) else 0

    async def _replay_each(self, path: Path, batch: Sequence[SpilledTurn], service: Service) -> int:
        count = 0
        for scope, received_at, messages in group_by_arrival(batch):
            try:
                count += len(await self._remember(scope, messages, received_at, service))
            except (Unavailable, TimeoutError):
                raise
            except RecollectError as error:
                _log.error("%d turns are put aside, the ledger refuses them: %s", len(messages), error)
                await self._journal.store_rejected(path, (SpilledTurn(scope, each, received_at) for each in messages))
        return count

    async def _remember(
        self, scope: Scope, messages: Sequence[Mapping[str, Any]], received_at: datetime, service: Service
    ) -> RememberResult:
        async with asyncio.timeout(_APPEND_S):
            return await service.remember(scope, messages, by=BY, received_at=received_at)
