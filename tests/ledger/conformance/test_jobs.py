"""Jobs: made and joined, leased in turn, finished once whatever happens."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime, timedelta

import pytest

from recollect.errors import Conflict, InvalidInput, InvalidText, NotFound, StoreUnavailable
from recollect.ledger.ledger import Ledger
from recollect.ledger.sql.tx import ALL_TENANTS, Tx
from recollect.ledger.types import MAINTENANCE_AUTHOR
from recollect.model.change import Add, Author, IdempotencyToken
from recollect.model.job import (
    ExtractPayload,
    Job,
    JobKind,
    JobState,
    JobStats,
    MaintenancePayload,
    NewJob,
    RebuildPayload,
)
from recollect.model.scope import Scope
from recollect.model.times import now
from tests.support.ledger_samples import (
    ANN,
    BOB,
    BY,
    LONG_S,
    MODEL,
    MONDAY,
    ODD_TEXTS,
    Open,
    add,
    memory,
    new,
    put,
    say,
    take,
    turn,
)

# The length of a lease that has expired when it is given.
EXPIRED_S = -1.0


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


EPISODE = RebuildPayload(first=1, last=10, at_end=True)


class TestJob:
    """What becomes of a job."""

    async def test_a_job_comes_back_as_it_was_given(self, ledger: Ledger) -> None:
        due = ago(minutes=5)
        (job,) = await ledger.enqueue(
            MONDAY, [NewJob(kind=JobKind.SUMMARISE, key="k", payload=EPISODE, priority=7, due_at=due)]
        )
        assert (job.scope, job.kind, job.key, job.payload) == (MONDAY, JobKind.SUMMARISE, "k", EPISODE)
        assert (job.state, job.priority, job.due_at, job.tries) == (JobState.WAITING, 7, due, 0)
        assert (job.worker, job.lease, job.leased_until, job.error, job.result) == (None,) * 5
        assert await ledger.job("ann", job.id) == job
        assert await ledger.jobs("ann") == [job]

    async def test_odd_keys_payloads_results_and_errors_come_back(self, ledger: Ledger) -> None:
        for text in [*ODD_TEXTS.values(), "\0 \ud800"]:
            key = text if "\0" not in text else ""
            (job,) = await put(ledger, new(key, payload=ExtractPayload(mode=text)))
            (leased,) = await take(ledger)
            assert (leased.id, leased.key, leased.payload) == (job.id, key, ExtractPayload(mode=text))
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
        with pytest.raises(InvalidInput):
            new(priority=1000)
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

    async def test_a_joining_job_brings_its_payload_priority_and_scope(self, ledger: Ledger) -> None:
        await put(ledger, new(payload=ExtractPayload(mode="task", model="small"), priority=3), scope=MONDAY)
        (job,) = await put(ledger, new(payload=ExtractPayload(model="large"), priority=1), scope=MONDAY)
        assert job.payload == ExtractPayload(mode="task", model="large")
        assert (job.priority, job.scope) == (3, MONDAY)
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
        assert (await put(ledger, new(due_at=later, postpone_after=now())))[0].due_at == later
        assert (await put(ledger, new(due_at=soon, postpone_after=now())))[0].due_at == later
        assert await take(ledger) == []

    async def test_a_job_that_is_due_by_the_given_time_is_not_postponed(self, ledger: Ledger) -> None:
        await put(ledger, new(due_at=ago(seconds=1)))
        await put(ledger, new(due_at=now() + timedelta(hours=1), postpone_after=now()))
        assert len(await take(ledger)) == 1

    async def test_a_job_enqueued_while_one_runs_is_another_job(self, ledger: Ledger) -> None:
        (first,) = await put(ledger, new("s"))
        (running,) = await take(ledger)
        (second,) = await put(ledger, new("s"))
        assert second.id != first.id
        assert await take(ledger) == []
        await ledger.finish(running)
        assert [job.id for job in await take(ledger)] == [second.id]

    async def test_joining_a_failed_job_does_not_bring_it_forward(self, ledger: Ledger) -> None:
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
        assert leased.leased_until is not None
        assert leased.lease
        assert timedelta(seconds=10) < leased.leased_until - now() < timedelta(seconds=31)
        assert await ledger.job("ann", job.id) == leased
        assert leased.lease not in str(leased.to_dict())

    async def test_a_finished_job_is_done_and_not_leased_again(self, ledger: Ledger) -> None:
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
        await ledger.fail(leased, error="no answer", retry_at=ago(seconds=1))
        (repeated,) = await take(ledger)
        assert (repeated.id, repeated.tries, repeated.error) == (leased.id, 2, "no answer")
        assert repeated.lease != leased.lease
        retry_at = now() + timedelta(hours=1)
        failed = await ledger.fail(repeated, error="no answer", retry_at=retry_at)
        assert (failed.state, failed.error, failed.due_at) == (JobState.WAITING, "no answer", retry_at)
        assert await take(ledger) == []

    async def test_a_released_job_counts_as_not_started(self, ledger: Ledger) -> None:
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

    async def test_an_expired_lease_is_taken_over_and_its_first_owner_gets_a_conflict(self, ledger: Ledger) -> None:
        await put(ledger, new())
        (first,) = await take(ledger, lease_s=EXPIRED_S)
        (second,) = await take(ledger)
        assert await take(ledger) == []
        assert (second.id, second.tries) == (first.id, 2)
        with pytest.raises(Conflict):
            await ledger.finish(first)
        with pytest.raises(Conflict):
            await ledger.fail(first, error="late", retry_at=None)
        assert (await ledger.finish(second)).state is JobState.DONE

    async def test_a_lease_that_is_renewed_is_not_taken_over(self, ledger: Ledger) -> None:
        await put(ledger, new())
        (leased,) = await take(ledger, lease_s=EXPIRED_S)
        stored = await ledger.renew(leased, lease_s=LONG_S)
        assert stored.leased_until is not None
        assert leased.leased_until is not None
        assert stored.leased_until > leased.leased_until
        assert await take(ledger) == []
        assert (await ledger.finish(leased)).state is JobState.DONE

    async def test_a_job_whose_lease_expired_can_be_finished_if_nobody_took_it_over(self, ledger: Ledger) -> None:
        await put(ledger, new())
        (leased,) = await take(ledger, lease_s=EXPIRED_S)
        assert (await ledger.finish(leased)).state is JobState.DONE
        assert await take(ledger) == []

    async def test_a_more_urgent_job_runs_before_one_whose_lease_expired(self, ledger: Ledger) -> None:
        await put(ledger, new("slow"))
        await take(ledger, lease_s=EXPIRED_S)
        await put(ledger, new("urgent", priority=5))
        (urgent,) = await take(ledger)
        assert urgent.key == "urgent"
        assert await take(ledger) == []
        await ledger.finish(urgent)
        (slow,) = await take(ledger)
        assert (slow.key, slow.tries) == ("slow", 2)


class TestJobList:
    """What can be told of jobs."""

    async def test_jobs_of_others_are_not_there(self, ledger: Ledger) -> None:
        (job,) = await put(ledger, new())
        for user, id in (("bob", job.id), ("ann", "nothing"), ("ann", "\0"), ("ann", "\ud800")):
            with pytest.raises(NotFound):
                await ledger.job(user, id)
        assert await ledger.jobs("bob") == []

    async def test_jobs_are_listed_newest_first_a_page_at_a_time(self, ledger: Ledger) -> None:
        made = await put(ledger, *(new(f"{n}") for n in range(5)))
        made += await put(ledger, new("bob's"), scope=BOB)
        newest = [job.id for job in reversed(made)]
        assert [job.id for job in await ledger.jobs()] == newest
        first = await ledger.jobs(limit=4)
        assert [job.id for job in first + await ledger.jobs(before=first[-1].id)] == newest
        await ledger.finish((await take(ledger))[0])
        assert [job.key for job in await ledger.jobs("ann", states=[JobState.DONE])] == ["0"]
        assert len(await ledger.jobs(states=[JobState.WAITING, JobState.DONE])) == 6
        assert await ledger.jobs(states=[JobState.DEAD]) == []

    async def test_stats_count_jobs_and_the_age_of_the_oldest(self, ledger: Ledger) -> None:
        assert await ledger.job_stats() == await ledger.job_stats("ann") == JobStats()
        await put(ledger, new("a", due_at=ago(seconds=100)), new("b"), new("c", priority=1), new("d", priority=2))
        # Nobody waits for a chore.
        await put(ledger, new("chore", due_at=ago(hours=1), priority=-1))
        await put(ledger, new("e", due_at=now() + timedelta(days=1)), scope=BOB)
        (leased,) = await take(ledger)
        await ledger.fail(leased, error="x", retry_at=None)
        await take(ledger)
        mine, all_of_them = await ledger.job_stats("ann"), await ledger.job_stats()
        assert (mine.waiting, mine.running, mine.dead, mine.failures_in_a_row) == (3, 1, 1, 1)
        assert (mine.due, all_of_them.due) == (3, 3)
        assert 100 <= mine.oldest_due_age_s < 160
        assert (all_of_them.waiting, all_of_them.running, all_of_them.dead) == (4, 1, 1)
        bobs = await ledger.job_stats("bob")
        assert (bobs.waiting, bobs.due, bobs.oldest_due_age_s, bobs.failures_in_a_row) == (1, 0, 0.0, 0)
        assert (await ledger.stats("ann"))["jobs"] == 5

    async def test_failures_are_counted_until_something_goes_well(self, ledger: Ledger) -> None:
        await put(ledger, new("a"), new("b"))
        for n in (1, 2, 3):
            await ledger.fail((await take(ledger))[0], error="x", retry_at=now())
            assert (await ledger.job_stats("ann")).failures_in_a_row == n
            assert (await ledger.job_stats()).failures_in_a_row == n
        await ledger.finish((await take(ledger))[0])
        assert (await ledger.job_stats("ann")).failures_in_a_row == 0

    async def test_failures_of_long_ago_are_no_longer_in_a_row(
        self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await put(ledger, new("a"), new("b"))
        for _ in range(3):
            await ledger.fail((await take(ledger))[0], error="x", retry_at=now())
        later = now() + timedelta(minutes=11)
        for module in ("sql.jobs", "sql.leases"):
            monkeypatch.setattr(f"recollect.ledger.{module}.now", lambda: later)
        assert (await ledger.job_stats()).failures_in_a_row == (await ledger.job_stats("ann")).failures_in_a_row == 0
        await ledger.fail((await take(ledger))[0], error="x", retry_at=None)
        assert (await ledger.job_stats()).failures_in_a_row == 1

    async def test_idempotency_keys_are_pruned_after_a_time(self, ledger: Ledger) -> None:
        once = IdempotencyToken("key", "digest")
        await ledger.apply(ANN, [Add(memory("tea"))], by=BY, once=once)
        assert await ledger.prune_idempotency_keys(ago(hours=1)) == 0
        assert (await ledger.apply(ANN, [Add(memory("tea"))], by=BY, once=once)).replayed
        assert await ledger.prune_idempotency_keys(now() + timedelta(seconds=1)) == 1
        assert not (await ledger.apply(ANN, [Add(memory("milk"))], by=BY, once=once)).replayed

    async def test_only_finished_jobs_are_pruned(self, ledger: Ledger) -> None:
        await put(ledger, *(new(key) for key in ("done", "cancelled", "dead", "running", "waiting")))
        await ledger.finish((await take(ledger))[0])
        await ledger.cancel("ann", [job.id for job in await ledger.jobs("ann") if job.key == "cancelled"])
        await ledger.fail((await take(ledger))[0], error="x", retry_at=None)
        await take(ledger)
        assert await ledger.prune_jobs(ago(hours=1)) == 0
        assert await ledger.prune_jobs(now() + timedelta(seconds=1)) == 2
        assert {job.key for job in await ledger.jobs("ann")} == {"dead", "running", "waiting"}

    async def test_a_closed_ledger_leases_no_jobs(self, ledger: Ledger) -> None:
        await put(ledger, new())
        (job,) = await take(ledger)
        await ledger.close()
        for use in (
            put(ledger, new()), take(ledger), ledger.finish(job), ledger.fail(job, error="x", retry_at=None),
            ledger.renew(job, lease_s=1), ledger.job("ann", job.id), ledger.jobs(), ledger.replay("ann", [job.id]),
            ledger.cancel("ann", [job.id]), ledger.job_stats(), ledger.prune_jobs(now()), ledger.conversations(),
            ledger.usage(), ledger.spent_today("ann"), ledger.release(job), ledger.maintenance_states(),
            ledger.maintenance_times(),
            ledger.record_maintenance_times({"a": now()}), ledger.prune_idempotency_keys(now()),
            ledger.enqueue_due([(BOB, new())]),
        ):  # fmt: skip
            with pytest.raises(StoreUnavailable, match="closed"):
                await use


LEASERS = 8


class TestFairScheduling:
    """The order in which jobs are given out."""

    async def test_one_job_of_a_user_runs_at_a_time(self, ledger: Ledger) -> None:
        await put(ledger, new("a"), new("b"), new("c", priority=9))
        await put(ledger, new("d"), scope=Scope("bob"))
        leased = await take(ledger, 10)
        assert [(job.scope.user, job.key) for job in leased] == [("ann", "c"), ("bob", "d")]
        assert await take(ledger, 10) == []
        await ledger.finish(leased[0])
        assert [job.key for job in await take(ledger, 10)] == ["a"]

    async def test_a_users_jobs_run_by_priority_then_by_when_they_are_due(self, ledger: Ledger) -> None:
        old, older = ago(minutes=1), ago(minutes=2)
        await put(ledger, new("1", due_at=old), new("2", due_at=older), new("3", due_at=old))
        await put(ledger, new("4", priority=-5, due_at=ago(days=1)), new("5", priority=5))
        assert [job.key for job in await run_all(ledger)] == ["5", "2", "1", "3", "4"]

    async def test_the_highest_priority_goes_first_for_any_user(self, ledger: Ledger) -> None:
        for n, user in enumerate(("ann", "bob", "cleo")):
            await put(ledger, new(priority=n, due_at=ago(minutes=5 - n)), scope=Scope(user))
        assert [job.scope.user for job in await run_all(ledger)] == ["cleo", "bob", "ann"]

    async def test_an_urgent_job_that_is_not_due_lends_its_priority_to_no_other(self, ledger: Ledger) -> None:
        await put(ledger, new("low", priority=-5), new("urgent", priority=5, due_at=now() + timedelta(hours=1)))
        await put(ledger, new("middle"), scope=Scope("bob"))
        assert [job.key for job in await run_all(ledger)] == ["middle", "low"]

    async def test_a_user_with_many_jobs_does_not_delay_others(self, ledger: Ledger) -> None:
        await put(ledger, *(new(f"{n}", due_at=ago(hours=1)) for n in range(200)), scope=Scope("hog"))
        assert len(await run_all(ledger, 3)) == 3
        for user in ("ann", "bob", "cleo"):
            await put(ledger, new("x"), new("y"), scope=Scope(user))
        order = [job.scope.user for job in await run_all(ledger, 10)]
        assert Counter(order[:4]) == {"hog": 1, "ann": 1, "bob": 1, "cleo": 1}
        assert Counter(order[:8]) == {"hog": 2, "ann": 2, "bob": 2, "cleo": 2}

    async def test_a_worker_gets_only_the_kinds_it_asks_for(self, ledger: Ledger) -> None:
        await put(ledger, new("a", kind=JobKind.REFLECT), new("b", kind=JobKind.EXTRACT))
        for n in range(5):
            await put(ledger, new("c", kind=JobKind.REFLECT, due_at=ago(hours=1)), scope=Scope(f"user {n}"))
        (leased,) = await take(ledger, 1, kinds=[JobKind.EXTRACT, JobKind.CLOSE])
        assert leased.key == "b"
        assert await take(ledger, 10, kinds=[JobKind.CLOSE]) == []
        assert await take(ledger, 10, kinds=[]) == []
        assert len(await take(ledger, 10, kinds=[JobKind.REFLECT])) == 5

    async def test_a_worker_of_another_kind_does_not_take_over_an_expired_lease(self, ledger: Ledger) -> None:
        await put(ledger, new("slow", kind=JobKind.REFLECT), new("b", kind=JobKind.EXTRACT))
        (slow,) = await take(ledger, kinds=[JobKind.REFLECT], lease_s=EXPIRED_S)
        (other,) = await take(ledger, kinds=[JobKind.EXTRACT])
        assert (slow.key, other.key) == ("slow", "b")
        assert await take(ledger) == []
        await ledger.finish(other)
        assert [job.key for job in await take(ledger)] == ["slow"]

    async def test_as_many_are_leased_as_were_asked_for(self, ledger: Ledger) -> None:
        for n in range(5):
            await put(ledger, new(priority=n % 2), scope=Scope(f"user {n}"))
        assert [len(await take(ledger, 2)) for _ in range(4)] == [2, 2, 1, 0]
        with pytest.raises(InvalidInput):
            await take(ledger, 0)

    async def test_many_leasers_run_every_job_exactly_once(self, ledger: Ledger, store: Open) -> None:
        other = await store()
        users, each = 12, 10
        for n in range(users):
            await put(ledger, *(new(f"{m}", priority=m % 3) for m in range(each)), scope=Scope(f"user {n}"))
        runs: list[Job] = []
        at_work: set[str] = set()

        async def work(number: int) -> None:
            mine = (ledger, other)[number % 2]
            while len(runs) < users * each:
                leased = await take(mine, 4)
                for job in leased:
                    assert job.scope.user not in at_work
                    at_work.add(job.scope.user)
                await asyncio.sleep(0 if leased else 0.002)
                for job in leased:
                    runs.append(job)
                    at_work.discard(job.scope.user)
                    await mine.finish(job)

        await asyncio.gather(*(work(n) for n in range(LEASERS)))
        assert len(runs) == len({job.id for job in runs}) == users * each
        assert {job.tries for job in runs} == {1}
        assert len(await ledger.jobs(states=[JobState.DONE], limit=5000)) == users * each
        assert (await ledger.job_stats()).waiting == 0
        await other.close()

    async def test_jobs_are_there_when_opened_again(self, ledger: Ledger, store: Open) -> None:
        await put(ledger, *(new(f"{n}") for n in range(3)))
        (leased,) = await take(ledger)
        before = await ledger.jobs()
        await ledger.close()
        repeated = await store()
        assert await repeated.jobs() == before
        await repeated.finish(leased)
        assert [job.key for job in await run_all(repeated)] == ["1", "2"]
        await repeated.close()


EXPIRE = NewJob(kind=JobKind.UPKEEP, key="expire", payload=MaintenancePayload(chore="expire"), priority=-10)
REFLECT = NewJob(kind=JobKind.REFLECT, key="reflect:p", payload=MaintenancePayload(chore="reflect"), priority=-20)
CLOSE = NewJob(kind=JobKind.CLOSE, key="monday")


class TestMaintenanceQueue:
    """Upkeep of everyone, a few at a time."""

    async def test_maintenance_states_of_all_users_are_paged_in_order(self, ledger: Ledger) -> None:
        before = now()
        for user in ("cleo", "ann", "bob"):
            await add(ledger, memory(scope=Scope(user)))
        await say(ledger, MONDAY, "hello")
        await say(ledger, Scope("ann", "", "s"), "hello")
        page = await ledger.maintenance_states(limit=2)
        assert [each.user for each in page] == ["ann", "bob"]
        assert [each.user for each in await ledger.maintenance_states(after="bob", limit=2)] == ["cleo"]
        assert [each.projects for each in page] == [("", "p"), ()]
        assert all(each.last_active_at is not None and before <= each.last_active_at <= now() for each in page)
        assert [dict(each.tasks) for each in page] == [{}, {}]

    async def test_writes_of_maintenance_do_not_count_as_activity(self, ledger: Ledger) -> None:
        await ledger.apply(ANN, [Add(memory("merged"))], by=Author(MAINTENANCE_AUTHOR))
        assert [each.last_active_at for each in await ledger.maintenance_states()] == [None]
        await ledger.apply(ANN, [Add(memory("said"))], by=BY)
        received = (await ledger.maintenance_states())[0].last_active_at
        await ledger.apply(ANN, [Add(memory("merged again"))], by=Author(MAINTENANCE_AUTHOR))
        assert received is not None
        assert (await ledger.maintenance_states())[0].last_active_at == received

    async def test_a_task_run_records_when_it_was_queued_and_when_it_started(self, ledger: Ledger) -> None:
        await say(ledger, MONDAY, "hello")
        before = now()
        assert await ledger.enqueue_due([(Scope("ann", "p"), REFLECT), (ANN, EXPIRE), (BOB, EXPIRE)]) == 2
        (ann,) = await ledger.maintenance_states()
        assert {*ann.tasks} == {("p", "reflect"), ("", "expire")}
        started = ann.tasks["", "expire"]
        assert before <= started.queued_at <= now()
        assert started.started_at is None
        (taken,) = await take(ledger)
        assert taken.key == "expire"
        leased = now()
        await ledger.finish(taken)
        after = (await ledger.maintenance_states())[0].tasks["", "expire"]
        assert after.started_at is not None
        assert started.queued_at <= after.started_at <= leased
        assert after.queued_at == started.queued_at
        # Queued again, it is still known when the last one began.
        await ledger.enqueue_due([(ANN, EXPIRE)])
        repeated = (await ledger.maintenance_states())[0].tasks["", "expire"]
        assert repeated.queued_at > started.queued_at
        assert repeated.started_at == after.started_at

    async def test_a_failed_task_has_no_start_time(self, ledger: Ledger) -> None:
        await say(ledger, MONDAY, "hello")
        await ledger.enqueue_due([(ANN, EXPIRE)])
        await ledger.fail((await take(ledger))[0], error="x", retry_at=None)
        assert (await ledger.maintenance_states())[0].tasks["", "expire"].started_at is None

    async def test_a_dead_maintenance_job_is_revived_instead_of_duplicated(self, ledger: Ledger) -> None:
        await say(ledger, MONDAY, "hello")
        await ledger.enqueue_due([(ANN, EXPIRE)])
        dead = await ledger.fail((await take(ledger))[0], error="x", retry_at=None)
        assert await ledger.enqueue_due([(ANN, EXPIRE)]) == 1
        assert [(job.id, job.state, job.tries) for job in await ledger.jobs()] == [(dead.id, JobState.WAITING, 0)]

    async def test_a_session_that_cannot_be_ended_is_left_until_more_is_said(self, ledger: Ledger) -> None:
        logged = turn("hello", said_at=ago(hours=1))
        await ledger.append(MONDAY, [logged], vectors=[None], by=BY)
        assert await ledger.enqueue_due([(MONDAY, CLOSE)]) == 1
        await ledger.fail((await take(ledger))[0], error="x", retry_at=None)
        assert await ledger.enqueue_due([(MONDAY, CLOSE)]) == 0
        assert await ledger.enqueue_due([(MONDAY, new("other", kind=JobKind.CLOSE))]) == 1
        logged = turn("more", said_at=now() + timedelta(seconds=1))
        await ledger.append(MONDAY, [logged], vectors=[None], by=BY)
        assert await ledger.enqueue_due([(MONDAY, CLOSE)]) == 1

    async def test_jobs_for_existing_scopes_only_are_not_created_for_others(self, ledger: Ledger) -> None:
        assert await ledger.enqueue(ANN, [EXPIRE], existing_only=True) == ()
        await say(ledger, MONDAY, "hello")
        for scope in (ANN, Scope("ann", "p"), MONDAY):
            assert len(await ledger.enqueue(scope, [EXPIRE], existing_only=True)) == 1
        for scope in (BOB, Scope("ann", "q"), Scope("ann", "p", "tuesday"), Scope("ann", "", "monday")):
            assert await ledger.enqueue(scope, [EXPIRE], existing_only=True) == ()
        assert len(await put(ledger, EXPIRE, scope=BOB)) == 1

    async def test_maintenance_times_include_the_last_write(self, ledger: Ledger) -> None:
        assert await ledger.maintenance_times() == {}
        early, late = ago(days=2), ago(days=1)
        await ledger.record_maintenance_times({"cleared": early, "seen": early})
        await ledger.record_maintenance_times({"cleared": late, "seen": None})
        assert await ledger.maintenance_times() == {"cleared": late}
        before = now()
        await add(ledger, memory())
        output = (await ledger.maintenance_times())["written"]
        assert before <= output <= now()

    @pytest.mark.parametrize("count", [0, 3])
    async def test_a_batch_is_of_many_users(self, ledger: Ledger, count: int) -> None:
        scopes = [Scope(f"user {n}") for n in range(count)]
        for scope in scopes:
            await add(ledger, memory(scope=scope))
        assert await ledger.enqueue_due([(scope, EXPIRE) for scope in reversed(scopes)]) == count
        assert {job.scope.user for job in await ledger.jobs()} == {scope.user for scope in scopes}


async def set_clock_back(ledger: Ledger, *, days: int = 1) -> None:
    """Make all times of jobs later, as if the clock had been set back since they were written."""
    columns = {
        "jobs": ("next_at", "due_at", "leased_until", "created_at", "updated_at"),
        "job_users": ("served_at", "busy_until"),
        "job_queues": ("ready_at",),
    }

    async def shift(tx: Tx) -> None:
        for table, names in columns.items():
            changes = ", ".join(f"{name} = {name} + :by" for name in names)
            await tx.run(f"UPDATE {table} SET {changes}", {"by": days * 86_400_000_000})

    await ledger.engine.write(shift, tenant=ALL_TENANTS)


class TestClock:
    async def test_jobs_do_not_wait_for_a_clock_that_was_set_back(self, ledger: Ledger) -> None:
        await put(ledger, new("one"))
        await put(ledger, new("two"), scope=BOB)
        later = (await put(ledger, new("later", due_at=now() + timedelta(hours=2)), scope=Scope("cyd")))[0]
        await set_clock_back(ledger)
        assert {job.key for job in await take(ledger, 9)} == {"one", "two"}
        # A job that is due later still is.
        found = await ledger.job("cyd", later.id)
        assert timedelta(hours=1) < found.due_at - now() <= timedelta(hours=2)

    async def test_the_job_of_a_worker_that_died_before_the_clock_was_set_back_is_leased_again(
        self, ledger: Ledger
    ) -> None:
        await put(ledger, new("one"))
        [first] = await take(ledger, lease_s=EXPIRED_S)
        await set_clock_back(ledger)
        # A ledger looks when it leases for the first time, and then from time to time.
        again = Ledger(ledger.engine, MODEL)
        assert [job.id for job in await take(again)] == [first.id]

    async def test_a_clock_that_is_set_forward_makes_no_job_run_twice(self, ledger: Ledger) -> None:
        await put(ledger, new("one"))
        [job] = await take(ledger)
        await set_clock_back(ledger, days=-1)
        [again] = await take(ledger)
        assert (again.id, again.lease == job.lease) == (job.id, False)
        # The lease ran out by the clock; whoever holds the older one finishes nothing.
        with pytest.raises(Conflict):
            await ledger.finish(job)
        await ledger.finish(again)
