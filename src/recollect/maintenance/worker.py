"""Run the jobs that wait in the ledger, with leases and retries."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from time import perf_counter
from typing import Any, TypeAlias

from recollect.errors import CircuitOpen, Conflict, RecollectError
from recollect.frozen_dataclass import frozen_dataclass
from recollect.ledger.ledger import Ledger
from recollect.model.ids import new_worker_name
from recollect.model.job import Job, JobKind
from recollect.model.times import now
from recollect.observability import metrics
from recollect.observability.tracing import describe_error, format_traceback
from recollect.write.redact import redact

_log = logging.getLogger("recollect")

# Runs a job, stores its effects and its end in one transaction, and returns its result.
JobHandler: TypeAlias = Callable[[Job], Awaitable[Mapping[str, Any]]]


@frozen_dataclass(kw_only=True)
class RetryPolicy:
    """The lease of a running job, the number of tries, and the waiting times between them."""

    lease_s: float = 30.0
    tries: int = 8
    first_wait_s: float = 1.0
    max_wait_s: float = 300.0

    def wait_s(self, tries: int) -> float:
        """Return a random time up to a limit that grows exponentially from the first wait to the longest."""
        share = min(max(tries - 1, 0) / max(self.tries - 2, 1), 1.0)
        return random.uniform(0, self.first_wait_s * (self.max_wait_s / self.first_wait_s) ** share)  # noqa: S311 - no secret


class Worker:
    """Leases due jobs and runs a few at a time, each of another user."""

    def __init__(
        self,
        ledger: Ledger,
        handler: JobHandler,
        *,
        max_concurrent: int = 4,
        poll_s: float = 1.0,
        retry_policy: RetryPolicy | None = None,
        kinds: Callable[[], Sequence[JobKind] | None] = lambda: None,
    ) -> None:
        self.name = new_worker_name()
        self._ledger = ledger
        self._handler = handler
        self._max_concurrent = max_concurrent
        self._poll_s = poll_s
        self.retry_policy = retry_policy or RetryPolicy()
        # The kinds of jobs that can be run now; None for all.
        self._kinds = kinds
        self._bound_loop: asyncio.AbstractEventLoop | None = None
        self._reset()
        self.done = 0
        self.failed = 0

    def _reset(self) -> None:
        """Create the tasks and asyncio primitives anew: they belong to one event loop."""
        self._running: set[asyncio.Task[None]] = set()
        self._loop_task: asyncio.Task[None] | None = None
        self._lease_lock = asyncio.Lock()
        self._wake_event = asyncio.Event()
        self._job_ended = asyncio.Event()
        self._wake_timer: asyncio.TimerHandle | None = None
        self._stopping = False

    def _bind_loop(self) -> None:
        """Rebind the asyncio primitives to the running loop."""
        running_loop = asyncio.get_running_loop()
        if self._bound_loop is not running_loop:
            if self._bound_loop is not None:
                # Jobs of the previous loop were released, or their leases run out.
                self._reset()
            self._bound_loop = running_loop

    @property
    def is_running(self) -> bool:
        """Return whether it leases jobs by itself, in this event loop."""
        return (
            self._loop_task is not None
            and not self._loop_task.done()
            and self._bound_loop is asyncio.get_running_loop()
        )

    def start(self) -> None:
        """Lease jobs until it is stopped."""
        self._bind_loop()
        if not self.is_running:
            self._stopping = False
            self._loop_task = asyncio.create_task(self._run_loop())
            self._loop_task.add_done_callback(_log_loop_error)

    def wake(self, *, after_s: float = 0.0) -> None:
        """Look for jobs now, or after `after_s`, instead of at the next poll."""
        self._bind_loop()
        if not after_s:
            self._wake_event.set()
        elif self._wake_timer is None:
            self._wake_timer = asyncio.get_running_loop().call_later(after_s, self._wake_now)

    def _wake_now(self) -> None:
        self._wake_timer = None
        self._wake_event.set()

    async def stop(self, *, grace_s: float = 30.0) -> None:
        """Lease no more jobs, and cancel those that do not end within `grace_s`; another worker runs them later."""
        self._bind_loop()
        self._stopping = True
        self._wake_event.set()
        if self._loop_task is not None:
            await asyncio.gather(self._loop_task, return_exceptions=True)
            self._loop_task = None
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=grace_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=1.0)

    async def run_pending(self, *, max_jobs: int | None = None) -> int:
        """Run due jobs and the jobs they queue until none is left, and return how many were done."""
        self._bind_loop()
        started, done = 0, self.done
        while max_jobs is None or started < max_jobs:
            started += await self._lease_jobs()
            if not self._running:
                break
            # A running job may queue more.
            await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
        return self.done - done

    async def _run_loop(self) -> None:
        last_error = ""
        while not self._stopping:
            self._wake_event.clear()
            try:
                leased = await self._lease_jobs()
                last_error = ""
            except RecollectError as error:
                # Log the same error once, not at every poll.
                if str(error) != last_error:
                    _log.warning("jobs cannot be leased: %s", error)
                last_error = str(error)
                leased = 0
            except Exception:
                _log.exception("jobs cannot be leased")
                leased = 0
            if not leased or len(self._running) >= self._max_concurrent:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._poll_s):
                        await self._wake_event.wait()

    async def _lease_jobs(self) -> int:
        # One at a time, so that `run_pending` does not miss jobs that are just being leased.
        async with self._lease_lock:
            free = self._max_concurrent - len(self._running)
            if free < 1:
                return 0
            jobs = await self._ledger.lease(
                worker=self.name, limit=free, lease_s=self.retry_policy.lease_s, kinds=self._kinds()
            )
            for job in jobs:
                task = asyncio.create_task(self._run_job(job))
                self._running.add(task)
                task.add_done_callback(self._on_job_done)
            return len(jobs)

    def _on_job_done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        # The user's next job can be leased now.
        self._wake_event.set()

    async def _run_job(self, job: Job) -> None:
        if job.tries > self.retry_policy.tries:
            await self._record_failure(job, "every worker that started it was gone before it ended")
            return
        renewal = asyncio.create_task(self._renew_lease(job))
        started = perf_counter()
        try:
            await self._handler(job)
            self.done += 1
            metrics.JOBS_DONE.add(job.kind)
            metrics.JOB_SECONDS.observe(perf_counter() - started, job.kind)
        except asyncio.CancelledError:
            # Released at once, so that the next worker need not wait for the lease, and without counting as a try.
            await self._record_state(self._ledger.release(job))
            raise
        except CircuitOpen as error:
            # Not a failure of the job, however long the LLM is away.
            due_at = now() + timedelta(seconds=error.retry_after_s)
            await self._record_state(self._ledger.release(job, due_at=due_at, error=redact(str(error)).text))
        except RecollectError as error:
            await self._record_failure(job, str(error))
        except Exception as error:
            _log.error("job %s failed. %s", job.id, format_traceback(error))
            await self._record_failure(job, describe_error(error))
        finally:
            renewal.cancel()
            self._job_ended.set()

    async def wait_for_job_end(self, *, within_s: float) -> None:
        """Wait until a job of this worker ends, at most `within_s`."""
        self._bind_loop()
        self._job_ended.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._job_ended.wait()

    async def _renew_lease(self, job: Job) -> None:
        while True:
            await asyncio.sleep(self.retry_policy.lease_s / 3)
            try:
                await self._ledger.renew(job, lease_s=self.retry_policy.lease_s)
            except Conflict:
                return
            except RecollectError as error:
                _log.warning("the lease of job %s could not be renewed: %s", job.id, error)

    async def _record_failure(self, job: Job, error: str) -> None:
        """Schedule a retry or, after the last try, mark the job as dead until a person replays it."""
        # Readers of jobs and logs may not be allowed to see secrets.
        error = redact(error).text
        self.failed += 1
        will_retry = job.tries < self.retry_policy.tries
        metrics.JOBS_FAILED.add(job.kind)
        if not will_retry:
            metrics.JOBS_DEAD.add(job.kind)
        retry_at = now() + timedelta(seconds=self.retry_policy.wait_s(job.tries)) if will_retry else None
        _log.warning(
            "job %s (%s) failed at try %d%s: %s",
            job.id, job.kind, job.tries, "" if will_retry else " and is given up", error,
        )  # fmt: skip
        await self._record_state(self._ledger.fail(job, error=error, retry_at=retry_at))

    async def _record_state(self, update: Awaitable[Job]) -> None:
        """Record the end of a try, if this worker still has the lease and the ledger answers."""
        try:
            await update
        except Conflict:
            # Cancelled, erased, or leased by another worker.
            pass
        except RecollectError as error:
            # Its lease runs out, and another worker runs it.
            _log.warning("the state of a job could not be recorded: %s", error)


def _log_loop_error(loop: asyncio.Task[None]) -> None:
    if not loop.cancelled() and (error := loop.exception()) is not None:
        _log.error("the worker has stopped leasing jobs; restart it", exc_info=error)
