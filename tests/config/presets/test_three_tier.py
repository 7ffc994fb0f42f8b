"""The worked examples of the fifth design: a name and its confidence, a profile, a hundred turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recollect import Memory
from recollect.model.memory import MemoryRecord
from recollect.testing.scripted_llm import RecordedRequest, ScriptedLLM
from tests.support.remember_samples import (
    ALEX,
    COMPRESS,
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

PRESET: dict[str, Any] = {"preset": "three-tier"}
SESSION: dict[str, Any] = {"user_id": ALEX, "session_id": "long"}


def identity(value: str, content: str, confidence: float, **more: Any) -> dict[str, Any]:
    fields = {"category": "identity", "key": "name", "value": value, "confidence": confidence, "importance": 0.9}
    return claim(content, **fields, **more)


def scripted_names(llm: ScriptedLLM) -> None:
    learns(llm, "My name is Alex", identity("Alex", "User's name is Alex", 1.0))
    learns(llm, "Call me Al", identity("Al", "User goes by Al", 0.6))
    learns(llm, "full name is", identity("Alexander", "User's full name is Alexander", 0.95))
    learns(llm, "misheard", identity("Alexandra", "User's name is Alexandra", 0.9, change="correction"))


def say(memory: Memory, text: str) -> Any:
    job = memory.remember(exchange(text), **SESSION, wait=True).job
    assert job is not None
    assert job.state == "done", job.error
    return job.result


def name(memory: Memory) -> tuple[str | None, float]:
    [stored] = [each for each in facts(memory) if each.key == "name"]
    return stored.value, stored.confidence


def profile(memory: Memory, question: str = "What's my name?") -> str:
    return memory.recall(user(question), **SESSION).context.text


def test_the_name_alex_the_nickname_al_the_full_name_and_at_last_a_correction(
    tmp_path: Path, llm: ScriptedLLM
) -> None:
    scripted_names(llm)
    with opened(tmp_path, llm, **PRESET) as memory:
        say(memory, "My name is Alex")
        assert name(memory) == ("Alex", 1.0)
        say(memory, "Call me Al")
        assert name(memory) == ("Alex", 1.0)
        # Less sure than what is known, and no correction: what is known stays.
        say(memory, "My full name is Alexander")
        assert name(memory) == ("Alex", 1.0)
        say(memory, "You misheard me: my name is not Alex, my name is Alexandra.")
        assert name(memory)[0] == "Alexandra"
        assert "- name: Alexandra\n" in profile(memory)
        [old] = [each for each in memory.get_all(user_id=ALEX, statuses=["superseded"]) if each.key == "name"]
        assert old.value == "Alex"


def test_a_name_that_is_as_sure_as_the_known_one_takes_its_place(tmp_path: Path, llm: ScriptedLLM) -> None:
    learns(llm, "I think I am", identity("Alex", "User's name is Alex", 0.8))
    learns(llm, "full name is", identity("Alexander", "User's full name is Alexander", 0.95))
    with opened(tmp_path, llm, **PRESET) as memory:
        say(memory, "I think I am Alex in your files.")
        say(memory, "My full name is Alexander")
        assert name(memory) == ("Alexander", 0.95)


def test_without_an_llm_a_name_is_known_and_a_nickname_is_another_trait(tmp_path: Path) -> None:
    with opened(tmp_path, **PRESET) as memory:
        say(memory, "My name is Alex and I prefer Python")
        say(memory, "Call me Al")
        assert name(memory)[0] == "Alex"
        assert [each.value for each in facts(memory) if each.key == "preferred_name"] == ["Al"]
        assert "I prefer Python" in contents(facts(memory))
        say(memory, "My name is Alexandra.")
        assert name(memory)[0] == "Alexandra"
        assert "- name: Alexandra\n" in profile(memory)


def test_my_name_is_alex_and_i_prefer_python_are_two_structured_facts(tmp_path: Path, llm: ScriptedLLM) -> None:
    python = claim("User prefers Python", category="preference", key="language", value="Python", confidence=0.9)
    learns(llm, "prefer Python", identity("Alex", "User's name is Alex", 1.0), python)
    with opened(tmp_path, llm, **PRESET) as memory:
        say(memory, "My name is Alex and I prefer Python")
        stored = {(str(each.category), each.key, each.value, each.confidence) for each in facts(memory)}
        assert stored == {("identity", "name", "Alex", 1.0), ("preference", "language", "Python", 0.9)}
        block = profile(memory)
        assert block.startswith("# Long-term Memory\n## User Profile\n- name: Alex\n- language: Python\n")


def test_low_confidence_and_low_importance_are_not_stored(tmp_path: Path, llm: ScriptedLLM) -> None:
    learns(
        llm,
        "maybe",
        claim("User may like tea", confidence=0.39),
        claim("User had coffee", importance=0.19),
        claim("User works in Oslo", confidence=0.4, importance=0.2, category="identity"),
    )
    with opened(tmp_path, llm, **PRESET) as memory:
        report = say(memory, "I like tea, maybe. I had coffee. I work in Oslo.")
        assert contents(facts(memory)) == ["User works in Oslo"]
        assert len(report["dropped"]) == 2


TOPICS = ("vector databases", "retrieval systems", "trip planning", "tax forms", "gardening")


def hundred_turns(memory: Memory) -> None:
    """Fifty exchanges, ten about each topic, the profile told on the way."""
    report = {
        1: "My name is Alex and I prefer Python.",
        3: "My timezone is CET.",
        12: "I live in Lisbon.",
        18: "I'm vegetarian.",
    }
    for number in range(1, 51):
        topic = TOPICS[(number - 1) // 10]
        text = report.get(number, f"Question {number} about {topic}: which option fits a small team?")
        memory.remember(exchange(text, f"For {topic}, option {number} fits a small team."), **SESSION)
        if number % 5 == 0:
            memory.jobs.run_pending()
    memory.jobs.run_pending()


def episodes(memory: Memory) -> list[MemoryRecord]:
    results = [each for each in memory.get_all(user_id=ALEX) if each.category == "episode"]
    return sorted(results, key=lambda each: each.detail["turn_start"])


def scripted_talk(llm: ScriptedLLM) -> None:
    def summed(request: RecordedRequest) -> str:
        talk = request.text.partition("\n===")[2]
        topics = [topic for topic in TOPICS if topic in talk]
        return f"User asked about {' and '.join(topics)}; the assistant named options that fit a small team."

    llm.when(COMPRESS).reply(summed)
    learns(
        llm,
        "My name is Alex",
        identity("Alex", "User's name is Alex", 1.0),
        claim("User prefers Python", category="preference", key="language", value="Python"),
    )


def test_the_100_turn_conversation_becomes_episodes_and_a_profile(tmp_path: Path, llm: ScriptedLLM) -> None:
    scripted_talk(llm)
    with opened(tmp_path, llm, **PRESET) as memory:
        hundred_turns(memory)
        made = episodes(memory)
        ranges = [(each.detail["turn_start"], each.detail["turn_end"]) for each in made]
        assert ranges == [(1, 10), (11, 30), (31, 50), (51, 70), (71, 90)]
        assert all(each.type == "episodic" for each in made)
        assert made[0].content.startswith("User asked about vector databases;")
        assert len(llm_requests(llm, COMPRESS)) == 5
        assert len(memory.sessions.turns(**SESSION, limit=1000)) == 100
        assert "- name: Alex\n" in profile(memory, "What's my name?")


def test_what_did_we_discuss_about_databases_finds_the_first_of_the_episodes(
    tmp_path: Path, llm: ScriptedLLM
) -> None:
    scripted_talk(llm)
    with opened(tmp_path, llm, **PRESET) as memory:
        hundred_turns(memory)
        block = profile(memory, "What did we discuss about vector databases?")
        assert "\n- turns 1-10: User asked about vector databases;" in block


def test_the_100_turn_conversation_without_an_llm(tmp_path: Path) -> None:
    with opened(tmp_path, **PRESET) as memory:
        hundred_turns(memory)
        ranges = [(each.detail["turn_start"], each.detail["turn_end"]) for each in episodes(memory)]
        assert ranges == [(1, 10), (11, 30), (31, 50), (51, 70), (71, 90)]
        stored = {each.key: each.value for each in facts(memory) if each.key}
        assert stored == {"name": "Alex", "city": "Lisbon"}
        block = profile(memory)
        assert "- name: Alex\n" in block
        # Twenty to one: what is kept of a hundred turns are a few facts and episodes.
        assert len(memory.get_all(user_id=ALEX)) <= 15


def test_the_first_twenty_turns_are_in_no_episode_until_the_twentieth_is_said(tmp_path: Path) -> None:
    with opened(tmp_path, **PRESET) as memory:
        for number in range(9):
            memory.remember(exchange(f"Question {number} about databases", "An answer."), **SESSION)
        memory.jobs.run_pending()
        assert episodes(memory) == []
        memory.remember(exchange("Question 10 about databases", "An answer."), **SESSION)
        memory.jobs.run_pending()
        [first] = episodes(memory)
        assert (first.detail["turn_start"], first.detail["turn_end"]) == (1, 10)


def test_facts_are_extracted_after_every_user_message(tmp_path: Path, llm: ScriptedLLM) -> None:
    with opened(tmp_path, llm, **PRESET) as memory:
        for number in range(1, 4):
            say(memory, f"I moved box {number} to the attic.")
            assert len(llm_requests(llm, EXTRACT)) == number
