"""How the server stands: which of its parts does not do what it should, and since when.

Looked at every few seconds, so that it is told without being asked: on the answers to chats, and in the numbers.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from recollect.errors import RecollectError
from recollect.http.proxy.safekeeping import Safekeeping
from recollect.ledger.model_states import ModelState
from recollect.model.job import JobStats
from recollect.model.times import now
from recollect.observe.metrics import DEGRADED, JOB_FAILURES, JOBS, JOBS_OLDEST_SECONDS
from recollect.service import Service

_log = logging.getLogger("recollect")
_LOOK_EVERY_S = 10.0
# Who asks whether it is ready does not wait for a store that hangs.
_LOOK_S = 2.0


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with a part, and since when that is known."""

    told: str
    since: datetime


class Standing:
    """What is known of each part; whoever notices something says so with `note`."""

    def __init__(self, service: Callable[[], Service], keeper: Safekeeping) -> None:
        self._service = service
        self._keeper = keeper
        self._troubles: dict[str, Trouble] = {}
        self._looks = itertools.count(1)
        self._seen = 0
        # While the embedding model is changed: the one that comes, and how far it is.
        self.coming: ModelState | None = None

    @property
    def troubles(self) -> Mapping[str, Trouble]:
        """The parts that do not do what they should."""
        return dict(self._troubles)

    @property
    def reason(self) -> str:
        """What to tell with a chat that itself went well; nothing if all is well."""
        return "store_unavailable" if "ledger" in self._troubles else "backlog" if "jobs" in self._troubles else ""

    def note(self, part: str, trouble: str) -> None:
        """This is wrong with the part; empty if nothing is."""
        before = self._troubles.get(part)
        DEGRADED.set(bool(trouble), part)
        if trouble:
            self._troubles[part] = Trouble(trouble, before.since if before else now())
            if before is None:
                _log.warning("%s: %s", part, trouble)
        elif before is not None:
            del self._troubles[part]
            _log.info("%s is well again", part)

    async def look(self) -> None:
        """Look at all parts now."""
        look = next(self._looks)
        self._keeper.count()
        self.note("spilled", "turns wait on disk for the ledger" if self._keeper.is_waiting else "")
        try:
            service = self._service()
            self.note("redis", service.cache_trouble)
            self.note("index", service.care.index_trouble)
            async with asyncio.timeout(_LOOK_S):
                stats = await service.care.job_stats()
                self.coming = next((state for state in await service.model_states() if state.is_coming), None)
        except RecollectError as error:
            self._note_ledger(look, str(error))
        except TimeoutError:
            self._note_ledger(look, f"no answer within {_LOOK_S:g} s")
        else:
            self._note_ledger(look, "", stats)

    def _note_ledger(self, look: int, trouble: str, stats: JobStats | None = None) -> None:
        # Who asks whether it is ready looks beside the look of every few seconds: the one that began later counts.
        if look < self._seen:
            return
        self._seen = look
        self.note("ledger", trouble)
        if stats is not None:
            self.note("jobs", stats.trouble)
            for state in ("waiting", "due", "running", "dead"):
                JOBS.set(getattr(stats, state), state)
            JOBS_OLDEST_SECONDS.set(stats.oldest_due_age_s)
            JOB_FAILURES.set(stats.failures_in_a_row)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Looks every few seconds, as long as this lasts."""
        looking = asyncio.create_task(self._keep_looking())
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _keep_looking(self) -> None:
        while True:
            try:
                await self.look()
            except Exception:
                # Whoever no longer looks would say that all is well for ever.
                _log.exception("how the server stands could not be looked at")
            await asyncio.sleep(_LOOK_EVERY_S)
