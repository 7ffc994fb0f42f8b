"""Erasing while others write, and erasing again on a backup that is older."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta

import pytest

from recollect.errors import Conflict, InvalidInput
from recollect.ledger.protocol import Ledger
from recollect.model.change import Add, Supersede
from recollect.model.effect import ConversationUpdate, Effect, FinishJob, ModelUsage
from recollect.model.erase import Erasure, ErasureRequest, Target, parse_erasure, user_digest
from recollect.model.job import JobKind, JobState, NewJob
from recollect.model.scope import Level, Scope
from recollect.model.times import now
from recollect.testing.suite_samples import ANN, BOB, BY, add, change, listed, memory, say, turn

REPLAY_SESSION = Scope("ann", "p", "monday")
OTHER_REPLAY_SESSION = Scope("ann", "p", "tuesday")


async def at_work(ledger: Ledger, scope: Scope = REPLAY_SESSION, *, words: str = "a secret") -> tuple[str, FinishJob]:
    """Something said in a session, and a job that runs because of it: the turn's id, and what would end the job."""
    job = NewJob(kind=JobKind.EXTRACT, key=f"{scope.project}/{scope.session}")
    logged = await ledger.append(scope, [turn(words)], vectors=[None], by=BY, jobs=[job])
    (leased,) = await ledger.lease(worker="w", limit=1, lease_s=60)
    return logged.turns[0].id, FinishJob(leased.id, leased.lease or "")


class EraseReplaySuite:
    """Nothing that was erased comes back, from a job, a late writer or a backup."""

    async def test_a_job_that_ran_while_its_turn_was_erased_has_no_effect(self, ledger: Ledger) -> None:
        logged, finish = await at_work(ledger)
        await ledger.erase(ANN, ErasureRequest(Target.TURN, logged), by=BY)
        with pytest.raises(Conflict):
            await ledger.apply(ANN, [Add(memory("a secret", evidence=(logged,)))], by=BY, effects=[finish])
        assert await listed(ledger, ANN) == set()
        (repeated,) = await ledger.lease(worker="w", limit=1, lease_s=60)
        # That it was begun in vain does not count as a try.
        assert (repeated.id, repeated.tries) == (finish.job_id, 1)

    async def test_who_was_erased_does_not_come_back_by_what_was_under_way(self, ledger: Ledger) -> None:
        await at_work(ledger)
        await ledger.enqueue_due([(ANN, NewJob(kind=JobKind.UPKEEP, payload={"chore": "expire"}))])
        await ledger.erase(ANN, ErasureRequest(Target.USER), by=BY)
        spent = ModelUsage(user="ann", step="extract", model="m", tokens_in=7, at=now())
        await ledger.apply(ANN, [], by=BY, effects=[spent])
        job = NewJob(kind=JobKind.CLOSE, key="late")
        for scope in (ANN, REPLAY_SESSION):
            assert await ledger.enqueue(scope, [job], existing_only=True) == ()
            assert await ledger.enqueue_due([(scope, job)]) == 0
        assert (await ledger.users(), await ledger.usage(), await ledger.maintenance_states()) == ([], [], [])
        assert (await ledger.jobs(), await ledger.conversations()) == ([], [])
        assert (await ledger.stats())["users"] == 0

    @pytest.mark.parametrize("target", [Target.SESSION, Target.PROJECT])
    async def test_a_session_that_was_erased_does_not_come_back_by_its_jobs(
        self, ledger: Ledger, target: Target
    ) -> None:
        await at_work(ledger)
        await say(ledger, Scope("ann", "q", "monday"), "hello")
        reflect = NewJob(kind=JobKind.REFLECT, key="reflect:p", payload={"chore": "reflect"})
        await ledger.enqueue_due([(Scope("ann", "p"), reflect)])
        scope = REPLAY_SESSION if target is Target.SESSION else Scope("ann", "p")
        await ledger.erase(scope, ErasureRequest(target), by=BY)
        close = NewJob(kind=JobKind.CLOSE, key="late")
        assert await ledger.enqueue(scope, [close], existing_only=True) == ()
        assert await ledger.enqueue_due([(REPLAY_SESSION, close), (scope, reflect)]) == 0
        # One that was made all the same ends without bringing it back.
        await ledger.enqueue(REPLAY_SESSION, [NewJob(kind=JobKind.CLOSE, key="later", priority=5)])
        (job,) = await ledger.lease(worker="w", limit=1, lease_s=60)
        ended: list[Effect] = [
            ConversationUpdate(REPLAY_SESSION, {"closed_at": now()}),
            FinishJob(job.id, job.lease or ""),
        ]
        await ledger.apply(REPLAY_SESSION, [], by=BY, effects=ended)
        assert [each.scope.project for each in await ledger.conversations()] == ["q"]
        if target is Target.PROJECT:
            assert [dict(each.tasks) for each in await ledger.maintenance_states()] == [{}]

    @pytest.mark.parametrize("target", [Target.SESSION, Target.PROJECT, Target.USER])
    async def test_the_jobs_of_what_is_erased_go_with_it(self, ledger: Ledger, target: Target) -> None:
        scope = {Target.SESSION: REPLAY_SESSION, Target.PROJECT: Scope("ann", "p"), Target.USER: ANN}[target]
        _, finish = await at_work(ledger)
        await ledger.enqueue(Scope("ann", "q", "monday"), [NewJob(kind=JobKind.CLOSE, key="other")])
        await ledger.enqueue(BOB, [NewJob(kind=JobKind.CLOSE)])
        receipt = await ledger.erase(scope, ErasureRequest(target), by=BY)
        left = await ledger.jobs("ann")
        assert [job.key for job in left] == ([] if target is Target.USER else ["other"])
        assert receipt.stores[0].counts["jobs"] == 2 - len(left)
        assert len(await ledger.jobs("bob")) == 1
        with pytest.raises(Conflict):
            await ledger.apply(
                ANN,
                [Add(memory("a secret"))],
                by=BY,
                effects=[finish, ConversationUpdate(REPLAY_SESSION, {"summary": "x"})],
            )
        assert await listed(ledger, ANN) == set()
        assert len(await ledger.lease(worker="w", limit=5, lease_s=60)) == (1 if target is Target.USER else 2)

    async def test_no_job_is_lost_that_has_more_to_do(self, ledger: Ledger) -> None:
        one, two = await say(ledger, REPLAY_SESSION, "one", "two")
        job = NewJob(kind=JobKind.EXTRACT, payload={"turns": [one.id, two.id], "last": two.id, "n": 2})
        (waiting,) = await ledger.enqueue(REPLAY_SESSION, [job])
        await ledger.erase(ANN, ErasureRequest(Target.TURN, two.id), by=BY)
        results = await ledger.job("ann", waiting.id)
        assert (results.state, dict(results.payload)) == (JobState.WAITING, {"turns": [one.id], "n": 2})

    async def test_what_came_of_jobs_and_why_they_failed_is_not_kept(self, ledger: Ledger) -> None:
        logged, finish = await at_work(ledger)
        await ledger.apply(ANN, [], by=BY, effects=[FinishJob(finish.job_id, finish.lease, {"learned": "a secret"})])
        await ledger.enqueue(REPLAY_SESSION, [NewJob(kind=JobKind.CLOSE)])
        (leased,) = await ledger.lease(worker="w", limit=1, lease_s=60)
        await ledger.fail(leased, error="it said: a secret", retry_at=None)
        await ledger.erase(ANN, ErasureRequest(Target.TURN, logged), by=BY)
        assert [(job.result, job.error) for job in await ledger.jobs("ann")] == [(None, None)] * 2

    async def test_usage_goes_when_the_user_does_and_only_then(self, ledger: Ledger) -> None:
        await say(ledger, REPLAY_SESSION, "hello")
        await say(ledger, Scope("bob", "", "s"), "hello")
        for user in ("ann", "bob"):
            await ledger.apply(
                Scope(user),
                [],
                by=BY,
                effects=[ModelUsage(user=user, step="extract", model="m", tokens_in=7, at=now())],
            )
        await ledger.erase(REPLAY_SESSION, ErasureRequest(Target.SESSION), by=BY)
        assert (await ledger.spent_today("ann")).tokens == 7
        await ledger.erase(ANN, ErasureRequest(Target.USER), by=BY)
        assert (await ledger.spent_today("ann")).tokens == 0
        assert (await ledger.spent_today("bob")).tokens == 7

    async def test_a_writer_who_read_before_the_erasure_is_refused(self, ledger: Ledger) -> None:
        logged, _ = await say(ledger, REPLAY_SESSION, "a secret", "hello")
        seen = await ledger.revision("ann")
        await ledger.apply(ANN, [Add(memory("hello"))], by=BY, since=seen)
        await ledger.erase(ANN, ErasureRequest(Target.TURN, logged.id), by=BY)
        with pytest.raises(Conflict):
            await ledger.apply(ANN, [Add(memory("a secret"))], by=BY, since=seen)
        await ledger.apply(ANN, [Add(memory("of what is left"))], by=BY, since=await ledger.revision("ann"))
        assert await listed(ledger, ANN) == {"hello", "of what is left"}

    async def test_a_writer_who_read_before_all_of_the_user_went_is_refused(self, ledger: Ledger) -> None:
        await say(ledger, REPLAY_SESSION, "a secret")
        seen = await ledger.revision("ann")
        await ledger.erase(ANN, ErasureRequest(Target.USER), by=BY)
        with pytest.raises(Conflict):
            await ledger.apply(ANN, [Add(memory("a secret"))], by=BY, since=seen)
        assert await ledger.users() == []
        await ledger.apply(ANN, [Add(memory("new"))], by=BY, since=await ledger.revision("ann"))

    @pytest.mark.parametrize("target", [Target.TURN, Target.SESSION, Target.USER])
    async def test_erasing_while_twenty_write_leaves_nothing_later(self, ledger: Ledger, target: Target) -> None:
        (logged,) = await say(ledger, REPLAY_SESSION, "a secret")
        started = asyncio.Event()

        async def learn(n: int) -> None:
            for repeated in range(4):
                seen = await ledger.revision("ann")
                existing = await ledger.turns(REPLAY_SESSION)
                started.set()
                # As long as a model takes, in which anything may happen.
                await asyncio.sleep(0.001 * (n % 5))
                new = [Add(memory(f"{each.content} {n} {repeated}", evidence=(each.id,))) for each in existing]
                with contextlib.suppress(Conflict):
                    await ledger.apply(ANN, new, by=BY, since=seen)

        async def erase() -> None:
            await started.wait()
            await asyncio.sleep(0.003)
            scope = {Target.TURN: ANN, Target.SESSION: REPLAY_SESSION, Target.USER: ANN}[target]
            await ledger.erase(scope, ErasureRequest(target, logged.id if target is Target.TURN else ""), by=BY)

        await asyncio.gather(erase(), *(learn(n) for n in range(20)))
        assert await listed(ledger, ANN) == set()
        assert await ledger.check() == []

    async def test_what_was_erased_is_told_without_what_it_said_or_whose_it_was(self, ledger: Ledger) -> None:
        (logged,) = await say(ledger, REPLAY_SESSION, "a secret")
        fact = memory("the secret", evidence=(logged.id,))
        await add(ledger, fact)
        await ledger.erase(ANN, ErasureRequest(Target.TURN, logged.id), by=BY)
        await ledger.erase(OTHER_REPLAY_SESSION, ErasureRequest(Target.SESSION), by=BY)
        turn_erased, session_erased = await ledger.erasures()
        assert (turn_erased.target, turn_erased.ids) == (Target.TURN, (logged.id, fact.id))
        assert (session_erased.project, session_erased.session) == ("p", "tuesday")
        assert {turn_erased.user, session_erased.user} == {user_digest("ann")}
        assert "secret" not in str((turn_erased, session_erased))
        assert await ledger.erasures(since=session_erased.at + timedelta(seconds=1)) == []
        assert [parse_erasure(each.to_dict()) for each in (turn_erased, session_erased)] == await ledger.erasures()

    async def test_when_all_of_a_user_went_nothing_but_that_is_told(self, ledger: Ledger) -> None:
        await say(ledger, REPLAY_SESSION, "a secret")
        await ledger.erase(REPLAY_SESSION, ErasureRequest(Target.SESSION), by=BY)
        receipt = await ledger.erase(ANN, ErasureRequest(Target.USER), by=BY)
        (report,) = await ledger.erasures()
        assert report == Erasure(id=receipt.id, at=receipt.at, user=user_digest("ann"), target=Target.USER)

    async def test_an_erasure_is_replayed_on_a_backup_that_does_not_know_it(self, ledger: Ledger) -> None:
        (logged,) = await say(ledger, REPLAY_SESSION, "a secret")
        await add(ledger, memory("Paris", id="old", key="city"), memory("derived", evidence=(logged.id,)))
        await add(ledger, memory("stays"))
        await say(ledger, OTHER_REPLAY_SESSION, "also stays")
        await add(ledger, memory("bob's", scope=BOB))
        # In the store the erasures come from, "old" had been superseded by "new" before that was erased.
        inputs = [
            Erasure(id="1", at=now(), user=user_digest("ann"), target=Target.MEMORY, ids=("new", "old")),
            Erasure(id="2", at=now(), user=user_digest("ann"), target=Target.SESSION, project="p", session="monday"),
            Erasure(id="3", at=now(), user=user_digest("nobody"), target=Target.USER),
            Erasure(id="4", at=now(), user=user_digest("bob"), target=Target.USER),
        ]
        receipts = await ledger.replay_erasures(inputs, by=BY)
        assert [receipt.id for receipt in receipts] == ["1", "2", "4"]
        assert await listed(ledger, ANN) == {"stays", "also stays"}
        assert await ledger.users() == ["ann"]

    async def test_an_erasure_that_is_known_is_not_replayed(self, ledger: Ledger) -> None:
        await say(ledger, REPLAY_SESSION, "a secret")
        await ledger.erase(REPLAY_SESSION, ErasureRequest(Target.SESSION), by=BY)
        await say(ledger, REPLAY_SESSION, "said later")
        assert await ledger.replay_erasures(await ledger.erasures(), by=BY) == []
        assert await listed(ledger, ANN) == {"said later"}

    async def test_what_is_no_erasure_is_refused(self, ledger: Ledger) -> None:
        for plain in ({}, {"id": "1", "at": "noon", "user": "x", "target": "user"}, {"id": 1}):
            with pytest.raises(InvalidInput):
                parse_erasure(plain)

    async def test_undo_does_not_bring_back_what_is_gone(self, ledger: Ledger) -> None:
        (logged,) = await say(ledger, REPLAY_SESSION, "I moved to Rome")
        await add(ledger, memory("Paris", id="old", key="city"))
        new = memory("Rome", id="new", key="city", evidence=(logged.id,), level=Level.USER)
        await change(ledger, Supersede("old", new))
        superseded = next(line for line in await ledger.history(ANN) if line.verb == "supersede")
        await ledger.erase(ANN, ErasureRequest(Target.TURN, logged.id), by=BY)
        with pytest.raises(Conflict):
            await ledger.undo(ANN, superseded.id, by=BY)
        assert await listed(ledger, ANN) == {"Paris"}
