"""Export and import through the Python door: every state comes along, nothing comes back to life."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect import Memory, Status
from recollect.errors import IdempotencyReuse, InvalidInput
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


class Counting(FakeEmbedder):
    """Counts the texts it is asked for."""

    asked = 0

    async def embed(self, texts, *, role):  # type: ignore[no-untyped-def]
        Counting.asked += len(texts)
        return await super().embed(texts, role=role)


def test_vectors_come_along_where_the_model_is_the_same(memory: Memory, tmp_path: Path) -> None:
    memory.add("Likes tea", user_id="a")
    memory.remember("I moved to Lisbon", user_id="a", session_id="s", wait=True)
    lines = [json.loads(json.dumps(line)) for line in memory.export(embeddings=True)]
    assert len(lines) == 3
    assert {line["embedding"]["model"] for line in lines} == {FakeEmbedder(16).model.name}
    Counting.asked = 0
    with Memory(home=tmp_path / "same", embedder=Counting(16)) as same:
        same.import_(lines)
        assert Counting.asked == 0
        assert list(same.export(embeddings=True)) == lines
        assert same.stats()["vectors"] == 3
    with Memory(home=tmp_path / "other", embedder=Counting(32)) as other:
        other.import_(lines)
        assert Counting.asked == 3
        assert list(other.export()) == list(memory.export())


def test_a_vector_of_a_secret_is_not_taken_over(memory: Memory, tmp_path: Path) -> None:
    [line] = [memory.add("Likes tea", user_id="a").to_dict()]
    told = next(line for line in memory.export(embeddings=True))
    secret = {**told, "id": line["id"], "memory": "my password is hunter2xyz9"}
    Counting.asked = 0
    with Memory(home=tmp_path / "same", embedder=Counting(16)) as same:
        assert same.import_([secret]).redacted == 1
        assert Counting.asked == 1


@pytest.mark.parametrize(
    "wrong", ["x", {"model": "m"}, {"model": "fake", "packed": "!!"}, {"model": "fake", "packed": 3}]
)
def test_a_vector_that_is_none_is_told_with_its_line(memory: Memory, wrong: object) -> None:
    model = FakeEmbedder(16).model.name
    if isinstance(wrong, dict) and wrong.get("model") == "fake":
        wrong = {**wrong, "model": model}
    with pytest.raises(InvalidInput, match="line 1"):
        memory.import_([{"memory": "Likes tea", "user_id": "a", "embedding": wrong}])


def test_sessions_come_along_with_their_summaries_and_how_far_they_were_learned_from(
    memory: Memory, other: Memory
) -> None:
    memory.remember("I live in Oslo", user_id="a", session_id="s", wait=True)
    memory.end_session(user_id="a", session_id="s", wait=True)
    lines = list(memory.export(sessions=True))
    assert lines[-1]["kind"] == "session"
    other.import_(lines)
    assert list(other.export(sessions=True)) == lines
    [session] = other.sessions(user_id="a")
    assert (session.learned_to, session.closed_at is None) == (1, False)
    other.remember("And I like tea", user_id="a", session_id="s", mode=None)
    other.import_(lines)
    [session] = other.sessions(user_id="a")
    assert session.closed_at is None
