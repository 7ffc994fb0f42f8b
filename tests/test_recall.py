"""Recall through the Python door: what comes of it, and that a chat never fails by it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recollect import AsyncMemory, Memory
from recollect.config.fields import RecallSettings
from recollect.config.settings import Settings
from recollect.errors import (
    DiskFull,
    InvalidFilter,
    InvalidInput,
    InvalidText,
    ModelUnavailable,
    StoreBusy,
    StoreUnavailable,
    Unavailable,
)
from recollect.index.exact import ExactIndex
from recollect.ledger.ledger import Ledger
from recollect.ledger.sqlite import open_sqlite
from recollect.model.result import RecallOutcome, RecallResult
from recollect.model.scope import Scope
from recollect.read.calibration import EmbedderCalibration
from recollect.recall import RecallRequest, recall
from recollect.search import SearchDeps
from recollect.testing.fake_embedder import FakeEmbedder
from tests.support.recall_samples import NOW, TEA, opened, texts, user


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
    assert memory.recall("What is my capital?", user_id="a").outcome is RecallOutcome.USED
    assert memory.recall("What is my capital?", user_id="a", is_fact=True).outcome is RecallOutcome.IGNORED


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
    with opened(tmp_path, recall_excluded_tags="private, health") as memory:
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
    assert plain["candidates"][0]["decision"] == "selected"
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
    recalled = await recall(Scope("a"), expected, RecallSettings(), finders)
    assert recalled.outcome is RecallOutcome.UNAVAILABLE
    assert "closed" in recalled.reason
    assert [id(message) for message in recalled.messages] == [id(message) for message in expected.messages]


@pytest.mark.parametrize("error", [Unavailable, StoreUnavailable, StoreBusy, DiskFull, ModelUnavailable])
@pytest.mark.parametrize("step", ["revision", "index_rows", "lexical", "fetch", "keyed_facts"])
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
        monkeypatch.setattr(Ledger, step, fail)
        messages = [{"role": "system", "content": "Be kind"}, user(TEA)]
        recalled = await memory.recall(messages, user_id="a")
        assert recalled.outcome is RecallOutcome.UNAVAILABLE
        assert recalled.reason == "the cable is out"
        assert list(recalled.messages) == messages
        monkeypatch.undo()
        assert (await memory.recall(messages, user_id="a")).outcome is RecallOutcome.USED


def _home(finders: SearchDeps) -> Path:
    return finders.ledger.engine.path.parent  # type: ignore[attr-defined,no-any-return]


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
    assert (await recall(Scope("a"), replace(recall_request(), min_score=least), RecallSettings(), plain)).hits == ()
    [hit] = (await recall(Scope("a"), replace(recall_request(), min_score=least), RecallSettings(), looked)).hits
    assert hit.scores["rerank"] == 0.99
    await ledger.close()


def test_an_embedder_of_the_callers_own_may_raise_anything(tmp_path: Path) -> None:
    embedder = FakeEmbedder(64)
    with opened(tmp_path, embedder) as memory:
        memory.add("I buy my green tea at the harbour", user_id="a")
        embedder.fail_with = ZeroDivisionError("oh")
        assert memory.recall(TEA, user_id="a").outcome is RecallOutcome.USED


def test_keyed_facts_are_given_whatever_the_question_most_important_first(memory: Memory) -> None:
    for key, importance in (("city", 0.6), ("name", 1.0), ("shoe size", 0.49), ("diet", 0.5)):
        memory.add(user_id="a", key=key, value="secret", importance=importance)
    memory.add("Plays chess", user_id="a", importance=1.0)
    recalled = memory.recall("Where can we meet for chess tonight?", user_id="a")
    assert texts(recalled)[:3] == ["name: secret", "city: secret", "diet: secret"]
    assert all(f"{key}: secret" in recalled.context.text for key in ("name", "city", "diet"))
    strict = memory.recall("Where can we meet for chess tonight?", user_id="a", min_score=1.0)
    assert texts(strict) == ["name: secret", "city: secret", "diet: secret"]
    assert strict.hits[0].why == "a keyed fact, always included"
    assert [hit.score for hit in strict] == [1.0, 0.6, 0.5]


def test_standing_constraints_and_instructions_are_given_whatever_the_question(memory: Memory) -> None:
    memory.add("I am allergic to peanuts", user_id="a", category="constraint", importance=0.8)
    memory.add("Use metric units", user_id="a", category="instruction", importance=0.7)
    memory.add("I cannot meet on Friday", user_id="a", category="constraint", occurred_at=datetime.now(UTC))
    memory.add("Avoid the stairs", user_id="a", category="constraint", trust="low")
    memory.add("Plays chess", user_id="a", importance=1.0)
    recalled = memory.recall("Where can we meet for chess tonight?", user_id="a", min_score=1.0)
    assert texts(recalled) == ["I am allergic to peanuts", "Use metric units"]
    assert [hit.why for hit in recalled] == [
        "a standing constraint, always included", "a standing instruction, always included",
    ]  # fmt: skip
    assert "peanuts" in recalled.context.text


def test_a_pinned_fact_and_the_turn_that_says_it_are_given_once(tmp_path: Path) -> None:
    with Memory(home=tmp_path) as memory:
        for text in ("We moved to Headingley yesterday!", "Please always give me distances in miles."):
            memory.remember(text, user_id="a", wait=True)
        recalled = memory.recall("How far did we move?", user_id="a", min_score=0.0)
        assert recalled.context.text.count("Headingley") == recalled.context.text.count("miles") == 1
        assert any("yesterday (20" in hit.memory for hit in recalled)


def test_a_keyed_fact_that_is_also_found_is_given_once_with_its_score(memory: Memory) -> None:
    memory.add("My green tea comes from the harbour", user_id="a", key="tea", value="harbour", importance=0.9)
    memory.add("The weather is grey", user_id="a")
    recalled = memory.recall(TEA, user_id="a")
    assert texts(recalled) == ["My green tea comes from the harbour", "The weather is grey"]
    assert "relevance" in recalled.hits[0].scores
    assert recalled.context.text.count("harbour") == 1


def test_as_many_keyed_facts_are_given_as_the_settings_allow(tmp_path: Path) -> None:
    with opened(tmp_path, recall_facts=2, recall_facts_min_importance=0.2) as memory:
        for number in range(5):
            memory.add(user_id="a", key=f"key {number}", value="x", importance=0.3 + number / 10)
        strict = memory.recall("What is on today?", user_id="a", min_score=1.0)
        assert texts(strict) == ["key 4: x", "key 3: x"]
    with opened(tmp_path, recall_facts=0) as memory:
        assert texts(memory.recall("What is on today?", user_id="a", min_score=1.0)) == []


def test_a_keyed_fact_that_expired_or_was_superseded_or_forgotten_is_not_given(memory: Memory) -> None:
    past = datetime.now(UTC) - timedelta(days=1)
    memory.add(user_id="a", key="ticket", value="zone 1", expires_at=past)
    memory.add(user_id="a", key="city", value="Oslo")
    memory.add(user_id="a", key="city", value="Rome")
    gone = memory.add(user_id="a", key="pet", value="cat")
    memory.delete(gone.id, user_id="a")
    assert texts(memory.recall("What should we do today?", user_id="a")) == ["city: Rome"]


def test_a_filter_holds_for_keyed_facts_as_well(memory: Memory) -> None:
    memory.add(user_id="a", key="city", value="Rome", category="identity", importance=1.0)
    memory.add(user_id="a", key="diet", value="vegan", category="preference", importance=0.6)
    recalled = memory.recall("What should we cook?", user_id="a", filters={"category": "preference"})
    assert texts(recalled) == ["diet: vegan"]


def fill_scopes(memory: Memory) -> None:
    where: list[dict[str, str]] = [{}, {"project_id": "p"}, {"project_id": "q"}]
    for scope in where:
        name = scope.get("project_id", "own")
        memory.add(f"green tea of {name}", user_id="a", **scope)
        memory.add(f"green tea said in {name}", user_id="a", session_id="s", level="session", **scope)
        memory.add(user_id="a", key="tea", value=f"of {name}", **scope)


@pytest.mark.parametrize(
    ("scope", "seen"),
    [
        ({}, {"green tea of own", "tea: of own"}),
        ({"session_id": "s"}, {"green tea of own", "tea: of own", "green tea said in own"}),
        ({"project_id": "p"}, {"green tea of own", "tea: of own", "green tea of p", "tea: of p"}),
        (
            {"project_id": "q", "session_id": "s"},
            {"green tea of own", "tea: of own", "green tea of q", "tea: of q", "green tea said in q"},
        ),
        (
            {"project_id": "q", "session_id": "other"},
            {"green tea of own", "tea: of own", "green tea of q", "tea: of q"},
        ),
    ],
)
def test_a_session_sees_its_own_its_projects_and_the_users_memories(
    memory: Memory, scope: dict[str, str], seen: set[str]
) -> None:
    fill_scopes(memory)
    assert set(texts(memory.recall(TEA, user_id="a", **scope))) == seen
    assert {hit.memory for hit in memory.search(TEA, user_id="a", **scope)} == seen


def test_nobody_is_ever_given_what_is_anothers(memory: Memory) -> None:
    draw = random.Random(7)
    people = ["a", "b", "a:b", "A", "a ", "a%", "*", "' OR 1=1 --", "a/b"]
    for number in range(80):
        owner = draw.choice(people)
        project, session = draw.choice([None, "p", "b"]), draw.choice([None, "s"])
        fields: dict[str, Any] = {"key": f"k{number}", "value": "tea"} if number % 3 == 0 else {}
        content = f"green tea {number} of <{owner}>"
        if number % 4 == 1:
            memory.remember(content, user_id=owner, project_id=project, session_id="s")
        else:
            memory.add(content, user_id=owner, project_id=project, session_id=session, **fields)
    for owner in [*people, "nobody"]:
        for project, session in ((None, None), ("p", "s"), ("b", None), ("*", "%")):
            scope = {"user_id": owner, "project_id": project, "session_id": session}
            hits = memory.recall(TEA, limit=100, trace=True, **scope)
            seen = [*texts(hits), *(each.memory for each in hits.candidates)]
            seen += [hit.memory for hit in memory.search(TEA, limit=100, **scope)]
            assert all(text.endswith(f"<{owner}>") for text in seen)
            assert seen or owner == "nobody" or project is None


def test_as_of_a_moment_the_value_of_then_is_given(memory: Memory) -> None:
    for month, city in ((1, "Oslo"), (3, "Rome")):
        memory.add(user_id="a", key="city", value=city, valid_from=datetime(2026, month, 1, tzinfo=UTC))
    question = "Which city do I live in?"
    for moment, inputs in (
        (datetime(2025, 12, 1, tzinfo=UTC), []),
        (datetime(2026, 2, 1, tzinfo=UTC), ["city: Oslo"]),
        (datetime(2026, 4, 1, tzinfo=UTC), ["city: Rome"]),
        (None, ["city: Rome"]),
    ):
        assert texts(memory.recall(question, user_id="a", as_of=moment)) == inputs
        assert [hit.memory for hit in memory.search(question, user_id="a", as_of=moment)] == inputs


def bought(memory: Memory) -> None:
    for month in (1, 3, 5):
        memory.add(f"Bought a bike number {month}", user_id="a", occurred_at=datetime(2026, month, 10, tzinfo=UTC))


MARCH = "Which bike did I buy in March 2026?"


def test_time_words_prefer_what_happened_then(tmp_path: Path) -> None:
    with opened(tmp_path, time_words="prefer") as memory:
        bought(memory)
        recalled = memory.recall(MARCH, user_id="a", at=NOW)
        assert texts(recalled)[0] == "Bought a bike number 3"
        assert len(recalled) == 3
        assert memory.search(MARCH, user_id="a", at=NOW)[0].memory == "Bought a bike number 3"
        assert memory.search("Which bike did I buy last month?", user_id="a", at=NOW)[0].memory.endswith("5")


def test_time_words_can_leave_out_what_happened_at_another_time(tmp_path: Path) -> None:
    with opened(tmp_path, time_words="filter") as memory:
        bought(memory)
        assert texts(memory.recall(MARCH, user_id="a", at=NOW)) == ["Bought a bike number 3"]
        assert texts(memory.recall("Which bike did I buy last month?", user_id="a", at=NOW)) == [
            "Bought a bike number 5"
        ]
        assert len(memory.recall("Which bike did I buy?", user_id="a", at=NOW)) == 3


def test_time_words_can_be_let_be(tmp_path: Path) -> None:
    with opened(tmp_path, time_words="off") as memory:
        bought(memory)
        hits = memory.recall(MARCH, user_id="a", at=NOW, trace=True)
        assert len(hits) == 3
        assert {each.features["in_period"] for each in hits.candidates} == {0.0}


def blocks(recalled: RecallResult, inputs: list[dict[str, Any]]) -> list[Any]:
    """What stands in the messages that was not given."""
    return [message for message in recalled.messages if not any(message is each for each in inputs)]


def test_filters_by_category_and_type_are_kept(memory: Memory) -> None:
    memory.add("green tea is liked", user_id="a", category="preference")
    memory.add("green tea was drunk", user_id="a", category="event")
    memory.remember("green tea, I said", user_id="a", session_id="s")
    for filters, expected in (
        ({"category": "preference"}, {"green tea is liked"}),
        ({"type": "episodic"}, {"green tea was drunk", "green tea, I said"}),
        ({"category": {"ne": "turn"}, "type": "episodic"}, {"green tea was drunk"}),
        ({"category": "lesson"}, set()),
    ):
        assert set(texts(memory.recall(TEA, user_id="a", session_id="s", filters=filters))) == expected


def test_a_vague_question_is_completed_by_what_was_said_before(memory: Memory) -> None:
    memory.add("The hotel in Lisbon has a pool", user_id="a")
    memory.add("The car costs 300 a month", user_id="a")
    messages = [
        user("I think a lot about the Lisbon hotel"),
        {"role": "assistant", "content": "It is a nice one."},
        user("And what about it?"),
    ]
    recalled = memory.recall(messages, user_id="a")
    assert "Lisbon" in recalled.query
    assert texts(recalled)[0] == "The hotel in Lisbon has a pool"
    assert any("terms" in note for note in recalled.notes)


TALKS: dict[str, list[dict[str, Any]]] = {
    "a talk": [
        {"role": "system", "content": "Be kind", "name": "ops"},
        user("Good morning"),
        {"role": "assistant", "content": "Hello"},
        user(TEA),
    ],
    "parts": [user([{"type": "text", "text": TEA}, {"type": "image_url", "image_url": {"url": "https://x/y.png"}}])],
    "tool calls": [
        user(TEA),
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {}}]},
        {"role": "tool", "tool_call_id": "1", "content": "nothing"},
    ],
    "null content": [user(None), {"role": "assistant", "content": None}, user(TEA)],
    "unknown fields": [{**user(TEA), "cache_control": {"type": "ephemeral"}, "x": [1]}],
    "odd messages": [{}, {"role": 7, "content": 8}, {"content": "no role"}, user(TEA)],
}


@pytest.mark.parametrize("talk", TALKS)
def test_messages_stay_the_very_same_but_for_the_block(memory: Memory, talk: str) -> None:
    memory.add("I buy my green tea at the harbour", user_id="a")
    inputs, before = TALKS[talk], deepcopy(TALKS[talk])
    recalled = memory.recall(inputs, user_id="a")
    assert recalled.outcome is RecallOutcome.USED
    [block] = blocks(recalled, inputs)
    assert block["role"] == "user"
    assert "harbour" in block["content"]
    assert [message for message in recalled.messages if message is not block] == inputs == before


@pytest.mark.parametrize("place", ["system", "question"])
@pytest.mark.parametrize("talk", TALKS)
def test_in_other_places_all_other_messages_stay(tmp_path: Path, talk: str, place: str) -> None:
    with opened(tmp_path, context_place=place) as memory:
        memory.add("I buy my green tea at the harbour", user_id="a")
        inputs, before = TALKS[talk], deepcopy(TALKS[talk])
        recalled = memory.recall(inputs, user_id="a")
        [block] = blocks(recalled, inputs)
        assert "harbour" in str(block["content"])
        assert inputs == before


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        ({"limit": -1}, InvalidInput, "limit"),
        ({"limit": 1001}, InvalidInput, "limit"),
        ({"limit": True}, InvalidInput, "limit"),
        ({"limit": "3"}, InvalidInput, "limit"),
        ({"min_score": -0.1}, InvalidInput, "min_score"),
        ({"min_score": 1.1}, InvalidInput, "min_score"),
        ({"min_score": float("nan")}, InvalidInput, "min_score"),
        ({"min_score": "high"}, InvalidInput, "min_score"),
        ({"at": "yesterday"}, InvalidInput, "at"),
        ({"at": ()}, InvalidInput, "at"),
        ({"as_of": "2026-13-01"}, InvalidInput, "as_of"),
        ({"as_of": {1, 2}}, InvalidInput, "as_of"),
        ({"filters": {"colour": "green"}}, InvalidFilter, "colour"),
        ({"filters": 7}, InvalidFilter, "filter"),
        ({"user_id": ""}, InvalidInput, "user"),
        ({"user_id": None}, InvalidInput, "user"),
        ({"session_id": 7}, InvalidInput, "session"),
    ],
    ids=str,
)
def test_what_cannot_be_used_is_refused_with_its_name(
    memory: Memory, wrong: dict[str, Any], error: type[Exception], says: str
) -> None:
    for ask in (memory.recall, memory.search):
        with pytest.raises(error, match=says):
            ask(TEA, **{"user_id": "a", **wrong})


@pytest.mark.parametrize("messages", [None, 7, b"tea", [TEA], [None], [[user(TEA)]], {1, 2}], ids=repr)
def test_messages_of_the_wrong_kind_are_refused(memory: Memory, messages: Any) -> None:
    with pytest.raises(InvalidInput, match="message"):
        memory.recall(messages, user_id="a")


def test_a_search_for_nothing_is_refused_and_one_for_anything_else_is_answered(memory: Memory) -> None:
    memory.add("green tea", user_id="a")
    for query in ("", "  ", None, 7):
        with pytest.raises((InvalidText, InvalidInput)):
            memory.search(query, user_id="a")  # type: ignore[arg-type]
    for query in ("?!", "\u202e\u200b", "🍵", "tea " * 5000, "'; DROP TABLE memories; --"):
        memory.search(query, user_id="a")
        assert memory.recall(f"{query} my tea", user_id="a").outcome is RecallOutcome.USED


def test_times_are_taken_in_any_zone_and_as_text(memory: Memory) -> None:
    memory.add("green tea", user_id="a")
    for moment in ("2030-01-01", "2030-01-01T10:00:00+02:00", datetime(2030, 1, 1), datetime(2030, 1, 1, tzinfo=UTC)):
        assert texts(memory.recall(TEA, user_id="a", at=moment, as_of=moment)) == ["green tea"]
    assert texts(memory.recall(TEA, user_id="a", at=2_000_000_000, as_of=2e9)) == ["green tea"]  # type: ignore[arg-type]
