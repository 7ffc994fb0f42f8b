"""Undo through the Python door: what it takes back, and what comes back with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect import Memory, Status
from recollect.settings import Settings
from recollect.testing.fake_embedder import FakeEmbedder


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    # What is learned behind would be the last change.
    with Memory(settings=Settings(home=tmp_path, learn="off"), embedder=FakeEmbedder(32)) as memory:
        yield memory


def test_after_an_undo_was_undone_undo_takes_back_the_change_again(memory: Memory) -> None:
    added = memory.add("Lives in Oslo", user_id="a")
    memory.update(added.id, "Lives in Prague", user_id="a")
    memory.undo(user_id="a")
    [undone, *_] = memory.history(user_id="a")
    memory.undo(undone.id, user_id="a")
    assert memory.get(added.id, user_id="a").content == "Lives in Prague"
    memory.undo(user_id="a")
    assert memory.get(added.id, user_id="a").content == "Lives in Oslo"


def test_after_one_line_of_an_exchange_was_undone_undo_takes_the_rest(memory: Memory) -> None:
    exchange = [{"role": "user", "content": "My cat is Tom"}, {"role": "assistant", "content": "Hello Tom"}]
    first, second = memory.remember(exchange, user_id="a", session_id="s")
    [line] = memory.history(second.id, user_id="a")
    memory.undo(line.id, user_id="a")
    assert [outcome.id for outcome in memory.undo(user_id="a")] == [first.id]


def test_a_mass_deletion_is_undone_whole(memory: Memory) -> None:
    memory.import_({"memory": f"note {number}", "user_id": "a"} for number in range(1200))
    assert memory.delete_all(user_id="a") == 1200
    assert len(memory.undo(user_id="a")) == 1200
    assert memory.stats("a")["memories"] == 1200


def test_words_that_come_back_are_found_by_meaning_again(memory: Memory) -> None:
    added = memory.add("Lives in Oslo", user_id="a")
    memory.update(added.id, "Lives in Prague", user_id="a")
    memory.undo(user_id="a")
    assert memory.search("lives Oslo", user_id="a")[0].scores["dense"] > 0.5


def test_a_ready_made_vector_survives_deletion_and_undo(memory: Memory) -> None:
    vector = [1.0] + [0.0] * 31
    added = memory.add("anything", user_id="a", embedding=vector)
    memory.delete(added.id, user_id="a")
    memory.undo(user_id="a")
    assert memory.search("nothing", user_id="a", embedding=vector)[0].scores["dense"] == pytest.approx(1, abs=1e-3)


def test_a_value_that_is_undone_gives_the_key_back(memory: Memory) -> None:
    memory.add(user_id="a", key="city", value="Oslo")
    memory.add(user_id="a", key="city", value="Prague")
    memory.undo(user_id="a")
    [held] = memory.get_all(user_id="a", filters={"key": "city"})
    assert (held.value, held.status) == ("Oslo", Status.ACTIVE)
