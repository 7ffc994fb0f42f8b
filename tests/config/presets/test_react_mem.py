"""The worked flow of react-mem: facts are global at once, invocations are summed up, an end makes an episode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recollect import Memory
from recollect.model.memory import MemoryRecord
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.remember_samples import (
    ALEX,
    EXTRACT,
    SESSION,
    claim,
    contents,
    exchange,
    facts,
    learns,
    opened,
    user,
    wait_until,
)

PRESET: dict[str, Any] = {"preset": "react-mem"}
COLLECTION: dict[str, Any] = {"user_id": ALEX, "project_id": "payments"}
TALK: dict[str, Any] = {**COLLECTION, "session_id": "monday"}
PORT = "The payment service listens on port 8443"
NO_TALK = {"category": {"in": ["fact", "constraint", "identity"]}}
LUNCH = "User has pasta for lunch"
INVOCATION_SUMMARY = (
    "User deployed the payment service on port 8443 by running npm build and docker push; it went well"
)


def scripted(llm: ScriptedLLM) -> None:
    learns(llm, "port 8443", claim(PORT, importance=0.8))
    learns(llm, "pasta", claim(LUNCH, importance=0.3))
    llm.when(SESSION).reply(INVOCATION_SUMMARY)


def talked(memory: Memory) -> None:
    for text, answer in (
        ("Deploy the payment service. It listens on port 8443.", "I ran npm build and docker push; it is deployed."),
        ("Great, it went well. I have pasta for lunch now.", "Enjoy!"),
    ):
        assert memory.remember(exchange(text, answer), **TALK, wait=True).job.state == "done"


def seen_from(session: str, memory: Memory) -> list[str]:
    """The facts that another conversation of the collection finds."""
    hits = memory.search("payment service, pasta, budget", **COLLECTION, session_id=session, filters=NO_TALK)
    return [hit.memory for hit in hits]


def episodes(memory: Memory) -> list[MemoryRecord]:
    return [each for each in memory.get_all(**COLLECTION) if each.category == "episode"]


def test_what_is_learned_is_long_term_and_of_the_whole_collection_at_once(tmp_path: Path, llm: ScriptedLLM) -> None:
    scripted(llm)
    with opened(tmp_path, llm, **PRESET) as memory:
        talked(memory)
        stored = {each.content: each for each in facts(memory, **COLLECTION)}
        assert {content: str(each.level) for content, each in stored.items()} == {PORT: "project", LUNCH: "project"}
        assert stored[PORT].scope.session == "monday"
        assert sorted(seen_from("tuesday", memory)) == sorted(seen_from("monday", memory)) == [PORT, LUNCH]


def test_the_conversations_end_promotes_its_own_memories_of_high_value_and_records_an_episode(
    tmp_path: Path, llm: ScriptedLLM
) -> None:
    scripted(llm)
    with opened(tmp_path, llm, **PRESET) as memory:
        talked(memory)
        memory.add("The deployment window is Monday night", **TALK, level="session", importance=0.8)
        memory.add("The chat began at noon", **TALK, level="session", importance=0.3)
        assert memory.sessions.end(**TALK, wait=True).state == "done"
        levels = {each.content: str(each.level) for each in facts(memory, **COLLECTION)}
        assert levels["The deployment window is Monday night"] == "project"
        assert levels["The chat began at noon"] == "session"
        [episode] = episodes(memory)
        assert INVOCATION_SUMMARY in episode.content
        assert episode.detail["turn_end"] == 4


def test_ending_a_conversation_twice_changes_nothing_more(tmp_path: Path, llm: ScriptedLLM) -> None:
    scripted(llm)
    with opened(tmp_path, llm, **PRESET) as memory:
        talked(memory)
        memory.sessions.end(**TALK, wait=True)
        before = contents(memory.get_all(**COLLECTION))
        memory.sessions.end(**TALK, wait=True)
        assert contents(memory.get_all(**COLLECTION)) == before


def test_a_later_invocation_begins_with_the_facts_and_the_past_episode(tmp_path: Path, llm: ScriptedLLM) -> None:
    scripted(llm)
    with opened(tmp_path, llm, **PRESET) as memory:
        talked(memory)
        memory.sessions.end(**TALK, wait=True)
        question = user("Deploy the payment service")
        block = memory.recall(question, **COLLECTION, session_id="tuesday").context.text
        assert f"Long-term Facts:\n- {PORT}\n" in block
        assert "Relevant Past Episodes:\n- Episode 1: " in block
        assert INVOCATION_SUMMARY in block


def test_each_invocation_leaves_a_summary_of_what_was_asked_and_what_came_of_it(
    tmp_path: Path, llm: ScriptedLLM
) -> None:
    scripted(llm)
    with opened(tmp_path, llm, **PRESET) as memory:
        talked(memory)
        memory.jobs.run_pending()
        [conversation] = memory.sessions.list(user_id=ALEX)
        [first, second] = conversation.invocations
        assert first["query"] == "Deploy the payment service. It listens on port 8443."
        assert first["result"] == "I ran npm build and docker push; it is deployed."
        assert first["query"] in first["summary"]
        assert first["result"] in first["summary"]
        assert second["result"] == "Enjoy!"


def test_a_conversation_is_learned_from_and_becomes_an_episode_without_an_llm(tmp_path: Path) -> None:
    with opened(tmp_path, **PRESET) as memory:
        messages = exchange("My name is Alex. My budget for the Hawaii trip is $10,000.")
        memory.remember(messages, **TALK, wait=True)
        memory.sessions.end(**TALK, wait=True)
        assert "My budget for the Hawaii trip is $10,000" in seen_from("tuesday", memory)
        [episode] = episodes(memory)
        assert "$10,000" in episode.content


def test_a_conversation_ends_by_itself_after_the_idle_time(tmp_path: Path, llm: ScriptedLLM) -> None:
    scripted(llm)
    with opened(tmp_path, llm, **PRESET, session_idle_s=1) as memory:
        talked(memory)
        wait_until(
            lambda: memory.jobs.run_pending() == 0 and memory.sessions.list(user_id=ALEX)[0].closed_at is not None
        )
        assert len(episodes(memory)) == 1


def test_what_is_learned_only_after_the_end_is_global_too(tmp_path: Path, llm: ScriptedLLM) -> None:
    with opened(tmp_path, llm, **PRESET) as memory:
        broken = llm.when(EXTRACT).reply("I would rather not.")
        llm.when(SESSION).reply(INVOCATION_SUMMARY)
        messages = exchange(
            "Deploy the payment service. It listens on port 8443.", "I ran npm build and docker push."
        )
        memory.remember(messages, **TALK)
        assert memory.sessions.end(**TALK, wait=True).state == "done"
        assert facts(memory, **COLLECTION) == []
        learns(llm, "port 8443", claim(PORT))
        broken.remove()
        wait_until(lambda: memory.jobs.run_pending() == 0 and seen_from("tuesday", memory) == [PORT])
        assert len(episodes(memory)) == 1


def test_another_collection_sees_nothing_of_it(tmp_path: Path, llm: ScriptedLLM) -> None:
    scripted(llm)
    with opened(tmp_path, llm, **PRESET) as memory:
        talked(memory)
        memory.sessions.end(**TALK, wait=True)
        assert contents(memory.get_all(user_id=ALEX, project_id="other")) == []
