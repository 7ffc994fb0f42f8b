"""Changes are made whole or not at all, once, and never behind someone's back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from recollect.errors import Conflict, InvalidInput, NotFound, RecollectError, StaleVersion
from recollect.ledger.protocol import Ledger
from recollect.model.change import Add, Change, ChangeKind, Forget, Restore, Supersede, Update
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.query import Listing
from recollect.model.times import now
from recollect.testing.suite_samples import (
    ALL,
    ANN,
    NOON,
    add,
    change,
    direction,
    everything,
    listed,
    memory,
    now_of,
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


class ChangeSuite:
    """Applying changes."""

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
