"""Nothing one user does reaches another, and what lives in a project or session stays there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from recollect.errors import InvalidInput, NotFound
from recollect.ledger.protocol import Ledger, Revision
from recollect.model.change import Add, Change, Forget, IdempotencyToken, Restore, Supersede, Update
from recollect.model.memory import MemoryRecord
from recollect.model.query import EVERYTHING, Listing
from recollect.model.scope import Level, Scope
from recollect.testing.suite_samples import (
    ALL,
    ANN,
    BOB,
    BY,
    MODEL,
    NOON,
    add,
    change,
    direction,
    everything,
    last_entry,
    listed,
    memory,
    row_of,
    say,
    scores_of,
)


def _place_name(value: object) -> str:
    return str(value) if isinstance(value, Scope) else "sees"


# Pairs that are one text when joined with a colon, a slash, a space or nothing.
COLLIDING = [
    (Scope("a:b", "c"), Scope("a", "b:c"), Level.USER),
    (Scope("a:b", "c"), Scope("a", "b:c"), Level.PROJECT),
    (Scope("a", "b", "c:d"), Scope("a", "b:c", "d"), Level.PROJECT),
    (Scope("a", "b", "c:d"), Scope("a", "b:c", "d"), Level.SESSION),
    (Scope("a/b", "c"), Scope("a", "b/c"), Level.PROJECT),
    (Scope("ab", "c"), Scope("a", "bc"), Level.PROJECT),
    (Scope("a", "bc", "d"), Scope("a", "b", "cd"), Level.SESSION),
    (Scope("a", "p", "s"), Scope("a", "s", "p"), Level.SESSION),
    (Scope("a b", "c"), Scope("a", "b c"), Level.PROJECT),
    (Scope("a\\", "c"), Scope("a", "\\c"), Level.PROJECT),
]
BY_ID: list[Callable[[str], Change]] = [
    lambda id: Update(id, {"content": "mine now"}),
    lambda id: Supersede(id, memory("mine now", scope=BOB)),
    lambda id: Forget(id),
    lambda id: Restore(id),
]


class ScopeSuite:
    """Whose memory it is, and from where it is seen."""

    @pytest.mark.parametrize("make", BY_ID, ids=["update", "supersede", "forget", "restore"])
    async def test_a_foreign_id_is_refused_as_an_unknown_one_is(
        self, ledger: Ledger, make: Callable[[str], Change]
    ) -> None:
        (hers,) = await add(ledger, memory("tea"))
        await add(ledger, memory("coffee", scope=BOB))
        before = await everything(ledger, ["ann", "bob"])
        reports = []
        for id in (hers.id, "unknown"):
            with pytest.raises(NotFound) as raised:
                await change(ledger, make(id), scope=BOB)
            reports.append(str(raised.value).replace(id, "ID"))
        assert reports[0] == reports[1]
        assert await everything(ledger, ["ann", "bob"]) == before

    async def test_a_foreign_line_of_history_is_refused_as_an_unknown_one_is(self, ledger: Ledger) -> None:
        await add(ledger, memory("tea"))
        hers = await last_entry(ledger)
        before = await everything(ledger, ["ann"])
        for use in (lambda id: ledger.entry(BOB, id), lambda id: ledger.undo(BOB, id, by=BY)):
            assert await _refusal(use, hers.id) == await _refusal(use, hers.id + 1000)
        assert await everything(ledger, ["ann"]) == before

    @pytest.mark.parametrize("id", [0, -1, 2**31, 2**63 - 1, 2**63, 10**30])
    async def test_a_line_of_history_that_cannot_be_is_not_found(self, ledger: Ledger, id: int) -> None:
        await add(ledger, memory())
        with pytest.raises(NotFound):
            await ledger.entry(ANN, id)
        with pytest.raises(NotFound):
            await ledger.undo(ANN, id, by=BY)

    async def test_reads_by_id_and_row_give_nothing_of_another_user(self, ledger: Ledger) -> None:
        (hers,) = await add(ledger, memory("tea"))
        row = await row_of(ledger, hers)
        assert await ledger.get(BOB, [hers.id]) == []
        assert await ledger.history(BOB, memory_id=hers.id) == []
        assert await ledger.fetch(BOB, [row], filter=EVERYTHING) == []

    async def test_listings_searches_and_counts_hold_nothing_of_another_user(self, ledger: Ledger) -> None:
        await add(ledger, memory("tea"))
        assert await listed(ledger, BOB) == set()
        assert await listed(ledger, BOB, visible=True) == set()
        assert await ledger.count(BOB, ALL) == 0
        assert await ledger.matching(BOB, EVERYTHING) == []
        assert (await ledger.lexical(BOB, "tea")).rows.tolist() == []
        assert await ledger.history(BOB) == []
        assert (await ledger.stats("bob"))["memories"] == 0
        assert await ledger.revision("bob") == Revision()
        assert await ledger.index_rows("bob", model=MODEL, after=0) == (Revision(), [])

    async def test_a_touch_or_a_vector_for_a_foreign_memory_does_nothing(self, ledger: Ledger) -> None:
        (hers,) = await add(ledger, memory("tea"))
        await add(ledger, memory("coffee", scope=BOB))
        before = await everything(ledger, ["ann"])
        await ledger.touch(BOB, [hers.id], at=NOON)
        await ledger.embed(MODEL, {await row_of(ledger, hers): direction(1)}, user="bob")
        assert await everything(ledger, ["ann"]) == before

    async def test_a_session_of_the_same_name_is_another_users_own(self, ledger: Ledger) -> None:
        await say(ledger, Scope("ann", "p", "s"), "tea")
        assert await ledger.turns(Scope("bob", "p", "s")) == []
        assert (await ledger.conversation(Scope("bob", "p", "s"))).turn_count == 0

    async def test_the_same_id_can_belong_to_two_users(self, ledger: Ledger) -> None:
        await add(ledger, memory("tea", id="one"))
        await add(ledger, memory("coffee", id="one", scope=BOB))
        await change(ledger, Update("one", {"content": "water"}), scope=BOB)
        assert (await ledger.get(ANN, ["one"]))[0].content == "tea"
        assert (await ledger.get(BOB, ["one"]))[0].content == "water"

    async def test_the_same_words_and_keys_of_two_users_are_two_memories(self, ledger: Ledger) -> None:
        await add(ledger, memory("tea", key="drink"))
        await add(ledger, memory("tea", key="drink", scope=BOB))
        assert [await ledger.count(scope, ALL) for scope in (ANN, BOB)] == [1, 1]

    @pytest.mark.parametrize("make", [Add, lambda record: Supersede("one", record)], ids=["add", "supersede"])
    async def test_a_memory_of_another_user_cannot_be_written_in_ones_own_scope(
        self, ledger: Ledger, make: Callable[[MemoryRecord], Change]
    ) -> None:
        await add(ledger, memory("coffee", id="one", scope=BOB))
        before = await everything(ledger, ["ann", "bob"])
        with pytest.raises(InvalidInput):
            await change(ledger, make(memory("planted", scope=ANN)), scope=BOB)
        assert await everything(ledger, ["ann", "bob"]) == before

    async def test_turns_are_said_by_the_user_of_the_scope(self, ledger: Ledger) -> None:
        (text,) = await say(ledger, Scope("ann", "p", "s"), "tea")
        assert text.scope == Scope("ann", "p", "s")
        assert await ledger.users() == ["ann"]

    async def test_an_idempotency_key_of_one_user_means_nothing_to_another(self, ledger: Ledger) -> None:
        await ledger.apply(ANN, [Add(memory("tea"))], by=BY, once=IdempotencyToken("key", "digest"))
        applied = await ledger.apply(
            BOB, [Add(memory("coffee", scope=BOB))], by=BY, once=IdempotencyToken("key", "other")
        )
        assert not applied.replayed
        assert await listed(ledger, BOB) == {"coffee"}

    async def test_forgetting_all_of_one_user_leaves_the_other(self, ledger: Ledger) -> None:
        hers = await add(ledger, *(memory(f"tea {n}") for n in range(3)))
        await add(ledger, *(memory(f"tea {n}", scope=BOB) for n in range(3)))
        await change(ledger, *(Forget(record.id) for record in hers))
        assert await ledger.count(ANN, Listing()) == 0
        assert await ledger.count(BOB, Listing()) == 3

    @pytest.mark.parametrize(("one", "two", "level"), COLLIDING, ids=repr)
    async def test_scopes_that_join_to_one_text_stay_apart(
        self, ledger: Ledger, one: Scope, two: Scope, level: Level
    ) -> None:
        for scope, words in ((one, "tea"), (two, "coffee")):
            await add(ledger, memory(words, scope=scope, level=level, key="drink"))
            await say(ledger, scope, f"said {words}")
        for scope, words in ((one, "tea"), (two, "coffee")):
            assert await listed(ledger, scope, visible=True, filter={"category": "fact"}) == {words}
            assert await listed(ledger, scope, filter={"category": "fact"}) == {words}
            assert [turn.content for turn in await ledger.turns(scope)] == [f"said {words}"]
            assert set(await scores_of(ledger, scope, "tea coffee")) >= {words}

    @pytest.mark.parametrize(
        ("scope", "seen"),
        [
            (Scope("ann"), {"user"}),
            (Scope("ann", "p"), {"user", "p"}),
            (Scope("ann", "q"), {"user", "q"}),
            (Scope("ann", "p", "s"), {"user", "p", "p/s"}),
            (Scope("ann", "p", "t"), {"user", "p", "p/t"}),
            (Scope("ann", "q", "s"), {"user", "q", "q/s"}),
            (Scope("ann", "", "s"), {"user", "/s"}),
            (Scope("ann", "new", "new"), {"user"}),
            (Scope("bob", "p", "s"), {"bob"}),
            (Scope("ann", everywhere=True), {"user", "p", "q", "p/s", "p/t", "q/s", "/s"}),
        ],
        ids=_place_name,
    )
    async def test_a_scope_sees_its_session_its_project_and_its_user(
        self, ledger: Ledger, scope: Scope, seen: set[str]
    ) -> None:
        await _settle(ledger)
        assert await listed(ledger, scope, visible=True) == seen
        assert await ledger.count(scope, Listing(visible=True)) == len(seen)
        rows = await ledger.matching(scope, EVERYTHING)
        assert {each.record.content for each in await ledger.fetch(scope, rows, filter=EVERYTHING)} == seen

    @pytest.mark.parametrize(
        ("scope", "held"),
        [
            (Scope("ann"), {"user", "p", "q", "p/s", "p/t", "q/s", "/s"}),
            (Scope("ann", "p"), {"p", "p/s", "p/t"}),
            (Scope("ann", "p", "s"), {"p/s"}),
            (Scope("ann", "", "s"), {"p/s", "q/s", "/s"}),
            (Scope("ann", "s"), set()),
            (Scope("bob"), {"bob"}),
        ],
        ids=_place_name,
    )
    async def test_a_listing_holds_what_belongs_to_its_scope(
        self, ledger: Ledger, scope: Scope, held: set[str]
    ) -> None:
        await _settle(ledger)
        assert await listed(ledger, scope) == held
        assert await ledger.count(scope, Listing()) == len(held)
        lines = await ledger.history(scope)
        by_id = {record.id: record.content for record in await ledger.find(Scope(scope.user), ALL)}
        assert {by_id[line.memory_id] for line in lines} == held

    async def test_rows_that_cannot_be_seen_are_not_fetched(self, ledger: Ledger) -> None:
        await _settle(ledger)
        rows = [row for place in (Scope("ann", "p", "s"), BOB) for row in await ledger.matching(place, EVERYTHING)]
        results = await ledger.fetch(Scope("ann", "q"), rows, filter=EVERYTHING)
        assert {each.record.content for each in results} == {"user"}

    async def test_only_active_memories_match_and_are_fetched(self, ledger: Ledger) -> None:
        (hers,) = await add(ledger, memory())
        row = await row_of(ledger, hers)
        await change(ledger, Forget(hers.id))
        assert await ledger.matching(ANN, EVERYTHING) == []
        assert await ledger.fetch(ANN, [row], filter=EVERYTHING) == []

    async def test_one_memory_of_the_user_is_reached_from_any_of_their_scopes(self, ledger: Ledger) -> None:
        (hers,) = await add(ledger, memory(scope=Scope("ann", "p"), level=Level.PROJECT))
        elsewhere = Scope("ann", "q", "s")
        await change(ledger, Update(hers.id, {"content": "water"}), scope=elsewhere)
        (results,) = await ledger.get(elsewhere, [hers.id])
        assert (results.content, results.scope) == ("water", hers.scope)
        assert len(await ledger.history(elsewhere, memory_id=hers.id)) == 2

    async def test_the_same_words_in_another_place_are_another_memory(self, ledger: Ledger) -> None:
        places = [
            (Scope("ann"), Level.USER),
            (Scope("ann", "p"), Level.PROJECT),
            (Scope("ann", "q"), Level.PROJECT),
            (Scope("ann", "p", "s"), Level.SESSION),
            (Scope("ann", "q", "s"), Level.SESSION),
        ]
        await add(ledger, *(memory(scope=scope, level=level, key="k") for scope, level in places))
        assert await ledger.count(ANN, Listing()) == len(places)

    async def test_where_it_was_learned_does_not_make_the_same_words_different(self, ledger: Ledger) -> None:
        first = memory(scope=Scope("ann", "p", "s"))
        await add(ledger, first)
        (stored,) = await add(ledger, replace(first, id="other", scope=Scope("ann", "q", "t")))
        assert stored.id == first.id


async def _settle(ledger: Ledger) -> None:
    """One memory in every place there is."""
    places: list[tuple[str, Scope, Level]] = [
        ("user", Scope("ann"), Level.USER),
        ("p", Scope("ann", "p"), Level.PROJECT),
        ("q", Scope("ann", "q"), Level.PROJECT),
        ("p/s", Scope("ann", "p", "s"), Level.SESSION),
        ("p/t", Scope("ann", "p", "t"), Level.SESSION),
        ("q/s", Scope("ann", "q", "s"), Level.SESSION),
        ("/s", Scope("ann", "", "s"), Level.SESSION),
    ]
    await add(ledger, *(memory(words, scope=scope, level=level) for words, scope, level in places))
    await add(ledger, memory("bob", scope=BOB))


async def _refusal(use: Callable[[int], Awaitable[Any]], id: int) -> str:
    with pytest.raises(NotFound) as raised:
        await use(id)
    return str(raised.value).replace(str(id), "ID")
