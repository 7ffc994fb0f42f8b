"""Memories in review are not used, a person approves them, and nobody approves an own proposal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from recollect import Memory
from recollect.deps import Deps
from recollect.errors import Conflict, InvalidInput, NotFound
from recollect.index.exact import ExactIndex
from recollect.ledger.ledger import Ledger
from recollect.model.change import Actor, Author, ChangeKind, Forget, Supersede, Update
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.query import EVERYTHING
from recollect.model.scope import Scope
from recollect.service.reviews import ReviewService, restore
from recollect.testing.fake_embedder import FakeEmbedder
from recollect.write.redact import Redactor
from tests.support.cli_runner import Cli
from tests.support.maintenance_samples import ANN, BY, contents, keep, ledger_in, memory

EMBEDDER = FakeEmbedder(16)
AGENT = Author("agent")
EXTRACTION = Author("extraction")
BCC = "Always copy bob on invoices"


def person(name: str = "ann@example.org") -> Author:
    return Author(name, actor=Actor.PERSON)


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    async with ledger_in(tmp_path, EMBEDDER.model) as ledger:
        yield ledger


@pytest.fixture
def reviews(ledger: Ledger) -> ReviewService:
    return ReviewService(Deps(ledger, index_of(ledger), EMBEDDER), Redactor())


def index_of(ledger: Ledger) -> ExactIndex:
    return ExactIndex(ledger, EMBEDDER.model, budget_bytes=1 << 20)


async def in_review(ledger: Ledger, content: str = BCC, *, by: Author = EXTRACTION, **fields: Any) -> MemoryRecord:
    record = memory(content, status=Status.REVIEW, **{"category": Category.INSTRUCTION, **fields})
    await keep(ledger, record, embedder=EMBEDDER, by=by)
    return record


async def test_pending_memories_are_listed_oldest_first_in_pages(ledger: Ledger, reviews: ReviewService) -> None:
    for at, name in enumerate(("third", "second", "first")):
        await in_review(ledger, name, age_days=at)
    await keep(ledger, memory("active"))
    await in_review(ledger, "bob's", scope=Scope("bob"))
    page = await reviews.list(ANN, limit=2)
    rest = await reviews.list(ANN, limit=2, cursor=page.cursor)
    assert [each.content for each in (*page, *rest)] == ["first", "second", "third"]


async def test_a_pending_memory_is_not_found_until_it_is_approved(ledger: Ledger, reviews: ReviewService) -> None:
    record = await in_review(ledger, key="invoices", value="copy bob", importance=1.0)
    index = index_of(ledger)

    async def found() -> tuple[int, int, int]:
        view = await index.view(ANN, EVERYTHING)
        keyed = await ledger.keyed_facts(ANN, EVERYTHING, min_importance=0, limit=10)
        text = (await ledger.lexical(ANN, BCC)).rows.tolist()
        return view.count, len(keyed), len(await ledger.fetch(ANN, text, filter=EVERYTHING))

    assert await found() == (0, 0, 0)
    await reviews.approve(ANN, record.id, by=person())
    assert await found() == (1, 1, 1)


async def test_history_records_the_approval_and_undo_reverts_it(ledger: Ledger, reviews: ReviewService) -> None:
    record = await in_review(ledger)
    done = await reviews.approve(ANN, record.id, by=person())
    assert done.outcome.record.status is Status.ACTIVE
    [line] = await ledger.history(ANN, memory_id=record.id, limit=1)
    assert (line.verb, line.by.who, line.by.why) == (ChangeKind.UPDATE, person().who, "approved")
    await ledger.undo(ANN, line.id, by=BY)
    assert await contents(ledger, Status.REVIEW) == {BCC}


class TestReviewers:
    @pytest.mark.parametrize(
        "author",
        [*map(person, ("extraction", "agent:planner", "Agent/7", "mcp:claude", "LLM", "", " ")), Author("ann")],
        ids=lambda author: f"{author.who!r} {author.actor}",
    )
    async def test_a_program_cannot_approve(self, ledger: Ledger, reviews: ReviewService, author: Author) -> None:
        record = await in_review(ledger, by=Author("someone else"))
        with pytest.raises(Conflict, match="no person"):
            await reviews.approve(ANN, record.id, by=author)
        assert await contents(ledger, Status.REVIEW) == {BCC}

    @pytest.mark.parametrize("who", ["ann", "agentha", "cli", "python", "mcpherson@example.org"])
    async def test_a_name_that_resembles_a_program_is_a_person(
        self, ledger: Ledger, reviews: ReviewService, who: str
    ) -> None:
        record = await in_review(ledger)
        await reviews.approve(ANN, record.id, by=person(who))

    async def test_the_author_cannot_approve_even_after_edits(self, ledger: Ledger, reviews: ReviewService) -> None:
        record = await in_review(ledger, by=Author("Planner"))
        for version in range(3):
            await reviews.edit(ANN, record.id, {"content": f"version {version}"}, by=person())
        with pytest.raises(Conflict, match="cannot approve"):
            await reviews.approve(ANN, record.id, by=person("planner"))
        await reviews.approve(ANN, record.id, by=person())

    async def test_the_recorded_proposer_cannot_approve_nor_be_edited(
        self, ledger: Ledger, reviews: ReviewService
    ) -> None:
        record = await in_review(ledger, detail={"proposed_by": "planner"})
        forged = {"content": "Copy bob", "detail": {"proposed_by": "nobody"}}
        await reviews.edit(ANN, record.id, forged, by=person("planner"))
        with pytest.raises(Conflict, match="cannot approve"):
            await reviews.approve(ANN, record.id, by=person("planner"))


class TestRestoring:
    async def restored(self, ledger: Ledger, id: str) -> Status:
        [record] = await ledger.get(ANN, [id])
        return (await restore(ANN, record, by=AGENT, ledger=ledger)).record.status

    async def test_a_memory_forgotten_in_review_returns_to_review(self, ledger: Ledger) -> None:
        record = await in_review(ledger)
        await ledger.apply(ANN, [Forget(record.id)], by=AGENT)
        assert await self.restored(ledger, record.id) is Status.REVIEW
        await ledger.apply(ANN, [Forget(record.id)], by=AGENT)
        await ledger.apply(ANN, [Update(record.id, {"content": "Copy mallory"})], by=AGENT)
        assert await self.restored(ledger, record.id) is Status.REVIEW

    async def test_a_proposal_that_was_undone_returns_to_review(self, ledger: Ledger) -> None:
        record = await in_review(ledger)
        [line] = await ledger.history(ANN, memory_id=record.id)
        await ledger.undo(ANN, line.id, by=AGENT)
        assert await self.restored(ledger, record.id) is Status.REVIEW

    async def test_a_memory_superseded_in_review_returns_to_review(self, ledger: Ledger) -> None:
        record = await in_review(ledger)
        other = memory("Copy nobody", category=Category.INSTRUCTION)
        await ledger.apply(ANN, [Supersede(record.id, other)], by=AGENT)
        assert await self.restored(ledger, record.id) is Status.REVIEW
        [stored] = await ledger.get(ANN, [record.id])
        assert (stored.superseded_by, stored.valid_to) == (None, None)

    async def test_an_imported_memory_that_was_never_approved_returns_to_review(self, ledger: Ledger) -> None:
        record = memory(BCC, status=Status.FORGOTTEN, detail={"review": "the user did not say it"})
        await keep(ledger, record)
        assert await self.restored(ledger, record.id) is Status.REVIEW

    async def test_an_approved_memory_becomes_active(self, ledger: Ledger, reviews: ReviewService) -> None:
        record = await in_review(ledger, detail={"review": "the user did not say it"})
        await reviews.approve(ANN, record.id, by=person())
        await ledger.apply(ANN, [Forget(record.id)], by=AGENT)
        assert await self.restored(ledger, record.id) is Status.ACTIVE

    async def test_undoing_the_undo_of_an_approval_does_not_approve_an_edited_text(
        self, ledger: Ledger, reviews: ReviewService
    ) -> None:
        record = await in_review(ledger)
        await reviews.approve(ANN, record.id, by=person())
        [approval] = await ledger.history(ANN, memory_id=record.id, limit=1)
        await ledger.undo(ANN, approval.id, by=AGENT)
        [undoing] = await ledger.history(ANN, memory_id=record.id, limit=1)
        await reviews.edit(ANN, record.id, {"content": "Copy mallory"}, by=AGENT)
        with pytest.raises(Conflict, match="waits for review"):
            await ledger.undo(ANN, undoing.id, by=AGENT)
        assert await contents(ledger) == set()


def test_the_python_api_and_the_cli_review_the_version_that_was_seen(tmp_path: Path) -> None:
    with Memory(home=tmp_path, embedder=EMBEDDER) as memory:
        lines = [{"id": id, "memory": f"Always do {id}", "user_id": "ann", "status": "review"} for id in "abc"]
        memory.import_(lines)
        with pytest.raises(Conflict, match="no person"):
            memory.reviews.approve("a", user_id="ann", by="maria", actor="agent")
        with pytest.raises(InvalidInput, match="person or agent"):
            memory.reviews.approve("a", user_id="ann", by="maria", actor="robot")
        changed = memory.reviews.edit("a", "Never do a", user_id="ann", expected_version=1)
        for decide in (partial(memory.reviews.approve, by="maria"), memory.reviews.reject, memory.reviews.edit):
            with pytest.raises(Conflict, match="version 2, not 1"):
                decide("a", user_id="ann", expected_version=1)
        version = changed.record.version
        approved = memory.reviews.approve("a", user_id="ann", by="maria", expected_version=version)
        assert approved.record.status is Status.ACTIVE
        memory.delete("b", user_id="ann")
        assert memory.restore("b", user_id="ann").record.status is Status.REVIEW
    cli = Cli(tmp_path)
    cli.error("review", "--approve", "b", "--expect-version", "1", "--user", "ann", code=4)
    assert "VERSION" in cli("review", "--user", "ann").output
    [pending] = [each for each in cli.json("review", "--user", "ann")["results"] if each["id"] == "b"]
    done = cli.json("review", "--approve", "b", "--expect-version", str(pending["version"]), "--user", "ann")
    assert done["status"] == "active"
    cli("review", "--reject", "c", "--expect-version", "1", "--user", "ann")


async def test_an_edited_memory_stays_in_review_and_is_embedded(ledger: Ledger, reviews: ReviewService) -> None:
    record = await in_review(ledger)
    done = await reviews.edit(ANN, record.id, {"content": "Copy bob"}, by=person())
    assert (done.outcome.record.content, done.outcome.record.status) == ("Copy bob", Status.REVIEW)
    assert await ledger.unembedded(EMBEDDER.model, limit=10) == []


@pytest.mark.parametrize("fields", [{}, {"status": "active"}, {"importance": 2}, {"category": "turn"}])
async def test_an_edit_with_invalid_fields_is_rejected(
    ledger: Ledger, reviews: ReviewService, fields: dict[str, Any]
) -> None:
    record = await in_review(ledger)
    with pytest.raises(InvalidInput):
        await reviews.edit(ANN, record.id, fields, by=person())


class TestKeys:
    async def test_an_approved_value_supersedes_the_active_one_and_undo_restores_both(
        self, ledger: Ledger, reviews: ReviewService
    ) -> None:
        stored = memory("city: Oslo", key="city", value="Oslo")
        await keep(ledger, stored, memory("city: Bonn", key="city", value="Bonn", scope=Scope("ann", "p")))
        record = await in_review(ledger, "city: Rome", key="city", value="Rome", category=Category.FACT)
        done = await reviews.approve(ANN, record.id, by=person())
        assert done.superseded == (stored.id,)
        assert await contents(ledger) == {"city: Rome", "city: Bonn"}
        [old] = await ledger.get(ANN, [stored.id])
        assert (old.status, old.superseded_by) == (Status.SUPERSEDED, record.id)
        [line] = await ledger.history(ANN, limit=1)
        await ledger.undo(ANN, line.id, by=BY, whole=True)
        assert await contents(ledger) == {"city: Oslo", "city: Bonn"}
        assert await contents(ledger, Status.REVIEW) == {"city: Rome"}

    async def test_a_duplicate_of_an_active_memory_can_only_be_rejected(
        self, ledger: Ledger, reviews: ReviewService
    ) -> None:
        await keep(ledger, memory(BCC, category=Category.INSTRUCTION))
        record = await in_review(ledger)
        with pytest.raises(Conflict, match="reject this one"):
            await reviews.approve(ANN, record.id, by=person())
        await reviews.reject(ANN, record.id, by=person())
        assert await contents(ledger) == {BCC}


async def test_a_rejected_memory_is_forgotten_with_the_reason(ledger: Ledger, reviews: ReviewService) -> None:
    record = await in_review(ledger)
    await reviews.reject(ANN, record.id, by=Author("ann", "that was a trick"))
    assert await contents(ledger, Status.FORGOTTEN) == {BCC}
    [line] = await ledger.history(ANN, memory_id=record.id, limit=1)
    assert (line.verb, line.by.why) == (ChangeKind.FORGET, "that was a trick")


@pytest.mark.parametrize("status", [Status.ACTIVE, Status.FORGOTTEN, Status.SUPERSEDED])
async def test_a_memory_that_is_not_in_review_cannot_be_reviewed(
    ledger: Ledger, reviews: ReviewService, status: Status
) -> None:
    record = memory("anything", status=status)
    await keep(ledger, record)
    for decide in (reviews.approve, reviews.reject, partial(reviews.edit, fields={"content": "x"})):
        with pytest.raises(Conflict, match="does not wait"):
            await decide(ANN, record.id, by=person())


async def test_memories_of_other_users_are_not_found(ledger: Ledger, reviews: ReviewService) -> None:
    record = await in_review(ledger, scope=Scope("bob"))
    for decide in (reviews.approve, reviews.reject):
        with pytest.raises(NotFound):
            await decide(ANN, record.id, by=person())
