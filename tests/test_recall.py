"""Recall through the Python door: what comes of it, and that a chat never fails by it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recall_samples import NOW, TEA, opened, texts, user

from recollect import AsyncMemory, Memory
from recollect.errors import (
    DiskFull,
    ModelUnavailable,
    StoreBusy,
    StoreUnavailable,
    Unavailable,
)
from recollect.index.exact import ExactIndex
from recollect.ledger.sql.ledger import SqlLedger
from recollect.ledger.sqlite import open_sqlite
from recollect.model.outcome import RecallOutcome
from recollect.model.scope import Scope
from recollect.read.ruler import EmbedderCalibration
from recollect.recall import RecallConfig, RecallRequest, SearchDeps, recall
from recollect.settings import Settings
from recollect.testing.fake_embedder import FakeEmbedder


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with opened(tmp_path) as memory:
        yield memory


def test_memories_that_help_are_used(memory: Memory) -> None:
    memory.add("I buy my green tea at the harbour", user_id="a")
    recalled = memory.recall(TEA, user_id="a")
    assert recalled.outcome is RecallOutcome.USED
    assert recalled
    assert recalled.reason == "1 memory"
    assert texts(recalled) == ["I buy my green tea at the harbour"]
    assert recalled.context.used == (recalled.hits[0].id,)
    assert "harbour" in recalled.context.text
    assert recalled.messages[-1] == user(TEA)
    assert "harbour" in recalled.messages[-2]["content"]


def test_nothing_near_enough_is_missing(memory: Memory) -> None:
    messages = [user(TEA)]
    recalled = memory.recall(messages, user_id="a")
    assert (recalled.outcome, bool(recalled), len(recalled)) == (RecallOutcome.MISSING, False, 0)
    memory.add("The weather is grey over the harbour", user_id="a")
    recalled = memory.recall(messages, user_id="a", min_score=0.9)
    assert recalled.outcome is RecallOutcome.MISSING
    assert list(recalled.messages) == messages
    assert recalled.context.text == ""


@pytest.mark.parametrize("said", ["Hi!", "Thank you so much", "", "   ", "?!"])
def test_manners_and_silence_are_ignored(memory: Memory, said: str) -> None:
    memory.add("Hi! Thank you so much", user_id="a", key="manners", value="good", importance=1.0)
    recalled = memory.recall(said, user_id="a")
    assert recalled.outcome is RecallOutcome.IGNORED
    assert recalled.reason
    assert list(recalled.messages) == [user(said)]
    assert memory.recall([], user_id="a").outcome is RecallOutcome.IGNORED
    assert memory.recall([{"role": "system", "content": TEA}], user_id="a").outcome is RecallOutcome.IGNORED


def test_what_the_caller_knows_of_a_message_decides(memory: Memory) -> None:
    memory.add("The capital of France is Paris", user_id="a")
    question = "What is the capital of France?"
    assert memory.recall(question, user_id="a", is_fact=True).outcome is RecallOutcome.IGNORED
    assert memory.recall(question, user_id="a", requires_tool=True).outcome is RecallOutcome.IGNORED
    assert memory.recall(question, user_id="a", is_fact=False).outcome is RecallOutcome.USED
    assert memory.recall("What is my capital?", user_id="a", is_fact=True).outcome is RecallOutcome.USED


def test_whoever_does_not_let_recall_decide_gets_memories_for_manners_too(tmp_path: Path) -> None:
    with opened(tmp_path, recall_decide=False) as memory:
        memory.add("Says hello there", user_id="a")
        assert memory.recall("hello there", user_id="a").outcome is RecallOutcome.USED


def test_no_memories_asked_for_is_disabled(memory: Memory) -> None:
    memory.add("I buy my green tea at the harbour", user_id="a", key="tea", value="harbour")
    recalled = memory.recall(TEA, user_id="a", limit=0)
    assert recalled.outcome is RecallOutcome.DISABLED
    assert list(recalled.messages) == [user(TEA)]
    assert len(recalled) == 0


def test_what_carries_a_withheld_tag_stays_out_of_the_prompt(tmp_path: Path) -> None:
    with opened(tmp_path, recall_withhold="private, health") as memory:
        memory.add("I buy my green tea at the harbour", user_id="a", tags=["private"])
        memory.add("My name is Ann", user_id="a", key="name", value="Ann", importance=0.9, tags=["health"])
        blocked = memory.recall(TEA, user_id="a")
        assert (blocked.outcome, blocked.reason) == (
            RecallOutcome.POLICY_BLOCKED,
            "nothing may be shown: withheld by tag: 2",
        )
        assert (blocked.hits, blocked.messages) == ((), (user(TEA),))
        memory.add("Green tea must not be boiled", user_id="a", tags=["kitchen"])
        recalled = memory.recall(TEA, user_id="a")
        assert (recalled.outcome, texts(recalled)) == (RecallOutcome.USED, ["Green tea must not be boiled"])
        assert "withheld by tag: 2" in recalled.notes
        # Whoever searches sees what is theirs.
        assert "I buy my green tea at the harbour" in [hit.memory for hit in memory.search(TEA, user_id="a")]


def test_an_outcome_can_be_written_as_json(memory: Memory) -> None:
    memory.add("I buy my green tea at the harbour", user_id="a")
    plain = memory.recall(TEA, user_id="a", trace=True).to_dict()
    assert plain["outcome"] == "used"
    assert plain["results"][0]["memory"] == "I buy my green tea at the harbour"
    assert plain["candidates"][0]["fate"] == "kept"
    assert {"decide", "rewrite", "embed", "gather", "fuse", "select", "format", "inject"} <= set(plain["steps_us"])


@pytest.fixture
async def finders(tmp_path: Path) -> AsyncIterator[SearchDeps]:
    embedder = FakeEmbedder(64)
    ledger = await open_sqlite(tmp_path / "ledger.db", embedder.model)
    index = ExactIndex(ledger, embedder.model, budget_bytes=1 << 20)
    yield SearchDeps(ledger, index, embedder, EmbedderCalibration(embedder))
    await ledger.close()


def recall_request(messages: Any = TEA, **fields: Any) -> RecallRequest:
    report = [user(messages)] if isinstance(messages, str) else messages
    return RecallRequest(messages=report, at=NOW, limit=5, min_score=0.0, **fields)


async def test_a_closed_ledger_makes_memory_unavailable_and_leaves_the_messages(finders: SearchDeps) -> None:
    await finders.ledger.close()
    expected = recall_request()
    recalled = await recall(Scope("a"), expected, RecallConfig(), finders)
    assert recalled.outcome is RecallOutcome.UNAVAILABLE
    assert "closed" in recalled.reason
    assert [id(message) for message in recalled.messages] == [id(message) for message in expected.messages]


@pytest.mark.parametrize("error", [Unavailable, StoreUnavailable, StoreBusy, DiskFull, ModelUnavailable])
@pytest.mark.parametrize("step", ["revision", "index_rows", "lexical", "fetch", "keyed"])
async def test_whatever_is_away_the_chat_goes_on(
    finders: SearchDeps, monkeypatch: pytest.MonkeyPatch, step: str, error: type[Unavailable]
) -> None:
    async def fail(*_: Any, **__: Any) -> None:
        raise error("the cable is out")

    async with AsyncMemory(
        settings=Settings(home=_home(finders), search_min_score=0.0), embedder=FakeEmbedder(64)
    ) as memory:
        await memory.add("I buy my green tea at the harbour", user_id="a")
        await memory.recall(TEA, user_id="a")
        await memory.add("What is known of this user changed since", user_id="a")
        monkeypatch.setattr(SqlLedger, step, fail)
        messages = [{"role": "system", "content": "Be kind"}, user(TEA)]
        recalled = await memory.recall(messages, user_id="a")
        assert recalled.outcome is RecallOutcome.UNAVAILABLE
        assert recalled.reason == "the cable is out"
        assert list(recalled.messages) == messages
        monkeypatch.undo()
        assert (await memory.recall(messages, user_id="a")).outcome is RecallOutcome.USED


def _home(finders: SearchDeps) -> Path:
    return finders.ledger._engine.path.parent  # type: ignore[attr-defined,no-any-return]


async def test_a_store_that_cannot_be_opened_makes_memory_unavailable(tmp_path: Path) -> None:
    (tmp_path / "recollect.db").mkdir()
    memory = AsyncMemory(home=tmp_path, embedder=FakeEmbedder(64))
    messages = [user(TEA)]
    recalled = await memory.recall(messages, user_id="a")
    assert recalled.outcome is RecallOutcome.UNAVAILABLE
    assert list(recalled.messages) == messages
    with pytest.raises(StoreUnavailable):
        await memory.add("tea", user_id="a")
    await memory.close()


async def test_a_memory_that_was_closed_says_so(tmp_path: Path) -> None:
    memory = AsyncMemory(home=tmp_path, embedder=FakeEmbedder(64))
    await memory.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await memory.recall(TEA, user_id="a")


def test_while_the_embedder_is_down_memories_are_found_by_words_with_a_note(tmp_path: Path) -> None:
    embedder = FakeEmbedder(64)
    with opened(tmp_path, embedder) as memory:
        memory.add("I buy my green tea at the harbour", user_id="a")
        memory.add("The weather is grey", user_id="a")
        embedder.fail_with, embedder.calls = ModelUnavailable("down"), 0
        recalled = memory.recall(TEA, user_id="a")
        assert recalled.outcome is RecallOutcome.USED
        assert texts(recalled)[0] == "I buy my green tea at the harbour"
        assert any("by words alone: down" in note for note in recalled.notes)
        assert embedder.calls == 1, "a model that is away is waited for once"


def test_whoever_brings_vectors_does_not_wait_for_the_embedder_at_every_search(tmp_path: Path) -> None:
    embedder = FakeEmbedder(4, fail_with=ModelUnavailable("down"))
    with opened(tmp_path, embedder) as memory:
        memory.add("green tea", user_id="a", embedding=[1, 0, 0, 0])
        for _ in range(5):
            hits = memory.search("tea", user_id="a", embedding=[1, 0, 0, 0])
            assert hits[0].scores["dense"] == pytest.approx(1)
            assert hits.notes == ()
        assert embedder.calls <= 1


class Opinion:
    """A reranker that likes texts with one word."""

    name = "opinion"

    async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        return [0.99 if "harbour" in text else 0.01 for text in texts]

    async def close(self) -> None: ...


async def test_the_threshold_is_for_what_the_second_look_makes_of_a_memory(finders: SearchDeps) -> None:
    async with AsyncMemory(
        settings=Settings(home=_home(finders), search_min_score=0.0), embedder=FakeEmbedder(64)
    ) as memory:
        await memory.add("At the harbour, every Friday", user_id="a")
        [first] = await memory.search(TEA, user_id="a")
        assert first.scores["relevance"] < 0.5
    ledger = await open_sqlite(_home(finders) / "recollect.db", finders.embedder.model)
    index = ExactIndex(ledger, finders.embedder.model, budget_bytes=1 << 20)
    looked = replace(finders, ledger=ledger, index=index, reranker=Opinion())
    plain = replace(looked, reranker=None)
    least = first.scores["relevance"] + 0.01
    assert (await recall(Scope("a"), replace(recall_request(), min_score=least), RecallConfig(), plain)).hits == ()
    [hit] = (await recall(Scope("a"), replace(recall_request(), min_score=least), RecallConfig(), looked)).hits
    assert hit.scores["rerank"] == 0.99
    await ledger.close()


def test_an_embedder_of_the_callers_own_may_raise_anything(tmp_path: Path) -> None:
    embedder = FakeEmbedder(64)
    with opened(tmp_path, embedder) as memory:
        memory.add("I buy my green tea at the harbour", user_id="a")
        embedder.fail_with = ZeroDivisionError("oh")
        assert memory.recall(TEA, user_id="a").outcome is RecallOutcome.USED
