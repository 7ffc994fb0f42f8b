"""The names that memories mention follow every change of the memories."""

from __future__ import annotations

from datetime import timedelta

from recollect.ledger.ledger import Ledger
from recollect.model.change import Forget, Restore, Supersede, Update
from recollect.model.erasure import ErasureRequest, Target
from recollect.model.memory import Category, Status
from recollect.model.scope import Level, Scope
from recollect.model.times import now
from tests.support.ledger_samples import (
    ANN,
    BOB,
    BY,
    ODD_TEXTS,
    TALK,
    add,
    change,
    full_memory,
    last_entry,
    memory,
    say,
)

PAST = now() - timedelta(days=1)


async def about(ledger: Ledger, *names: str, scope: Scope = ANN, superseded: bool = False) -> list[str]:
    """Return the ids of the memories that mention one of the names, newest first."""
    found = await ledger.mentioning(scope, names, [], superseded=superseded, limit=100)
    return [record.id for record in found]


async def stored(ledger: Ledger, *names: str, user: str = "ann") -> list[str]:
    """Return the names that are in the table, whatever the status of their memories."""
    return sorted({each.name for each in await ledger.mentions(user, names, limit=1000)})


async def test_memories_are_found_by_the_names_they_mention(ledger: Ledger) -> None:
    await add(ledger, memory("met Anna in Oslo", id="a"), memory("Anna likes tea", id="b"), memory("tea", id="c"))
    assert await about(ledger, "anna") == ["b", "a"]
    assert await about(ledger, "oslo", "anna") == ["b", "a"]
    assert await about(ledger, "Anna", "tea", "", "\0", "\ud800", "%", "an_a") == []
    assert await ledger.mentioning(ANN, ["anna"], [], superseded=False, limit=1) == await ledger.get(ANN, ["b"])


async def test_facts_are_found_by_their_key(ledger: Ledger) -> None:
    await add(ledger, memory("home: Oslo", id="a", key="home", value="Oslo"), memory("back at Home", id="b"))
    [fact] = await ledger.mentioning(ANN, [], ["home"], superseded=False, limit=10)
    assert fact.id == "a"
    assert await about(ledger, "home") == ["b"]
    await change(ledger, Update("a", {"key": "city"}))
    assert await ledger.mentioning(ANN, [], ["home"], superseded=False, limit=10) == []
    assert await stored(ledger, "home", "oslo") == ["home", "oslo"]


async def test_turns_mention_nothing(ledger: Ledger) -> None:
    await say(ledger, TALK, "I met Anna")
    await add(ledger, memory("met Anna", category=Category.TURN))
    assert await stored(ledger, "anna") == []


async def test_only_visible_and_valid_memories_are_found(ledger: Ledger) -> None:
    project, other = Scope("ann", "p"), Scope("ann", "q")
    await add(ledger, memory("met Anna", id="mine", scope=project, level=Level.PROJECT))
    await add(ledger, memory("saw Anna", id="over", valid_to=PAST), memory("lost Anna", id="gone", expires_at=PAST))
    await add(ledger, memory("is it Anna", id="review", status=Status.REVIEW))
    await add(ledger, memory("met Anna", id="his", scope=BOB))
    assert await about(ledger, "anna") == []
    assert await about(ledger, "anna", scope=other) == []
    assert await about(ledger, "anna", scope=project) == ["mine"]
    assert await about(ledger, "anna", scope=BOB) == ["his"]
    assert await ledger.linked(other, ["mine", "his"], [], superseded=False, limit=9) == []
    assert await ledger.certain_names(other, ["anna"], superseded=False) == set()
    assert await ledger.certain_names(project, ["anna", "bob"], superseded=False) == {"anna"}


async def test_a_word_that_only_begins_sentences_is_no_certain_name(ledger: Ledger) -> None:
    await add(ledger, memory("Prefers tea"), memory("Anna left"), memory("for Anna Weber"))
    assert await ledger.certain_names(ANN, ["prefers", "anna"], superseded=False) == {"anna"}


async def test_words_that_begin_sentences_do_not_crowd_out_names(ledger: Ledger) -> None:
    await add(ledger, memory("met Anna", id="m"), *(memory(f"The number {each}", id=f"n{each}") for each in range(3)))
    [found] = await ledger.mentions("ann", ["the", "anna"], limit=1)
    assert found.name == "anna"


async def test_an_update_and_its_undo_change_the_names(ledger: Ledger) -> None:
    await add(ledger, memory("met Anna in Oslo", id="m"))
    await change(ledger, Update("m", {"content": "met Bob in Oslo"}))
    assert await stored(ledger, "anna", "bob", "oslo") == ["bob", "oslo"]
    await ledger.undo(ANN, (await last_entry(ledger)).id, by=BY)
    assert await stored(ledger, "anna", "bob", "oslo") == ["anna", "oslo"]
    await change(ledger, Update("m", {"importance": 0.1}))
    assert await about(ledger, "anna") == ["m"]


async def test_forgotten_memories_are_found_after_they_are_restored(ledger: Ledger) -> None:
    await add(ledger, memory("met Anna", id="m"))
    await change(ledger, Forget("m"))
    assert await about(ledger, "anna") == []
    await change(ledger, Restore("m"))
    assert await about(ledger, "anna") == ["m"]


async def test_superseded_memories_are_found_on_request_and_by_their_successor(ledger: Ledger) -> None:
    await add(ledger, memory("lives in Oslo", id="old"))
    await change(ledger, Supersede("old", memory("lives in Rome", id="new")))
    assert await about(ledger, "oslo") == []
    assert await about(ledger, "oslo", superseded=True) == ["old"]
    found = await ledger.linked(ANN, [], ["new"], superseded=True, limit=9)
    assert [record.id for record in found] == ["old"]


async def test_nothing_is_left_of_an_erased_or_purged_memory(ledger: Ledger) -> None:
    await add(ledger, memory("met Anna", id="a"), memory("met Bob", id="b"), memory("met Cleo", id="c"))
    await ledger.erase(ANN, ErasureRequest(Target.MEMORY, "a"), by=BY)
    await change(ledger, Forget("b"))
    await ledger.purge(now() + timedelta(days=1))
    assert await stored(ledger, "anna", "bob", "cleo") == ["cleo"]
    await add(ledger, memory("met Cleo", scope=BOB))
    await ledger.erase(ANN, ErasureRequest(Target.USER), by=BY)
    assert await stored(ledger, "cleo") == []
    assert await stored(ledger, "cleo", user="bob") == ["cleo"]
    assert await ledger.check() == []


async def test_names_survive_a_rebuild(ledger: Ledger) -> None:
    await add(ledger, memory("met Anna", id="a", key="friend", value="Anna"))
    await say(ledger, TALK, "I met Bob")
    await ledger.rebuild_terms()
    assert await about(ledger, "anna") == ["a"]
    assert await stored(ledger, "bob") == []


async def test_any_text_can_be_a_name_or_a_key(ledger: Ledger) -> None:
    for text in ODD_TEXTS:
        await add(ledger, full_memory(text))
        await add(ledger, memory(f"met A{text}", key=f"K{text}"[:300], value=text))
    assert await ledger.check() == []
