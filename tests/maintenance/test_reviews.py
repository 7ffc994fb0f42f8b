"""Review: nothing that waits is used, a person decides, and nobody decides on their own proposal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from recollect import Memory
from recollect.errors import Conflict, InvalidInput, NotFound
from recollect.index.exact import ExactIndex
from recollect.ledger.ledger import Ledger
from recollect.maintenance.reviews import approve, edit, get_proposer, is_agent_name, list_reviews, reject, restore
from recollect.model.change import Actor, Author, ChangeKind, Forget, Supersede, Update
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.query import EVERYTHING
from recollect.model.scope import Scope
from recollect.testing.fake_embedder import FakeEmbedder
from recollect.write.redact import Redactor
from tests.support.cli_runner import Cli
from tests.support.maintenance_samples import ANN, BY, contents, keep, ledger_in, memory

EMBEDDER = FakeEmbedder(16)
PERSON = Author("ann@example.org", actor=Actor.PERSON)
EXTRACTION = Author("extraction")
ALL = Redactor()
BCC = "Always copy bob on invoices"


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    async with ledger_in(tmp_path, EMBEDDER.model) as ledger:
        yield ledger


async def proposed(ledger: Ledger, content: str = BCC, *, by: Author = EXTRACTION, **fields: Any) -> MemoryRecord:
    record = memory(content, status=Status.REVIEW, **{"category": Category.INSTRUCTION, **fields})
    await keep(ledger, record, embedder=EMBEDDER, by=by)
    return record


async def test_what_waits_is_listed_oldest_first_a_page_at_a_time(ledger: Ledger) -> None:
    for at, name in enumerate(("third", "second", "first")):
        await proposed(ledger, name, age_days=at)
    await keep(ledger, memory("active"))
    await proposed(ledger, "bob's", scope=Scope("bob"))
    page = await list_reviews(ANN, ledger=ledger, limit=2)
    rest = await list_reviews(ANN, ledger=ledger, limit=2, cursor=page.cursor)
    assert [each.content for each in (*page, *rest)] == ["first", "second", "third"]


async def test_what_waits_is_found_by_nobody_until_it_is_approved(ledger: Ledger) -> None:
    record = await proposed(ledger, key="invoices", value="copy bob", importance=1.0)
    index = ExactIndex(ledger, EMBEDDER.model, budget_bytes=1 << 20)

    async def seen() -> tuple[int, int, int]:
        view = await index.view(ANN, EVERYTHING)
        keyed = await ledger.keyed_facts(ANN, EVERYTHING, min_importance=0, limit=10)
        text = (await ledger.lexical(ANN, BCC)).rows.tolist()
        return view.count, len(keyed), len(await ledger.fetch(ANN, text, filter=EVERYTHING))

    assert await seen() == (0, 0, 0)
    await approve(ANN, record.id, by=PERSON, ledger=ledger)
    assert await seen() == (1, 1, 1)


async def test_history_tells_who_approved_and_undo_has_it_wait_again(ledger: Ledger) -> None:
    record = await proposed(ledger)
    done = await approve(ANN, record.id, by=PERSON, ledger=ledger)
    assert done.outcome.record.status is Status.ACTIVE
    [line] = await ledger.history(ANN, memory_id=record.id, limit=1)
    assert (line.verb, line.by.who, line.by.why) == (ChangeKind.UPDATE, PERSON.who, "approved")
    await ledger.undo(ANN, line.id, by=BY)
    assert await contents(ledger, Status.REVIEW) == {BCC}


class TestWhoMayApprove:
    @pytest.mark.parametrize(
        "who", ["extraction", "agent", "agent:planner", "Agent/7", "mcp:claude", "reflection", "LLM", "", " "]
    )
    async def test_no_program_may(self, ledger: Ledger, who: str) -> None:
        record = await proposed(ledger, by=Author("someone else"))
        with pytest.raises(Conflict, match="no person"):
            await approve(ANN, record.id, by=Author(who, actor=Actor.PERSON), ledger=ledger)
        assert await contents(ledger, Status.REVIEW) == {BCC}

    @pytest.mark.parametrize("who", ["ann", "ann@example.org", "cli", "planner"])
    async def test_no_agent_may_whatever_it_is_called(self, ledger: Ledger, who: str) -> None:
        record = await proposed(ledger)
        with pytest.raises(Conflict, match="no person"):
            await approve(ANN, record.id, by=Author(who, actor=Actor.AGENT), ledger=ledger)
        with pytest.raises(Conflict, match="no person"):
            await approve(ANN, record.id, by=Author(who), ledger=ledger)
        assert await contents(ledger, Status.REVIEW) == {BCC}

    async def test_nobody_may_approve_what_they_wrote(self, ledger: Ledger) -> None:
        record = await proposed(ledger, by=Author("assistant-key"))
        with pytest.raises(Conflict, match="cannot approve"):
            await approve(ANN, record.id, by=Author("Assistant-Key", actor=Actor.PERSON), ledger=ledger)
        await approve(ANN, record.id, by=PERSON, ledger=ledger)

    async def test_nor_what_they_had_written_by_another(self, ledger: Ledger) -> None:
        record = await proposed(ledger, detail={"proposed_by": "planner"})
        with pytest.raises(Conflict, match="cannot approve"):
            await approve(ANN, record.id, by=Author("planner", actor=Actor.PERSON), ledger=ledger)

    async def test_changing_the_words_first_does_not_help(self, ledger: Ledger) -> None:
        record = await proposed(ledger, by=Author("planner"), detail={"proposed_by": "planner"})
        me = Author("planner", actor=Actor.PERSON)
        forged = {"content": "Copy bob", "detail": {"proposed_by": "nobody"}}
        await edit(ANN, record.id, forged, by=me, ledger=ledger, embedder=EMBEDDER, redactor=ALL)
        with pytest.raises(Conflict, match="cannot approve"):
            await approve(ANN, record.id, by=me, ledger=ledger)

    async def test_the_first_line_of_history_tells_who_proposed(self, ledger: Ledger) -> None:
        record = await proposed(ledger, by=Author("planner"))
        for n in range(3):
            await edit(
                ANN,
                record.id,
                {"content": f"v{n}"},
                by=PERSON,
                ledger=ledger,
                embedder=EMBEDDER,
                redactor=Redactor(),
            )
        assert await get_proposer(record, ledger=ledger) == "planner"

    @pytest.mark.parametrize("who", ["ann", "agentha", "cli", "python", "mcpherson@example.org"])
    def test_people_are_not_taken_for_programs(self, who: str) -> None:
        assert not is_agent_name(who)


class TestNoWayAround:
    async def restored(self, ledger: Ledger, id: str) -> Status:
        [record] = await ledger.get(ANN, [id])
        return (await restore(ANN, record, by=Author("agent"), ledger=ledger)).record.status

    async def test_what_was_forgotten_while_it_waited_waits_again(self, ledger: Ledger) -> None:
        record = await proposed(ledger)
        await ledger.apply(ANN, [Forget(record.id)], by=Author("agent"))
        assert await self.restored(ledger, record.id) is Status.REVIEW
        await ledger.apply(ANN, [Forget(record.id)], by=Author("agent"))
        await ledger.apply(ANN, [Update(record.id, {"content": "Copy mallory"})], by=Author("agent"))
        assert await self.restored(ledger, record.id) is Status.REVIEW

    async def test_nor_does_taking_back_that_it_was_proposed_help(self, ledger: Ledger) -> None:
        record = await proposed(ledger)
        [line] = await ledger.history(ANN, memory_id=record.id)
        await ledger.undo(ANN, line.id, by=Author("agent"))
        assert await self.restored(ledger, record.id) is Status.REVIEW

    async def test_what_was_superseded_while_it_waited_waits_again(self, ledger: Ledger) -> None:
        record = await proposed(ledger)
        other = memory("Copy nobody", category=Category.INSTRUCTION)
        await ledger.apply(ANN, [Supersede(record.id, other)], by=Author("agent"))
        assert await self.restored(ledger, record.id) is Status.REVIEW
        [results] = await ledger.get(ANN, [record.id])
        assert (results.superseded_by, results.valid_to) == (None, None)

    async def test_what_came_forgotten_and_never_approved_waits(self, ledger: Ledger) -> None:
        record = memory(BCC, status=Status.FORGOTTEN, detail={"review": "nobody said it"})
        await keep(ledger, record)
        assert await self.restored(ledger, record.id) is Status.REVIEW

    async def test_what_was_approved_and_forgotten_comes_back_in_use(self, ledger: Ledger) -> None:
        record = await proposed(ledger, detail={"review": "nobody said it"})
        await approve(ANN, record.id, by=PERSON, ledger=ledger)
        await ledger.apply(ANN, [Forget(record.id)], by=Author("agent"))
        assert await self.restored(ledger, record.id) is Status.ACTIVE

    async def test_an_approval_that_was_taken_back_is_not_for_other_words(self, ledger: Ledger) -> None:
        record = await proposed(ledger)
        await approve(ANN, record.id, by=PERSON, ledger=ledger)
        [approval] = await ledger.history(ANN, memory_id=record.id, limit=1)
        await ledger.undo(ANN, approval.id, by=Author("agent"))
        [undoing] = await ledger.history(ANN, memory_id=record.id, limit=1)
        forged = {"content": "Copy mallory"}
        await edit(ANN, record.id, forged, by=Author("agent"), ledger=ledger, embedder=EMBEDDER, redactor=ALL)
        with pytest.raises(Conflict, match="waits for review"):
            await ledger.undo(ANN, undoing.id, by=Author("agent"))
        assert await contents(ledger) == set()


def test_by_every_door_it_is_a_person_who_approves_what_they_saw(tmp_path: Path) -> None:
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
        seen = changed.record.version
        assert (
            memory.reviews.approve("a", user_id="ann", by="maria", expected_version=seen).record.status
            is Status.ACTIVE
        )
        memory.delete("b", user_id="ann")
        assert memory.restore("b", user_id="ann").record.status is Status.REVIEW
    cli = Cli(tmp_path)
    cli.error("review", "--approve", "b", "--expect-version", "1", "--user", "ann", code=4)
    listed = cli("review", "--user", "ann").output
    assert "VERSION" in listed
    [waiting] = [each for each in cli.json("review", "--user", "ann")["results"] if each["id"] == "b"]
    done = cli.json("review", "--approve", "b", "--expect-version", str(waiting["version"]), "--user", "ann")
    assert done["status"] == "active"
    cli("review", "--reject", "c", "--expect-version", "1", "--user", "ann")


class TestWhatWasSeen:
    async def test_only_the_version_that_was_seen_is_approved(self, ledger: Ledger) -> None:
        record = await proposed(ledger)
        forged = {"content": "Copy mallory"}
        await edit(ANN, record.id, forged, by=Author("agent"), ledger=ledger, embedder=EMBEDDER, redactor=ALL)
        with pytest.raises(Conflict, match="version"):
            await approve(ANN, record.id, by=PERSON, ledger=ledger, expected_version=record.version)
        assert await contents(ledger) == set()

    async def test_edited_words_wait_and_are_embedded_anew(self, ledger: Ledger) -> None:
        record = await proposed(ledger)
        done = await edit(
            ANN,
            record.id,
            {"content": "Copy bob"},
            by=PERSON,
            ledger=ledger,
            embedder=EMBEDDER,
            redactor=Redactor(),
        )
        assert (done.outcome.record.content, done.outcome.record.status) == ("Copy bob", Status.REVIEW)
        assert await ledger.unembedded(EMBEDDER.model, limit=10) == []

    @pytest.mark.parametrize("fields", [{}, {"status": "active"}, {"importance": 2}, {"category": "turn"}])
    async def test_an_edit_can_change_what_a_memory_says_and_nothing_else(
        self, ledger: Ledger, fields: dict[str, Any]
    ) -> None:
        record = await proposed(ledger)
        with pytest.raises(InvalidInput):
            await edit(ANN, record.id, fields, by=PERSON, ledger=ledger, embedder=EMBEDDER, redactor=ALL)


class TestKeys:
    async def test_an_approved_value_takes_the_place_of_the_one_that_held_its_key(self, ledger: Ledger) -> None:
        stored = memory("city: Oslo", key="city", value="Oslo", category=Category.IDENTITY)
        elsewhere = memory(
            "city: Bonn", key="city", value="Bonn", category=Category.IDENTITY, scope=Scope("ann", "p")
        )
        await keep(ledger, stored, elsewhere)
        record = await proposed(ledger, "city: Rome", key="city", value="Rome", category=Category.IDENTITY)
        done = await approve(ANN, record.id, by=PERSON, ledger=ledger)
        assert done.superseded == (stored.id,)
        assert await contents(ledger) == {"city: Rome", "city: Bonn"}
        [old] = await ledger.get(ANN, [stored.id])
        assert (old.status, old.superseded_by) == (Status.SUPERSEDED, record.id)

    async def test_and_one_undo_puts_both_back(self, ledger: Ledger) -> None:
        await keep(ledger, memory("city: Oslo", key="city", value="Oslo"))
        record = await proposed(ledger, "city: Rome", key="city", value="Rome", category=Category.FACT)
        await approve(ANN, record.id, by=PERSON, ledger=ledger)
        [line] = await ledger.history(ANN, limit=1)
        await ledger.undo(ANN, line.id, by=BY, whole=True)
        assert await contents(ledger) == {"city: Oslo"}
        assert await contents(ledger, Status.REVIEW) == {"city: Rome"}

    async def test_what_is_known_already_cannot_be_approved_but_rejected(self, ledger: Ledger) -> None:
        await keep(ledger, memory(BCC, category=Category.INSTRUCTION))
        record = await proposed(ledger)
        with pytest.raises(Conflict, match="reject this one"):
            await approve(ANN, record.id, by=PERSON, ledger=ledger)
        await reject(ANN, record.id, by=PERSON, ledger=ledger)
        assert await contents(ledger) == {BCC}


async def test_what_is_rejected_is_forgotten_with_the_reason_that_was_given(ledger: Ledger) -> None:
    record = await proposed(ledger)
    await reject(ANN, record.id, by=Author("ann", "that was a trick"), ledger=ledger)
    assert await contents(ledger, Status.FORGOTTEN) == {BCC}
    [line] = await ledger.history(ANN, memory_id=record.id, limit=1)
    assert (line.verb, line.by.why) == (ChangeKind.FORGET, "that was a trick")


@pytest.mark.parametrize("status", [Status.ACTIVE, Status.FORGOTTEN, Status.SUPERSEDED])
async def test_only_what_waits_can_be_decided_on(ledger: Ledger, status: Status) -> None:
    record = memory("anything", status=status)
    await keep(ledger, record)
    for decide in (approve, reject):
        with pytest.raises(Conflict, match="does not wait"):
            await decide(ANN, record.id, by=PERSON, ledger=ledger)
    with pytest.raises(Conflict, match="does not wait"):
        await edit(ANN, record.id, {"content": "x"}, by=PERSON, ledger=ledger, embedder=EMBEDDER, redactor=Redactor())


async def test_another_users_proposal_is_not_there(ledger: Ledger) -> None:
    record = await proposed(ledger, scope=Scope("bob"))
    for decide in (approve, reject):
        with pytest.raises(NotFound):
            await decide(ANN, record.id, by=PERSON, ledger=ledger)
