"""Counts by field and the audit log, the same in every database."""

from __future__ import annotations

from dataclasses import replace

from recollect.ledger.ledger import Ledger
from recollect.ledger.types import AccessRow
from recollect.model.change import Actor, Add, Forget
from recollect.model.memory import Category, Status
from recollect.model.query import Listing, Op, Where
from recollect.model.scope import Scope
from recollect.model.times import as_utc
from tests.support.ledger_samples import ANN, BY, memory


class TestFacets:
    """How many memories have which value."""

    async def test_memories_are_counted_by_field_with_the_filter_of_a_listing(self, ledger: Ledger) -> None:
        project = Scope("ann", "p")
        records = [
            memory("one", tags=("a", "b"), source="shop", occurred_at=as_utc("2026-05-31T23:59:59Z")),
            memory("two", tags=("a",), category=Category.PREFERENCE, occurred_at=as_utc("2026-06-01T00:00:00Z")),
            memory("three", scope=project, occurred_at=as_utc("2026-06-30T12:00:00Z")),
            memory("gone"),
        ]
        for record in records:
            await ledger.apply(record.scope, [Add(record)], by=BY)
        await ledger.apply(ANN, [Forget(records[-1].id)], by=BY)
        facets = await ledger.facets(ANN, Listing())
        counts = {name: dict(values) for name, values in facets.counts.items()}
        assert facets.total == 3
        assert counts["tags"] == {"a": 2, "b": 1}
        assert counts["month"] == {"2026-05": 1, "2026-06": 2}
        assert counts["project_id"] == {"": 2, "p": 1}
        assert counts["status"] == {"active": 3, "forgotten": 1}
        assert counts["source"]["shop"] == 1
        assert sum(counts["trust"].values()) == sum(counts["category"].values()) == 3
        assert (await ledger.facets(ANN, Listing(filter=Where("tags", Op.CONTAINS, "b")))).total == 1
        assert (await ledger.facets(ANN, Listing(statuses=tuple(Status)))).total == 4
        assert (await ledger.facets(project, Listing())).total == 1
        assert (await ledger.facets(Scope("bob"), Listing())).total == 0


class TestAudit:
    """Who looked at whose memories, and whether a person made a change."""

    async def test_an_access_is_recorded_once_and_listed_newest_first(self, ledger: Ledger) -> None:
        rows = [AccessRow(minute, "key:owner", user, "GET /x") for minute in (1, 2) for user in ("a", "b")]
        for row in (*rows, *rows):
            await ledger.record_access(row)
        newest = sorted(rows, reverse=True)
        assert await ledger.accesses(limit=10) == newest
        assert await ledger.accesses(limit=2) == newest[:2]
        assert await ledger.accesses(limit=10, before=newest[1]) == newest[2:]
        assert await ledger.accesses(limit=10, user_digest="a") == [row for row in newest if row.user_digest == "a"]

    async def test_history_says_whether_a_person_made_a_change(self, ledger: Ledger) -> None:
        await ledger.apply(ANN, [Add(memory("one"))], by=BY)
        await ledger.apply(ANN, [Add(memory("two"))], by=replace(BY, actor=Actor.PERSON))
        assert [entry.by.actor for entry in await ledger.history(ANN)] == [Actor.PERSON, Actor.AGENT]
