"""What is written comes back as it was, in order, a page at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from recollect.errors import InvalidInput, InvalidText, NotFound
from recollect.ledger.codec import TIME_FIELDS
from recollect.ledger.ledger import Ledger
from recollect.ledger.types import Revision
from recollect.model.change import Add, Change, Forget, IdempotencyToken, Restore, Supersede, Update
from recollect.model.memory import Category, MemoryRecord, MemoryType, Status, Trust
from recollect.model.query import EVERYTHING, Listing, Order
from recollect.model.scope import Level, Scope
from tests.support.ledger_samples import (
    ALL,
    ANN,
    BOB,
    BY,
    MODEL,
    NOON,
    ODD_IDS,
    ODD_TEXTS,
    add,
    change,
    direction,
    everything,
    full_memory,
    last_entry,
    listed,
    memory,
    now_of,
    row_of,
    say,
    scores_of,
    turn,
)

MEBIBYTE = 1 << 20


class TestRecord:
    """Keeping and listing memories."""

    async def test_every_field_comes_back_as_it_was_written(self, ledger: Ledger) -> None:
        scope = Scope("ann", "tea", "monday")
        for record in (memory(), *(full_memory(text, scope=scope) for text in ODD_TEXTS.values())):
            await add(ledger, record)
            assert await ledger.get(ANN, [record.id]) == [record]

    async def test_every_field_can_be_updated_to_any_text(self, ledger: Ledger) -> None:
        record = memory()
        await add(ledger, record)
        names = ("content", "key", "value", "source", "evidence", "tags", "metadata", "detail", "prompt_digest")
        for text in ODD_TEXTS.values():
            odd = full_memory(text)
            await change(ledger, Update(record.id, {name: getattr(odd, name) for name in names}))
            updated = await now_of(ledger, record)
            assert [getattr(updated, name) for name in names] == [getattr(odd, name) for name in names]

    async def test_every_text_is_said_in_a_turn_as_it_was(self, ledger: Ledger) -> None:
        session = Scope("ann", "", "monday")
        turns = [turn(text, name=text) for text in ODD_TEXTS.values()]
        await ledger.append(session, turns, vectors=[None] * len(turns), by=BY)
        logged_turns = [(each.content, each.name) for each in await ledger.turns(session)]
        assert logged_turns == [(text, text) for text in ODD_TEXTS.values()]

    async def test_ids_are_kept_letter_by_letter(self, ledger: Ledger) -> None:
        for id in ODD_IDS:
            scope = Scope(id, id, id)
            record = memory(scope=scope, level=Level.SESSION)
            await add(ledger, record, memory("in all projects", scope=scope))
            assert await ledger.get(Scope(id), [record.id]) == [record]
            assert await listed(ledger, scope) == {record.content, "in all projects"}
            assert await listed(ledger, scope, visible=True) == {record.content, "in all projects"}
        assert await ledger.users() == sorted(ODD_IDS)

    async def test_ids_that_look_alike_are_different_users(self, ledger: Ledger) -> None:
        for id in ODD_IDS:
            await add(ledger, memory(f"says {id}", scope=Scope(id)))
        for id in ODD_IDS:
            assert await listed(ledger, Scope(id)) == {f"says {id}"}
        assert await ledger.users() == sorted(ODD_IDS)

    @pytest.mark.parametrize("words", ["x" * MEBIBYTE, "tea " * (MEBIBYTE // 4), "茶" * (MEBIBYTE // 3)], ids="xt茶")
    async def test_a_mebibyte_of_text_comes_back_as_it_was(self, ledger: Ledger, words: str) -> None:
        record = memory(words)
        await add(ledger, record)
        assert (await now_of(ledger, record)).content == record.content

    async def test_a_long_text_of_different_words_is_kept_and_found(self, ledger: Ledger) -> None:
        words = " ".join(f"слово{n:05d}{'я' * 50}" for n in range(8000))
        record = memory(words)
        await add(ledger, record)
        assert await ledger.get(ANN, [record.id]) == [record]
        assert await scores_of(ledger, ANN, f"слово00007{'я' * 50}") != {}

    async def test_times_are_stored_to_the_microsecond(self, ledger: Ledger) -> None:
        names = sorted(TIME_FIELDS)
        for at in (
            datetime(1, 1, 1, tzinfo=UTC),
            datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
            datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
            datetime(1970, 1, 1, tzinfo=UTC),
            datetime(2026, 3, 29, 1, 30, 0, 7, tzinfo=UTC),
            datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        ):
            record = memory(f"at {at}", **dict.fromkeys(names, at))
            await add(ledger, record)
            stored = await now_of(ledger, record)
            assert [getattr(stored, name) for name in names] == [at] * len(names)
            assert stored.created_at.utcoffset() == timedelta(0)

    async def test_numbers_are_kept_to_the_last_bit(self, ledger: Ledger) -> None:
        numbers = [0.0, 1.0, 0.1 + 0.2, 5e-324, 1 / 3]
        records = [memory(f"{n}", importance=n, confidence=n) for n in numbers]
        await add(ledger, *records)
        assert await ledger.get(ANN, [record.id for record in records]) == records

    async def test_every_kind_of_memory_is_kept(self, ledger: Ledger) -> None:
        kinds = {"category": Category, "type": MemoryType, "status": Status, "trust": Trust}
        records = [memory(f"{each}", **{name: each}) for name, kind in kinds.items() for each in kind]
        await add(ledger, *records)
        assert await ledger.get(ANN, [record.id for record in records]) == records

    async def test_unstorable_text_is_refused_and_leaves_nothing(self, ledger: Ledger) -> None:
        before = await everything(ledger, ["ann"])
        unstorable: list[dict[str, object]] = [
            {"content": "a NUL \0 inside"},
            {"content": "half \ud83d"},
            {"key": "a\0b"},
            {"tags": ("\udc00",)},
            {"metadata": {"a\0": 1}},
            {"metadata": {"deep": [{"a": "\ud800"}]}},
        ]
        for fields in unstorable:
            with pytest.raises(InvalidText):
                await add(ledger, memory("tea"), memory(**{"content": "coffee", **fields}))
        assert await everything(ledger, ["ann"]) == before

    async def test_an_update_to_an_unstorable_value_is_refused(self, ledger: Ledger) -> None:
        [record] = await add(ledger, memory())
        unstorable: list[dict[str, object]] = [
            {"importance": float("nan")},
            {"importance": "high"},
            {"content": None},
            {"content": 7},
            {"tags": "tea"},
            {"tags": [1]},
            {"metadata": {"x": float("inf")}},
            {"metadata": {"x": {1, 2}}},
            {"metadata": None},
            {"status": "gone"},
            {"valid_from": "yesterday"},
            {"key": 5},
        ]
        for fields in unstorable:
            with pytest.raises(InvalidInput):
                await change(ledger, Update(record.id, fields))
        assert await now_of(ledger, record) == record

    async def test_what_was_read_can_be_changed_without_changing_the_ledger(self, ledger: Ledger) -> None:
        record = memory(metadata={"list": [1]}, detail={"a": {}})
        await add(ledger, record)
        results = await now_of(ledger, record)
        results.metadata["list"].append(2)
        results.detail["a"]["b"] = 1
        record.metadata["list"].append(3)
        repeated = await now_of(ledger, record)
        assert (repeated.metadata, repeated.detail) == ({"list": [1]}, {"a": {}})

    async def test_get_answers_in_the_order_of_the_ids_and_leaves_out_the_unknown(self, ledger: Ledger) -> None:
        one, two, three = await add(ledger, memory("one"), memory("two"), memory("three"))
        assert await ledger.get(ANN, [three.id, "unknown", one.id]) == [three, one]
        assert await ledger.get(ANN, [two.id, two.id]) == [two, two]
        assert await ledger.get(ANN, []) == []

    async def test_an_id_that_cannot_exist_is_unknown(self, ledger: Ledger) -> None:
        await add(ledger, memory())
        for id in ("", "\0", "\ud800", "'", '"', "%", "x" * 100_000):
            await ledger.touch(ANN, [id], at=NOON)
            assert await ledger.get(ANN, [id]) == []
            assert await ledger.history(ANN, memory_id=id) == []

    async def test_many_ids_can_be_asked_for_at_once(self, ledger: Ledger) -> None:
        records = await add(ledger, *(memory(f"tea {n}") for n in range(300)))
        ids = [record.id for record in records] + [f"unknown {n}" for n in range(40_000)]
        assert await ledger.get(ANN, ids) == records

    @pytest.mark.parametrize("order", ["newest", "oldest"])
    async def test_listing_is_in_order_of_time(self, ledger: Ledger, order: Order) -> None:
        days = [3, 1, 4, 0, 5, 9, 2, 6]
        await add(ledger, *(memory(f"day {n}", created_at=NOON + timedelta(days=n)) for n in days))
        page = await ledger.find(ANN, Listing(order=order))
        assert [record.content for record in page] == [f"day {n}" for n in sorted(days, reverse=order == "newest")]
        assert page.cursor is None

    @pytest.mark.parametrize("order", ["newest", "oldest"])
    async def test_pages_neither_skip_nor_repeat(self, ledger: Ledger, order: Order) -> None:
        # Three times, four memories each: what was made at one moment must still have an order.
        records = [memory(f"{n}", created_at=NOON + timedelta(microseconds=n % 3)) for n in range(12)]
        await add(ledger, *records)
        expected = sorted(records, key=lambda each: (each.created_at, each.id), reverse=order == "newest")
        for limit in (1, 2, 3, 7, 12, 13):
            seen = await _pages(ledger, Listing(order=order, limit=limit))
            assert [record.id for page in seen for record in page] == [record.id for record in expected]
            assert all(len(page) == limit for page in seen[:-1])

    async def test_what_is_added_while_paging_back_does_not_disturb_it(self, ledger: Ledger) -> None:
        records = await add(ledger, *(memory(f"{n}", created_at=NOON + timedelta(days=n)) for n in range(6)))
        page = await ledger.find(ANN, Listing(limit=3))
        await add(ledger, memory("newer", created_at=NOON + timedelta(days=9)))
        rest = await ledger.find(ANN, Listing(limit=3, cursor=page.cursor))
        assert [record.id for record in rest] == [record.id for record in reversed(records[:3])]

    async def test_an_invalid_cursor_is_refused(self, ledger: Ledger) -> None:
        for cursor in ("", "x", "1", "_", "1_\0", "1_\ud800", f"{10**30}_a", "1e5_a", "' OR 1=1 --_a"):
            with pytest.raises(InvalidInput):
                await ledger.find(ANN, Listing(cursor=cursor))

    async def test_an_invalid_limit_is_refused(self, ledger: Ledger) -> None:
        for limit in (0, -1, 10**30):
            with pytest.raises(InvalidInput):
                await ledger.find(ANN, Listing(limit=limit))
            with pytest.raises(InvalidInput):
                await ledger.history(ANN, limit=limit)
            with pytest.raises(InvalidInput):
                await ledger.turns(ANN, limit=limit)

    async def test_count_ignores_limit_and_cursor(self, ledger: Ledger) -> None:
        await add(ledger, *(memory(f"{n}") for n in range(5)))
        page = await ledger.find(ANN, Listing(limit=2))
        assert await ledger.count(ANN, Listing(limit=2, cursor=page.cursor)) == 5

    async def test_listing_and_count_keep_to_the_statuses_asked_for(self, ledger: Ledger) -> None:
        await add(ledger, *(memory(str(status), status=status) for status in Status))
        assert await listed(ledger, ANN, statuses=(Status.ACTIVE,)) == {"active"}
        assert await listed(ledger, ANN, statuses=(Status.REVIEW, Status.FORGOTTEN)) == {"review", "forgotten"}
        assert await listed(ledger, ANN, statuses=()) == {str(status) for status in Status}
        assert await ledger.count(ANN, Listing()) == 1
        assert await ledger.count(ANN, ALL) == 4

    async def test_a_touch_counts_an_access_and_nothing_else(self, ledger: Ledger) -> None:
        one, two = await add(ledger, memory("one"), memory("two"))
        lines = await ledger.history(ANN)
        await ledger.touch(ANN, [one.id, "unknown"], at=NOON + timedelta(days=1))
        await ledger.touch(ANN, [one.id, one.id], at=NOON + timedelta(days=2))
        touched: MemoryRecord = replace(one, access_count=2, last_accessed_at=NOON + timedelta(days=2))
        assert await ledger.get(ANN, [one.id, two.id]) == [touched, two]
        assert await ledger.history(ANN) == lines


async def _pages(ledger: Ledger, listing: Listing) -> list[list[MemoryRecord]]:
    pages = []
    cursor: str | None = None
    while True:
        page = await ledger.find(ANN, replace(listing, cursor=cursor))
        pages.append(list(page))
        cursor = page.cursor
        if cursor is None:
            return pages


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


class TestScope:
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

    async def test_a_history_entry_that_cannot_exist_is_not_found(self, ledger: Ledger) -> None:
        await add(ledger, memory())
        for id in (0, -1, 2**31, 2**63 - 1, 2**63, 10**30):
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
