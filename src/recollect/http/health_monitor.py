"""The health monitor: checks every few seconds which parts of the server have a problem, and since when.

Problems are reported by `/ready`, in a header of chat responses and in the metrics.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from recollect.aio.background import BackgroundTask
from recollect.errors import RecollectError
from recollect.http.proxy.resilience import ResilientMemory
from recollect.model.job import JobStats
from recollect.model.times import now
from recollect.observability.metrics import DEGRADED, JOB_FAILURES, JOBS, JOBS_OLDEST_SECONDS
from recollect.service.service import ModelState, Service

_log = logging.getLogger("recollect")
_CHECK_EVERY_S = 10.0
# `/ready` does not wait for a store that hangs.
_CHECK_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class HealthProblem:
    """The problem of a part, and when it was first noticed."""

    message: str
    since: datetime


class HealthMonitor:
    """Collects the problems of all parts."""

    def __init__(self, service: Callable[[], Service], resilient_memory: ResilientMemory) -> None:
        self._service = service
        self._resilient_memory = resilient_memory
        self._problems: dict[str, HealthProblem] = {}
        self._check_numbers = itertools.count(1)
        self._last_check = 0
        self._task = BackgroundTask(self._check_periodically)
        # The new embedding model and its progress, while the model changes.
        self.pending_model: ModelState | None = None

    @property
    def problems(self) -> Mapping[str, HealthProblem]:
        """Return the parts that have a problem."""
        return dict(self._problems)

    @property
    def reason(self) -> str:
        """Return the reason that chat responses carry although the chat succeeded; empty without a problem."""
        return "store_unavailable" if "ledger" in self._problems else "backlog" if "jobs" in self._problems else ""

    def report(self, component: str, problem: str) -> None:
        """Set the problem of a part; an empty one clears it."""
        previous = self._problems.get(component)
        DEGRADED.set(bool(problem), component)
        if problem:
            self._problems[component] = HealthProblem(problem, previous.since if previous else now())
            if previous is None:
                _log.warning("%s: %s", component, problem)
        elif previous is not None:
            del self._problems[component]
            _log.info("%s recovered", component)

    async def check(self) -> None:
        """Check all parts now."""
        check_number = next(self._check_numbers)
        self._resilient_memory.update_metrics()
        self.report(
            "spilled", "turns wait on disk for the ledger" if self._resilient_memory.has_spilled_turns else ""
        )
        try:
            service = self._service()
            self.report("redis", service.cache_trouble)
            self.report("index", service.index_trouble)
            self.report("llm", service.llm_trouble)
            async with asyncio.timeout(_CHECK_TIMEOUT_S):
                stats = await service.jobs.stats()
                self.pending_model = next((state for state in await service.model_states() if state.is_pending), None)
        except RecollectError as error:
            self._report_ledger(check_number, str(error))
        except TimeoutError:
            self._report_ledger(check_number, f"no answer within {_CHECK_TIMEOUT_S:g} s")
        else:
            self._report_ledger(check_number, "", stats)

    def _report_ledger(self, check_number: int, problem: str, stats: JobStats | None = None) -> None:
        # `/ready` checks concurrently with the periodic check: the check that began later counts.
        if check_number < self._last_check:
            return
        self._last_check = check_number
        self.report("ledger", problem)
        if stats is not None:
            self.report("jobs", stats.trouble)
            for state in ("waiting", "due", "running", "dead"):
                JOBS.set(getattr(stats, state), state)
            JOBS_OLDEST_SECONDS.set(stats.oldest_due_age_s)
            JOB_FAILURES.set(stats.failures_in_a_row)

    def start(self) -> None:
        """Check periodically from now on."""
        self._task.start()

    async def close(self) -> None:
        """Stop the checks."""
        await self._task.stop()

    async def _check_periodically(self) -> None:
        while True:
            try:
                await self.check()
            except Exception:
                # The monitor must not stop, or it would report good health for ever.
                _log.exception("the health check failed")
            await asyncio.sleep(_CHECK_EVERY_S)
