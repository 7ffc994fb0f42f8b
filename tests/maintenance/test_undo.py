"""Undo in the Python API."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recollect import Memory, Status
from recollect.config.settings import Settings
from recollect.errors import NotFound
from recollect.model.change import Author, ChangeKind, HistoryEntry
from recollect.model.memory import MemoryRecord
from recollect.model.times import now
from recollect.testing.fake_embedder import FakeEmbedder
from recollect.testing.scripted_llm import ScriptedLLM
from recollect.write.batch import Batch, learned_turns
from tests.support.extract_samples import turn
from tests.support.remember_samples import changes, claim, exchange, learns, opened


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    # Background learning would be the last change.
    with Memory(settings=Settings(home=tmp_path, learn="off"), embedder=FakeEmbedder(32)) as memory:
        yield memory


def test_after_an_undo_was_undone_undo_reverts_the_change_again(memory: Memory) -> None:
    added = memory.add("Lives in Oslo", user_id="a")
    memory.update(added.id, "Lives in Prague", user_id="a")
    memory.undo(user_id="a")
    [undone, *_] = memory.history(user_id="a")
    memory.undo(undone.id, user_id="a")
    assert memory.get(added.id, user_id="a").content == "Lives in Prague"
    memory.undo(user_id="a")
    assert memory.get(added.id, user_id="a").content == "Lives in Oslo"


def test_after_one_entry_of_a_batch_was_undone_undo_reverts_the_rest(memory: Memory) -> None:
    exchange = [{"role": "user", "content": "My cat is Tom"}, {"role": "assistant", "content": "Hello Tom"}]
    first, second = memory.remember(exchange, user_id="a", session_id="s")
    [line] = memory.history(second.id, user_id="a")
    memory.undo(line.id, user_id="a")
    assert [outcome.id for outcome in memory.undo(user_id="a")] == [first.id]


def test_a_mass_deletion_is_undone_as_a_whole(memory: Memory) -> None:
    memory.import_({"memory": f"note {number}", "user_id": "a"} for number in range(600))
    assert memory.delete_all(user_id="a") == 600
    assert len(memory.undo(user_id="a")) == 600
    assert memory.admin.stats("a")["memories"] == 600


def test_a_restored_memory_is_found_by_its_vector(memory: Memory) -> None:
    added = memory.add("Lives in Oslo", user_id="a")
    memory.update(added.id, "Lives in Prague", user_id="a")
    memory.undo(user_id="a")
    assert memory.search("lives Oslo", user_id="a")[0].scores["dense"] > 0.5


def test_a_vector_of_the_caller_survives_deletion_and_undo(memory: Memory) -> None:
    vector = [1.0] + [0.0] * 31
    added = memory.add("anything", user_id="a", embedding=vector)
    memory.delete(added.id, user_id="a")
    memory.undo(user_id="a")
    assert memory.search("nothing", user_id="a", embedding=vector)[0].scores["dense"] == pytest.approx(1, abs=1e-3)


def test_undoing_a_value_restores_the_previous_one(memory: Memory) -> None:
    memory.add(user_id="a", key="city", value="Oslo")
    memory.add(user_id="a", key="city", value="Prague")
    memory.undo(user_id="a")
    [stored] = memory.get_all(user_id="a", filters={"key": "city"})
    assert (stored.value, stored.status) == ("Oslo", Status.ACTIVE)


class TestWhatSomeoneDid:
    """Undo without an id skips changes of background work."""

    @pytest.fixture
    def memory(self, tmp_path: Path) -> Iterator[Memory]:
        # Two wordings that differ in a few letters are one memory.
        settings = Settings(home=tmp_path, learn="selector", merge_text_similarity=0.75, worker=False)
        with Memory(settings=settings, embedder=FakeEmbedder(32)) as memory:
            yield memory

    def test_background_changes_are_not_undone(self, memory: Memory) -> None:
        added = memory.add("Likes tea", user_id="a")
        remembered = memory.remember("I live in Oslo", user_id="a", session_id="s", wait=False)
        memory.delete(added.id, user_id="a")
        assert remembered.job is not None
        memory.jobs.run_pending()
        assert memory.history(user_id="a")[0].by.who == "extraction"
        assert [outcome.id for outcome in memory.undo(user_id="a")] == [added.id]
        assert memory.get(added.id, user_id="a").status is Status.ACTIVE
        assert contents(memory) == {"Likes tea", "I live in Oslo"}

    def test_undoing_a_turn_undoes_the_facts_learned_from_it(self, memory: Memory) -> None:
        memory.remember("I live in Oslo", user_id="a", session_id="s", wait=True)
        memory.remember("I moved to Lisbon", user_id="a", session_id="s", wait=True)
        assert contents(memory) == {"I moved to Lisbon"}
        outcomes = memory.undo(user_id="a")
        assert contents(memory) == {"I live in Oslo"}
        assert [turn.content for turn in memory.sessions.turns(user_id="a", session_id="s")] == ["I live in Oslo"]
        [number] = {
            line.id for line in memory.history(user_id="a") if line.memory_id == outcomes[-1].id if line.undoes
        }
        memory.undo(number, user_id="a")
        assert contents(memory) == {"I moved to Lisbon"}
        assert len(memory.sessions.turns(user_id="a", session_id="s")) == 2

    def test_a_fact_of_other_turns_stays(self, memory: Memory) -> None:
        for _ in range(2):
            memory.remember("I live in Oslo", user_id="a", session_id="s", wait=True)
        memory.undo(user_id="a")
        assert contents(memory) == {"I live in Oslo"}

    def test_undoing_a_turn_reverts_its_merges(self, memory: Memory) -> None:
        memory.remember("I love hiking in the hills", user_id="a", session_id="s", wait=True)
        [before] = facts(memory)
        memory.remember("I love to hike in the hills", user_id="a", session_id="s", wait=True)
        [merged] = facts(memory)
        assert (merged.id, merged.content, len(merged.evidence)) == (before.id, "I love to hike in the hills", 2)
        memory.undo(user_id="a")
        [undone] = facts(memory)
        assert (undone.content, undone.evidence) == (before.content, before.evidence)
        assert undone.importance == before.importance
        memory.undo(memory.history(user_id="a")[0].id, user_id="a")
        [repeated] = facts(memory)
        assert (repeated.content, repeated.evidence) == (merged.content, merged.evidence)

    def test_a_merge_with_other_turns_stays(self, memory: Memory) -> None:
        memory.remember("I love hiking in the hills", user_id="a", session_id="s", wait=True)
        # Both are learned from at once.
        for _ in range(2):
            memory.remember("I love to hike in the hills", user_id="a", session_id="s", wait=False)
        memory.jobs.run_pending()
        memory.undo(user_id="a")
        assert contents(memory) == {"I love to hike in the hills"}

    def test_anyones_undoes_background_changes_too(self, memory: Memory) -> None:
        memory.remember("I live in Oslo", user_id="a", session_id="s", wait=True)
        memory.undo(user_id="a", anyones=True)
        assert contents(memory) == set()
        assert len(memory.sessions.turns(user_id="a", session_id="s")) == 1

    def test_without_a_change_of_a_person_there_is_nothing_to_undo(self, memory: Memory) -> None:
        memory.remember("I live in Oslo", user_id="a", session_id="s", wait=True)
        memory.undo(user_id="a")
        memory.acting_as("extraction").remember("I live in Oslo", user_id="a", session_id="s", wait=True)
        with pytest.raises(NotFound, match="no change of a person"):
            memory.undo(user_id="a")


class TestWhatAModelEnded:
    """Undoing a turn restores memories that were ended because of it."""

    @pytest.mark.parametrize(
        ("said", "told"),
        [
            ("I dislike the tennis lessons", {"content": "User gave up the tennis lessons with Olga"}),
            ("My tennis lessons are over", {"content": "User's tennis lessons are over"}),
        ],
        ids=["and-something-added", "and-no-more"],
    )
    def test_an_ended_memory_is_restored_and_ended_again(
        self, tmp_path: Path, said: str, told: dict[str, Any]
    ) -> None:
        with ScriptedLLM() as llm, opened(tmp_path, llm) as memory:
            learns(llm, "I have tennis lessons with Olga", claim("User has tennis lessons with Olga"))
            changes(llm, said, "end", "tennis lessons with Olga", **told)
            for each in ("I have tennis lessons with Olga", said):
                memory.remember(exchange(each), user_id="a", session_id="s", wait=True)
            ended = contents(memory)
            assert "User has tennis lessons with Olga" not in ended
            memory.undo(user_id="a")
            assert contents(memory) == {"User has tennis lessons with Olga"}
            memory.undo(memory.history(user_id="a")[0].id, user_id="a")
            assert contents(memory) == ended

    def test_a_memory_ended_by_another_session_stays_ended(self, tmp_path: Path) -> None:
        with ScriptedLLM() as llm, opened(tmp_path, llm, worker=False) as memory:
            learns(llm, "I have tennis lessons with Olga", claim("User has tennis lessons with Olga"))
            changes(llm, "lessons are over", "end", "tennis lessons with Olga", "User's tennis lessons are over")
            learns(llm, "I play chess", claim("User plays chess"))
            memory.remember(exchange("I have tennis lessons with Olga"), user_id="a", session_id="s", wait=True)
            for session, text in (("t", "My tennis lessons are over"), ("u", "I play chess")):
                memory.remember(exchange(text), user_id="a", session_id=session, wait=False)
            memory.jobs.run_pending()
            assert contents(memory) == {"User plays chess", "User's tennis lessons are over"}
            memory.undo(user_id="a")
            assert contents(memory) == {"User's tennis lessons are over"}


def facts(memory: Memory) -> list[MemoryRecord]:
    return list(memory.get_all(user_id="a", filters={"category": {"ne": "turn"}}))


def contents(memory: Memory) -> set[str]:
    return {record.content for record in facts(memory)}


@pytest.mark.parametrize(
    ("by", "turns"),
    [
        (Batch((turn("a", id="3", position=3), turn("b", id="7", position=7))).author("extraction"), range(3, 8)),
        # As earlier versions wrote it.
        (Author("extraction", "turns 3 to 7", batch="b"), range(3, 8)),
        (Author("extraction", "reported by an agent", batch="b"), None),
    ],
)
def test_history_names_the_turns_of_an_extraction(by: Author, turns: range | None) -> None:
    entry = HistoryEntry(
        id=1,
        batch=by.batch or "",
        memory_id="m",
        verb=ChangeKind.ADD,
        at=now(),
        by=replace(by, batch=None),
        version=1,
    )
    assert learned_turns(entry) == turns
