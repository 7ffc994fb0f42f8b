"""Jobs: made and joined, leased in turn, finished once whatever happens."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from recollect.errors import Conflict, InvalidInput, InvalidText
from recollect.ledger.protocol import Ledger
from recollect.model.job import Job, JobKind, JobState, NewJob
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.testing.suite_samples import ANN, BOB, BY, ODD_TEXTS, turn

MONDAY = Scope("ann", "p", "monday")
LONG_S = 60.0
SHORT_S = 0.05
# Long enough for a machine that stands still between two calls.
A_WHILE_S = 2.0


def new(key: str = "", *, kind: JobKind = JobKind.EXTRACT, **fields: Any) -> NewJob:
    """A job that is due at once."""
    return NewJob(kind=kind, key=key, **fields)


async def put(ledger: Ledger, *jobs: NewJob, scope: Scope = ANN) -> list[Job]:
    """Have jobs done for someone."""
    return list(await ledger.enqueue(scope, jobs))


async def take(ledger: Ledger, limit: int = 1, *, lease_s: float = LONG_S, **options: Any) -> list[Job]:
    """Lease some jobs."""
    return await ledger.lease(worker="suite", limit=limit, lease_s=lease_s, **options)


async def take_soon(ledger: Ledger) -> list[Job]:
    """Lease a job as soon as there is one."""
    async with asyncio.timeout(LONG_S):
        while not (leased := await take(ledger)):  # noqa: ASYNC110 - nobody is told of it
            await asyncio.sleep(0.02)
    return leased


async def run_all(ledger: Ledger, most: int = 1000) -> list[Job]:
    """Lease and finish one job after the other, in the order they are given out."""
    done: list[Job] = []
    while len(done) < most and (leased := await take(ledger)):
        done += leased
        await ledger.finish(leased[0])
    return done


def ago(**how_long: float) -> datetime:
    """So long before now."""
    return now() - timedelta(**how_long)


class JobSuite:
    """What becomes of a job."""

    async def test_a_job_comes_back_as_it_was_given(self, ledger: Ledger) -> None:
        due = ago(minutes=5)
        (job,) = await ledger.enqueue(
            MONDAY, [NewJob(kind=JobKind.CLOSE, key="k", payload={"n": [1, None]}, priority=7, due_at=due)]
        )
        assert (job.scope, job.kind, job.key, job.payload) == (MONDAY, JobKind.CLOSE, "k", {"n": [1, None]})
        assert (job.state, job.priority, job.due_at, job.tries) == (JobState.WAITING, 7, due, 0)
        assert (job.worker, job.lease, job.leased_until, job.error, job.result) == (None,) * 5
        assert await ledger.job("ann", job.id) == job
        assert await ledger.jobs("ann") == [job]

    async def test_odd_keys_payloads_results_and_errors_come_back(self, ledger: Ledger) -> None:
        for text in [*ODD_TEXTS.values(), "\0 \ud800"]:
            key = text if "\0" not in text else ""
            (job,) = await put(ledger, new(key, payload={text: [text]}))
            (leased,) = await take(ledger)
            assert (leased.id, leased.key, leased.payload) == (job.id, key, {text: [text]})
            failed = await ledger.fail(leased, error=text, retry_at=now())
            assert failed.error == text.replace("\0", "\ufffd").replace("\ud800", "\ufffd")
            (leased,) = await take(ledger)
            await ledger.finish(leased, result={text: text})
            results = await ledger.job("ann", job.id)
            assert (results.state, results.result, results.error) == (JobState.DONE, {text: text}, None)

    async def test_what_cannot_be_kept_is_refused(self, ledger: Ledger) -> None:
        for key in ("\0", "\ud800", "x" * 1001):
            with pytest.raises(InvalidText):
                new(key)
        bad: dict[str, Any]
        for bad in ({"payload": {"x": object()}}, {"payload": {"x": float("nan")}}, {"priority": 1000}):
            with pytest.raises(InvalidInput):
                new(**bad)
        await put(ledger, new())
        (leased,) = await take(ledger)
        with pytest.raises(InvalidInput):
            await ledger.finish(leased, result={"x": object()})
        await ledger.finish(leased)

    async def test_turns_and_jobs_are_written_together(self, ledger: Ledger) -> None:
        logged_turn = turn("hello")
        inputs = await ledger.append(MONDAY, [logged_turn], vectors=[None], by=BY, jobs=[new("s"), new("t")])
        assert [each.content for each in inputs.turns] == ["hello"]
        assert [job.key for job in inputs.jobs] == ["s", "t"]
        assert [job.scope for job in inputs.jobs] == [MONDAY, MONDAY]
        with pytest.raises(Conflict):
            await ledger.append(MONDAY, [logged_turn], vectors=[None], by=BY, jobs=[new("u")])
        assert {job.key for job in await ledger.jobs("ann")} == {"s", "t"}
        alone = await ledger.append(MONDAY, [], vectors=[], by=BY, jobs=[new("v")])
        assert (alone.turns, [job.key for job in alone.jobs]) == ((), ["v"])

    async def test_a_burst_of_turns_is_one_job(self, ledger: Ledger) -> None:
        inputs = [
            await ledger.append(MONDAY, [turn(f"{n}")], vectors=[None], by=BY, jobs=[new("s")]) for n in range(5)
        ]
        assert len({each.jobs[0].id for each in inputs}) == 1
        assert (await ledger.job_stats("ann")).waiting == 1

    async def test_only_the_same_kind_and_key_of_the_same_user_join(self, ledger: Ledger) -> None:
        made = [
            *await put(ledger, new("a"), new("b"), new("a", kind=JobKind.CLOSE)),
            *await put(ledger, new("a"), scope=BOB),
        ]
        assert len({job.id for job in made}) == 4
        (joined,) = await put(ledger, new("a"))
        assert joined.id == made[0].id

    async def test_who_joins_brings_its_payload_its_priority_and_its_scope(self, ledger: Ledger) -> None:
        await put(ledger, new(payload={"a": 1, "b": 1}, priority=3), scope=MONDAY)
        (job,) = await put(ledger, new(payload={"b": 2, "c": 2}, priority=1), scope=MONDAY)
        assert (job.payload, job.priority, job.scope) == ({"a": 1, "b": 2, "c": 2}, 3, MONDAY)
        (job,) = await put(ledger, new(priority=9), scope=Scope("ann", "p", "tuesday"))
        assert (job.priority, job.scope) == (9, Scope("ann", "p"))
        (job,) = await put(ledger, new(), scope=Scope("ann", "q", "tuesday"))
        assert job.scope == ANN
        assert (await take(ledger))[0].priority == 9
        assert await take(ledger) == []

    async def test_the_earlier_time_counts_unless_it_is_postponed(self, ledger: Ledger) -> None:
        soon, later = now() + timedelta(minutes=1), now() + timedelta(minutes=2)
        assert (await put(ledger, new(due_at=later)))[0].due_at == later
        assert (await put(ledger, new(due_at=soon)))[0].due_at == soon
        assert (await put(ledger, new(due_at=later)))[0].due_at == soon
        assert (await put(ledger, new(due_at=later, postpone=True)))[0].due_at == later
        assert (await put(ledger, new(due_at=soon, postpone=True)))[0].due_at == later
        assert await take(ledger) == []

    async def test_a_job_that_was_put_off_is_not_given_out_at_its_first_time(self, ledger: Ledger) -> None:
        await put(ledger, new(due_at=ago(seconds=1)))
        await put(ledger, new(due_at=now() + timedelta(seconds=A_WHILE_S), postpone=True))
        assert await take(ledger) == []
        assert len(await take_soon(ledger)) == 1

    async def test_what_comes_while_a_job_runs_is_another_job(self, ledger: Ledger) -> None:
        (first,) = await put(ledger, new("s"))
        (running,) = await take(ledger)
        (second,) = await put(ledger, new("s"))
        assert second.id != first.id
        assert await take(ledger) == []
        await ledger.finish(running)
        assert [job.id for job in await take(ledger)] == [second.id]

    async def test_who_joins_a_job_that_failed_does_not_bring_it_forward(self, ledger: Ledger) -> None:
        await put(ledger, new("s"))
        (leased,) = await take(ledger)
        retry_at = now() + timedelta(minutes=1)
        await ledger.fail(leased, error="no answer", retry_at=retry_at)
        (joined,) = await put(ledger, new("s"))
        assert (joined.id, joined.due_at, joined.tries) == (leased.id, retry_at, 1)
        assert await take(ledger) == []

    async def test_a_leased_job_says_who_has_it_and_until_when(self, ledger: Ledger) -> None:
        (job,) = await put(ledger, new())
        (leased,) = await ledger.lease(worker="w1", limit=5, lease_s=30)
        assert (leased.id, leased.state, leased.worker, leased.tries) == (job.id, JobState.RUNNING, "w1", 1)
        assert leased.leased_until is not None and leased.lease
        assert timedelta(seconds=10) < leased.leased_until - now() < timedelta(seconds=31)
        assert await ledger.job("ann", job.id) == leased
        assert leased.lease not in str(leased.to_dict())

    async def test_a_finished_job_is_done_and_not_given_out_again(self, ledger: Ledger) -> None:
        await put(ledger, new())
        (leased,) = await take(ledger)
        done = await ledger.finish(leased, result={"learned": 3})
        assert (done.state, done.result, done.lease, done.worker) == (JobState.DONE, {"learned": 3}, None, None)
        assert await take(ledger) == []
        with pytest.raises(Conflict):
            await ledger.finish(leased)
        with pytest.raises(Conflict):
            await ledger.fail(leased, error="x", retry_at=None)
        with pytest.raises(Conflict):
            await ledger.renew(leased, lease_s=1)
        assert await ledger.job("ann", done.id) == done

    async def test_a_failed_job_waits_for_its_next_try(self, ledger: Ledger) -> None:
        await put(ledger, new())
        (leased,) = await take(ledger)
        retry_at = now() + timedelta(seconds=A_WHILE_S)
        failed = await ledger.fail(leased, error="no answer", retry_at=retry_at)
        assert (failed.state, failed.error, failed.due_at) == (JobState.WAITING, "no answer", retry_at)
        assert await take(ledger) == []
        (repeated,) = await take_soon(ledger)
        assert now() >= retry_at
        assert (repeated.id, repeated.tries, repeated.error) == (leased.id, 2, "no answer")
        assert repeated.lease != leased.lease

    async def test_a_job_that_is_given_back_was_never_begun(self, ledger: Ledger) -> None:
        await put(ledger, new())
        for _ in range(3):
            (leased,) = await take(ledger)
            back = await ledger.release(leased)
            assert (back.state, back.tries, back.worker, back.lease) == (JobState.WAITING, 0, None, None)
            assert back.due_at <= now()
        assert (await ledger.job_stats("ann")).failures_in_a_row == 0
        with pytest.raises(Conflict):
            await ledger.release(leased)
        (repeated,) = await take(ledger)
        await ledger.fail(repeated, error="x", retry_at=now())
        (repeated,) = await take(ledger)
        assert ((await ledger.release(repeated)).tries, (await ledger.job_stats("ann")).failures_in_a_row) == (1, 1)

    async def test_a_dead_job_stays_until_it_is_replayed(self, ledger: Ledger) -> None:
        await put(ledger, new())
        (leased,) = await take(ledger)
        dead = await ledger.fail(leased, error="hopeless", retry_at=None)
        assert (dead.state, dead.error) == (JobState.DEAD, "hopeless")
        assert await take(ledger) == []
        assert await ledger.replay("bob", [dead.id]) == []
        (replayed,) = await ledger.replay("ann", [dead.id, "nobody's", dead.id])
        assert (replayed.state, replayed.tries, replayed.error) == (JobState.WAITING, 0, None)
        assert await ledger.replay("ann", [dead.id]) == []
        assert [job.id for job in await run_all(ledger)] == [dead.id]

    async def test_a_cancelled_job_is_not_done_and_has_no_effect(self, ledger: Ledger) -> None:
        waiting, other = await put(ledger, new("a"), new("b"))
        (leased,) = await take(ledger)
        assert leased.id == waiting.id
        assert await ledger.cancel("bob", [waiting.id, other.id]) == []
        gone = await ledger.cancel("ann", [other.id, waiting.id, "nobody's", "\0"])
        assert [(job.id, job.state) for job in gone] == [(other.id, "cancelled"), (waiting.id, "cancelled")]
        assert await take(ledger) == []
        for end in (ledger.finish(leased), ledger.renew(leased, lease_s=1)):
            with pytest.raises(Conflict):
                await end
        await put(ledger, new("c"))
        assert [job.key for job in await run_all(ledger)] == ["c"]
        await ledger.replay("ann", [other.id])
        assert [job.key for job in await run_all(ledger)] == ["b"]

    async def test_a_lease_that_ran_out_is_taken_over_and_the_first_holder_is_told(self, ledger: Ledger) -> None:
        await put(ledger, new())
        (first,) = await take(ledger, lease_s=A_WHILE_S)
        assert await take(ledger) == []
        (second,) = await take_soon(ledger)
        assert (second.id, second.tries) == (first.id, 2)
        with pytest.raises(Conflict):
            await ledger.finish(first)
        with pytest.raises(Conflict):
            await ledger.fail(first, error="late", retry_at=None)
        assert (await ledger.finish(second)).state is JobState.DONE

    async def test_a_lease_that_is_renewed_is_not_taken_over(self, ledger: Ledger) -> None:
        await put(ledger, new())
        (leased,) = await take(ledger, lease_s=SHORT_S)
        stored = await ledger.renew(leased, lease_s=LONG_S)
        assert stored.leased_until is not None and leased.leased_until is not None
        assert stored.leased_until > leased.leased_until
        await asyncio.sleep(SHORT_S + 0.02)
        assert await take(ledger) == []
        assert (await ledger.finish(leased)).state is JobState.DONE

    async def test_who_is_late_can_still_finish_what_nobody_took_over(self, ledger: Ledger) -> None:
        await put(ledger, new())
        (leased,) = await take(ledger, lease_s=SHORT_S)
        await asyncio.sleep(SHORT_S + 0.02)
        assert (await ledger.finish(leased)).state is JobState.DONE
        assert await take(ledger) == []

    async def test_a_more_urgent_job_goes_before_one_whose_lease_ran_out(self, ledger: Ledger) -> None:
        await put(ledger, new("slow"))
        await take(ledger, lease_s=SHORT_S)
        await put(ledger, new("urgent", priority=5))
        await asyncio.sleep(SHORT_S + 0.02)
        (urgent,) = await take(ledger)
        assert urgent.key == "urgent"
        assert await take(ledger) == []
        await ledger.finish(urgent)
        (slow,) = await take(ledger)
        assert (slow.key, slow.tries) == ("slow", 2)
