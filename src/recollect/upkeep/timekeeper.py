"""Keep the time: queue what is due, end sessions that ended by themselves, remove what nobody can want back."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from datetime import timedelta

from recollect.errors import RecollectError
from recollect.ledger.protocol import Ledger
from recollect.model.job import JobState
from recollect.model.times import now
from recollect.upkeep.chores import Housekeeping
from recollect.upkeep.schedule import due, last_runs

_log = logging.getLogger("recollect")
_EVERY_S = 60.0
_KEPT_JOBS = timedelta(days=7)
_MOST = 1000


class Timekeeper:
    """Looks at the clock now and then; several of them at one ledger do no harm."""

    def __init__(self, ledger: Ledger, house: Housekeeping, *, every_s: float = _EVERY_S) -> None:
        self._ledger = ledger
        self._house = house
        self._every_s = every_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look at the clock."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def tick(self) -> int:
        """Queue what is due now; gives how many jobs that are."""
        moment = now()
        table = self._house.timetable
        lately = await self._ledger.conversations(order="newest", limit=_MOST)
        idle = await self._ledger.conversations(
            open=True, idle_before=moment - timedelta(seconds=table.idle_s), limit=_MOST
        )
        done = await self._ledger.jobs(states=[JobState.DONE], limit=_MOST)
        conversations = list({each.scope: each for each in (*lately, *idle)}.values())
        queued = due(conversations, last_runs(done, now=moment), now=moment, timetable=table)
        for each in queued:
            await self._ledger.enqueue(each.scope, [each.job])
        await self._ledger.prune_jobs(moment - _KEPT_JOBS)
        await self._ledger.purge(moment - timedelta(days=self._house.forget_days))
        return len(queued)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            try:
                await self.tick()
            except RecollectError as error:
                _log.warning("upkeep waits: %s", error)
            except Exception:
                _log.exception("upkeep failed")
