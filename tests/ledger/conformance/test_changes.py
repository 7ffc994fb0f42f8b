"""Changes are made whole or not at all, once, and never behind someone's back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from recollect.errors import Conflict, IdempotencyReuse, InvalidInput, NotFound, RecollectError, StaleVersion
from recollect.ledger.ledger import Ledger
from recollect.model.change import (
    Add,
    Change,
    ChangeKind,
    ConversationUpdate,
    Effect,
    EnqueueJob,
    FinishJob,
    Forget,
    IdempotencyToken,
    ModelUsage,
    Restore,
    Supersede,
    Update,
)
from recollect.model.erasure import ErasureRequest, Target
from recollect.model.job import Job, JobState
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Conversation
from tests.support.ledger_samples import (
    ALL,
    ANN,
    BOB,
    BY,
    MONDAY,
    NOON,
    add,
    change,
    direction,
    everything,
    listed,
    memory,
    new,
    now_of,
    put,
    say,
    take,
    turn,
)

BAD: dict[str, tuple[Callable[[MemoryRecord, MemoryRecord], Change], type[RecollectError]]] = {
    "unknown id": (lambda tea, milk: Update("unknown", {"content": "x"}), NotFound),
    "unknown id to forget": (lambda tea, milk: Forget("unknown"), NotFound),
    "stale version": (lambda tea, milk: Update(tea.id, {"content": "x"}, expected_version=9), StaleVersion),
    "unknown field": (lambda tea, milk: Update(tea.id, {"colour": "green"}), InvalidInput),
    "field of the ledger's own": (lambda tea, milk: Update(tea.id, {"version": 9}), InvalidInput),
    "field that is the owner": (lambda tea, milk: Update(tea.id, {"scope": "bob"}), InvalidInput),
    "taken key": (lambda tea, milk: Update(tea.id, {"key": "milk"}), Conflict),
    "taken words": (lambda tea, milk: Update(tea.id, {"content": "MILK", "key": "milk"}), Conflict),
    "itself": (lambda tea, milk: Supersede(tea.id, tea), Conflict),
}
SAME_WORDS = [
    "likes green tea",
    "LIKES Green TEA",
    "  likes\tgreen \n tea ",
    "likes green\u00a0tea",
    "ｌｉｋｅｓ green tea",
]


class TestChange:
    """Applying changes."""

    async def test_a_change_that_fails_among_concurrent_ones_fails_alone(self, ledger: Ledger) -> None:
        records = [memory(f"fact {n}", scope=scope) for n in range(10) for scope in (ANN, BOB)]
        *applied, failed = await asyncio.gather(
            *(ledger.apply(each.scope, [Add(each, direction(1))], by=BY) for each in records),
            ledger.apply(ANN, [Add(memory("not stored")), Forget("unknown")], by=BY),
            return_exceptions=True,
        )
        assert isinstance(failed, NotFound)
        assert [each.outcomes[0].record for each in applied] == records
        for scope in (ANN, BOB):
            assert await listed(ledger, scope) == {f"fact {n}" for n in range(10)}
            assert len({line.batch for line in await ledger.history(scope)}) == 10
            assert (await ledger.revision(scope.user)).number == 10

    @pytest.mark.parametrize("name", BAD)
    async def test_a_batch_with_one_bad_change_leaves_nothing(self, ledger: Ledger, name: str) -> None:
        make, error = BAD[name]
        tea, milk = await add(ledger, memory("tea"), memory("milk", key="milk"))
        before = await everything(ledger, ["ann"])
        good: list[Change] = [
            Add(memory("coffee", metadata={"a": 1}), direction(1)),
            Update(milk.id, {"content": "water"}, vector=direction(2)),
            Update(milk.id, {"content": "milk"}),
            Supersede(milk.id, replace(milk, id="milk-2", content="oat milk")),
            Supersede("milk-2", replace(milk, id="milk-3")),
        ]
        with pytest.raises(error) as raised:
            await change(ledger, *good, make(tea, milk), Add(memory("never")))
        assert type(raised.value) is error
        assert await everything(ledger, ["ann"]) == before
        assert await ledger.get(ANN, ["milk-2"]) == []

    async def test_a_bad_change_of_a_new_user_leaves_no_user(self, ledger: Ledger) -> None:
        with pytest.raises(NotFound):
            await change(ledger, Add(memory()), Forget("unknown"))
        assert await ledger.users() == []

    async def test_outcomes_come_in_the_order_of_the_changes(self, ledger: Ledger) -> None:
        (tea,) = await add(ledger, memory("tea"))
        fresh = memory("coffee")
        applied = await change(
            ledger, Add(fresh), Update(tea.id, {"importance": 0.9}), Add(tea), Forget(fresh.id), Restore(fresh.id)
        )
        report = [(outcome.verb, outcome.record.id, outcome.changed) for outcome in applied.outcomes]
        assert report == [
            (ChangeKind.ADD, fresh.id, True),
            (ChangeKind.UPDATE, tea.id, True),
            (ChangeKind.ADD, tea.id, False),
            (ChangeKind.FORGET, fresh.id, True),
            (ChangeKind.RESTORE, fresh.id, True),
        ]
        assert not applied.replayed

    async def test_no_changes_at_all_are_no_error(self, ledger: Ledger) -> None:
        assert (await change(ledger)).outcomes == ()

    @pytest.mark.parametrize("words", SAME_WORDS)
    async def test_a_fact_said_twice_is_stored_once(self, ledger: Ledger, words: str) -> None:
        (first,) = await add(ledger, memory("likes green tea"))
        applied = await change(ledger, Add(memory(words)))
        assert [(each.record, each.changed) for each in applied.outcomes] == [(first, False)]
        assert await ledger.count(ANN, ALL) == 1
        assert len(await ledger.history(ANN)) == 1

    async def test_a_fact_said_twice_in_one_batch_is_stored_once(self, ledger: Ledger) -> None:
        one, two = await add(ledger, memory("tea"), memory("TEA"))
        assert one.id == two.id
        assert await ledger.count(ANN, ALL) == 1

    async def test_an_id_written_twice_keeps_the_first(self, ledger: Ledger) -> None:
        (first,) = await add(ledger, memory("tea"))
        (stored,) = await add(ledger, memory("coffee", id=first.id))
        assert stored == first

    @pytest.mark.parametrize(
        "other",
        [
            {"content": "likes green teas"},
            {"category": Category.PREFERENCE},
            {"key": "drink"},
            {"status": Status.REVIEW},
        ],
        ids=str,
    )
    async def test_what_differs_in_kind_key_or_words_is_another_memory(
        self, ledger: Ledger, other: dict[str, Any]
    ) -> None:
        await add(ledger, memory())
        await add(ledger, memory(**{"content": "likes green tea", **other}))
        assert await ledger.count(ANN, ALL) == 2

    async def test_a_key_never_runs_into_the_words(self, ledger: Ledger) -> None:
        await add(
            ledger,
            memory("green tea", key="likes"),
            memory("tea", key="likes green"),
            memory("likes green tea"),
            memory("fact likes green tea", category=Category.FACT),
        )
        assert await ledger.count(ANN, ALL) == 4

    async def test_turns_that_say_the_same_are_each_kept(self, ledger: Ledger) -> None:
        await add(ledger, *(memory("yes", category=Category.TURN) for _ in range(3)))
        assert await ledger.count(ANN, ALL) == 3

    async def test_words_that_were_forgotten_can_be_said_again(self, ledger: Ledger) -> None:
        (first,) = await add(ledger, memory("tea"))
        await change(ledger, Forget(first.id))
        (second,) = await add(ledger, memory("tea"))
        assert second.id != first.id
        with pytest.raises(Conflict):
            await change(ledger, Restore(first.id))

    async def test_a_key_has_one_active_value(self, ledger: Ledger) -> None:
        (old,) = await add(ledger, memory("Paris", key="city"))
        applied = await change(ledger, Add(fresh := memory("Rome", key="city")))
        assert [(each.verb, each.record.id) for each in applied.outcomes] == [(ChangeKind.SUPERSEDE, fresh.id)]
        assert (await now_of(ledger, old)).superseded_by == fresh.id
        await add(ledger, memory("Bath", key="town"), memory("Oslo", key="town"))
        assert await listed(ledger, ANN, statuses=(Status.ACTIVE,)) == {"Rome", "Oslo"}

    async def test_a_value_we_are_less_sure_of_is_kept_only_as_a_correction(self, ledger: Ledger) -> None:
        (old,) = await add(ledger, memory("Alex", key="name", confidence=1.0))
        unsure = memory("Al", key="name", confidence=0.6)
        applied = await change(ledger, Add(unsure))
        assert [(each.record.id, each.changed) for each in applied.outcomes] == [(old.id, False)]
        assert await listed(ledger, ANN) == {"Alex"}
        await change(ledger, Add(unsure, correction=True))
        assert await listed(ledger, ANN, statuses=(Status.ACTIVE,)) == {"Al"}

    async def test_a_correction_may_be_about_how_words_are_written(self, ledger: Ledger) -> None:
        await add(ledger, memory("mcdonald", key="name"))
        await add(ledger, memory("McDonald", key="name"))
        assert await listed(ledger, ANN) == {"mcdonald"}
        await change(ledger, Add(memory("McDonald", key="name"), correction=True))
        assert await listed(ledger, ANN, statuses=(Status.ACTIVE,)) == {"McDonald"}

    async def test_the_same_words_with_another_value_are_another_fact(self, ledger: Ledger) -> None:
        await add(ledger, memory("home city", key="city", value="Oslo"))
        (fresh,) = await add(ledger, memory("home city", key="city", value="Prague"))
        assert (await now_of(ledger, fresh)).value == "Prague"

    async def test_what_has_expired_makes_room(self, ledger: Ledger) -> None:
        past = now() - timedelta(seconds=1)
        await add(ledger, memory("tea", expires_at=past), memory("Paris", key="city", expires_at=past))
        for fresh in (memory("tea"), memory("Rome", key="city", confidence=0.1)):
            applied = await change(ledger, Add(fresh))
            assert (applied.outcomes[0].record.id, applied.outcomes[0].changed) == (fresh.id, True)

    async def test_keys_are_told_apart_letter_by_letter(self, ledger: Ledger) -> None:
        keys = ["city", "City", "city ", "ci\u0301ty", "cíty", "", "ci.ty", "ci:ty"]
        await add(ledger, *(memory(f"value {n}", key=key) for n, key in enumerate(keys)))
        assert await ledger.count(ANN, ALL) == len(keys)

    async def test_a_key_of_another_category_is_another_key(self, ledger: Ledger) -> None:
        await add(ledger, memory("a", key="k"), memory("b", key="k", category=Category.PREFERENCE))
        assert await ledger.count(ANN, ALL) == 2

    async def test_superseding_puts_the_new_value_in_the_old_ones_place(self, ledger: Ledger) -> None:
        (old,) = await add(ledger, memory("Paris", key="city"))
        fresh = memory("Rome", key="city", valid_from=NOON + timedelta(days=3))
        applied = await change(ledger, Supersede(old.id, fresh))
        assert [(each.verb, each.record.id) for each in applied.outcomes] == [(ChangeKind.SUPERSEDE, fresh.id)]
        ended = await now_of(ledger, old)
        assert (ended.status, ended.superseded_by, ended.version) == (Status.SUPERSEDED, fresh.id, 2)
        assert ended.valid_to == fresh.valid_from
        assert await listed(ledger, ANN, statuses=(Status.ACTIVE,)) == {"Rome"}

    async def test_superseding_without_a_date_ends_the_old_value_now(self, ledger: Ledger) -> None:
        (old,) = await add(ledger, memory("Paris", key="city"))
        start = now()
        await change(ledger, Supersede(old.id, memory("Rome", key="city")))
        ended = (await now_of(ledger, old)).valid_to
        assert ended is not None
        assert start - timedelta(seconds=2) <= ended <= now() + timedelta(seconds=2)

    async def test_a_value_can_be_superseded_many_times_in_one_batch(self, ledger: Ledger) -> None:
        values = [memory(f"city {n}", key="city") for n in range(5)]
        chain = [Supersede(old.id, new) for old, new in pairwise(values)]
        await change(ledger, Add(values[0]), *chain)
        assert await listed(ledger, ANN, statuses=(Status.ACTIVE,)) == {"city 4"}
        assert (await now_of(ledger, values[1])).superseded_by == values[2].id

    async def test_words_and_keys_can_be_swapped_in_one_batch(self, ledger: Ledger) -> None:
        one, two = await add(ledger, memory("tea", key="a"), memory("milk", key="b"))
        await change(
            ledger,
            Update(one.id, {"content": "on hold", "key": "c"}),
            Update(two.id, {"content": "tea", "key": "a"}),
            Update(one.id, {"content": "milk", "key": "b"}),
        )
        assert [(each.content, each.key) for each in await ledger.get(ANN, [one.id, two.id])] == [
            ("milk", "b"),
            ("tea", "a"),
        ]

    async def test_what_is_given_up_in_a_batch_can_be_taken_in_it(self, ledger: Ledger) -> None:
        (one,) = await add(ledger, memory("tea", key="drink"))
        await change(ledger, Forget(one.id), Add(memory("tea", key="drink")))
        await change(ledger, Forget((await ledger.find(ANN, Listing()))[0].id), Restore(one.id))
        assert [record.id for record in await ledger.find(ANN, Listing())] == [one.id]

    async def test_what_is_taken_even_for_a_moment_is_refused(self, ledger: Ledger) -> None:
        one, two = await add(ledger, memory("tea", key="a"), memory("milk", key="b"))
        for fields in ({"content": "milk", "key": "b"}, {"key": "b", "content": "juice"}):
            with pytest.raises(Conflict, match=two.id):
                await change(ledger, Update(one.id, fields), Forget(two.id))
            with pytest.raises(Conflict, match=two.id):
                await change(ledger, Update(one.id, fields), Update(one.id, {"content": "juice", "key": "d"}))
        assert await listed(ledger, ANN) == {"tea", "milk"}

    async def test_fifty_who_say_the_same_at_once_make_one_memory(self, ledger: Ledger) -> None:
        results = await asyncio.gather(*(add(ledger, memory(SAME_WORDS[n % 5])) for n in range(50)))
        assert len({record.id for (record,) in results}) == 1
        assert await ledger.count(ANN, ALL) == 1
        assert len(await ledger.history(ANN)) == 1


class TestVersion:
    """One version a change, one effect a request."""

    async def test_each_change_of_a_memory_makes_one_version(self, ledger: Ledger) -> None:
        (one,) = await add(ledger, memory())
        steps: list[Change] = [
            Update(one.id, {"importance": 0.9}),
            Forget(one.id),
            Restore(one.id),
            Update(one.id, {"key": "k"}),
        ]
        for n, step in enumerate(steps, 2):
            await change(ledger, step)
            assert (await now_of(ledger, one)).version == n

    async def test_a_change_that_changes_nothing_makes_no_version_and_no_history(self, ledger: Ledger) -> None:
        (one,) = await add(ledger, memory(tags=("a",), metadata={"a": [1]}))
        same = {"content": one.content, "tags": ["a"], "metadata": {"a": [1]}, "importance": 0.5}
        applied = await change(ledger, Update(one.id, same), Restore(one.id))
        assert [each.changed for each in applied.outcomes] == [False, False]
        assert await now_of(ledger, one) == one
        assert len(await ledger.history(ANN)) == 1

    async def test_a_change_moves_updated_at_and_leaves_created_at(self, ledger: Ledger) -> None:
        (one,) = await add(ledger, memory())
        start = now()
        await change(ledger, Update(one.id, {"importance": 1.0}))
        changed = await now_of(ledger, one)
        assert changed.created_at == one.created_at
        assert start - timedelta(seconds=2) <= changed.updated_at <= now() + timedelta(seconds=2)

    @pytest.mark.parametrize(
        "make",
        [
            lambda id, version: Update(id, {"content": "x"}, expected_version=version),
            lambda id, version: Forget(id, expected_version=version),
            lambda id, version: Restore(id, expected_version=version),
            lambda id, version: Supersede(id, memory("x"), expected_version=version),
        ],
        ids=["update", "forget", "restore", "supersede"],
    )
    async def test_a_change_expecting_another_version_is_refused(
        self, ledger: Ledger, make: Callable[[str, int], Change]
    ) -> None:
        (one,) = await add(ledger, memory())
        await change(ledger, Update(one.id, {"importance": 0.9}))
        before = await everything(ledger, ["ann"])
        for version in (1, 3, 0):
            with pytest.raises(Conflict):
                await change(ledger, make(one.id, version))
        assert await everything(ledger, ["ann"]) == before
        await change(ledger, make(one.id, 2))

    async def test_of_many_who_expect_the_same_version_one_wins(self, ledger: Ledger) -> None:
        (one,) = await add(ledger, memory())
        tries = [change(ledger, Update(one.id, {"value": str(n)}, expected_version=1)) for n in range(20)]
        results = await asyncio.gather(*tries, return_exceptions=True)
        assert sorted(type(each).__name__ for each in results) == ["Applied"] + ["StaleVersion"] * 19
        assert (await now_of(ledger, one)).version == 2

    async def test_a_request_done_once_is_not_done_again(self, ledger: Ledger) -> None:
        once = IdempotencyToken("key", "digest")
        first = await ledger.apply(ANN, [Add(memory("tea")), Add(memory("TEA"))], by=BY, once=once)
        state = await everything(ledger, ["ann"])
        repeated = await ledger.apply(ANN, [Add(memory("coffee"))], by=BY, once=once)
        assert repeated == replace(first, replayed=True)
        after = await everything(ledger, ["ann"])
        assert [after["ann"][n] for n in (0, 1, 3)] == [state["ann"][n] for n in (0, 1, 3)]

    async def test_the_same_key_with_another_request_is_refused(self, ledger: Ledger) -> None:
        await ledger.apply(ANN, [Add(memory("tea"))], by=BY, once=IdempotencyToken("key", "digest"))
        with pytest.raises(IdempotencyReuse):
            await ledger.apply(ANN, [Add(memory("coffee"))], by=BY, once=IdempotencyToken("key", "another"))
        assert await listed(ledger, ANN) == {"tea"}

    async def test_a_key_is_held_by_one_and_then_has_its_answer(self, ledger: Ledger) -> None:
        once = IdempotencyToken("key", "digest")
        tries = await asyncio.gather(*(ledger.claim_key("ann", once) for _ in range(20)))
        assert sorted((stored.is_owner, stored.answer) for stored in tries) == [(False, None)] * 19 + [(True, None)]
        await ledger.store_answer("ann", once, {"status": 200, "body": {"id": "x"}})
        stored = await ledger.claim_key("ann", once)
        assert (stored.is_owner, stored.answer) == (False, {"status": 200, "body": {"id": "x"}})
        assert (await ledger.claim_key("bob", once)).is_owner
        with pytest.raises(IdempotencyReuse):
            await ledger.claim_key("ann", IdempotencyToken("key", "another"))
        assert await ledger.users() == []

    async def test_a_key_is_for_requests_of_one_kind(self, ledger: Ledger) -> None:
        await ledger.claim_key("ann", IdempotencyToken("held", "digest"))
        with pytest.raises(IdempotencyReuse):
            await ledger.apply(ANN, [Add(memory("tea"))], by=BY, once=IdempotencyToken("held", "another"))
        await ledger.apply(ANN, [Add(memory("tea"))], by=BY, once=IdempotencyToken("added", "digest"))
        with pytest.raises(IdempotencyReuse):
            await ledger.claim_key("ann", IdempotencyToken("added", "another"))

    async def test_a_key_that_was_let_go_or_lost_is_taken_by_the_next(self, ledger: Ledger) -> None:
        once = IdempotencyToken("key", "digest")
        await ledger.claim_key("ann", once)
        assert not (await ledger.claim_key("ann", once, stale_before=now() - timedelta(minutes=1))).is_owner
        assert (await ledger.claim_key("ann", once, stale_before=now() + timedelta(minutes=1))).is_owner
        await ledger.release_key("ann", once)
        assert (await ledger.claim_key("ann", once)).is_owner
        await ledger.store_answer("ann", once, {"status": 200})
        await ledger.release_key("ann", once)
        assert (await ledger.claim_key("ann", once)).answer == {"status": 200}

    async def test_an_answer_goes_with_what_it_names_and_does_not_come_after_it(self, ledger: Ledger) -> None:
        (one, two) = await add(ledger, memory("tea", id="one"), memory("milk", id="two"))
        once, late = IdempotencyToken("key", "digest"), IdempotencyToken("late", "digest")
        await ledger.claim_key("ann", once)
        await ledger.store_answer("ann", once, {"body": {"results": [{"id": one.id, "memory": "tea"}]}})
        stored = await ledger.claim_key("ann", late)
        await ledger.erase(ANN, ErasureRequest(Target.MEMORY, two.id), by=BY)
        assert (await ledger.claim_key("ann", once)).answer is not None
        receipt = await ledger.erase(ANN, ErasureRequest(Target.MEMORY, one.id), by=BY)
        assert receipt.stores[0].counts["replies"] == 1
        assert (await ledger.claim_key("ann", once)).is_owner
        await ledger.store_answer("ann", late, {"body": {"id": one.id, "memory": "tea"}}, since=stored.epoch)
        assert (await ledger.claim_key("ann", late)).is_owner
        assert await ledger.prune_idempotency_keys(now() + timedelta(seconds=1)) == 2

    async def test_a_request_that_failed_can_be_tried_again_under_its_key(self, ledger: Ledger) -> None:
        once = IdempotencyToken("key", "digest")
        with pytest.raises(NotFound):
            await ledger.apply(ANN, [Forget("one")], by=BY, once=once)
        await add(ledger, memory(id="one"))
        assert not (await ledger.apply(ANN, [Forget("one")], by=BY, once=once)).replayed

    async def test_a_hundred_requests_with_one_key_have_one_effect_and_one_answer(self, ledger: Ledger) -> None:
        tries = [
            ledger.apply(ANN, [Add(memory(f"tea {n}"))], by=BY, once=IdempotencyToken("key", "same"))
            for n in range(100)
        ]
        results = await asyncio.gather(*tries)
        assert len({(each.batch, each.outcomes[0].record.id) for each in results}) == 1
        assert sum(not each.replayed for each in results) == 1
        assert await ledger.count(ANN, ALL) == 1


def finish(job: Job, **result: Any) -> FinishJob:
    assert job.lease is not None
    return FinishJob(job.id, job.lease, result or None)


async def leased(ledger: Ledger) -> Job:
    await put(ledger, new("s"), scope=MONDAY)
    (job,) = await take(ledger)
    return job


async def do(ledger: Ledger, *effects: Effect, **more: Any) -> None:
    await ledger.apply(ANN, more.pop("changes", []), by=BY, effects=effects, **more)


class TestEffect:
    """All of it or none."""

    async def test_memories_job_conversation_and_usage_change_together(self, ledger: Ledger) -> None:
        await say(ledger, MONDAY, "I like tea")
        job = await leased(ledger)
        record = memory("likes tea")
        await do(
            ledger,
            finish(job, learned=1),
            ConversationUpdate(MONDAY, {"learned_to": 1, "summary": "tea"}, expected_version=1),
            EnqueueJob(MONDAY, new("next")),
            ModelUsage(user="ann", step="extract", model="m", tokens_in=10, tokens_out=5, at=now()),
            changes=[Add(record)],
        )
        assert len(await ledger.get(ANN, [record.id])) == 1
        done = await ledger.job("ann", job.id)
        assert (done.state, done.result) == (JobState.DONE, {"learned": 1})
        results = await ledger.conversation(MONDAY)
        assert (results.learned_to, results.summary, results.version, results.turn_count) == (1, "tea", 2, 1)
        assert [each.key for each in await ledger.jobs(states=[JobState.WAITING])] == ["next"]
        assert (await ledger.spent_today("ann")).tokens == 15

    @pytest.mark.parametrize("reason", ["finished", "cancelled", "lost", "moved", "no memory", "stranger's job"])
    async def test_nothing_happens_if_any_part_cannot(self, ledger: Ledger, reason: str) -> None:
        await say(ledger, MONDAY, "I like tea")
        job = await leased(ledger)
        record = memory("likes tea")
        version, scope, ended = 1, ANN, finish(job)
        changes: list[Change] = [Add(record)]
        error: type[Exception] = Conflict
        match reason:
            case "finished":
                await ledger.finish(job)
            case "cancelled":
                await ledger.cancel("ann", [job.id])
            case "lost":
                ended = FinishJob(job.id, "another's lease")
            case "moved":
                await say(ledger, MONDAY, "and coffee")
            case "no memory":
                changes, error = [Add(record), Forget("nobody's")], Exception
            case _:
                scope, changes, error = Scope("bob"), [], Exception
        before = await ledger.jobs(), await ledger.conversation(MONDAY), await ledger.history(ANN)
        with pytest.raises(error):
            await ledger.apply(
                scope,
                changes,
                by=BY,
                effects=[
                    EnqueueJob(scope, new("next")),
                    ModelUsage(user=scope.user, step="extract", model="m", at=now()),
                    *(
                        [ConversationUpdate(MONDAY, {"learned_to": 1}, expected_version=version)]
                        if scope is ANN
                        else []
                    ),
                    ended,
                ],
            )
        assert await ledger.get(ANN, [record.id]) == []
        assert (await ledger.jobs(), await ledger.conversation(MONDAY), await ledger.history(ANN)) == before
        assert await ledger.usage() == []

    async def test_what_was_done_once_is_not_done_again(self, ledger: Ledger) -> None:
        job, once = await leased(ledger), IdempotencyToken("key", "digest")
        for _ in range(2):
            spent = ModelUsage(user="ann", step="s", model="m", at=now())
            await do(ledger, finish(job), spent, changes=[Add(memory())], once=once)
        assert (await ledger.spent_today("ann")).calls == 1

    async def test_effects_need_no_changes_and_make_no_revision(self, ledger: Ledger) -> None:
        await say(ledger, MONDAY, "hello")
        before = await ledger.revision("ann"), await ledger.history(ANN)
        await do(ledger, ConversationUpdate(MONDAY, {"summary": "a greeting"}))
        assert (await ledger.revision("ann"), await ledger.history(ANN)) == before
        assert (await ledger.conversation(MONDAY)).summary == "a greeting"

    async def test_effects_on_another_user_are_refused(self, ledger: Ledger) -> None:
        bob = Scope("bob", "", "s")
        for effect in (
            ConversationUpdate(bob, {"summary": "x"}),
            EnqueueJob(bob, new()),
            ModelUsage(user="bob", step="s", model="m", at=now()),
        ):
            with pytest.raises(InvalidInput):
                await do(ledger, effect)
        assert await ledger.jobs() == []

    async def test_every_field_of_a_note_comes_back_and_the_others_stay(self, ledger: Ledger) -> None:
        await say(ledger, MONDAY, "hello")
        await do(
            ledger, ConversationUpdate(MONDAY, {"summary": "hi \0 \ud800", "metadata": {"a": [1]}, "learned_to": 1})
        )
        await do(
            ledger, ConversationUpdate(MONDAY, {"invocations": [{"goal": "x"}, {"goal": "y"}], "closed_at": NOON})
        )
        results = await ledger.conversation(MONDAY)
        assert (results.summary, results.metadata, results.learned_to) == ("hi \0 \ud800", {"a": [1]}, 1)
        assert (results.invocations, results.closed_at) == (({"goal": "x"}, {"goal": "y"}), NOON)
        assert (results.turn_count, results.version) == (1, 3)
        await do(
            ledger, ConversationUpdate(MONDAY, {"summary": "", "metadata": {}, "invocations": [], "learned_to": 0})
        )
        results = await ledger.conversation(MONDAY)
        assert (results.summary, results.metadata, results.learned_to, results.invocations) == ("", {}, 0, ())
        assert results.closed_at == NOON

    @pytest.mark.parametrize(
        "fields",
        [
            {"turn_count": 3}, {"version": 1}, {"summary": None}, {"learned_to": "1"}, {"learned_to": -1},
            {"metadata": {"x": object()}}, {"closed_at": "noon"},
        ],
    )  # fmt: skip
    async def test_a_note_that_cannot_be_kept_is_refused(self, ledger: Ledger, fields: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput):
            await do(ledger, ConversationUpdate(MONDAY, fields))

    async def test_what_is_noted_before_anything_was_said_stays(self, ledger: Ledger) -> None:
        await do(ledger, ConversationUpdate(MONDAY, {"metadata": {"title": "plans"}}, expected_version=0))
        results = await ledger.conversation(MONDAY)
        assert results == Conversation(scope=MONDAY, metadata={"title": "plans"}, version=1)
        with pytest.raises(Conflict):
            await do(ledger, ConversationUpdate(MONDAY, {"summary": "x"}, expected_version=0))
        await say(ledger, MONDAY, "hello")
        results = await ledger.conversation(MONDAY)
        assert (results.metadata, results.turn_count, results.started_at) == ({"title": "plans"}, 1, NOON)
        assert results.last_turn_at == NOON

    async def test_a_closed_conversation_is_opened_by_a_new_turn(self, ledger: Ledger) -> None:
        await say(ledger, MONDAY, "hello")
        await do(ledger, ConversationUpdate(MONDAY, {"closed_at": now(), "summary": "short"}, expected_version=1))
        assert (await ledger.conversation(MONDAY)).closed_at is not None
        await say(ledger, MONDAY, "one more thing")
        results = await ledger.conversation(MONDAY)
        assert (results.closed_at, results.summary) == (None, "short")

    async def test_conversations_are_found_by_how_long_they_are_silent(self, ledger: Ledger) -> None:
        sessions = [Scope("ann", "p", f"{n}") for n in range(4)] + [Scope("bob", "", "0")]
        for n, scope in enumerate(sessions):
            logged = turn("hi", said_at=NOON + timedelta(minutes=n))
            await ledger.append(scope, [logged], vectors=[None], by=BY)
        await do(ledger, ConversationUpdate(sessions[1], {"closed_at": NOON}))
        assert [each.scope for each in await ledger.conversations()] == sessions
        assert [each.scope for each in await ledger.conversations("ann", order="newest")] == sessions[3::-1]
        idle = await ledger.conversations(open=True, idle_before=NOON + timedelta(minutes=3))
        assert [each.scope for each in idle] == [sessions[0], sessions[2]]
        assert [each.scope for each in await ledger.conversations(open=False)] == [sessions[1]]
        (whole,) = await ledger.conversations("bob")
        assert whole == await ledger.conversation(sessions[4])

    async def test_conversations_come_a_page_at_a_time(self, ledger: Ledger) -> None:
        sessions = [Scope("ann", project, session) for project in ("", "p") for session in ("", "a", "b")]
        for scope in sessions:
            await say(ledger, scope, "hi")
        await do(ledger, ConversationUpdate(Scope("ann", "q"), {"metadata": {"new": True}}))
        for order in ("oldest", "newest"):
            seen: list[Conversation] = []
            while page := await ledger.conversations(order=order, limit=2, after=seen[-1] if seen else None):
                seen += page
            assert len(seen) == len({each.scope for each in seen}) == 7
        assert [each.scope for each in seen] == [*reversed(sessions), Scope("ann", "q")]
