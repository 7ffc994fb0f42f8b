"""Export and import through the Python door: every state comes along, nothing comes back to life."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect import Memory, Status
from recollect.errors import IdempotencyReuse
from recollect.testing.fake_embedder import FakeEmbedder


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(home=tmp_path / "one", embedder=FakeEmbedder(16)) as memory:
        yield memory


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Memory]:
    with Memory(home=tmp_path / "two", embedder=FakeEmbedder(16)) as memory:
        yield memory


def test_a_forgotten_turn_stays_forgotten(memory: Memory, other: Memory) -> None:
    turn, _ = memory.remember(
        [{"role": "user", "content": "my PIN is 4711"}, {"role": "assistant", "content": "noted"}],
        user_id="a",
        session_id="s",
    )
    memory.delete(turn.id, user_id="a")
    other.import_(list(memory.export()))
    assert [hit.memory for hit in other.search("PIN 4711", user_id="a", min_score=0)] == ["noted"]
    assert other.get(turn.id, user_id="a").status is Status.FORGOTTEN


def test_a_changed_turn_stays_changed(memory: Memory, other: Memory) -> None:
    [turn] = memory.remember("I live in Oslo", user_id="a", session_id="s", wait=True)
    memory.update(turn.id, "I live in Prague", user_id="a", tags=["home"])
    other.import_(list(memory.export()))
    assert list(other.export()) == list(memory.export())


def test_an_import_into_a_surer_value_keeps_that_and_says_so(memory: Memory, other: Memory) -> None:
    memory.add(user_id="a", key="city", value="Oslo", confidence=0.5)
    other.add(user_id="a", key="city", value="Prague", confidence=0.9)
    assert other.import_(list(memory.export())).kept == 1
    [held] = other.get_all(user_id="a")
    assert held.value == "Prague"


def test_a_value_that_was_not_kept_is_answered_the_same_the_next_time(memory: Memory) -> None:
    memory.add(user_id="a", key="city", value="Oslo", confidence=1.0)

    def ask(value: str) -> tuple[str, bool]:
        answer = memory.add(user_id="a", key="city", value=value, confidence=0.5, idempotency_key="k")
        return answer.id, answer.changed

    first = ask("Prague")
    memory.delete(first[0], user_id="a")
    assert ask("Prague") == first
    with pytest.raises(IdempotencyReuse):
        ask("Rome")
