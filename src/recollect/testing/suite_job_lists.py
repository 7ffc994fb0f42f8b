"""Jobs from outside: listed, counted, cleared away."""

from __future__ import annotations

from datetime import timedelta

import pytest

from recollect.errors import NotFound, StoreUnavailable
from recollect.ledger.protocol import Ledger
from recollect.model.change import Add, IdempotencyToken
from recollect.model.job import JobState, JobStats
from recollect.model.times import now
from recollect.testing.suite_jobs import ago, new, put, take
from recollect.testing.suite_samples import ANN, BOB, BY, memory


class JobListSuite:
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

    async def test_stats_tell_how_much_there_is_and_how_old_it_is(self, ledger: Ledger) -> None:
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
        for module in ("sql.jobs", "sql.leases", "memory_jobs"):
            monkeypatch.setattr(f"recollect.ledger.{module}.now", lambda: later)
        assert (await ledger.job_stats()).failures_in_a_row == (await ledger.job_stats("ann")).failures_in_a_row == 0
        await ledger.fail((await take(ledger))[0], error="x", retry_at=None)
        assert (await ledger.job_stats()).failures_in_a_row == 1

    async def test_what_requests_came_to_is_forgotten_after_a_time(self, ledger: Ledger) -> None:
        once = IdempotencyToken("key", "digest")
        await ledger.apply(ANN, [Add(memory("tea"))], by=BY, once=once)
        assert await ledger.prune_idempotency_keys(ago(hours=1)) == 0
        assert (await ledger.apply(ANN, [Add(memory("tea"))], by=BY, once=once)).replayed
        assert await ledger.prune_idempotency_keys(now() + timedelta(seconds=1)) == 1
        assert not (await ledger.apply(ANN, [Add(memory("milk"))], by=BY, once=once)).replayed

    async def test_only_what_is_over_is_cleared_away(self, ledger: Ledger) -> None:
        await put(ledger, *(new(key) for key in ("done", "cancelled", "dead", "running", "waiting")))
        await ledger.finish((await take(ledger))[0])
        await ledger.cancel("ann", [job.id for job in await ledger.jobs("ann") if job.key == "cancelled"])
        await ledger.fail((await take(ledger))[0], error="x", retry_at=None)
        await take(ledger)
        assert await ledger.prune_jobs(ago(hours=1)) == 0
        assert await ledger.prune_jobs(now() + timedelta(seconds=1)) == 2
        assert {job.key for job in await ledger.jobs("ann")} == {"dead", "running", "waiting"}

    async def test_a_closed_ledger_has_no_work_for_anyone(self, ledger: Ledger) -> None:
        await put(ledger, new())
        (job,) = await take(ledger)
        await ledger.close()
        for use in (
            put(ledger, new()), take(ledger), ledger.finish(job), ledger.fail(job, error="x", retry_at=None),
            ledger.renew(job, lease_s=1), ledger.job("ann", job.id), ledger.jobs(), ledger.replay("ann", [job.id]),
            ledger.cancel("ann", [job.id]), ledger.job_stats(), ledger.prune_jobs(now()), ledger.conversations(),
            ledger.usage(), ledger.spent_today("ann"), ledger.release(job), ledger.maintenance_states(), ledger.maintenance_times(),
            ledger.record_maintenance_times({"a": now()}), ledger.prune_idempotency_keys(now()), ledger.enqueue_due([(BOB, new())]),
        ):  # fmt: skip
            with pytest.raises(StoreUnavailable, match="closed"):
                await use
