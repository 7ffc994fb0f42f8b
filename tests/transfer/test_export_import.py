"""Export and import with the Python API: every state is kept, nothing deleted returns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect import Memory, Status
from recollect.config.settings import load
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
    moved, lines = list(other.export()), list(memory.export())
    assert moved[:-1] == lines[:-1]
    # What it said before was forgotten; the other ledger recognises it by this one's key and its own.
    assert moved[-1]["digests"] == lines[-1]["digests"]
    assert set(lines[-1]["keys"]) < set(moved[-1]["keys"])


def test_an_existing_value_with_higher_confidence_stays(memory: Memory, other: Memory) -> None:
    memory.add(user_id="a", key="city", value="Oslo", confidence=0.5)
    other.add(user_id="a", key="city", value="Prague", confidence=0.9)
    assert other.import_(list(memory.export())).kept == 1
    [stored] = other.get_all(user_id="a")
    assert stored.value == "Prague"


def test_a_rejected_value_is_reported_alike_on_a_second_import(memory: Memory) -> None:
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
    """Counts the embedded texts."""

    asked = 0

    async def embed(self, texts, *, role):  # type: ignore[no-untyped-def]
        Counting.asked += len(texts)
        return await super().embed(texts, role=role)


def test_vectors_are_reused_if_the_model_is_the_same(memory: Memory, tmp_path: Path) -> None:
    memory.add("Likes tea", user_id="a")
    memory.remember("I moved to Lisbon.", user_id="a", session_id="s", wait=True)
    lines = [json.loads(json.dumps(line)) for line in memory.export(embeddings=True, sessions=False)]
    assert len(lines) == 3
    assert {line["embedding"]["model"] for line in lines} == {FakeEmbedder(16).model.name}
    Counting.asked = 0
    with Memory(home=tmp_path / "same", embedder=Counting(16)) as same:
        same.import_(lines)
        assert Counting.asked == 0
        assert list(same.export(embeddings=True, sessions=False)) == lines
        assert same.admin.stats()["vectors"] == 3
    with Memory(home=tmp_path / "other", embedder=Counting(32)) as other:
        other.import_(lines)
        assert Counting.asked == 3
        assert list(other.export(sessions=False)) == list(memory.export(sessions=False))


def test_the_vector_of_a_redacted_text_is_not_reused(memory: Memory, tmp_path: Path) -> None:
    [line] = [memory.add("Likes tea", user_id="a").to_dict()]
    report = next(line for line in memory.export(embeddings=True))
    secret = {**report, "id": line["id"], "memory": "my password is hunter2xyz9"}
    Counting.asked = 0
    with Memory(home=tmp_path / "same", embedder=Counting(16)) as same:
        assert same.import_([secret]).redacted == 1
        assert Counting.asked == 1


@pytest.mark.parametrize(
    "wrong", ["x", {"model": "m"}, {"model": "fake", "packed": "!!"}, {"model": "fake", "packed": 3}]
)
def test_an_invalid_vector_is_reported_with_its_line(memory: Memory, wrong: object) -> None:
    model = FakeEmbedder(16).model.name
    if isinstance(wrong, dict) and wrong.get("model") == "fake":
        wrong = {**wrong, "model": model}
    with pytest.raises(InvalidInput, match="line 1"):
        memory.import_([{"memory": "Likes tea", "user_id": "a", "embedding": wrong}])


def test_sessions_keep_their_summaries_and_learning_progress(memory: Memory, other: Memory) -> None:
    memory.remember("I live in Oslo", user_id="a", session_id="s", wait=True)
    memory.sessions.end(user_id="a", session_id="s", wait=True)
    lines = list(memory.export())
    assert lines[-1]["kind"] == "session"
    other.import_(lines)
    assert list(other.export()) == lines
    [session] = other.sessions.list(user_id="a")
    assert (session.learned_to, session.closed_at is None) == (1, False)
    other.remember("And I like tea", user_id="a", session_id="s", mode=None)
    other.import_(lines)
    [session] = other.sessions.list(user_id="a")
    assert session.closed_at is None


def remember_texts(memory: Memory, *texts: str, session: str = "s") -> None:
    for text in texts:
        memory.remember(text, user_id="a", session_id=session, wait=True)


def all_contents(memory: Memory) -> set[str]:
    return {each.memory for each in memory.get_all(user_id="a", limit=100)}


@pytest.mark.parametrize("sessions", [True, False])
def test_corrections_and_deletions_survive_an_import(memory: Memory, other: Memory, sessions: bool) -> None:
    remember_texts(memory, "My dog is called Rex.", "My favourite colour is teal.")
    for each in memory.get_all(user_id="a"):
        if "Rex" in each.memory:
            memory.update(each.id, "My cat is called Max", user_id="a")
        else:
            memory.delete(each.id, user_id="a", sources=False)
    other.import_(list(memory.export(sessions=sessions)))
    remember_texts(memory, "I like chess.")
    remember_texts(other, "I like chess.")
    assert len(all_contents(memory)) == 2
    assert all_contents(other) == all_contents(memory)


@pytest.fixture
def idle(tmp_path: Path) -> Iterator[Memory]:
    """A memory without a worker."""
    settings = load({"home": tmp_path / "idle", "worker": False}, environ={}).settings
    with Memory(settings=settings) as memory:
        yield memory


def test_turns_that_wait_here_are_learned_after_an_import(memory: Memory, idle: Memory) -> None:
    remember_texts(memory, "My favourite colour is teal.")
    [fact] = memory.get_all(user_id="a")
    memory.delete(fact.id, user_id="a", sources=False)
    idle.remember("My dog is called Rex.", user_id="a", session_id="s")
    idle.import_(list(memory.export(user_id="a")))
    idle.jobs.run_pending()
    assert all_contents(idle) == {"My dog is called Rex"}


def test_turns_that_waited_at_the_source_are_learned_here(idle: Memory, other: Memory) -> None:
    idle.remember("My dog is called Rex.", user_id="a", session_id="s")
    other.import_(list(idle.export(user_id="a")))
    remember_texts(other, "I like chess.")
    assert all_contents(other) == {"My dog is called Rex", "I like chess"}


def test_invocations_are_merged_without_secrets(memory: Memory, other: Memory) -> None:
    def told(task: str) -> dict[str, object]:
        return {
            "kind": "session",
            "user_id": "a",
            "session_id": "s",
            "invocations": [{"task": task, "outcome": "ok"}],
        }

    other.import_([told("book a flight")])
    for _ in range(2):
        other.import_([told("my password is hunter2xyz9")])
    [session] = other.sessions.list(user_id="a")
    tasks = [str(each["task"]) for each in session.invocations]
    assert len(tasks) == 2
    assert tasks[1] == "book a flight"
    assert "hunter2xyz9" not in tasks[0]


@pytest.mark.parametrize("wrong", [{"invocations": ["x"]}, {"invocations": "x"}, {"metadata": "x"}, {"summary": 3}])
def test_an_invalid_session_is_reported_with_its_line(memory: Memory, wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="line 1"):
        memory.import_([{"kind": "session", "user_id": "a", "session_id": "s", **wrong}])
