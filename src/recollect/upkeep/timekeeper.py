"""Keep the time: queue what is due, end sessions that ended by themselves, remove what nobody can want back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from recollect.errors import RecollectError
from recollect.ledger.protocol import Ledger
from recollect.model.background import BackgroundTask
from recollect.model.faults import traced_fault
from recollect.model.times import now
from recollect.model.turn import Conversation
from recollect.upkeep.chores import Housekeeping
from recollect.upkeep.clock import doubted
from recollect.upkeep.reembed import drop_replaced
from recollect.upkeep.schedule import Due, due, ended

_log = logging.getLogger("recollect")
_EVERY_S = 60.0
_KEPT_JOBS = timedelta(days=7)
_KEPT_REPLIES = timedelta(days=7)
# So long one can go back to the embedding model before without paying for its vectors again.
_KEPT_VECTORS = timedelta(days=1)
# A page is read at once, a batch written in one transaction, so that nobody else waits for long; what more than the
# pages of one look there is, the next one goes on with.
_PAGE = 200
_PAGES = 5
_BATCH = 100
# What was noted to be done, in the ledger, so that several of us do it once.
_CLEARED, _CLEAR_EVERY = "cleared", timedelta(days=1)
_FINISHED, _FINISH_EVERY = "erasures finished", timedelta(hours=1)


class Timekeeper:
    """Looks at the clock now and then; several of them at one ledger do no harm."""

    def __init__(self, ledger: Ledger, house: Housekeeping, *, every_s: float = _EVERY_S) -> None:
        self._ledger = ledger
        self._house = house
        self._every_s = every_s
        self._keeping = BackgroundTask(self._keep)
        # How far the last look came.
        self._last_user = ""
        self._last_idle: Conversation | None = None

    def start(self) -> None:
        """Begin to look at the clock, at once and then again and again."""
        self._keeping.start()

    async def stop(self) -> None:
        """Stop looking."""
        await self._keeping.stop()

    async def tick(self) -> int:
        """Queue what is due now, and clear away what is; gives how many jobs were queued."""
        moment = now()
        queued = await self._end_sessions(moment)
        queued += await self._give_out_chores(moment)
        await self._finish_erasures(moment)
        await self._clear_away(moment)
        return queued

    async def _end_sessions(self, moment: datetime) -> int:
        table, queued = self._house.timetable, 0
        if not table.idle_s:
            return 0
        before = moment - timedelta(seconds=table.idle_s)
        for _ in range(_PAGES):
            page = await self._ledger.conversations(open=True, idle_before=before, limit=_PAGE, after=self._last_idle)
            queued += await self._queue(ended(page, now=moment, timetable=table))
            self._last_idle = page[-1] if len(page) == _PAGE else None
            if self._last_idle is None:
                break
        return queued

    async def _give_out_chores(self, moment: datetime) -> int:
        table, queued = self._house.timetable, 0
        if not table.chores:
            return 0
        for _ in range(_PAGES):
            page = await self._ledger.tended(after=self._last_user, limit=_PAGE)
            queued += await self._queue(due(page, now=moment, timetable=table))
            self._last_user = page[-1].user if len(page) == _PAGE else ""
            if not self._last_user:
                break
        return queued

    async def _queue(self, found: Sequence[Due]) -> int:
        queued = 0
        for start in range(0, len(found), _BATCH):
            batch = found[start : start + _BATCH]
            queued += await self._ledger.tend([(each.scope, each.job) for each in batch])
        return queued

    async def _finish_erasures(self, moment: datetime) -> None:
        if await self._is_time(_FINISHED, moment, _FINISH_EVERY):
            done = await self._ledger.finish_erasures()
            if not done.reached:
                _log.warning("bytes of what was erased are left: %s", done.note)

    async def _clear_away(self, moment: datetime) -> None:
        if not await self._is_time(_CLEARED, moment, _CLEAR_EVERY):
            return
        if reason := await doubted(moment, ledger=self._ledger):
            _log.warning("nothing old is cleared away: %s", reason)
            return
        await self._ledger.prune_jobs(moment - _KEPT_JOBS)
        await self._ledger.prune_replies(moment - _KEPT_REPLIES)
        await self._ledger.prune_responses(moment)
        await self._ledger.purge(moment - timedelta(days=self._house.forget_days))
        await drop_replaced(self._ledger, before=moment - _KEPT_VECTORS)

    async def _is_time(self, name: str, moment: datetime, every: timedelta) -> bool:
        """Whether something was not done for so long; notes that it is done now."""
        last = (await self._ledger.moments()).get(name)
        # What was done in a future that never came is no reason to wait.
        if last is not None and last <= moment < last + every:
            return False
        await self._ledger.note_moments({name: moment})
        return True

    async def _keep(self) -> None:
        while True:
            try:
                await self.tick()
            except RecollectError as error:
                _log.warning("upkeep waits: %s", error)
            except Exception as error:
                _log.error("upkeep failed. %s", traced_fault(error))
            await asyncio.sleep(self._every_s)
