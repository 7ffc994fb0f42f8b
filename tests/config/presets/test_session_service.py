"""The worked examples of the third design: facts, preferences and insights of a session, weighed and merged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recollect import Memory
from recollect.model.result import RecallOutcome
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.remember_samples import (
    ALEX,
    EXTRACT,
    claim,
    contents,
    exchange,
    facts,
    learns,
    llm_requests,
    opened,
    user,
)

PRESET: dict[str, Any] = {"preset": "session-service"}
SESSION: dict[str, Any] = {"user_id": ALEX, "session_id": "s1"}
DEADLINE = "The project deadline is March 15th"
BULLETS = "User prefers concise bullet-point summaries"
REVENUE = "Q3 revenue increase correlates with marketing campaign launch"
QUESTION = "Can you give me a concise summary of the project deadline?"
CONTEXT = (
    "Relevant memories from this session:\n"
    "- [FACT] The project deadline is March 15th (importance: 0.9)\n"
    "- [PREFERENCE] User prefers concise bullet-point summaries (importance: 0.7)\n"
    "- [INSIGHT] Q3 revenue increase correlates with marketing campaign launch (importance: 0.8)\n\n"
    "Use these memories to provide contextually aware responses."
)
DISTILLED = {"category": {"in": ["fact", "preference", "insight"]}}


def scripted(llm: ScriptedLLM) -> None:
    learns(llm, "deadline is March 15th", claim(DEADLINE, importance=0.9))
    learns(llm, "bullet-point", claim(BULLETS, category="preference", importance=0.7))
    learns(llm, "Q3 revenue", claim(REVENUE, category="insight", importance=0.8))


def talked(memory: Memory) -> None:
    """The talk that the design's three memories come from."""
    for text in (
        "The project deadline is March 15th.",
        "I prefer concise bullet-point summaries.",
        "So the Q3 revenue increase correlates with the marketing campaign launch.",
    ):
        assert memory.remember(exchange(text), **SESSION, wait=True).job.state == "done"


def test_march_15th_bullet_points_and_the_q3_insight_are_kept_with_type_and_importance(
    tmp_path: Path, llm: ScriptedLLM
) -> None:
    scripted(llm)
    with opened(tmp_path, llm, **PRESET) as memory:
        talked(memory)
        stored = {each.content: (each.category, each.importance) for each in facts(memory, session_id="s1")}
        assert stored == {DEADLINE: ("fact", 0.9), BULLETS: ("preference", 0.7), REVENUE: ("insight", 0.8)}


def test_the_context_is_printed_as_in_the_design(tmp_path: Path, llm: ScriptedLLM) -> None:
    scripted(llm)
    with opened(tmp_path, llm, **PRESET) as memory:
        talked(memory)
        recalled = memory.recall(user(QUESTION), **SESSION, filters=DISTILLED)
        assert recalled.context.text == CONTEXT


def test_the_context_is_printed_as_in_the_design_without_a_filter(tmp_path: Path, llm: ScriptedLLM) -> None:
    scripted(llm)
    with opened(tmp_path, llm, **PRESET) as memory:
        talked(memory)
        assert memory.recall(user(QUESTION), **SESSION).context.text == CONTEXT


def test_bullet_points_and_march_15th_are_kept_without_an_llm(tmp_path: Path) -> None:
    with opened(tmp_path, **PRESET) as memory:
        memory.remember(exchange("I prefer bullet-point summaries."), **SESSION, wait=True)
        memory.remember(exchange("The project deadline is March 15th."), **SESSION, wait=True)
        stored = {each.content: str(each.category) for each in facts(memory, session_id="s1")}
        assert stored == {"I prefer bullet-point summaries": "preference", DEADLINE: "event"}


def test_what_was_learned_in_a_session_stays_in_it(tmp_path: Path, llm: ScriptedLLM) -> None:
    scripted(llm)
    with opened(tmp_path, llm, **PRESET) as memory:
        talked(memory)
        memory.sessions.end(**SESSION, wait=True)
        assert {str(each.level) for each in facts(memory)} == {"session"}
        elsewhere = memory.recall(user(QUESTION), user_id=ALEX, session_id="s2", filters=DISTILLED)
        assert elsewhere.outcome is RecallOutcome.MISSING


def test_what_was_said_in_another_session_is_not_in_the_context_of_this_one(tmp_path: Path) -> None:
    with opened(tmp_path, **PRESET) as memory:
        memory.remember(exchange("The project deadline is March 15th."), **SESSION, wait=True)
        assert memory.recall(user(QUESTION), user_id=ALEX, session_id="s2").outcome is RecallOutcome.MISSING


def test_importance_below_0_3_is_not_saved(tmp_path: Path, llm: ScriptedLLM) -> None:
    trivial, enough = claim("User had a sandwich", importance=0.29), claim("User works at Acme", importance=0.3)
    learns(llm, "sandwich", trivial, enough)
    with opened(tmp_path, llm, **PRESET) as memory:
        messages = exchange("I had a sandwich. I work at Acme.")
        report = memory.remember(messages, **SESSION, wait=True).job.result
        assert contents(facts(memory, session_id="s1")) == ["User works at Acme"]
        assert report["dropped"] == ["importance 0.29 is below 0.3: User had a sandwich"]


def test_an_exact_match_is_skipped(tmp_path: Path, llm: ScriptedLLM) -> None:
    scripted(llm)
    with opened(tmp_path, llm, **PRESET) as memory:
        for _ in range(2):
            memory.remember(exchange("The project deadline is March 15th."), **SESSION, wait=True)
        [stored] = facts(memory, session_id="s1")
        assert (stored.content, stored.importance) == (DEADLINE, 0.9)


def test_a_high_similarity_merges_and_increases_importance(tmp_path: Path, llm: ScriptedLLM) -> None:
    learns(llm, "I prefer", claim(BULLETS, category="preference", importance=0.7))
    learns(llm, "I really", claim("User prefers concise bullet point summaries", category="preference"))
    with opened(tmp_path, llm, **PRESET) as memory:
        memory.remember(exchange("I prefer concise bullet-point summaries."), **SESSION, wait=True)
        memory.remember(exchange("I really do want concise bullet point summaries."), **SESSION, wait=True)
        [stored] = facts(memory, session_id="s1")
        assert stored.importance == pytest.approx(0.9)
        assert len(stored.evidence) == 2


def test_deadlines_of_two_days_are_never_merged(tmp_path: Path, llm: ScriptedLLM) -> None:
    learns(llm, "project Apollo", claim("The deadline of project Apollo is March 15th"))
    learns(llm, "project Gemini", claim("The deadline of project Gemini is March 16th"))
    with opened(tmp_path, llm, **PRESET) as memory:
        memory.remember(exchange("The deadline of project Apollo is March 15th."), **SESSION, wait=True)
        memory.remember(exchange("The deadline of project Gemini is March 16th."), **SESSION, wait=True)
        assert len(facts(memory, session_id="s1")) == 2


def test_the_manual_memory_of_the_design_is_kept_as_it_is(tmp_path: Path) -> None:
    with opened(tmp_path, **PRESET) as memory:
        memory.add(
            "User prefers detailed explanations", category="preference", importance=0.7, level="session", **SESSION
        )
        [stored] = facts(memory, session_id="s1")
        assert (stored.content, stored.category, stored.importance) == (
            "User prefers detailed explanations",
            "preference",
            0.7,
        )


def test_the_interaction_mode_affects_what_is_asked_for(tmp_path: Path, llm: ScriptedLLM) -> None:
    with opened(tmp_path, llm, **PRESET, learn_mode="document") as memory:
        memory.remember(exchange("Page 3 says that the deadline is March 15th."), **SESSION, wait=True)
        [question] = llm_requests(llm, EXTRACT)
        assert "The conversation is about documents." in question.text


def test_a_failing_extraction_does_not_block_the_chat(tmp_path: Path, llm: ScriptedLLM) -> None:
    llm.stop()
    with opened(tmp_path, llm, **PRESET) as memory:
        remembered = memory.remember(exchange("The project deadline is March 15th."), **SESSION)
        assert len(remembered.turns) == 2
        # Nothing is learned yet, and recall of this design gives only what was.
        assert memory.recall(user("When is the project deadline?"), **SESSION).outcome is RecallOutcome.MISSING
