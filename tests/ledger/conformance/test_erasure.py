"""Erasing for good: what goes, what goes with it, what stays, what comes back, and what is told of it."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta

import pytest

from recollect.errors import Conflict, InvalidInput, NotFound
from recollect.ledger.ledger import Ledger
from recollect.ledger.types import Revision
from recollect.model.change import (
    Add,
    ConversationUpdate,
    Effect,
    FinishJob,
    Forget,
    IdempotencyToken,
    ModelUsage,
    Supersede,
    Update,
)
from recollect.model.erasure import Erasure, ErasureRequest, Receipt, Remade, Target, parse_erasure, user_digest
from recollect.model.job import JobKind, JobState, MaintenancePayload, NewJob
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.scope import Level, Scope
from recollect.model.times import now
from recollect.model.turn import Conversation
from tests.support.ledger_samples import (
    ALL,
    ANN,
    BOB,
    BY,
    MODEL,
    MONDAY,
    NOON,
    TUESDAY,
    add,
    change,
    direction,
    everything,
    listed,
    memory,
    now_of,
    say,
    scores_of,
    turn,
)

EVERYTHING_OF_USER = ErasureRequest(Target.USER)


def learned(content: str, *evidence: str, **fields: object) -> MemoryRecord:
    """A memory that was made from others."""
    usual: dict[str, object] = {"scope": MONDAY, "level": Level.PROJECT, "evidence": evidence}
    return memory(content, **usual | fields)


async def erase(ledger: Ledger, target: Target, id: str = "", *, scope: Scope = ANN) -> Receipt:
    return await ledger.erase(scope, ErasureRequest(target, id), by=BY)


def counts(receipt: Receipt) -> dict[str, int]:
    """What was erased, without what there was none of."""
    return {kind: number for store in receipt.stores for kind, number in store.counts.items() if number}


class TestErase:
    """What is erased is gone, with all that was made from it, and nothing else is."""

    async def test_an_erased_memory_is_nowhere(self, ledger: Ledger) -> None:
        tea = memory("likes green tea")
        await change(ledger, Add(tea, direction(1)), Add(memory("likes milk"), direction(2)))
        await change(ledger, Update(tea.id, {"content": "likes black tea"}, vector=direction(3)))
        receipt = await erase(ledger, Target.MEMORY, tea.id)
        assert counts(receipt) == {"memories": 1, "vectors": 1, "history": 2}
        assert receipt.reached
        assert await ledger.get(ANN, [tea.id]) == []
        assert await listed(ledger, ANN) == {"likes milk"}
        assert await ledger.history(ANN, memory_id=tea.id) == []
        assert await scores_of(ledger, ANN, "green black tea") == {}
        assert [row.vector is not None for row in (await ledger.index_rows("ann", model=MODEL, after=0))[1]] == [True]
        assert (await ledger.lexical(ANN, "likes milk")).missing == frozenset()
        assert await ledger.check() == []

    async def test_indexes_are_told_that_rows_were_erased(self, ledger: Ledger) -> None:
        (tea,) = await add(ledger, memory())
        before = await ledger.revision("ann")
        await erase(ledger, Target.MEMORY, tea.id)
        assert (await ledger.revision("ann")).epoch > before.epoch

    async def test_another_users_rows_are_never_touched(self, ledger: Ledger) -> None:
        same = [memory("likes tea", id="same", scope=scope) for scope in (ANN, BOB)]
        for record in same:
            await change(ledger, Add(record, direction(1)), scope=record.scope)
            await say(ledger, Scope(record.scope.user, "p", "monday"), "tea?")
            await add(ledger, memory("derived", scope=record.scope, evidence=("same",)))
        before = await everything(ledger, ["bob"])
        for what, scope in (
            (ErasureRequest(Target.MEMORY, "same"), ANN),
            (ErasureRequest(Target.SESSION), MONDAY),
            (ErasureRequest(Target.PROJECT), Scope("ann", "p")),
            (EVERYTHING_OF_USER, ANN),
        ):
            await ledger.erase(scope, what, by=BY)
        assert (await everything(ledger, ["bob"]))["bob"] == before["bob"]
        assert len(await ledger.turns(Scope("bob", "p", "monday"))) == 1

    async def test_what_is_not_there_cannot_be_erased(self, ledger: Ledger) -> None:
        (tea,) = await add(ledger, memory())
        for what, scope in (
            (ErasureRequest(Target.MEMORY, "nothing"), ANN),
            (ErasureRequest(Target.MEMORY, tea.id), BOB),
            (ErasureRequest(Target.TURN, tea.id), ANN),
        ):
            with pytest.raises(NotFound):
                await ledger.erase(scope, what, by=BY)
        assert await now_of(ledger, tea) == tea

    async def test_nothing_is_erased_that_was_not_named_exactly(self, ledger: Ledger) -> None:
        for what, scope in (
            (ErasureRequest(Target.USER), MONDAY),
            (ErasureRequest(Target.PROJECT), ANN),
            (ErasureRequest(Target.PROJECT), MONDAY),
            (ErasureRequest(Target.SESSION), Scope("ann", "p")),
        ):
            with pytest.raises(InvalidInput):
                await ledger.erase(scope, what, by=BY)

    async def test_all_that_was_derived_from_a_turn_goes_with_it(self, ledger: Ledger) -> None:
        first, second = await say(ledger, MONDAY, "My budget is 10,000", "And I like tea")
        budget = learned("budget is 10,000", first.id)
        insight = learned("plans with money", budget.id, category=Category.INSIGHT)
        lesson = learned("be careful", detail={"steps": [{"cites": [insight.id]}]}, category=Category.LESSON)
        await add(ledger, budget, insight, lesson, learned("likes tea", second.id))
        receipt = await erase(ledger, Target.TURN, first.id)
        assert counts(receipt) == {"memories": 3, "turns": 1, "history": 4}
        assert receipt.remade == ()
        assert await listed(ledger, ANN) == {"And I like tea", "likes tea"}
        assert [(logged.content, logged.position) for logged in await ledger.turns(MONDAY)] == [("And I like tea", 2)]

    async def test_an_id_that_is_a_word_erases_nothing_that_only_says_the_word(self, ledger: Ledger) -> None:
        await say(ledger, MONDAY, "hello")
        await add(ledger, memory("user", id="user"), learned("goes", detail={"outcome": "user", "role": ["user"]}))
        await erase(ledger, Target.MEMORY, "user")
        assert await listed(ledger, ANN) == {"hello", "goes"}

    async def test_what_rested_on_several_sources_is_told_of_to_be_made_anew(self, ledger: Ledger) -> None:
        one, two, three = await say(ledger, MONDAY, "one", "two", "three")
        episode = learned("they counted", category=Category.EPISODE, detail={"turn_start": 1, "turn_end": 3})
        fact = learned("counts", one.id, two.id)
        whole = learned("only two", two.id)
        await add(ledger, episode, fact, whole)
        await ledger.apply(
            MONDAY, [], by=BY, effects=[ConversationUpdate(MONDAY, {"summary": "one, two", "metadata": {"a": 1}})]
        )
        receipt = await erase(ledger, Target.TURN, two.id)
        assert set(receipt.remade) == {
            Remade("episode", MONDAY, (), (1, 3)),
            Remade("fact", MONDAY, (one.id,)),
            Remade("conversation", MONDAY),
        }
        assert await listed(ledger, ANN) == {"one", "three"}
        results = await ledger.conversation(MONDAY)
        assert (results.summary, results.metadata, results.turn_count) == ("", {"a": 1}, 3)
        (four,) = await say(ledger, MONDAY, "four")
        assert four.position == 4
        assert three.position == 3

    async def test_a_range_of_turns_is_one_of_its_own_session(self, ledger: Ledger) -> None:
        (logged,) = await say(ledger, MONDAY, "hello")
        await say(ledger, TUESDAY, "hello again")
        other = learned("greeted", scope=TUESDAY, category=Category.EPISODE, detail={"turn_start": 1, "turn_end": 1})
        await add(ledger, other)
        await erase(ledger, Target.TURN, logged.id)
        assert await listed(ledger, ANN) == {"hello again", "greeted"}

    async def test_a_memory_goes_with_the_versions_it_superseded_but_not_with_its_sources(
        self, ledger: Ledger
    ) -> None:
        (logged,) = await say(ledger, MONDAY, "I moved to Rome")
        await add(ledger, memory("Paris", id="old", key="city"))
        await change(ledger, Supersede("old", memory("Oslo", id="mid", key="city")))
        await change(ledger, Supersede("mid", memory("Rome", id="new", key="city", evidence=(logged.id,))))
        await change(ledger, Supersede("new", memory("Bern", id="newest", key="city")))
        receipt = await erase(ledger, Target.MEMORY, "new")
        assert (counts(receipt)["memories"], receipt.stays) == (3, (logged.id,))
        # It would go on saying it.
        assert (receipt.hidden, await listed(ledger, ANN)) == ((logged.id,), {"I moved to Rome", "Bern"})
        [turn] = await ledger.get(ANN, [logged.id])
        assert turn.status is Status.FORGOTTEN

    async def test_a_turn_is_not_hidden_for_what_sums_it_up_or_lives_in_another_project(self, ledger: Ledger) -> None:
        (logged,) = await say(ledger, MONDAY, "I moved to Rome")
        await add(ledger, memory("a talk of Rome", id="sum", category=Category.EPISODE, evidence=(logged.id,)))
        elsewhere = Scope(ANN.user, "elsewhere")
        await add(ledger, memory("Rome", id="far", scope=elsewhere, level=Level.PROJECT, evidence=(logged.id,)))
        for id in ("sum", "far"):
            receipt = await erase(ledger, Target.MEMORY, id)
            assert (receipt.stays, receipt.hidden) == ((logged.id,), ())
        assert await listed(ledger, ANN) == {"I moved to Rome"}

    async def test_what_was_superseded_by_something_that_went_with_its_turn_comes_back(self, ledger: Ledger) -> None:
        (logged,) = await say(ledger, MONDAY, "My name is Mallory")
        await add(ledger, memory("name: Ann", id="ann", key="name", value="Ann"))
        await change(ledger, Supersede("ann", memory("name: Mallory", key="name", evidence=(logged.id,))))
        await erase(ledger, Target.TURN, logged.id)
        (results,) = await ledger.get(ANN, ["ann"])
        assert (results.status, results.superseded_by, results.valid_to) == (Status.ACTIVE, None, None)
        assert await ledger.check() == []

    async def test_a_gap_in_the_versions_is_closed(self, ledger: Ledger) -> None:
        (logged,) = await say(ledger, MONDAY, "I moved to Rome")
        await add(ledger, memory("Paris", id="old", key="city"))
        await change(ledger, Supersede("old", memory("Rome", id="mid", key="city", evidence=(logged.id,))))
        await change(ledger, Supersede("mid", memory("Bern", id="new", key="city")))
        await erase(ledger, Target.TURN, logged.id)
        (results,) = await ledger.get(ANN, ["old"])
        assert (results.status, results.superseded_by) == (Status.SUPERSEDED, "new")

    async def test_what_cannot_come_back_because_its_key_is_taken_stays_superseded(self, ledger: Ledger) -> None:
        (logged,) = await say(ledger, MONDAY, "I moved to Rome")
        await add(ledger, memory("Paris", id="old", key="city"))
        await change(ledger, Supersede("old", memory("Rome", id="mid", evidence=(logged.id,))))
        await add(ledger, memory("Bern", id="new", key="city"))
        await erase(ledger, Target.TURN, logged.id)
        (results,) = await ledger.get(ANN, ["old"])
        assert (results.status, results.superseded_by) == (Status.SUPERSEDED, None)

    async def test_a_session_goes_with_all_that_came_from_it(self, ledger: Ledger) -> None:
        (logged,) = await say(ledger, MONDAY, "My budget is 10,000")
        await say(ledger, TUESDAY, "Hello")
        await add(
            ledger,
            learned("budget is 10,000", logged.id, level=Level.USER),
            learned("goals over both", logged.id, scope=TUESDAY, category=Category.SUMMARY),
            learned("of Tuesday", scope=TUESDAY),
        )
        receipt = await erase(ledger, Target.SESSION, scope=MONDAY)
        assert counts(receipt) == {"memories": 2, "turns": 1, "history": 3, "conversations": 1}
        assert await listed(ledger, ANN) == {"Hello", "of Tuesday"}
        assert await ledger.conversation(MONDAY) == Conversation(scope=MONDAY)
        (repeated,) = await say(ledger, MONDAY, "Hello anew")
        assert repeated.position == 1

    async def test_a_project_goes_with_its_sessions_and_leaves_the_others(self, ledger: Ledger) -> None:
        other = Scope("ann", "q", "monday")
        for scope in (MONDAY, TUESDAY, other):
            await say(ledger, scope, f"in {scope.project} on {scope.session}")
        await add(ledger, learned("of p", scope=Scope("ann", "p")))
        await add(ledger, memory("of ann"))
        receipt = await erase(ledger, Target.PROJECT, scope=Scope("ann", "p"))
        assert counts(receipt) == {"memories": 1, "turns": 2, "history": 3, "conversations": 2}
        assert await listed(ledger, ANN) == {"in q on monday", "of ann"}

    async def test_a_user_goes_as_if_they_had_never_been(self, ledger: Ledger) -> None:
        empty = await everything(ledger, ["ann"])
        await change(ledger, Add(memory(), direction(1)), Add(memory("gone", id="gone")))
        await change(ledger, Forget("gone"))
        await ledger.apply(ANN, [Add(memory("once"))], by=BY, once=IdempotencyToken("key", "digest"))
        await say(ledger, MONDAY, "hello")
        receipt = await erase(ledger, Target.USER)
        assert counts(receipt) == {
            "memories": 3, "turns": 1, "vectors": 1, "history": 5, "conversations": 1, "replies": 1,
        }  # fmt: skip
        after = await everything(ledger, ["ann"])
        assert (after["users"], after["stats"]) == (empty["users"], empty["stats"])
        assert after["ann"][2] == (Revision(0, 1), [])
        assert await ledger.turns(MONDAY) == []
        assert await ledger.check() == []

    async def test_who_comes_back_begins_anew_and_is_not_taken_for_who_they_were(self, ledger: Ledger) -> None:
        await add(ledger, memory("before"))
        before = await ledger.revision("ann")
        await erase(ledger, Target.USER)
        between = await ledger.revision("ann")
        await add(ledger, memory("after"))
        after = await ledger.revision("ann")
        assert before.epoch < between.epoch == after.epoch
        assert await scores_of(ledger, ANN, "before after") == {"after": pytest.approx(0.5, abs=0.5)}
        await erase(ledger, Target.USER)
        assert (await ledger.revision("ann")).epoch > after.epoch

    async def test_asking_to_erase_what_nobody_has_leaves_no_name_behind(self, ledger: Ledger) -> None:
        for what, scope in ((ErasureRequest(Target.SESSION), MONDAY), (EVERYTHING_OF_USER, ANN)):
            receipt = await ledger.erase(scope, what, by=BY)
            assert (counts(receipt), receipt.reached) == ({}, True)
        assert await ledger.users() == []

    async def test_a_reply_that_names_what_is_gone_is_not_repeated(self, ledger: Ledger) -> None:
        once = IdempotencyToken("key", "digest")
        applied = await ledger.apply(ANN, [Add(memory("tea"))], by=BY, once=once)
        receipt = await erase(ledger, Target.MEMORY, applied.outcomes[0].id)
        assert counts(receipt)["replies"] == 1
        assert not (await ledger.apply(ANN, [Add(memory("milk"))], by=BY, once=once)).replayed

    async def test_what_was_forgotten_long_ago_is_removed_for_good(self, ledger: Ledger) -> None:
        (logged,) = await say(ledger, MONDAY, "I moved to Rome")
        await add(ledger, memory("Paris", id="old", key="city"))
        await change(ledger, Supersede("old", memory("Rome", id="new", key="city")))
        await add(ledger, learned("has moved", logged.id), memory("stays"), memory("other's", scope=ANN))
        await change(ledger, Forget("new"), Forget(logged.id))
        assert (await ledger.purge(now() - timedelta(days=30))).counts == {}
        done = await ledger.purge(now() + timedelta(seconds=1))
        assert {kind: number for kind, number in done.counts.items() if number} == {
            "memories": 2, "turns": 1, "history": 6,
        }  # fmt: skip
        assert await listed(ledger, ANN) == {"has moved", "stays", "other's"}
        assert await ledger.check() == []
        assert await ledger.count(ANN, ALL) == 3

    async def test_positions_mean_what_they_meant_after_a_purge(self, ledger: Ledger) -> None:
        logged = await ledger.append(MONDAY, [turn(each) for each in "abc"], vectors=[None] * 3, by=BY)
        await change(ledger, Forget(logged.turns[1].id))
        await ledger.purge(now() + timedelta(seconds=1))
        await say(ledger, MONDAY, "d")
        assert [(each.content, each.position) for each in await ledger.turns(MONDAY)] == [
            ("a", 1),
            ("c", 3),
            ("d", 4),
        ]
        assert (await ledger.conversation(MONDAY)).last_turn_at == NOON


async def at_work(ledger: Ledger, scope: Scope = MONDAY, *, words: str = "a secret") -> tuple[str, FinishJob]:
    """Something said in a session, and a job that runs because of it: the turn's id, and what would end the job."""
    job = NewJob(kind=JobKind.EXTRACT, key=f"{scope.project}/{scope.session}")
    logged = await ledger.append(scope, [turn(words)], vectors=[None], by=BY, jobs=[job])
    (leased,) = await ledger.lease(worker="w", limit=1, lease_s=60)
    return logged.turns[0].id, FinishJob(leased.id, leased.lease or "")


class TestEraseReplay:
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
        await ledger.enqueue_due([(ANN, NewJob(kind=JobKind.UPKEEP, payload=MaintenancePayload(chore="expire")))])
        await ledger.erase(ANN, ErasureRequest(Target.USER), by=BY)
        spent = ModelUsage(user="ann", step="extract", model="m", tokens_in=7, at=now())
        await ledger.apply(ANN, [], by=BY, effects=[spent])
        job = NewJob(kind=JobKind.CLOSE, key="late")
        for scope in (ANN, MONDAY):
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
        reflect = NewJob(kind=JobKind.REFLECT, key="reflect:p", payload=MaintenancePayload(chore="reflect"))
        await ledger.enqueue_due([(Scope("ann", "p"), reflect)])
        scope = MONDAY if target is Target.SESSION else Scope("ann", "p")
        await ledger.erase(scope, ErasureRequest(target), by=BY)
        close = NewJob(kind=JobKind.CLOSE, key="late")
        assert await ledger.enqueue(scope, [close], existing_only=True) == ()
        assert await ledger.enqueue_due([(MONDAY, close), (scope, reflect)]) == 0
        # One that was made all the same ends without bringing it back.
        await ledger.enqueue(MONDAY, [NewJob(kind=JobKind.CLOSE, key="later", priority=5)])
        (job,) = await ledger.lease(worker="w", limit=1, lease_s=60)
        ended: list[Effect] = [
            ConversationUpdate(MONDAY, {"closed_at": now()}),
            FinishJob(job.id, job.lease or ""),
        ]
        await ledger.apply(MONDAY, [], by=BY, effects=ended)
        assert [each.scope.project for each in await ledger.conversations()] == ["q"]
        if target is Target.PROJECT:
            assert [dict(each.tasks) for each in await ledger.maintenance_states()] == [{}]

    @pytest.mark.parametrize("target", [Target.SESSION, Target.PROJECT, Target.USER])
    async def test_the_jobs_of_what_is_erased_go_with_it(self, ledger: Ledger, target: Target) -> None:
        scope = {Target.SESSION: MONDAY, Target.PROJECT: Scope("ann", "p"), Target.USER: ANN}[target]
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
                effects=[finish, ConversationUpdate(MONDAY, {"summary": "x"})],
            )
        assert await listed(ledger, ANN) == set()
        assert len(await ledger.lease(worker="w", limit=5, lease_s=60)) == (1 if target is Target.USER else 2)

    async def test_no_job_is_lost_that_has_more_to_do(self, ledger: Ledger) -> None:
        _, two = await say(ledger, MONDAY, "one", "two")
        (waiting,) = await ledger.enqueue(MONDAY, [NewJob(kind=JobKind.EXTRACT)])
        await ledger.erase(ANN, ErasureRequest(Target.TURN, two.id), by=BY)
        assert (await ledger.job("ann", waiting.id)).state is JobState.WAITING

    async def test_what_came_of_jobs_and_why_they_failed_is_not_kept(self, ledger: Ledger) -> None:
        logged, finish = await at_work(ledger)
        await ledger.apply(ANN, [], by=BY, effects=[FinishJob(finish.job_id, finish.lease, {"learned": "a secret"})])
        await ledger.enqueue(MONDAY, [NewJob(kind=JobKind.CLOSE)])
        (leased,) = await ledger.lease(worker="w", limit=1, lease_s=60)
        await ledger.fail(leased, error="it said: a secret", retry_at=None)
        await ledger.erase(ANN, ErasureRequest(Target.TURN, logged), by=BY)
        assert [(job.result, job.error) for job in await ledger.jobs("ann")] == [(None, None)] * 2

    async def test_usage_goes_when_the_user_does_and_only_then(self, ledger: Ledger) -> None:
        await say(ledger, MONDAY, "hello")
        await say(ledger, Scope("bob", "", "s"), "hello")
        for user in ("ann", "bob"):
            await ledger.apply(
                Scope(user),
                [],
                by=BY,
                effects=[ModelUsage(user=user, step="extract", model="m", tokens_in=7, at=now())],
            )
        await ledger.erase(MONDAY, ErasureRequest(Target.SESSION), by=BY)
        assert (await ledger.spent_today("ann")).tokens == 7
        await ledger.erase(ANN, ErasureRequest(Target.USER), by=BY)
        assert (await ledger.spent_today("ann")).tokens == 0
        assert (await ledger.spent_today("bob")).tokens == 7

    async def test_a_writer_who_read_before_the_erasure_is_refused(self, ledger: Ledger) -> None:
        logged, _ = await say(ledger, MONDAY, "a secret", "hello")
        seen = await ledger.revision("ann")
        await ledger.apply(ANN, [Add(memory("hello"))], by=BY, since=seen)
        await ledger.erase(ANN, ErasureRequest(Target.TURN, logged.id), by=BY)
        with pytest.raises(Conflict):
            await ledger.apply(ANN, [Add(memory("a secret"))], by=BY, since=seen)
        await ledger.apply(ANN, [Add(memory("of what is left"))], by=BY, since=await ledger.revision("ann"))
        assert await listed(ledger, ANN) == {"hello", "of what is left"}

    async def test_a_writer_who_read_before_all_of_the_user_went_is_refused(self, ledger: Ledger) -> None:
        await say(ledger, MONDAY, "a secret")
        seen = await ledger.revision("ann")
        await ledger.erase(ANN, ErasureRequest(Target.USER), by=BY)
        with pytest.raises(Conflict):
            await ledger.apply(ANN, [Add(memory("a secret"))], by=BY, since=seen)
        assert await ledger.users() == []
        await ledger.apply(ANN, [Add(memory("new"))], by=BY, since=await ledger.revision("ann"))

    @pytest.mark.parametrize("target", [Target.TURN, Target.SESSION, Target.USER])
    async def test_erasing_while_twenty_write_leaves_nothing_later(self, ledger: Ledger, target: Target) -> None:
        (logged,) = await say(ledger, MONDAY, "a secret")
        started = asyncio.Event()

        async def learn(n: int) -> None:
            for repeated in range(4):
                seen = await ledger.revision("ann")
                existing = await ledger.turns(MONDAY)
                started.set()
                # As long as a model takes, in which anything may happen.
                await asyncio.sleep(0.001 * (n % 5))
                new = [Add(memory(f"{each.content} {n} {repeated}", evidence=(each.id,))) for each in existing]
                with contextlib.suppress(Conflict):
                    await ledger.apply(ANN, new, by=BY, since=seen)

        async def erase() -> None:
            await started.wait()
            await asyncio.sleep(0.003)
            scope = {Target.TURN: ANN, Target.SESSION: MONDAY, Target.USER: ANN}[target]
            await ledger.erase(scope, ErasureRequest(target, logged.id if target is Target.TURN else ""), by=BY)

        await asyncio.gather(erase(), *(learn(n) for n in range(20)))
        assert await listed(ledger, ANN) == set()
        assert await ledger.check() == []

    async def test_what_was_erased_is_told_without_what_it_said_or_whose_it_was(self, ledger: Ledger) -> None:
        (logged,) = await say(ledger, MONDAY, "a secret")
        fact = memory("the secret", evidence=(logged.id,))
        await add(ledger, fact)
        await ledger.erase(ANN, ErasureRequest(Target.TURN, logged.id), by=BY)
        await ledger.erase(TUESDAY, ErasureRequest(Target.SESSION), by=BY)
        turn_erased, session_erased = await ledger.erasures()
        assert (turn_erased.target, turn_erased.ids) == (Target.TURN, (logged.id, fact.id))
        assert (session_erased.project, session_erased.session) == ("p", "tuesday")
        assert {turn_erased.user, session_erased.user} == {user_digest("ann")}
        assert "secret" not in str((turn_erased, session_erased))
        assert await ledger.erasures(since=session_erased.at + timedelta(seconds=1)) == []
        assert [parse_erasure(each.to_dict()) for each in (turn_erased, session_erased)] == await ledger.erasures()

    async def test_when_all_of_a_user_went_nothing_but_that_is_told(self, ledger: Ledger) -> None:
        await say(ledger, MONDAY, "a secret")
        await ledger.erase(MONDAY, ErasureRequest(Target.SESSION), by=BY)
        receipt = await ledger.erase(ANN, ErasureRequest(Target.USER), by=BY)
        (report,) = await ledger.erasures()
        assert report == Erasure(id=receipt.id, at=receipt.at, user=user_digest("ann"), target=Target.USER)

    async def test_an_erasure_is_replayed_on_a_backup_that_does_not_know_it(self, ledger: Ledger) -> None:
        (logged,) = await say(ledger, MONDAY, "a secret")
        await add(ledger, memory("Paris", id="old", key="city"), memory("derived", evidence=(logged.id,)))
        await add(ledger, memory("stays"))
        await say(ledger, TUESDAY, "also stays")
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
        await say(ledger, MONDAY, "a secret")
        await ledger.erase(MONDAY, ErasureRequest(Target.SESSION), by=BY)
        await say(ledger, MONDAY, "said later")
        assert await ledger.replay_erasures(await ledger.erasures(), by=BY) == []
        assert await listed(ledger, ANN) == {"said later"}

    async def test_what_is_no_erasure_is_refused(self, ledger: Ledger) -> None:
        for plain in ({}, {"id": "1", "at": "noon", "user": "x", "target": "user"}, {"id": 1}):
            with pytest.raises(InvalidInput):
                parse_erasure(plain)

    async def test_undo_does_not_bring_back_what_is_gone(self, ledger: Ledger) -> None:
        (logged,) = await say(ledger, MONDAY, "I moved to Rome")
        await add(ledger, memory("Paris", id="old", key="city"))
        new = memory("Rome", id="new", key="city", evidence=(logged.id,), level=Level.USER)
        await change(ledger, Supersede("old", new))
        superseded = next(line for line in await ledger.history(ANN) if line.verb == "supersede")
        await ledger.erase(ANN, ErasureRequest(Target.TURN, logged.id), by=BY)
        with pytest.raises(Conflict):
            await ledger.undo(ANN, superseded.id, by=BY)
        assert await listed(ledger, ANN) == {"Paris"}
