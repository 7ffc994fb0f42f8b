"""What recall gives: keyed facts, what the scope may see, what held or happened then, and the messages with it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from recall_samples import NOW, TEA, opened, texts, user

from recollect import Memory
from recollect.model.outcome import RecallOutcome
from recollect.model.result import RecallResult


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with opened(tmp_path) as memory:
        yield memory


def test_keyed_facts_are_given_whatever_the_question_most_important_first(memory: Memory) -> None:
    for key, importance in (("city", 0.6), ("name", 1.0), ("shoe size", 0.49), ("diet", 0.5)):
        memory.add(user_id="a", key=key, value="secret", importance=importance)
    memory.add("Plays chess", user_id="a", importance=1.0)
    recalled = memory.recall("Where can we meet for chess tonight?", user_id="a")
    assert texts(recalled)[:3] == ["name: secret", "city: secret", "diet: secret"]
    assert all(f"{key}: secret" in recalled.context.text for key in ("name", "city", "diet"))
    strict = memory.recall("Where can we meet for chess tonight?", user_id="a", min_score=1.0)
    assert texts(strict) == ["name: secret", "city: secret", "diet: secret"]
    assert strict.hits[0].why == "a keyed fact, always given"
    assert [hit.score for hit in strict] == [1.0, 0.6, 0.5]


def test_a_keyed_fact_that_is_also_found_is_given_once_with_its_score(memory: Memory) -> None:
    memory.add("My green tea comes from the harbour", user_id="a", key="tea", value="harbour", importance=0.9)
    memory.add("The weather is grey", user_id="a")
    recalled = memory.recall(TEA, user_id="a")
    assert texts(recalled) == ["My green tea comes from the harbour", "The weather is grey"]
    assert "relevance" in recalled.hits[0].scores
    assert recalled.context.text.count("harbour") == 1


def test_as_many_keyed_facts_are_given_as_the_settings_allow(tmp_path: Path) -> None:
    with opened(tmp_path, recall_facts=2, recall_facts_importance=0.2) as memory:
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
        assert {each.signals["in_period"] for each in hits.candidates} == {0.0}


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
