"""LLM calls of the write flow: how many there are, and that each is recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recollect.testing.scripted_llm import RecordedRequest, ScriptedLLM
from recollect.write import learn
from tests.support.remember_samples import (
    ALEX,
    BIKE,
    BIKE_MESSAGE,
    EXTRACT,
    SESSION,
    TALK,
    asks_about,
    changes,
    claim,
    contents,
    exchange,
    facts,
    learns,
    llm_requests,
    new_turns,
    opened,
    say,
    wait_until,
)


def test_when_the_daily_tokens_are_used_the_selector_extracts(tmp_path: Path, llm: ScriptedLLM) -> None:
    learns(llm, BIKE_MESSAGE, claim(BIKE))
    with opened(tmp_path, llm, llm_user_tokens_per_day=1) as memory:
        assert say(memory, BIKE_MESSAGE)["by"] == "llm"
        llm.clear()
        report = say(memory, "My name is Alex.")
        assert report["by"] == "selector, since the LLM has used today's 1 tokens of this user"
        assert llm_requests(llm) == []
        assert contents(facts(memory)) == ["My name is Alex", BIKE]
        say(memory, BIKE_MESSAGE, user_id="sam")
        assert len(llm_requests(llm, EXTRACT)) == 1


def test_a_burst_of_turns_is_one_call(tmp_path: Path, llm: ScriptedLLM) -> None:
    with opened(tmp_path, llm, learn_wait_s=4.0) as memory:
        for number in range(10):
            last = memory.remember(exchange(f"I moved box {number} to the attic."), **TALK)
        assert last.job is not None
        wait_until(lambda: memory.jobs.get(last.job.id, user_id=ALEX).state == "done")
        [question] = llm_requests(llm, EXTRACT)
        assert len(new_turns(question)) == 20
        assert memory.jobs.get(last.job.id, user_id=ALEX).state == "done"


def test_small_talk_costs_no_call(tmp_path: Path, llm: ScriptedLLM) -> None:
    with opened(tmp_path, llm) as memory:
        for text in ("Hi!", "Hello there", "Thanks a lot!", "ok", "Good morning", "👍", "lol", "continue"):
            say(memory, exchange(text, "Hello! How can I help you today?"))
        assert llm_requests(llm) == []
        assert memory.admin.usage(user_id=ALEX) == []
        assert facts(memory) == []


def test_an_exchange_costs_one_call_whatever_it_changes(tmp_path: Path, llm: ScriptedLLM) -> None:
    green = "User's bike is a green Cargo bike"
    learns(llm, BIKE_MESSAGE, claim(BIKE))
    changes(llm, "green", "update", BIKE, green)
    with opened(tmp_path, llm) as memory:
        say(memory, BIKE_MESSAGE)
        assert len(llm_requests(llm)) == 1
        say(memory, BIKE_MESSAGE)
        assert len(llm_requests(llm)) == 2
        say(memory, "I painted it: my bike is a green Cargo bike.")
        assert (len(llm_requests(llm, EXTRACT)), len(llm_requests(llm))) == (3, 3)
        assert contents(facts(memory)) == [green]
        spent = {each.step: each.calls for each in memory.admin.usage(user_id=ALEX, parts=["step"])}
        assert spent == {"extract": 3}
        assert sum(each.tokens_in for each in memory.admin.usage(user_id=ALEX)) > 0


def test_turns_are_stored_without_waiting_for_the_llm(tmp_path: Path, llm: ScriptedLLM) -> None:
    llm.stop()
    with opened(tmp_path, llm) as memory:
        remembered = memory.remember(exchange(BIKE_MESSAGE), **TALK)
        assert remembered.job is not None
        assert len(memory.sessions.turns(**TALK)) == 2
        assert memory.search("red Cargo bike", **TALK)[0].memory == BIKE_MESSAGE


def test_nothing_is_learned_when_learning_is_off(tmp_path: Path, llm: ScriptedLLM) -> None:
    with opened(tmp_path, llm, learn="off") as memory:
        assert memory.remember(exchange(BIKE_MESSAGE), **TALK).job is None
        memory.jobs.run_pending()
        assert llm_requests(llm) == []
        assert len(memory.sessions.turns(**TALK)) == 2


def test_when_the_daily_tokens_are_used_a_long_session_is_compressed_without_a_call(
    tmp_path: Path, llm: ScriptedLLM
) -> None:
    with opened(tmp_path, llm, llm_user_tokens_per_day=1, compress_without_llm=True) as memory:
        for number in range(10):
            say(memory, f"I moved box {number} to the attic.")
        memory.sessions.end(**TALK, wait=True)
        assert [each.category for each in memory.get_all(user_id=ALEX)].count("episode") == 2
        assert len(llm_requests(llm)) == 1


def test_the_cost_of_a_failed_attempt_is_recorded(tmp_path: Path, llm: ScriptedLLM) -> None:
    with opened(tmp_path, llm, llm_user_tokens_per_day=100) as memory:
        llm.default = "I would rather not."
        job = memory.remember(exchange("My name is Alex."), **TALK, wait=60.0).job
        assert job is not None
        assert job.state == "done"
        assert job.result is not None
        assert "today's 100 tokens" in job.result["by"]
        [spent] = memory.admin.usage(user_id=ALEX, parts=["step"])
        assert (spent.step, spent.calls) == ("extract", 2)
        assert len(llm_requests(llm)) == 2


def test_the_cost_of_a_turn_that_is_forgotten_meanwhile_is_recorded(tmp_path: Path, llm: ScriptedLLM) -> None:
    with opened(tmp_path, llm) as memory:

        def forget_then_answer(request: RecordedRequest) -> str:
            for turn in memory.sessions.turns(**TALK):
                memory.delete(turn.id, user_id=ALEX)
            return json.dumps({"memories": [claim(BIKE)]})

        llm.when(asks_about(BIKE_MESSAGE)).reply(forget_then_answer)
        say(memory, BIKE_MESSAGE)
        assert (facts(memory), len(llm_requests(llm))) == ([], 1)
        [spent] = memory.admin.usage(user_id=ALEX)
        assert (spent.step, spent.calls, spent.tokens_in) == ("extract", 1, llm.stats.prompt_tokens)


def test_the_cost_of_a_job_that_fails_afterwards_is_recorded_once(
    tmp_path: Path, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    learns(llm, BIKE_MESSAGE, claim(BIKE))
    settle, failures = learn.reconcile, [ValueError("a fault of ours")]

    def fails_once(*inputs: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return settle(*inputs, **options)

    monkeypatch.setattr(learn, "reconcile", fails_once)
    with opened(tmp_path, llm) as memory:
        say(memory, BIKE_MESSAGE)
        assert contents(facts(memory)) == [BIKE]
        [spent] = memory.admin.usage(user_id=ALEX)
        assert (spent.calls, len(llm_requests(llm))) == (2, 2)
        assert spent.tokens_in == llm.stats.prompt_tokens


def test_the_cost_of_an_episode_of_a_cancelled_job_is_recorded(tmp_path: Path, llm: ScriptedLLM) -> None:
    with opened(tmp_path, llm, learn="rules") as memory:

        def cancel_then_answer(request: RecordedRequest) -> str:
            memory.jobs.cancel([job.id for job in memory.jobs.list(user_id=ALEX, states=["running"])], user_id=ALEX)
            return "The user has a red Cargo bike and took it to the repair shop."

        llm.when(SESSION).reply(cancel_then_answer)
        say(memory, BIKE_MESSAGE)
        assert memory.sessions.end(**TALK, wait=True).state == "cancelled"
        llm.wait_for(lambda server: llm_requests(server, SESSION))
        wait_until(lambda: memory.admin.usage(user_id=ALEX))
        [spent] = memory.admin.usage(user_id=ALEX)
        assert (spent.step, spent.calls) == ("close", 1)
        assert [each.category for each in memory.get_all(user_id=ALEX) if each.category == "episode"] == []


def test_waiting_for_a_job_does_not_wait_for_more_turns(tmp_path: Path, llm: ScriptedLLM) -> None:
    learns(llm, BIKE_MESSAGE, claim(BIKE))
    with opened(tmp_path, llm, learn_every=10, learn_wait_s=30) as memory:
        say(memory, BIKE_MESSAGE)
        assert contents(facts(memory)) == [BIKE]


def test_a_session_with_more_turns_than_a_batch_is_processed_to_its_end(tmp_path: Path, llm: ScriptedLLM) -> None:
    learns(llm, BIKE_MESSAGE, claim(BIKE, turns=[]))
    with opened(tmp_path, llm, learn_every=1000, compress_every=0) as memory:
        messages = [message for number in range(60) for message in exchange(f"I moved box {number} to the attic.")]
        memory.remember([*messages, *exchange(BIKE_MESSAGE)], **TALK)
        memory.sessions.end(**TALK, wait=True)
        memory.jobs.run_pending()
        assert contents(facts(memory)) == [BIKE]
        assert memory.sessions.list(user_id=ALEX)[0].learned_to == 122
        assert sum(len(new_turns(request)) for request in llm_requests(llm, EXTRACT)) == 122
