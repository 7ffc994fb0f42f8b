"""What is written comes back as it was, in order, a page at a time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from recollect.errors import InvalidInput, InvalidText
from recollect.ledger.fields import TIME_FIELDS
from recollect.ledger.protocol import Ledger
from recollect.model.change import Update
from recollect.model.memory import Category, MemoryRecord, MemoryType, Status, Trust
from recollect.model.query import Listing, Order
from recollect.model.scope import Level, Scope
from recollect.testing.suite_samples import (
    ALL,
    ANN,
    BY,
    NOON,
    ODD_IDS,
    ODD_TEXTS,
    add,
    change,
    everything,
    full_memory,
    listed,
    memory,
    now_of,
    scores_of,
    turn,
)

MEBIBYTE = 1 << 20


class RecordSuite:
    """Keeping and listing memories."""

    @pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS)
    async def test_every_field_comes_back_as_it_was_written(self, ledger: Ledger, text: str) -> None:
        record = full_memory(text, scope=Scope("ann", "tea", "monday"))
        await add(ledger, record)
        assert await ledger.get(ANN, [record.id]) == [record]

    async def test_a_memory_with_only_what_it_needs_comes_back_as_it_was_written(self, ledger: Ledger) -> None:
        record = memory()
        await add(ledger, record)
        assert await ledger.get(ANN, [record.id]) == [record]

    @pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS)
    async def test_every_field_can_be_updated_to_any_text(self, ledger: Ledger, text: str) -> None:
        record = memory()
        await add(ledger, record)
        odd = full_memory(text)
        names = ("content", "key", "value", "source", "evidence", "tags", "metadata", "detail", "prompt_digest")
        await change(ledger, Update(record.id, {name: getattr(odd, name) for name in names}))
        results = await now_of(ledger, record)
        assert {name: getattr(results, name) for name in names} == {name: getattr(odd, name) for name in names}

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

    @pytest.mark.parametrize(
        "at",
        [
            datetime(1, 1, 1, tzinfo=UTC),
            datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
            datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
            datetime(1970, 1, 1, tzinfo=UTC),
            datetime(2026, 3, 29, 1, 30, 0, 7, tzinfo=UTC),
            datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        ],
    )
    async def test_times_are_kept_to_the_microsecond(self, ledger: Ledger, at: datetime) -> None:
        names = sorted(TIME_FIELDS)
        record = memory(**dict.fromkeys(names, at))
        await add(ledger, record)
        results = await now_of(ledger, record)
        assert [getattr(results, name) for name in names] == [at] * len(names)
        assert results.created_at.utcoffset() == timedelta(0)

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

    @pytest.mark.parametrize(
        "fields",
        [
            {"content": "a NUL \0 inside"},
            {"content": "half \ud83d"},
            {"key": "a\0b"},
            {"tags": ("\udc00",)},
            {"metadata": {"a\0": 1}},
            {"metadata": {"deep": [{"a": "\ud800"}]}},
        ],
        ids=str,
    )
    async def test_what_no_store_can_keep_is_refused_and_leaves_nothing(
        self, ledger: Ledger, fields: dict[str, object]
    ) -> None:
        before = await everything(ledger, ["ann"])
        with pytest.raises(InvalidText):
            await add(ledger, memory("tea"), memory(**{"content": "coffee", **fields}))
        assert await everything(ledger, ["ann"]) == before

    @pytest.mark.parametrize(
        "fields",
        [
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
        ],
        ids=str,
    )
    async def test_an_update_to_something_no_store_can_keep_is_refused(
        self, ledger: Ledger, fields: dict[str, object]
    ) -> None:
        record = memory()
        await add(ledger, record)
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

    @pytest.mark.parametrize("id", ["", "\0", "\ud800", "'", '"', "%", "x" * 100_000])
    async def test_an_id_nobody_could_have_been_given_is_unknown(self, ledger: Ledger, id: str) -> None:
        await add(ledger, memory())
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
    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 12, 13])
    async def test_pages_neither_skip_nor_repeat(self, ledger: Ledger, order: Order, limit: int) -> None:
        # Three times, four memories each: what was made at one moment must still have an order.
        records = [memory(f"{n}", created_at=NOON + timedelta(microseconds=n % 3)) for n in range(12)]
        await add(ledger, *records)
        seen = await _pages(ledger, Listing(order=order, limit=limit))
        expected = sorted(records, key=lambda each: (each.created_at, each.id), reverse=order == "newest")
        assert [record.id for page in seen for record in page] == [record.id for record in expected]
        assert all(len(page) == limit for page in seen[:-1])

    async def test_what_is_added_while_paging_back_does_not_disturb_it(self, ledger: Ledger) -> None:
        records = await add(ledger, *(memory(f"{n}", created_at=NOON + timedelta(days=n)) for n in range(6)))
        page = await ledger.find(ANN, Listing(limit=3))
        await add(ledger, memory("newer", created_at=NOON + timedelta(days=9)))
        rest = await ledger.find(ANN, Listing(limit=3, cursor=page.cursor))
        assert [record.id for record in rest] == [record.id for record in reversed(records[:3])]

    @pytest.mark.parametrize(
        "cursor", ["", "x", "1", "_", "1_\0", "1_\ud800", f"{10**30}_a", "1e5_a", "' OR 1=1 --_a"]
    )
    async def test_a_cursor_that_no_page_gave_is_refused(self, ledger: Ledger, cursor: str) -> None:
        await add(ledger, memory())
        with pytest.raises(InvalidInput):
            await ledger.find(ANN, Listing(cursor=cursor))

    @pytest.mark.parametrize("limit", [0, -1, 10**30])
    async def test_a_limit_that_no_page_could_have_is_refused(self, ledger: Ledger, limit: int) -> None:
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
