"""The worker runs each job once, retries failures, and releases jobs when it stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from recollect.errors import ModelUnavailable
from recollect.ledger.ledger import Ledger
from recollect.ledger.sqlite import open_in_memory
from recollect.maintenance.worker import RetryPolicy, Worker
from recollect.model.job import Job, JobKind, JobState, NewJob
from recollect.model.scope import Scope
from recollect.models.embedding import EmbeddingModel

ALEX = Scope("alex", "", "s")
SOON = RetryPolicy(tries=3, first_wait_s=0.001, max_wait_s=0.002)


@pytest.fixture
async def ledger() -> AsyncIterator[Ledger]:
    ledger = await open_in_memory(EmbeddingModel("fake", 4))
    yield ledger
    await ledger.close()


async def queued(ledger: Ledger, *keys: str) -> list[Job]:
    return list(await ledger.enqueue(ALEX, [NewJob(kind=JobKind.EXTRACT, key=key) for key in keys or ["a"]]))


class Doing:
    """A handler that fails a number of times, then finishes jobs and records them."""

    def __init__(self, ledger: Ledger, *, failures: int = 0, takes_s: float = 0.0) -> None:
        self.done: list[str] = []
        self.started = asyncio.Event()
        self._ledger = ledger
        self._failures = failures
        self._takes_s = takes_s

    async def __call__(self, job: Job) -> Mapping[str, Any]:
        self.started.set()
        await asyncio.sleep(self._takes_s)
        if self._failures:
            self._failures -= 1
            raise ModelUnavailable("the model is away")
        await self._ledger.finish(job, result={})
        self.done.append(job.id)
        return {}


async def over(worker: Worker, ledger: Ledger, id: str) -> Job:
    """Run pending jobs until the job is done or dead."""
    while (job := await ledger.job("alex", id)).state not in (JobState.DONE, JobState.DEAD):
        await worker.run_pending()
        await asyncio.sleep(0.002)
    return job


async def test_a_failed_job_is_retried(ledger: Ledger) -> None:
    [job] = await queued(ledger)
    doing = Doing(ledger, failures=2)
    worker = Worker(ledger, doing, retry_policy=SOON)
    assert await worker.run_pending(max_jobs=1) == 0
    assert (await ledger.job("alex", job.id)).error == "the model is away"
    job = await over(worker, ledger, job.id)
    assert (job.state, job.tries, job.error) == (JobState.DONE, 3, None)
    assert (worker.done, worker.failed, doing.done) == (1, 2, [job.id])


async def test_a_job_is_dead_after_its_last_try_and_a_replay_has_all_tries(ledger: Ledger) -> None:
    [job] = await queued(ledger)
    worker = Worker(ledger, Doing(ledger, failures=5), retry_policy=SOON)
    job = await over(worker, ledger, job.id)
    assert (job.state, job.tries, job.error) == (JobState.DEAD, 3, "the model is away")
    await ledger.replay("alex", [job.id])
    assert (await over(worker, ledger, job.id)).state is JobState.DONE


async def test_a_job_that_kills_its_workers_is_given_up(ledger: Ledger) -> None:
    [job] = await queued(ledger)
    for _ in range(SOON.tries):
        # Taken by workers that were never heard of again.
        assert await ledger.lease(worker="gone", limit=1, lease_s=0)
    doing = Doing(ledger)
    assert await Worker(ledger, doing, retry_policy=SOON).run_pending() == 0
    job = await ledger.job("alex", job.id)
    assert job.state is JobState.DEAD
    assert "gone before it ended" in (job.error or "")
    assert doing.done == []


async def test_an_unexpected_exception_does_not_lose_the_job(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    [job] = await queued(ledger)

    async def mistaken(job: Job) -> Mapping[str, Any]:
        raise KeyError("oh")

    with caplog.at_level(logging.ERROR, "recollect"):
        assert await Worker(ledger, mistaken).run_pending() == 0
    assert "Traceback" in caplog.text
    job = await ledger.job("alex", job.id)
    assert (job.state, job.error) == (JobState.WAITING, "KeyError in test_worker.py, line 103")


async def test_a_stopped_worker_releases_unfinished_jobs(ledger: Ledger) -> None:
    [job] = await queued(ledger)
    slow = Doing(ledger, takes_s=60)
    worker = Worker(ledger, slow)
    worker.start()
    await slow.started.wait()
    await worker.stop(grace_s=0)
    assert (await ledger.job("alex", job.id)).state is JobState.WAITING
    # Another need not wait for a lease to run out.
    assert await Worker(ledger, Doing(ledger)).run_pending() == 1


async def test_a_stopped_worker_lets_jobs_finish(ledger: Ledger) -> None:
    [job] = await queued(ledger)
    doing = Doing(ledger, takes_s=0.1)
    worker = Worker(ledger, doing)
    worker.start()
    await doing.started.wait()
    await worker.stop()
    assert doing.done == [job.id]
    assert not worker.is_running


async def test_the_lease_of_a_running_job_is_renewed(ledger: Ledger) -> None:
    [job] = await queued(ledger)
    slow = Doing(ledger, takes_s=60)
    worker = Worker(ledger, slow, retry_policy=RetryPolicy(lease_s=0.3))
    worker.start()
    await slow.started.wait()
    leased_until = {(await ledger.job("alex", job.id)).leased_until}
    async with asyncio.timeout(60):
        while len(leased_until) < 4:
            await asyncio.sleep(0.02)
            leased_until.add((await ledger.job("alex", job.id)).leased_until)
    await worker.stop(grace_s=0)
    assert (await ledger.job("alex", job.id)).state is JobState.WAITING


async def test_an_unexpected_error_of_the_ledger_does_not_stop_the_worker(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lease, failures = ledger.lease, [OSError("a cable"), ModelUnavailable("a store")]

    async def failing(**named: Any) -> list[Job]:
        if failures:
            raise failures.pop()
        return await lease(**named)

    monkeypatch.setattr(ledger, "lease", failing)
    [job] = await queued(ledger)
    doing = Doing(ledger)
    worker = Worker(ledger, doing, poll_s=0.01)
    with caplog.at_level(logging.WARNING, "recollect"):
        worker.start()
        await asyncio.wait_for(doing.started.wait(), 60)
        await worker.stop()
    assert doing.done == [job.id]
    assert "a cable" in caplog.text
    assert "a store" in caplog.text


async def test_an_unavailable_ledger_is_logged_once(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lookups = 0
    seen = asyncio.Event()

    async def away(*inputs: Any, **more: Any) -> Any:
        nonlocal lookups
        lookups += 1
        if lookups == 4:
            seen.set()
        raise ModelUnavailable("a store is away")

    monkeypatch.setattr(ledger, "lease", away)
    worker = Worker(ledger, Doing(ledger), poll_s=0.001)
    worker.start()
    await asyncio.wait_for(seen.wait(), 60)
    await worker.stop()
    assert caplog.text.count("a store is away") == 1


async def test_jobs_of_one_user_run_in_order(ledger: Ledger) -> None:
    jobs = await queued(ledger, *"abcdef")
    doing = Doing(ledger, takes_s=0.005)
    assert await Worker(ledger, doing).run_pending() == 6
    assert doing.done == [job.id for job in jobs]
    assert await Worker(ledger, doing).run_pending() == 0


def test_retry_waits_grow_to_a_limit_and_are_random() -> None:
    timeout = RetryPolicy()
    waits = {tries: [timeout.wait_s(tries) for _ in range(200)] for tries in (1, 4, 7, 40)}
    assert 0 <= min(waits[1]) < max(waits[1]) <= 1
    assert 8 < max(waits[4]) <= 300**0.5
    assert 150 < max(waits[7] + waits[40]) <= 300
    assert len(set(waits[4])) > 100


async def test_a_released_job_uses_no_try(ledger: Ledger) -> None:
    [job] = await queued(ledger)
    for _ in range(SOON.tries + 2):
        slow = Doing(ledger, takes_s=60)
        worker = Worker(ledger, slow, retry_policy=SOON)
        worker.start()
        await slow.started.wait()
        await worker.stop(grace_s=0)
        results = await ledger.job("alex", job.id)
        assert (results.state, results.tries, results.error) == (JobState.WAITING, 0, None)
    assert (await ledger.job_stats()).failures_in_a_row == 0
    assert await Worker(ledger, Doing(ledger), retry_policy=SOON).run_pending() == 1


def test_a_worker_can_be_used_in_several_event_loops() -> None:
    async def opened() -> Ledger:
        return await open_in_memory(EmbeddingModel("fake", 4))

    ledger = asyncio.run(opened())
    done: list[str] = []

    async def do(job: Job) -> Mapping[str, Any]:
        await asyncio.sleep(0.01)
        await ledger.finish(job, result={})
        done.append(job.key)
        return {}

    worker = Worker(ledger, do, poll_s=600)

    async def one_life(key: str) -> None:
        worker.start()
        # So that it waits for news when they come.
        await asyncio.sleep(0.02)
        [job] = await queued(ledger, key)
        worker.wake()
        async with asyncio.timeout(60):
            while (await ledger.job("alex", job.id)).state is not JobState.DONE:
                await worker.wait_for_job_end(within_s=0.1)

    for key in "abc":
        asyncio.run(one_life(key))
    asyncio.run(worker.stop())
    assert done == ["a", "b", "c"]


async def test_a_worker_that_ends_unexpectedly_is_logged(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(BaseException):
        pass

    async def broken(**named: Any) -> list[Job]:
        raise Broken("gone for good")

    monkeypatch.setattr(ledger, "lease", broken)
    worker = Worker(ledger, Doing(ledger))
    with caplog.at_level(logging.ERROR, "recollect"):
        worker.start()
        async with asyncio.timeout(60):
            while worker.is_running or not caplog.text:  # noqa: ASYNC110 - nobody is told of its end
                await asyncio.sleep(0.01)
    assert "gone for good" in caplog.text


async def test_delayed_wakes_are_combined_and_do_not_delay_an_immediate_one(ledger: Ledger) -> None:
    lookups, looked, lease = 0, asyncio.Event(), ledger.lease

    async def counted(**options: Any) -> list[Job]:
        nonlocal lookups
        lookups += 1
        results = await lease(**options)
        looked.set()
        return results

    ledger.lease = counted  # type: ignore[method-assign]
    doing = Doing(ledger)
    worker = Worker(ledger, doing, poll_s=3600)
    worker.start()
    await looked.wait()
    [first] = await queued(ledger, "a")
    for _ in range(100):
        worker.wake(after_s=0.01)
    await worker.wait_for_job_end(within_s=30)
    # The first, that of all hundred, and those that look for what comes after a job.
    assert (doing.done, lookups <= 4) == ([first.id], True)
    worker.wake(after_s=3600)
    [second] = await queued(ledger, "b")
    worker.wake()
    await worker.wait_for_job_end(within_s=30)
    await worker.stop()
    assert doing.done == [first.id, second.id]
