"""The worked examples of the five designs that concern retrieval, each under the preset that carries its defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect import Memory
from recollect.config.settings import load
from recollect.model.result import RecallOutcome
from recollect.testing.scripted_llm import ScriptedLLM

ALEX = "alex"
Open = Callable[..., Memory]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Opens a memory with a preset; further settings lie above it."""
    memories: list[Memory] = []

    def open_with(preset: str, **more: Any) -> Memory:
        options = {"home": tmp_path, "preset": preset, "database": "memory:", **more}
        memories.append(Memory(settings=load(options, environ={}).settings))
        return memories[-1]

    yield open_with
    for memory in memories:
        memory.close()


def user(*texts: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text} for text in texts]


SYSTEM = {"role": "system", "content": "You are a helpful assistant."}


class TestSemanticRouter:
    """1: a system message with a heading and a list."""

    PRESET = "semantic-router"

    def test_a_budget_told_in_one_session_is_known_in_another(self, opened: Open) -> None:
        memory = opened(self.PRESET)
        messages = user("My budget for the Hawaii trip is $10,000")
        memory.remember(messages, user_id=ALEX, session_id="March 15")
        recalled = memory.recall(user("What's my budget for the trip?"), user_id=ALEX, session_id="March 20")
        assert recalled.outcome is RecallOutcome.USED
        assert list(recalled.messages) == [
            {
                "role": "system",
                "content": "## User's Relevant Context\n\n- user: My budget for the Hawaii trip is $10,000\n",
            },
            *user("What's my budget for the trip?"),
        ]

    def test_how_much_finds_the_budget_by_the_terms_of_the_history(self, opened: Open) -> None:
        memory = opened(self.PRESET)
        memory.add("budget for Hawaii vacation is $10,000", user_id=ALEX)
        memory.add("To deploy payment-service: run npm build, then docker push", user_id=ALEX, type="procedural")
        messages = [SYSTEM, *user("Planning vacation", "Hawaii sounds nice", "How much?")]
        recalled = memory.recall(messages, user_id=ALEX)
        assert recalled.query == "How much? Hawaii vacation planning"
        assert [hit.memory for hit in recalled] == ["budget for Hawaii vacation is $10,000"]
        block = "## User's Relevant Context\n\n- budget for Hawaii vacation is $10,000\n"
        assert list(recalled.messages) == [
            {"role": "system", "content": f"{SYSTEM['content']}\n\n{block}"},
            *messages[1:],
        ]

    def test_how_much_is_rewritten_by_the_llm_where_there_is_one(self, opened: Open, llm: ScriptedLLM) -> None:
        llm.reply("What is the budget for the Hawaii vacation?")
        memory = opened(self.PRESET, llm="scripted", llm_url=llm.base_url)
        memory.add("budget for Hawaii vacation is $10,000", user_id=ALEX)
        recalled = memory.recall(user("Planning Hawaii vacation", "Looking at hotels", "How much?"), user_id=ALEX)
        assert recalled.query == "What is the budget for the Hawaii vacation?"
        assert [hit.memory for hit in recalled] == ["budget for Hawaii vacation is $10,000"]

    def test_a_question_matches_content_and_the_type_comes_with_the_memory(self, opened: Open) -> None:
        memory = opened(self.PRESET)
        memory.add("User's budget for Hawaii is $10,000", user_id=ALEX)
        memory.add("To deploy payment-service: run npm build, then docker push", user_id=ALEX, type="procedural")
        [hit] = memory.recall("How do I deploy payment-service?", user_id=ALEX)
        assert (hit.memory, hit.record.type) == (
            "To deploy payment-service: run npm build, then docker push",
            "procedural",
        )

    @pytest.mark.parametrize(
        "said", ["hi", "Hello!", "hey", "howdy", "thanks", "thank you.", "bye", "ok", "yes", "no"]
    )
    def test_a_greeting_is_not_searched_for(self, opened: Open, said: str) -> None:
        memory = opened(self.PRESET)
        memory.add("User's budget for Hawaii is $10,000", user_id=ALEX)
        recalled = memory.recall(user(said), user_id=ALEX)
        assert (recalled.outcome, list(recalled.messages)) == (RecallOutcome.IGNORED, user(said))

    @pytest.mark.parametrize("signal", ["is_fact", "requires_tool"])
    def test_a_fact_query_and_a_tool_query_are_not_searched_for(self, opened: Open, signal: str) -> None:
        memory = opened(self.PRESET)
        memory.add("The speed of light was asked about in Hawaii", user_id=ALEX)
        messages = user("What is the speed of light?")
        assert memory.recall(messages, user_id=ALEX, **{signal: True}).outcome is RecallOutcome.IGNORED

    def test_another_users_memories_stay_theirs(self, opened: Open) -> None:
        memory = opened(self.PRESET)
        memory.add("budget for Hawaii vacation is $10,000", user_id="somebody else")
        recalled = memory.recall("What's my budget for the Hawaii vacation?", user_id=ALEX)
        assert recalled.outcome is RecallOutcome.MISSING

    def test_what_is_not_similar_is_left_out(self, opened: Open) -> None:
        memory = opened(self.PRESET)
        memory.add("To deploy payment-service: run npm build, then docker push", user_id=ALEX)
        assert not memory.recall("What's my budget for the trip?", user_id=ALEX)


class TestReactMem:
    """2: facts, episodes and earlier invocations, as an agent's prompt lists them."""

    def test_an_invocation_begins_with_facts_episodes_and_what_was_done_before(self, opened: Open) -> None:
        memory = opened("react-mem")
        where: dict[str, Any] = {"user_id": ALEX, "project_id": "payments"}
        memory.add("The payment service listens on port 8443", **where)
        memory.add("Deployed the payment service by building, then pushing", category="episode", **where)
        memory.add(
            "User asked to deploy the payment service, agent built it, result was a port conflict",
            category="summary",
            level="session",
            session_id="monday",
            **where,
        )
        messages = [SYSTEM, *user("Deploy the payment service")]
        recalled = memory.recall(messages, session_id="monday", **where)
        assert list(recalled.messages) == [
            SYSTEM,
            {
                "role": "user",
                "content": "Long-term Facts:\n"
                "- The payment service listens on port 8443\n"
                "Relevant Past Episodes:\n"
                "- Episode 1: Deployed the payment service by building, then pushing\n"
                "Conversation History:\n"
                "- Previous invocation 1: User asked to deploy the payment service, agent built it, "
                "result was a port conflict",
            },
            *user("Deploy the payment service"),
        ]

    def test_five_facts_and_three_episodes_have_room(self, opened: Open) -> None:
        memory = opened("react-mem")
        for number in range(5):
            memory.add(f"Fact {number} about the payment service", user_id=ALEX)
        for number in range(3):
            memory.add(f"Attempt {number} at the payment service", user_id=ALEX, category="episode")
        block = memory.recall("payment service", user_id=ALEX).context.text
        assert (block.count("- Fact"), block.count("- Episode")) == (5, 3)

    def test_memories_of_another_collection_are_not_seen(self, opened: Open) -> None:
        memory = opened("react-mem")
        memory.add("The payment service listens on port 8443", user_id=ALEX, project_id="payments")
        assert not memory.recall("Which port has the payment service?", user_id=ALEX, project_id="other")


class TestSessionService:
    """3: the session's memories with their kind and importance, after the system prompt."""

    def test_the_context_of_the_sample_session(self, opened: Open) -> None:
        memory = opened("session-service")
        session: dict[str, Any] = {"user_id": ALEX, "session_id": "s1", "level": "session"}
        memory.add("The project deadline is March 15th", category="fact", importance=0.9, **session)
        memory.add("User prefers concise bullet-point summaries", category="preference", importance=0.7, **session)
        memory.add(
            "Q3 revenue increase correlates with marketing campaign launch",
            category="insight",
            importance=0.8,
            **session,
        )
        messages = [SYSTEM, *user("Can you give me a concise summary of the project deadline?")]
        recalled = memory.recall(messages, user_id=ALEX, session_id="s1")
        assert list(recalled.messages) == [
            SYSTEM,
            {
                "role": "system",
                "content": "Relevant memories from this session:\n"
                "- [FACT] The project deadline is March 15th (importance: 0.9)\n"
                "- [PREFERENCE] User prefers concise bullet-point summaries (importance: 0.7)\n"
                "- [INSIGHT] Q3 revenue increase correlates with marketing campaign launch (importance: 0.8)\n\n"
                "Use these memories to provide contextually aware responses.",
            },
            *messages[1:],
        ]

    def test_at_most_five_memories_are_in_the_context(self, opened: Open) -> None:
        memory = opened("session-service")
        for number in range(7):
            memory.add(f"Milestone {number} of the project", user_id=ALEX, session_id="s1", level="session")
        assert len(memory.recall("milestones of the project", user_id=ALEX, session_id="s1").context.used) == 5

    def test_another_sessions_memories_are_not_in_it(self, opened: Open) -> None:
        memory = opened("session-service")
        memory.add("The project deadline is March 15th", user_id=ALEX, session_id="s1", level="session")
        messages = user("When is the project deadline?")
        recalled = memory.recall(messages, user_id=ALEX, session_id="s2")
        assert (recalled.outcome, list(recalled.messages)) == (RecallOutcome.MISSING, messages)


class TestMarkdownProxy:
    """4: the last user message becomes summary, memories and the message."""

    PRESET = "markdown-proxy"

    def test_the_last_message_is_replaced_by_summary_memories_and_itself(self, opened: Open) -> None:
        memory = opened(self.PRESET)
        memory.add("My bike is a red Cargo bike", user_id=ALEX)
        memory.remember(user("Where did I leave my red bike? At the station."), user_id=ALEX, session_id="monday")
        memory.add(
            "User looked for a red bike and found the bike at the station",
            user_id=ALEX,
            category="summary",
            session_id="monday",
            level="session",
        )
        earlier = [SYSTEM, *user("Hello"), {"role": "assistant", "content": "Hello, Alex."}]
        recalled = memory.recall([*earlier, *user("Where is my red bike?")], user_id=ALEX, session_id="monday")
        assert list(recalled.messages[:-1]) == earlier
        assert recalled.messages[-1]["role"] == "user"
        summary, memories, question = recalled.messages[-1]["content"].split("\n\n")
        assert summary == "Conversation summary: User looked for a red bike and found the bike at the station"
        title, *lines = memories.split("\n")
        assert title == "Long-term memory (most relevant first):"
        assert sorted(lines) == [
            "[memory] My bike is a red Cargo bike",
            "[user] Where did I leave my red bike? At the station.",
        ]
        assert question == "Current message: Where is my red bike?"

    def test_a_conversation_sees_its_own_memories_and_the_global_ones(self, opened: Open) -> None:
        memory = opened(self.PRESET)
        memory.add("The red bike is at the station", user_id=ALEX)
        memory.add("The red bike has a flat tyre", user_id=ALEX, session_id="monday", level="session")
        memory.add("The red bike was sold", user_id=ALEX, session_id="friday", level="session")
        recalled = memory.recall("red bike", user_id=ALEX, session_id="monday")
        assert {hit.memory for hit in recalled} == {"The red bike is at the station", "The red bike has a flat tyre"}

    def test_what_is_below_the_threshold_is_discarded_however_recent(self, opened: Open) -> None:
        memory = opened(self.PRESET)
        memory.add("The dentist is on Elm Street", user_id=ALEX)
        recalled = memory.recall("Where is my red bike?", user_id=ALEX, trace=True)
        [candidate] = recalled.candidates
        assert candidate.scores["recency"] > 0.99
        assert "is below 0.35" in candidate.decision
        assert recalled.outcome is RecallOutcome.MISSING

    def test_the_score_is_four_fifths_relevance_and_one_fifth_recency(self, opened: Open) -> None:
        memory = opened(self.PRESET)
        memory.remember(
            [{"role": "user", "content": "My red bike is at the station", "timestamp": "2026-03-01T00:00:00+00:00"}],
            user_id=ALEX,
            session_id="monday",
        )
        [hit] = memory.recall("Where is my red bike?", user_id=ALEX, session_id="monday", trace=True)
        assert hit.score == pytest.approx(0.8 * hit.scores["relevance"] + 0.2 * hit.scores["recency"])

    def test_no_memories_are_asked_for_and_the_request_goes_as_it_is(self, opened: Open) -> None:
        memory = opened(self.PRESET)
        memory.add("The red bike is at the station", user_id=ALEX)
        messages = user("Where is my red bike?")
        recalled = memory.recall(messages, user_id=ALEX, limit=0)
        assert (recalled.outcome, list(recalled.messages)) == (RecallOutcome.DISABLED, messages)


# What the design abbreviates is written out; the second is longer than the 150 characters that are shown of it.
DATABASES = (
    "User asked about vector databases. Discussed FAISS vs pgvector, and which of these databases a small team "
    "should run"
)
RETRIEVAL = (
    "Conversation about retrieval systems and embeddings, with a vector database as one of the parts: how documents "
    "are cut, which embedding model fits, how to measure whether the retrieval finds what it should."
)
ROME = "User planned a trip to Rome with their sister in May: flights, a hotel near the river, three days of museums."


class TestThreeTier:
    """5: the profile whatever is asked, and the episodes that are like the question."""

    @pytest.fixture
    def memory(self, opened: Open) -> Memory:
        memory = opened("three-tier")
        for category, key, value, importance in (
            ("identity", "name", "Alex", 0.95),
            ("preference", "language", "Python", 0.9),
            ("preference", "coding_style", "black with line length 100", 0.85),
            ("preference", "tea", "green", 0.3),
        ):
            memory.add(user_id=ALEX, category=category, key=key, value=value, importance=importance)
        for start, end, summary in ((1, 10, DATABASES), (21, 30, RETRIEVAL), (31, 40, ROME)):
            detail = {"turn_start": start, "turn_end": end}
            memory.add(summary, user_id=ALEX, category="episode", type="episodic", detail=detail)
        return memory

    def test_what_did_we_discuss_about_databases(self, memory: Memory) -> None:
        messages = [SYSTEM, *user("What did we discuss about databases?")]
        recalled = memory.recall(messages, user_id=ALEX)
        assert list(recalled.messages) == [
            SYSTEM,
            {
                "role": "user",
                "content": "# Long-term Memory\n"
                "## User Profile\n"
                "- name: Alex\n"
                "- language: Python\n"
                "- coding_style: black with line length 100\n\n"
                "## Recent Context\n"
                f"- turns 1-10: {DATABASES}...\n"
                f"- turns 21-30: {RETRIEVAL[:150]}...\n\n"
                "Answer consistently using the memory and conversation above.",
            },
            *messages[1:],
        ]

    def test_whats_my_name_is_looked_up_not_searched_for(self, memory: Memory) -> None:
        assert "- name: Alex" in memory.recall("What's my name?", user_id=ALEX).context.text

    def test_the_name_is_known_whatever_is_asked(self, memory: Memory) -> None:
        block = memory.recall("Zzyzx qwxv?", user_id=ALEX).context.text
        assert "- name: Alex" in block
        assert "Recent Context" not in block

    def test_a_fact_of_little_importance_is_not_in_the_profile(self, memory: Memory) -> None:
        assert "tea: green" not in memory.recall("What did we discuss about databases?", user_id=ALEX).context.text

    def test_only_the_active_value_of_a_key_is_in_the_profile(self, memory: Memory) -> None:
        memory.add(user_id=ALEX, category="identity", key="name", value="Al", importance=0.95, confidence=0.6)
        assert "- name: Alex" in memory.recall("Who am I?", user_id=ALEX).context.text
        memory.add(user_id=ALEX, category="identity", key="name", value="Alexander", importance=0.95)
        block = memory.recall("Who am I?", user_id=ALEX).context.text
        assert ("- name: Alexander" in block, "- name: Alex\n" in block) == (True, False)

    def test_at_most_three_episodes_are_given(self, memory: Memory) -> None:
        for number in range(4):
            memory.add(f"Discussed vector databases once more, part {number}", user_id=ALEX, category="episode")
        block = memory.recall("What did we discuss about vector databases?", user_id=ALEX).context.text
        assert block.partition("## Recent Context\n")[2].partition("\n\n")[0].count("\n- ") == 2


DEFAULTS: dict[str, dict[str, Any]] = {
    "semantic-router": {
        "context_place": "system", "search_limit": 5, "recall_decide": True, "rewrite": "llm", "recall_facts": 0,
    },
    "react-mem": {
        "context_place": "before-question", "search_limit": 8, "search_min_score": 0.0, "recall_decide": False,
    },
    "session-service": {
        "context_place": "system-message", "search_limit": 5, "search_min_score": 0.0, "recall_decide": False,
    },
    "markdown-proxy": {
        "context_place": "question", "search_limit": 5, "search_min_score": 0.35, "recall_decide": False,
        "recency_weight": 0.2, "recency_days": 30.0, "diversity": 0.7,
    },
    "three-tier": {
        "context_place": "before-question", "search_limit": 3, "recall_decide": False,
        "recall_facts_min_importance": 0.5,
    },
}  # fmt: skip


@pytest.mark.parametrize("preset", DEFAULTS)
def test_a_preset_carries_the_defaults_of_its_design(preset: str, tmp_path: Path) -> None:
    settings = load({"home": tmp_path, "preset": preset}, environ={}).settings
    assert settings.context_format == preset
    assert {name: getattr(settings, name) for name in DEFAULTS[preset]} == DEFAULTS[preset]
