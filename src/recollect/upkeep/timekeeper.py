"""Keep the time: queue what is due, end sessions that ended by themselves, remove what nobody can want back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from recollect.errors import RecollectError
from recollect.ledger.protocol import Ledger
from recollect.model.background import BackgroundTask
from recollect.model.faults import format_traceback
from recollect.model.times import now
from recollect.model.turn import Conversation
from recollect.upkeep.chores import MaintenanceConfig
from recollect.upkeep.clock import check_clock
from recollect.upkeep.reembed import drop_old_vectors
from recollect.upkeep.schedule import DueJob, due_jobs, ended_sessions

_log = logging.getLogger("recollect")
_EVERY_S = 60.0
_JOB_RETENTION = timedelta(days=7)
_REPLY_RETENTION = timedelta(days=7)
# So long one can go back to the embedding model before without paying for its vectors again.
_VECTOR_RETENTION = timedelta(days=1)
# A page is read at once, a batch written in one transaction, so that nobody else waits for long; what more than the
# pages of one look there is, the next one goes on with.
_PAGE = 200
_PAGES = 5
_BATCH = 100
# What was noted to be done, in the ledger, so that several of us do it once.
_PURGED, _PURGE_EVERY = "cleared", timedelta(days=1)
_FINISHED, _FINISH_EVERY = "erasures finished", timedelta(hours=1)


class Scheduler:
    """Looks at the clock now and then; several of them at one ledger do no harm."""

    def __init__(self, ledger: Ledger, config: MaintenanceConfig, *, every_s: float = _EVERY_S) -> None:
        self._ledger = ledger
        self._config = config
        self._every_s = every_s
        self._task = BackgroundTask(self._run)
        # How far the last look came.
        self._last_user = ""
        self._last_idle: Conversation | None = None

    def start(self) -> None:
        """Begin to look at the clock, at once and then again and again."""
        self._task.start()

    async def stop(self) -> None:
        """Stop looking."""
        await self._task.stop()

    async def tick(self) -> int:
        """Queue what is due now, and clear away what is; gives how many jobs were queued."""
        moment = now()
        queued = await self._end_sessions(moment)
        queued += await self._queue_tasks(moment)
        await self._finish_erasures(moment)
        await self._purge_old(moment)
        return queued

    async def _end_sessions(self, moment: datetime) -> int:
        schedule, queued = self._config.schedule, 0
        if not schedule.idle_s:
            return 0
        before = moment - timedelta(seconds=schedule.idle_s)
        for _ in range(_PAGES):
            page = await self._ledger.conversations(open=True, idle_before=before, limit=_PAGE, after=self._last_idle)
            queued += await self._queue(ended_sessions(page, now=moment, schedule=schedule))
            self._last_idle = page[-1] if len(page) == _PAGE else None
            if self._last_idle is None:
                break
        return queued

    async def _queue_tasks(self, moment: datetime) -> int:
        schedule, queued = self._config.schedule, 0
        if not schedule.tasks:
            return 0
        for _ in range(_PAGES):
            page = await self._ledger.maintenance_states(after=self._last_user, limit=_PAGE)
            queued += await self._queue(due_jobs(page, now=moment, schedule=schedule))
            self._last_user = page[-1].user if len(page) == _PAGE else ""
            if not self._last_user:
                break
        return queued

    async def _queue(self, jobs: Sequence[DueJob]) -> int:
        queued = 0
        for start in range(0, len(jobs), _BATCH):
            batch = jobs[start : start + _BATCH]
            queued += await self._ledger.enqueue_due([(each.scope, each.job) for each in batch])
        return queued

    async def _finish_erasures(self, moment: datetime) -> None:
        if await self._is_time(_FINISHED, moment, _FINISH_EVERY):
            done = await self._ledger.finish_erasures()
            if not done.reached:
                _log.warning("bytes of what was erased are left: %s", done.note)

    async def _purge_old(self, moment: datetime) -> None:
        if not await self._is_time(_PURGED, moment, _PURGE_EVERY):
            return
        if reason := await check_clock(moment, ledger=self._ledger):
            _log.warning("nothing old is cleared away: %s", reason)
            return
        await self._ledger.prune_jobs(moment - _JOB_RETENTION)
        await self._ledger.prune_idempotency_keys(moment - _REPLY_RETENTION)
        await self._ledger.prune_responses(moment)
        await self._ledger.purge(moment - timedelta(days=self._config.forget_days))
        await drop_old_vectors(self._ledger, before=moment - _VECTOR_RETENTION)

    async def _is_time(self, name: str, moment: datetime, every: timedelta) -> bool:
        """Whether something was not done for so long; notes that it is done now."""
        last = (await self._ledger.maintenance_times()).get(name)
        # What was done in a future that never came is no reason to wait.
        if last is not None and last <= moment < last + every:
            return False
        await self._ledger.record_maintenance_times({name: moment})
        return True

    async def _run(self) -> None:
        while True:
            try:
                await self.tick()
            except RecollectError as error:
                _log.warning("upkeep waits: %s", error)
            except Exception as error:
                _log.error("upkeep failed. %s", format_traceback(error))
            await asyncio.sleep(self._every_s)
