"""The worked flow of the fourth design: facts reconciled by ADD, UPDATE, DELETE and NONE, and a summary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recollect import Memory
from recollect.model.job import JobState
from recollect.testing.scripted_llm import RecordedRequest, ScriptedLLM
from tests.support.remember_samples import (
    ALEX,
    EXTRACT,
    SUMMARY,
    asks_about,
    claim,
    contents,
    exchange,
    facts,
    learns,
    llm_requests,
    opened,
    user,
)

PRESET: dict[str, Any] = {"preset": "markdown-proxy"}
BIKE = "User's bike is a red Cargo bike"


def say(memory: Memory, text: str, *, session: str = "monday") -> None:
    job = memory.remember(exchange(text), user_id=ALEX, session_id=session, wait=True).job
    assert job is not None
    assert job.state is JobState.DONE, job.error


def statuses(memory: Memory) -> dict[str, str]:
    """Every memory there ever was, and how it stands; summaries aside."""
    results = memory.get_all(user_id=ALEX, statuses=["active", "superseded", "forgotten", "review"])
    return {each.content: str(each.status) for each in results if each.category != "summary"}


@pytest.fixture
def with_bike(tmp_path: Path, llm: ScriptedLLM) -> Any:
    """A memory that knows of a bike."""
    learns(llm, "red Cargo bike.", claim(BIKE))
    with opened(tmp_path, llm, **PRESET) as memory:
        say(memory, "My bike is a red Cargo bike.")
        yield memory


def decides(llm: ScriptedLLM, content: str, *events: tuple[str, str, str]) -> None:
    """Answer in the document's shape: an event, the words of the memory it is about, and a text."""

    def answer(request: RecordedRequest) -> str:
        visible = [json.loads(line) for line in request.text.splitlines() if line.startswith('{"memory":')]
        numbers = {row["says"]: str(row["memory"]) for row in visible}
        rows = [{"event": event, "id": numbers.get(memory), "text": text} for event, memory, text in events]
        return json.dumps({"memory": rows})

    llm.when(asks_about(content)).reply(answer)


def test_add_keeps_the_new_fact_beside_the_old_one(with_bike: Memory, llm: ScriptedLLM) -> None:
    helmet = "User's bike helmet is a blue Giro helmet"
    decides(llm, "blue Giro", ("ADD", "", helmet))
    say(with_bike, "My bike helmet is a blue Giro helmet.")
    assert statuses(with_bike) == {BIKE: "active", helmet: "active"}


def test_update_puts_the_new_fact_in_the_place_of_the_old_one(with_bike: Memory, llm: ScriptedLLM) -> None:
    green = "User's bike is a green Cargo bike"
    decides(llm, "green Cargo bike", ("UPDATE", BIKE, green))
    say(with_bike, "I painted it: my bike is a green Cargo bike.")
    assert statuses(with_bike) == {BIKE: "superseded", green: "active"}
    [now] = facts(with_bike)
    [before] = with_bike.get_all(user_id=ALEX, statuses=["superseded"])
    assert before.superseded_by == now.id


def test_delete_takes_out_what_no_longer_holds(with_bike: Memory, llm: ScriptedLLM) -> None:
    decides(llm, "sold my red", ("DELETE", BIKE, "User no longer has the red Cargo bike"))
    say(with_bike, "I sold my red Cargo bike, I no longer have it.")
    assert BIKE not in contents(facts(with_bike))
    [gone] = with_bike.get_all(user_id=ALEX, statuses=["forgotten", "superseded"])
    assert gone.content == BIKE
    with_bike.restore(gone.id, user_id=ALEX)
    assert BIKE in contents(facts(with_bike))


def test_none_adds_nothing_when_the_fact_is_known(with_bike: Memory, llm: ScriptedLLM) -> None:
    decides(llm, "took my bike", ("NONE", BIKE, BIKE))
    [before] = facts(with_bike)
    say(with_bike, "I took my bike, it is red, to work.")
    assert statuses(with_bike) == {BIKE: "active"}
    [after] = facts(with_bike)
    assert (after.id, len(after.evidence)) == (before.id, 2)


def test_add_update_delete_and_none_of_one_exchange_are_one_call(tmp_path: Path, llm: ScriptedLLM) -> None:
    existing = (
        "User's sister Anna lives in Oslo",
        "User's gym membership at Fit Club costs 30 euros",
        "User's dentist is Dr. Weber in Elm Street",
    )
    learns(llm, "Oslo", *(claim(each) for each in existing))
    moved, new = "User's sister Anna lives in Rome", "User's brother Ben lives in Oslo"
    ended = "User no longer has the gym membership at Fit Club"
    with opened(tmp_path, llm, **PRESET) as memory:
        say(
            memory,
            "My sister Anna lives in Oslo. The Fit Club membership costs 30 euros. Dr. Weber in Elm Street is my "
            "dentist, and the gym membership is at Fit Club.",
        )
        assert contents(facts(memory)) == sorted(existing)
        events = (
            ("UPDATE", existing[0], moved),
            ("DELETE", existing[1], ended),
            ("NONE", existing[2], ""),
            ("ADD", "", new),
        )
        decides(llm, "Rome", *events)
        llm.clear()
        say(
            memory,
            "Anna, my sister, lives in Rome now. My brother Ben lives in Oslo. I no longer have the gym "
            "membership at Fit Club. And my dentist is Dr. Weber, in Elm Street.",
        )
        assert len(llm_requests(llm, EXTRACT)) == 1
        assert contents(facts(memory)) == sorted([moved, ended, new, existing[2]])


def test_only_the_users_message_gives_facts(tmp_path: Path, llm: ScriptedLLM) -> None:
    invented = claim("User's favourite colour is mauve", by="assistant", lines=[2])
    learns(llm, "red Cargo bike", claim(BIKE), invented)
    with opened(tmp_path, llm, **PRESET) as memory:
        messages = exchange("My bike is a red Cargo bike.", "Your favourite colour is mauve, I think.")
        memory.remember(messages, user_id=ALEX, session_id="monday", wait=True)
        trusted = [each for each in facts(memory) if each.trust == "high"]
        assert contents(trusted) == [BIKE]
        assert all(each.confidence <= 0.6 for each in facts(memory) if each.trust != "high")


def test_the_summary_of_the_conversation_is_brought_up_to_date_after_every_exchange(
    tmp_path: Path, llm: ScriptedLLM
) -> None:
    first = "The user has a red Cargo bike."
    second = "The user has a red Cargo bike and left it at the station."
    llm.when(SUMMARY).reply(first)
    with opened(tmp_path, llm, **PRESET) as memory:
        say(memory, "My bike is a red Cargo bike.")
        memory.jobs.run_pending()
        assert summaries(memory) == [first]
        llm.when(SUMMARY).reply(second)
        say(memory, "I left it at the station.")
        memory.jobs.run_pending()
        assert summaries(memory) == [second]
        recalled = memory.recall(user("Where is my red Cargo bike?"), user_id=ALEX, session_id="monday")
        assert recalled.context.text.startswith(f"Conversation summary: {second}\n\nLong-term memory")


def summaries(memory: Memory) -> list[str]:
    return [each.content for each in memory.get_all(user_id=ALEX) if each.category == "summary"]


@pytest.mark.parametrize("broken", ["", "null", "I'm sorry, I can't help with that.", "Bike."])
def test_an_empty_or_shrunk_summary_never_replaces_a_good_one(tmp_path: Path, llm: ScriptedLLM, broken: str) -> None:
    good = "The user has a red Cargo bike that cost 4,200 euros and keeps it in the garage at Elm Street."
    llm.when(SUMMARY).reply(good)
    with opened(tmp_path, llm, **PRESET) as memory:
        say(memory, "My red Cargo bike cost 4,200 euros, I keep it in the garage at Elm Street.")
        memory.jobs.run_pending()
        llm.when(SUMMARY).reply(broken)
        say(memory, "I left it at the station.")
        memory.jobs.run_pending()
        [stored] = summaries(memory)
        assert good in stored


def test_facts_and_a_summary_are_there_without_an_llm(tmp_path: Path) -> None:
    with opened(tmp_path, **PRESET) as memory:
        say(memory, "My name is Alex and I prefer Python.")
        memory.jobs.run_pending()
        assert contents(facts(memory)) == ["I prefer Python", "My name is Alex"]
        [summary] = summaries(memory)
        assert "Alex" in summary


def test_text_that_is_added_alone_is_learned_from_without_a_chat(tmp_path: Path, llm: ScriptedLLM) -> None:
    learns(llm, "red Cargo bike", claim(BIKE))
    with opened(tmp_path, llm, **PRESET) as memory:
        memory.remember("My bike is a red Cargo bike.", user_id=ALEX, wait=True)
        assert contents(facts(memory)) == [BIKE]
