"""Who is served when: priorities, users who take turns, many leasers at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from recollect.errors import InvalidInput, Unsupported
from recollect.ledger.protocol import Ledger
from recollect.model.job import Job, JobKind, JobState
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.testing.suite_jobs import SHORT_S, ago, new, put, run_all, take
from recollect.testing.suite_samples import Open

LEASERS = 8


class FairSchedulingSuite:
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

    async def test_the_highest_priority_goes_first_whoever_it_is_for(self, ledger: Ledger) -> None:
        for n, user in enumerate(("ann", "bob", "cleo")):
            await put(ledger, new(priority=n, due_at=ago(minutes=5 - n)), scope=Scope(user))
        assert [job.scope.user for job in await run_all(ledger)] == ["cleo", "bob", "ann"]

    async def test_an_urgent_job_that_is_not_due_lends_its_priority_to_no_other(self, ledger: Ledger) -> None:
        await put(ledger, new("low", priority=-5), new("urgent", priority=5, due_at=now() + timedelta(hours=1)))
        await put(ledger, new("middle"), scope=Scope("bob"))
        assert [job.key for job in await run_all(ledger)] == ["middle", "low"]

    async def test_who_has_much_waiting_does_not_keep_others_waiting(self, ledger: Ledger) -> None:
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

    async def test_a_worker_of_another_kind_leaves_what_ran_out_to_others(self, ledger: Ledger) -> None:
        await put(ledger, new("slow", kind=JobKind.REFLECT), new("b", kind=JobKind.EXTRACT))
        (slow,) = await take(ledger, kinds=[JobKind.REFLECT], lease_s=SHORT_S)
        await asyncio.sleep(SHORT_S + 0.02)
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
        other = await _another(store) or ledger
        users, each = 40, 25
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
        if other is not ledger:
            await other.close()

    async def test_jobs_are_there_when_opened_again(self, ledger: Ledger, store: Open) -> None:
        await put(ledger, *(new(f"{n}") for n in range(3)))
        (leased,) = await take(ledger)
        before = await ledger.jobs()
        await ledger.close()
        if (repeated := await _another(store)) is None:
            return
        assert await repeated.jobs() == before
        await repeated.finish(leased)
        assert [job.key for job in await run_all(repeated)] == ["1", "2"]
        await repeated.close()


async def _another(store: Open) -> Ledger | None:
    """The same store opened once more, if it can be."""
    try:
        return await store()
    except Unsupported:
        return None
