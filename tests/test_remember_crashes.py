"""Crashes and failing LLMs between storing turns and storing facts: nothing is lost, nothing is stored twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from recollect import AsyncMemory
from recollect.maintenance.worker import RetryPolicy
from recollect.model.job import JobKind, JobState, NewJob
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.service.service import Service
from recollect.testing.llm_replies import Fault
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.llm_faults import hang, http_error, no_body, reset
from tests.support.remember_samples import (
    ALEX,
    BIKE,
    BIKE_MESSAGE,
    EXTRACT,
    TALK,
    claim,
    exchange,
    learns,
    llm_requests,
    opened_async,
    serve,
)

# With a short lease, a new worker need not wait for the lease of the old one.
SHORT = RetryPolicy(lease_s=3, first_wait_s=0.01, max_wait_s=0.05)


async def all_contents(memory: AsyncMemory) -> list[str]:
    results = await memory.get_all(user_id=ALEX, statuses=["active", "review", "superseded", "forgotten"])
    return [each.content for each in results]


async def killed(service: Service, memory: AsyncMemory) -> None:
    """Stop without grace, as if the process were killed."""
    await service.jobs.worker.stop(grace_s=0)
    await memory.close()


async def until(happened: Callable[[], Awaitable[object]], timeout_s: float = 60.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not await happened():  # noqa: ASYNC110 - what happens is in a file, and no event tells of it
            await asyncio.sleep(0.05)


async def caught_up(memory: AsyncMemory) -> bool:
    """Run due jobs, and return whether all are done except maintenance, which has its own schedule."""
    await memory.jobs.run_pending()
    jobs = await memory.jobs.list(user_id=ALEX)
    return all(job.state is JobState.DONE for job in jobs if job.kind is not JobKind.UPKEEP)


async def learned_once(home: Path, llm: ScriptedLLM) -> None:
    """Assert that the reopened ledger has both turns, and their fact once."""
    async with opened_async(home, llm) as memory:
        await serve(memory, SHORT)
        await until(lambda: caught_up(memory))
        assert await all_contents(memory) == [BIKE]
        assert len(await memory.sessions.turns(**TALK)) == 2
        llm.clear()
        await memory.jobs.run_pending()
        assert llm_requests(llm) == []


async def test_turns_stored_right_before_a_crash_are_processed_later(tmp_path: Path, llm: ScriptedLLM) -> None:
    learns(llm, BIKE_MESSAGE, claim(BIKE))
    async with opened_async(tmp_path, llm, learn_wait_s=5) as memory:
        await memory.remember(exchange(BIKE_MESSAGE), **TALK)
        await killed(await serve(memory, SHORT), memory)
    assert llm_requests(llm) == []
    await learned_once(tmp_path, llm)


async def test_a_crash_during_the_llm_call_repeats_the_call_later(tmp_path: Path, llm: ScriptedLLM) -> None:
    learns(llm, BIKE_MESSAGE, claim(BIKE))
    llm.fault(hang())
    async with opened_async(tmp_path, llm) as memory:
        service = await serve(memory, SHORT)
        await memory.remember(exchange(BIKE_MESSAGE), **TALK)
        await asyncio.to_thread(llm.wait_for, lambda server: llm_requests(server, EXTRACT))
        assert await all_contents(memory) == []
        await killed(service, memory)
    await learned_once(tmp_path, llm)


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
async def test_a_crash_before_or_after_the_facts_are_applied_stores_them_once(
    tmp_path: Path, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    learns(llm, BIKE_MESSAGE, claim(BIKE))
    async with opened_async(tmp_path, llm) as memory:
        service = await serve(memory, SHORT)
        ledger, arrived = service.deps.ledger, asyncio.Event()
        apply = ledger.apply

        async def stuck(*args: Any, **kwargs: Any) -> Any:
            if applied:
                await apply(*args, **kwargs)
            arrived.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(ledger, "apply", stuck)
        await memory.remember(exchange(BIKE_MESSAGE), **TALK)
        await asyncio.wait_for(arrived.wait(), 60)
        await killed(service, memory)
    assert len(llm_requests(llm, EXTRACT)) == 1
    await learned_once(tmp_path, llm)


async def test_a_job_with_a_lost_lease_has_no_effect(
    tmp_path: Path, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    learns(llm, BIKE_MESSAGE, claim(BIKE))
    async with opened_async(tmp_path, llm) as slow, opened_async(tmp_path, llm) as other:
        service = await serve(slow, RetryPolicy(lease_s=0.3))
        await serve(other, SHORT)
        go_on, ledger = asyncio.Event(), service.deps.ledger
        apply = ledger.apply

        async def late(*args: Any, **kwargs: Any) -> Any:
            await go_on.wait()
            return await apply(*args, **kwargs)

        async def lost(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(60)

        monkeypatch.setattr(ledger, "apply", late)
        monkeypatch.setattr(ledger, "renew", lost)
        await slow.remember(exchange(BIKE_MESSAGE), **TALK)
        await asyncio.to_thread(llm.wait_for, lambda server: llm_requests(server, EXTRACT))
        await until(lambda: caught_up(other))
        go_on.set()
        await service.jobs.worker.stop()
        assert await all_contents(other) == [BIKE]
        assert len(await other.history(user_id=ALEX)) == 3


GOOD = '{"memories": [{"turns": [1], "content": "User\'s bike is a red Cargo bike", "importance": 0.8}]}'
# Answers without a usable part; malformed JSON is tested in write/test_extract.py.
BROKEN: dict[str, str | Fault] = {
    "nothing": "",
    "prose": "I am sorry, {I} cannot {do that}.",
    "cut off before anything": '{"memories": [{"turns": [1], "cont',
    "wrong types": '{"memories": [1, 2, null, {"content": 7}]}',
    "ten megabytes": GOOD[:-2] + ', {"turns": [1], "content": "' + "x" * 10_000_000 + '"}]}',
    "no body": no_body(),
    "reset": reset(),
    "hangs": hang(),
    "500": http_error(500),
}
# Malformed answers with a usable part.
READ: dict[str, str] = {
    "thinking": f"<think>The user {{has}} a bike.</think>{GOOD}",
    "cut off after one": GOOD[:-2] + ', {"turns": [1], "conte',
    "lone surrogate": GOOD.replace("0.8}", '0.8}, {"turns": [1], "content": "Bike \\ud800"}'),
}


@pytest.mark.parametrize("how", BROKEN)
async def test_a_job_with_unusable_answers_is_retried_then_dead_and_can_be_replayed(
    tmp_path: Path, llm: ScriptedLLM, how: str
) -> None:
    broken = BROKEN[how]
    async with opened_async(tmp_path, llm, llm_timeout_s=2) as memory:
        await serve(memory, RetryPolicy(tries=2, first_wait_s=0.01, max_wait_s=0.02))
        if isinstance(broken, str):
            llm.default = broken
        else:
            llm.fault(broken, times=None)
        job = (await memory.remember(exchange(BIKE_MESSAGE), **TALK, wait=60.0)).job
        assert job is not None
        assert (job.state, job.tries, bool(job.error)) == (JobState.DEAD, 2, True)
        assert await all_contents(memory) == []
        assert len(await memory.sessions.turns(**TALK)) == 2
        assert (await memory.sessions.list(user_id=ALEX))[0].learned_to == 0
        llm.clear_faults()
        llm.default = GOOD
        await memory.jobs.replay([job.id], user_id=ALEX)
        await until(lambda: caught_up(memory))
        assert await all_contents(memory) == [BIKE]


@pytest.mark.parametrize("how", READ)
async def test_a_malformed_answer_is_read_at_the_first_attempt(tmp_path: Path, llm: ScriptedLLM, how: str) -> None:
    async with opened_async(tmp_path, llm) as memory:
        llm.default = READ[how]
        job = (await memory.remember(exchange(BIKE_MESSAGE), **TALK, wait=60.0)).job
        assert job is not None
        assert (job.state, job.tries) == (JobState.DONE, 1)
        assert BIKE in await all_contents(memory)


async def test_an_answer_in_the_reasoning_is_read(tmp_path: Path, llm: ScriptedLLM) -> None:
    async with opened_async(tmp_path, llm) as memory:
        llm.when(EXTRACT).reply("", reasoning=GOOD)
        await memory.remember(exchange(BIKE_MESSAGE), **TALK, wait=True)
        assert await all_contents(memory) == [BIKE]


async def test_the_facts_of_one_batch_are_limited(tmp_path: Path, llm: ScriptedLLM) -> None:
    learns(llm, BIKE_MESSAGE, *(claim(f"User's bike is a red Cargo bike, says {'x' * n}") for n in range(1, 1001)))
    async with opened_async(tmp_path, llm) as memory:
        job = (await memory.remember(exchange(BIKE_MESSAGE), **TALK, wait=60.0)).job
        assert job is not None
        assert job.state is JobState.DONE
        assert len(await memory.get_all(user_id=ALEX, limit=1000)) <= 50


async def test_a_failed_job_is_retried_until_the_llm_recovers(tmp_path: Path, llm: ScriptedLLM) -> None:
    learns(llm, BIKE_MESSAGE, claim(BIKE))
    # The question and the one that asks for a better answer.
    llm.fault(no_body(), times=2)
    async with opened_async(tmp_path, llm) as memory:
        await serve(memory, RetryPolicy(tries=8, first_wait_s=0.01, max_wait_s=0.02))
        job = (await memory.remember(exchange(BIKE_MESSAGE), **TALK, wait=60.0)).job
        assert job is not None
        assert job.state is JobState.DONE
        assert job.tries == 2
        assert await all_contents(memory) == [BIKE]


async def test_a_hanging_job_of_one_user_does_not_delay_other_users(tmp_path: Path, llm: ScriptedLLM) -> None:
    learns(llm, BIKE_MESSAGE, claim(BIKE))
    llm.when("poison").reply("", faults=[hang()])
    async with opened_async(tmp_path, llm, worker_jobs=2, llm_timeout_s=600) as memory:
        for number in range(5):
            messages = exchange(f"This is poison number {number}.")
            await memory.remember(messages, user_id="mallory", session_id=f"s{number}")
        await asyncio.to_thread(llm.wait_for, lambda server: llm_requests(server, "poison"))
        job = (await memory.remember(exchange(BIKE_MESSAGE), **TALK, wait=60.0)).job
        assert job is not None
        assert job.state is JobState.DONE
        service = await serve(memory, SHORT)
        await service.jobs.worker.stop(grace_s=0)


async def test_five_failures_in_a_row_are_reported_until_a_job_succeeds(tmp_path: Path, llm: ScriptedLLM) -> None:
    async with opened_async(tmp_path, llm) as memory:
        jobs = (await serve(memory, RetryPolicy(tries=5, first_wait_s=0.01, max_wait_s=0.02))).jobs

        async def trouble() -> str:
            return (await jobs.stats()).trouble

        assert await trouble() == ""
        llm.fault(no_body(), times=None)
        await memory.remember(exchange(BIKE_MESSAGE), **TALK, wait=60.0)
        await until(trouble)
        assert "jobs failed 5 times in a row" in await trouble()
        llm.clear_faults()
        await memory.remember(exchange("I also have a blue bike."), **TALK, wait=60.0)
        assert await trouble() == ""


async def test_an_overdue_job_is_reported(tmp_path: Path, llm: ScriptedLLM) -> None:
    async with opened_async(tmp_path, llm) as memory:
        service = await serve(memory, SHORT)
        await service.jobs.worker.stop()
        due_at = now() - timedelta(seconds=400)
        await service.deps.ledger.enqueue(Scope(ALEX), [NewJob(kind=JobKind.EXTRACT, due_at=due_at)])
        assert "a job has been due for 40" in (await service.jobs.stats()).trouble
