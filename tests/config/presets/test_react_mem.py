"""The worked flow of the second design: invocations are summed up, a conversation's end promotes."""

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


def test_what_is_learned_belongs_to_the_conversation_until_its_end(tmp_path: Path, llm: ScriptedLLM) -> None:
    scripted(llm)
    with opened(tmp_path, llm, **PRESET) as memory:
        talked(memory)
        assert {each.content: str(each.level) for each in facts(memory, **COLLECTION)} == {
            PORT: "session",
            LUNCH: "session",
        }
        assert seen_from("tuesday", memory) == []
        assert sorted(seen_from("monday", memory)) == [PORT, LUNCH]


def test_the_conversations_end_promotes_high_value_facts_and_records_an_episode(
    tmp_path: Path, llm: ScriptedLLM
) -> None:
    scripted(llm)
    with opened(tmp_path, llm, **PRESET) as memory:
        talked(memory)
        assert memory.sessions.end(**TALK, wait=True).state == "done"
        stored = {each.content: each for each in facts(memory, **COLLECTION)}
        assert {content: str(each.level) for content, each in stored.items()} == {PORT: "project", LUNCH: "session"}
        assert stored[PORT].scope.session == "monday"
        assert seen_from("tuesday", memory) == [PORT]
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


def test_a_later_invocation_begins_with_the_promoted_facts_and_the_past_episode(
    tmp_path: Path, llm: ScriptedLLM
) -> None:
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


def test_a_conversation_is_promoted_and_becomes_an_episode_without_an_llm(tmp_path: Path) -> None:
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
        assert seen_from("tuesday", memory) == [PORT]
        assert len(episodes(memory)) == 1


def test_what_is_learned_only_after_the_end_is_promoted_too(tmp_path: Path, llm: ScriptedLLM) -> None:
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
