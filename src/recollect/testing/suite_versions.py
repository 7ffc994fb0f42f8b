"""Versions and idempotency keys: nobody changes what they did not see, and nothing asked twice is done twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from recollect.errors import Conflict, IdempotencyReuse, NotFound
from recollect.ledger.protocol import Ledger
from recollect.model.change import Add, Change, Forget, IdempotencyToken, Restore, Supersede, Update
from recollect.model.erase import ErasureRequest, Target
from recollect.model.times import now
from recollect.testing.suite_samples import ALL, ANN, BY, add, change, everything, listed, memory, now_of


class VersionSuite:
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
