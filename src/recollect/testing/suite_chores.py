"""Chores of many users: what was heard of whom, what is queued and came of it, when the store was looked after."""

from __future__ import annotations

from datetime import timedelta

import pytest

from recollect.ledger.jobs import MAINTENANCE_AUTHOR
from recollect.ledger.protocol import Ledger
from recollect.model.change import Add, Author
from recollect.model.job import JobKind, JobState, NewJob
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.testing.suite_jobs import MONDAY, ago, new, put, take
from recollect.testing.suite_samples import ANN, BOB, BY, add, memory, say, turn

EXPIRE = NewJob(kind=JobKind.UPKEEP, key="expire", payload={"chore": "expire"}, priority=-10)
REFLECT = NewJob(kind=JobKind.REFLECT, key="reflect:p", payload={"chore": "reflect"}, priority=-20)
CLOSE = NewJob(kind=JobKind.CLOSE, key="monday")


class MaintenanceQueueSuite:
    """Upkeep of everyone, a few at a time."""

    async def test_everyone_who_ever_wrote_is_tended_in_order_a_page_at_a_time(self, ledger: Ledger) -> None:
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

    async def test_what_upkeep_wrote_is_nothing_that_was_heard(self, ledger: Ledger) -> None:
        await ledger.apply(ANN, [Add(memory("merged"))], by=Author(MAINTENANCE_AUTHOR))
        assert [each.last_active_at for each in await ledger.maintenance_states()] == [None]
        await ledger.apply(ANN, [Add(memory("said"))], by=BY)
        received = (await ledger.maintenance_states())[0].last_active_at
        await ledger.apply(ANN, [Add(memory("merged again"))], by=Author(MAINTENANCE_AUTHOR))
        assert received is not None and (await ledger.maintenance_states())[0].last_active_at == received

    async def test_a_chore_is_known_from_when_it_is_queued_and_began_when_it_was_taken(self, ledger: Ledger) -> None:
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
        assert after.started_at is not None and started.queued_at <= after.started_at <= leased
        assert after.queued_at == started.queued_at
        # Queued again, it is still known when the last one began.
        await ledger.enqueue_due([(ANN, EXPIRE)])
        repeated = (await ledger.maintenance_states())[0].tasks["", "expire"]
        assert repeated.queued_at > started.queued_at
        assert repeated.started_at == after.started_at

    async def test_a_chore_that_failed_never_began(self, ledger: Ledger) -> None:
        await say(ledger, MONDAY, "hello")
        await ledger.enqueue_due([(ANN, EXPIRE)])
        await ledger.fail((await take(ledger))[0], error="x", retry_at=None)
        assert (await ledger.maintenance_states())[0].tasks["", "expire"].started_at is None

    async def test_a_dead_chore_gets_another_chance_instead_of_a_double(self, ledger: Ledger) -> None:
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

    async def test_only_who_is_known_gets_jobs_that_ask_for_it(self, ledger: Ledger) -> None:
        assert await ledger.enqueue(ANN, [EXPIRE], existing_only=True) == ()
        await say(ledger, MONDAY, "hello")
        for scope in (ANN, Scope("ann", "p"), MONDAY):
            assert len(await ledger.enqueue(scope, [EXPIRE], existing_only=True)) == 1
        for scope in (BOB, Scope("ann", "q"), Scope("ann", "p", "tuesday"), Scope("ann", "", "monday")):
            assert await ledger.enqueue(scope, [EXPIRE], existing_only=True) == ()
        assert len(await put(ledger, EXPIRE, scope=BOB)) == 1

    async def test_moments_are_kept_and_the_last_write_is_known(self, ledger: Ledger) -> None:
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
