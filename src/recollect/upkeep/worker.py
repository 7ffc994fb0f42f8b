"""Do the jobs that wait in the ledger: in this process or in one of its own, each once, whatever fails."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from time import perf_counter
from typing import Any, TypeAlias

from recollect.errors import Conflict, RecollectError
from recollect.ledger.protocol import Ledger
from recollect.model.faults import told_fault, traced_fault
from recollect.model.ids import new_id
from recollect.model.job import Job
from recollect.model.times import now
from recollect.observe import metrics
from recollect.write.screening.redact import redact

_log = logging.getLogger("recollect")

# Does a job and says that it is done, with its effects, in one transaction; gives what came of it.
Run: TypeAlias = Callable[[Job], Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a job waits for another worker when its own is gone, and how often it is tried."""

    lease_s: float = 30.0
    tries: int = 8
    first_wait_s: float = 1.0
    longest_wait_s: float = 300.0

    def wait_s(self, tries: int) -> float:
        """How long to wait after so many tries: anything up to a limit, so that no two wait in step.

        The limit grows evenly from the first to the longest, which it reaches before the last try.
        """
        share = min(max(tries - 1, 0) / max(self.tries - 2, 1), 1.0)
        return random.uniform(0, self.first_wait_s * (self.longest_wait_s / self.first_wait_s) ** share)


class Worker:
    """Takes jobs that are due and does a few at a time, each of another user."""

    def __init__(
        self, ledger: Ledger, run: Run, *, at_once: int = 4, poll_s: float = 1.0, patience: Patience | None = None
    ) -> None:
        self.name = f"{socket.gethostname()}:{os.getpid()}:{new_id()[-6:]}"
        self._ledger = ledger
        self._run = run
        self._at_once = at_once
        self._poll_s = poll_s
        self.patience = patience or Patience()
        self._home: asyncio.AbstractEventLoop | None = None
        self._settle()
        self.done = 0
        self.failed = 0

    def _settle(self) -> None:
        """Begin anew, with nothing under way: what waits in asyncio belongs to the event loop it first waited in."""
        self._under_way: set[asyncio.Task[None]] = set()
        self._loop: asyncio.Task[None] | None = None
        self._taking = asyncio.Lock()
        self._news = asyncio.Event()
        self._end = asyncio.Event()
        self._soon: asyncio.TimerHandle | None = None
        self._stopping = False

    def _come_home(self) -> None:
        """See to it that all we wait with is of the running loop; of one that has ended nothing can be waited for."""
        here = asyncio.get_running_loop()
        if self._home is not here:
            if self._home is not None:
                # What was under way there was given back, or its lease runs out.
                self._settle()
            self._home = here

    @property
    def is_running(self) -> bool:
        """Whether it takes jobs by itself, in this event loop."""
        return self._loop is not None and not self._loop.done() and self._home is asyncio.get_running_loop()

    def start(self) -> None:
        """Begin to take jobs, until it is stopped."""
        self._come_home()
        if not self.is_running:
            self._stopping = False
            self._loop = asyncio.create_task(self._take_for_ever())
            self._loop.add_done_callback(_tell_of_end)

    def nudge(self, *, after_s: float = 0.0) -> None:
        """There may be something to do; looks at once, or so soon, instead of at the next poll."""
        self._come_home()
        if not after_s:
            self._news.set()
        elif self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(after_s, self._look)

    def _look(self) -> None:
        self._soon = None
        self._news.set()

    async def stop(self, *, grace_s: float = 30.0) -> None:
        """Take no more jobs, and give those under way some time; what does not end is done by another, later."""
        self._come_home()
        self._stopping = True
        self._news.set()
        if self._loop is not None:
            await asyncio.gather(self._loop, return_exceptions=True)
            self._loop = None
        if self._under_way:
            _, late = await asyncio.wait(self._under_way, timeout=grace_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=1.0)

    async def work_off(self, *, most: int | None = None) -> int:
        """Do what is due now and what comes of it, and return when nothing is left; gives how many jobs were done."""
        self._come_home()
        begun, done = 0, self.done
        while most is None or begun < most:
            begun += await self._take()
            if not self._under_way:
                break
            # What is being done may bring about more.
            await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
        return self.done - done

    async def _take_for_ever(self) -> None:
        told = ""
        while not self._stopping:
            self._news.clear()
            try:
                taken = await self._take()
                told = ""
            except RecollectError as error:
                # Once for as long as it lasts, not at every look.
                if str(error) != told:
                    _log.warning("jobs cannot be taken for now: %s", error)
                told = str(error)
                taken = 0
            except Exception:
                # Whatever it is, a worker that ended without a word would be worse.
                _log.exception("jobs cannot be taken for now")
                taken = 0
            if not taken or len(self._under_way) >= self._at_once:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._poll_s):
                        await self._news.wait()

    async def _take(self) -> int:
        # One at a time: whoever looks whether anything is under way must not miss what is just being taken.
        async with self._taking:
            free = self._at_once - len(self._under_way)
            if free < 1:
                return 0
            jobs = await self._ledger.lease(worker=self.name, limit=free, lease_s=self.patience.lease_s)
            for job in jobs:
                task = asyncio.create_task(self._do(job))
                self._under_way.add(task)
                task.add_done_callback(self._ended)
            return len(jobs)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        # The user's next job can be taken now.
        self._news.set()

    async def _do(self, job: Job) -> None:
        if job.tries > self.patience.tries:
            await self._give_up(job, "it was begun again and again, and whoever did it was gone before it ended")
            return
        keeping = asyncio.create_task(self._keep(job))
        begun = perf_counter()
        try:
            await self._run(job)
            self.done += 1
            metrics.JOBS_DONE.add(job.kind)
            metrics.JOB_SECONDS.note(perf_counter() - begun, job.kind)
        except asyncio.CancelledError:
            # Given back at once, so that whoever works next need not wait for the lease to run out.
            # It does not count as a try: who is often stopped would use all of them up.
            await self._written_down(self._ledger.release(job))
            raise
        except RecollectError as error:
            await self._give_up(job, str(error))
        except Exception as error:
            _log.error("job %s failed. %s", job.id, traced_fault(error))
            await self._give_up(job, told_fault(error))
        finally:
            keeping.cancel()
            self._end.set()

    async def next_end(self, *, within_s: float) -> None:
        """Wait until some job here has come to an end, at most so long."""
        self._come_home()
        self._end.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._end.wait()

    async def _keep(self, job: Job) -> None:
        """Renew the lease while the job runs."""
        while True:
            await asyncio.sleep(self.patience.lease_s / 3)
            try:
                await self._ledger.renew(job, lease_s=self.patience.lease_s)
            except Conflict:
                return
            except RecollectError as error:
                _log.warning("the lease of job %s could not be renewed: %s", job.id, error)

    async def _give_up(self, job: Job, error: str) -> None:
        """Have it tried again later or, after so many tries, never, until a person says so."""
        # Whoever looks at jobs and logs need not be who may see secrets.
        error = redact(error).text
        self.failed += 1
        again = job.tries < self.patience.tries
        metrics.JOBS_FAILED.add(job.kind)
        if not again:
            metrics.JOBS_DEAD.add(job.kind)
        retry_at = now() + timedelta(seconds=self.patience.wait_s(job.tries)) if again else None
        _log.warning(
            "job %s (%s) failed at try %d%s: %s",
            job.id, job.kind, job.tries, "" if again else " and is given up", error,
        )  # fmt: skip
        await self._written_down(self._ledger.fail(job, error=error, retry_at=retry_at))

    async def _written_down(self, told: Awaitable[Job]) -> None:
        """Say how a try ended, if that is still ours to say and the ledger can be reached."""
        try:
            await told
        except Conflict:
            # Cancelled, erased, or taken over by another: how it ends is no longer ours to say.
            pass
        except RecollectError as trouble:
            # Its lease runs out, and whoever works then takes it over.
            _log.warning("that could not be written down: %s", trouble)


def _tell_of_end(loop: asyncio.Task[None]) -> None:
    if not loop.cancelled() and (error := loop.exception()) is not None:
        _log.error("no more jobs are taken here until it is started again", exc_info=error)
