"""Important memories of a session are promoted once, with their evidence."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from recollect.ledger.ledger import Ledger
from recollect.model.change import Add, Supersede
from recollect.model.erasure import ErasureRequest, Target
from recollect.model.ids import new_id
from recollect.model.memory import Category, MemoryRecord, MemoryType, Status, Trust
from recollect.model.query import Listing
from recollect.model.scope import Level, Scope
from recollect.model.turn import Conversation
from recollect.sessions.lifecycle import promote
from tests.support.session_samples import ANN, BY, DAY, NOW, a_ledger, stored_memories

GARDEN = Scope("ann", "garden", "monday")


def memory(content: str = "The budget for the Hawaii trip is $10,000", **fields: Any) -> MemoryRecord:
    """Return a fact at session level."""
    plain = MemoryRecord(
        id=new_id(),
        scope=ANN,
        level=Level.SESSION,
        type=MemoryType.SEMANTIC,
        category=Category.FACT,
        content=content,
        created_at=DAY,
        updated_at=DAY,
        importance=0.8,
        evidence=("turn-1",),
        detail={"note": 1},
    )
    return replace(plain, **fields)


async def holding(*records: MemoryRecord) -> Ledger:
    ledger = await a_ledger()
    await ledger.apply(records[0].scope, [Add(record) for record in records], by=BY)
    return ledger


async def promoted(ledger: Ledger, scope: Scope = ANN) -> int:
    """Promote the memories of the scope's session; return the number of changes."""
    memories = list(await ledger.find(scope, Listing(limit=1000, visible=True)))
    changes = promote(scope, memories, Conversation(scope=scope), now=NOW)
    await ledger.apply(scope, changes, by=BY)
    return len(changes)


async def seen_from(ledger: Ledger, scope: Scope) -> list[str]:
    return [each.content for each in await ledger.find(scope, Listing(limit=1000, visible=True, order="oldest"))]


async def test_an_important_memory_is_visible_in_later_sessions() -> None:
    ledger = await holding(memory(), memory("Ann typed quickly today", importance=0.2))
    later = replace(ANN, session="tuesday")
    assert await seen_from(ledger, later) == []
    await promoted(ledger)
    assert await seen_from(ledger, later) == ["The budget for the Hawaii trip is $10,000"]


async def test_a_promoted_memory_has_its_session_and_evidence() -> None:
    stored = memory(occurred_at=DAY, tags=("travel",), trust=Trust.LOW)
    ledger = await holding(stored)
    await promoted(ledger)
    [old, new] = await stored_memories(ledger)
    assert (new.level, new.scope, new.evidence) == (Level.USER, ANN, ("turn-1",))
    assert (new.content, new.importance, new.occurred_at, new.tags) == (stored.content, 0.8, DAY, ("travel",))
    assert new.trust is Trust.LOW
    assert new.detail == {"note": 1, "promoted_from_id": stored.id}
    assert (old.status, old.superseded_by) == (Status.SUPERSEDED, new.id)


async def test_a_memory_of_a_project_session_is_promoted_to_the_project() -> None:
    ledger = await holding(memory(scope=GARDEN))
    await promoted(ledger, GARDEN)
    assert len(await seen_from(ledger, Scope("ann", "garden", "tuesday"))) == 1
    assert await seen_from(ledger, Scope("ann", "kitchen", "tuesday")) == []


async def test_promoting_twice_adds_nothing() -> None:
    ledger = await holding(memory(), memory("Ann is allergic to nuts", category=Category.CONSTRAINT))
    assert (await promoted(ledger), await promoted(ledger)) == (2, 0)
    assert len(await seen_from(ledger, ANN)) == 2


async def test_concurrent_promotions_add_one_memory() -> None:
    stored = memory()
    first = promote(ANN, [stored], Conversation(scope=ANN), now=NOW)
    second = promote(ANN, [stored], Conversation(scope=ANN), now=NOW + timedelta(seconds=1))
    [one], [other] = first, second
    assert isinstance(one, Supersede)
    assert isinstance(other, Supersede)
    assert one.record.id == other.record.id
    assert one.expected_version == 1


async def test_a_memory_that_exists_at_the_long_term_level_is_not_duplicated() -> None:
    existing = memory(level=Level.USER, scope=Scope("ann"))
    ledger = await holding(existing, memory())
    await promoted(ledger)
    assert await seen_from(ledger, ANN) == [existing.content]


async def test_a_promoted_value_supersedes_the_old_one() -> None:
    name = {"category": Category.IDENTITY, "key": "name", "importance": 0.9}
    old = memory("name: Al", level=Level.USER, value="Al", confidence=0.7, **name)
    ledger = await holding(old, memory("name: Alex", value="Alex", confidence=0.9, **name))
    await promoted(ledger)
    assert await seen_from(ledger, replace(ANN, session="tuesday")) == ["name: Alex"]


async def test_a_more_confident_long_term_value_is_not_superseded() -> None:
    name = {"category": Category.IDENTITY, "key": "name", "importance": 0.9}
    sure = memory("name: Alex", level=Level.USER, value="Alex", confidence=1.0, **name)
    ledger = await holding(sure, memory("name: Al", value="Al", confidence=0.6, **name))
    assert await promoted(ledger) == 0
    assert await seen_from(ledger, ANN) == ["name: Alex", "name: Al"]


def test_only_valid_important_facts_are_promoted() -> None:
    stay = [
        memory(category=Category.TURN),
        memory(category=Category.SUMMARY),
        memory(category=Category.EPISODE),
        memory(status=Status.REVIEW),
        memory(status=Status.FORGOTTEN),
        memory(trust=Trust.NONE),
        memory(confidence=0.3),
        memory(importance=0.59),
        memory(expires_at=DAY),
        memory(valid_to=DAY),
        memory(level=Level.USER),
        memory(scope=replace(ANN, session="tuesday")),
    ]
    assert promote(ANN, stay, Conversation(scope=ANN), now=NOW) == []
    assert len(promote(ANN, [memory(importance=0.6)], Conversation(scope=ANN), now=NOW)) == 1
    assert promote(ANN, [memory(importance=0.6)], Conversation(scope=ANN), now=NOW, min_importance=0.7) == []


def test_nothing_is_promoted_for_another_user() -> None:
    assert promote(Scope("bob", session="monday"), [memory()], Conversation(scope=ANN), now=NOW) == []


async def test_erasing_a_promoted_memory_erases_its_original() -> None:
    for which in (0, 1):
        ledger = await holding(memory())
        await promoted(ledger)
        both = await stored_memories(ledger)
        await ledger.erase(ANN, ErasureRequest(Target.MEMORY, both[which].id), by=BY)
        assert await stored_memories(ledger) == []
