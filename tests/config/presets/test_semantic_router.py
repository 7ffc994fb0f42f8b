"""The worked examples of the first design about saving: said in one session, known in the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recollect import AsyncMemory, Memory
from recollect.config.settings import load
from recollect.maintenance.tasks import MaintenanceReport
from recollect.model.result import RecallOutcome
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.remember_samples import (
    ALEX,
    CONSOLIDATE,
    EXTRACT,
    SESSION,
    changes,
    claim,
    contents,
    exchange,
    facts,
    learns,
    llm_requests,
    new_turns,
    opened,
    opened_async,
    read_along,
    user,
)

BUDGET = "My budget for the Hawaii trip is $10,000"
DEPLOY = "To deploy payment-service: run npm build, then docker push"
# One exchange at a time is learned from here; the design's own rhythm has a test of its own.
AT_ONCE: dict[str, Any] = {"preset": "semantic-router", "learn_every": 1}


def remember_budget(memory: Memory) -> None:
    memory.remember(exchange(BUDGET), user_id=ALEX, session_id="March 15", wait=True)


def test_the_hawaii_budget_told_on_march_15_is_known_in_the_new_session_of_march_20(
    tmp_path: Path, llm: ScriptedLLM
) -> None:
    learns(llm, BUDGET, claim("budget for Hawaii vacation is $10,000"))
    with opened(tmp_path, llm, **AT_ONCE) as memory:
        remember_budget(memory)
        [stored] = facts(memory)
        assert (stored.content, stored.type, stored.scope.session) == (
            "budget for Hawaii vacation is $10,000",
            "semantic",
            "March 15",
        )
        question = user("What's my budget for the trip?")
        recalled = memory.recall(question, user_id=ALEX, session_id="March 20")
        assert recalled.outcome is RecallOutcome.USED
        assert recalled.context.text.startswith("## User's Relevant Context\n\n- ")
        assert "- budget for Hawaii vacation is $10,000\n" in recalled.context.text
        assert recalled.messages[0]["role"] == "system"


def test_the_hawaii_budget_is_known_in_the_new_session_without_an_llm(tmp_path: Path) -> None:
    with opened(tmp_path, **AT_ONCE) as memory:
        remember_budget(memory)
        assert contents(facts(memory)) == ["My budget for the Hawaii trip is $10,000"]
        recalled = memory.recall(user("What's my budget for the trip?"), user_id=ALEX, session_id="March 20")
        assert "- My budget for the Hawaii trip is $10,000\n" in recalled.context.text


def test_the_hawaii_budget_survives_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path, **AT_ONCE) as memory:
        remember_budget(memory)
    with opened(tmp_path, **AT_ONCE) as memory:
        recalled = memory.recall(user("What's my budget for the trip?"), user_id=ALEX, session_id="March 20")
        assert "$10,000" in recalled.context.text


def test_the_hawaii_budget_is_not_another_users(tmp_path: Path) -> None:
    with opened(tmp_path, **AT_ONCE) as memory:
        remember_budget(memory)
        recalled = memory.recall(user("What's my budget for the trip?"), user_id="sam", session_id="March 20")
        assert recalled.outcome is RecallOutcome.MISSING


def test_how_much_after_planning_a_vacation_finds_the_budget_by_the_rewritten_question(
    tmp_path: Path, llm: ScriptedLLM
) -> None:
    learns(llm, BUDGET, claim("budget for Hawaii vacation is $10,000"))
    llm.when("How much?").reply("What is the budget for the Hawaii vacation?")
    with opened(tmp_path, llm, **AT_ONCE) as memory:
        remember_budget(memory)
        question = user("Planning vacation", "Hawaii sounds nice", "How much?")
        recalled = memory.recall(question, user_id=ALEX, session_id="March 20")
        assert recalled.query == "What is the budget for the Hawaii vacation?"
        assert "budget for Hawaii vacation is $10,000" in recalled.context.text


def test_how_much_after_planning_a_vacation_finds_the_budget_without_an_llm(tmp_path: Path) -> None:
    with opened(tmp_path, **AT_ONCE) as memory:
        remember_budget(memory)
        question = user("Planning vacation", "Hawaii sounds nice", "How much?")
        assert "$10,000" in memory.recall(question, user_id=ALEX, session_id="March 20").context.text
        question = user("I am baking bread", "Sourdough is nice", "How much?")
        assert memory.recall(question, user_id=ALEX, session_id="March 20").outcome == "missing"


def test_10000_corrected_to_12000_is_shown_first_without_an_llm(tmp_path: Path) -> None:
    with opened(tmp_path, **AT_ONCE) as memory:
        remember_budget(memory)
        messages = exchange("Actually, the budget for the Hawaii trip is $12,000 now.")
        memory.remember(messages, user_id=ALEX, session_id="March 20", wait=True)
        recalled = memory.recall(user("What's my budget for the Hawaii trip?"), user_id=ALEX, session_id="later")
        assert "$12,000" in recalled.hits[0].memory


def test_10000_corrected_to_12000_is_12000_from_then_on(tmp_path: Path, llm: ScriptedLLM) -> None:
    before, correction = (f"User's budget for the Hawaii trip is {amount}" for amount in ("$10,000", "$12,000"))
    learns(llm, "is $10,000", claim(before))
    changes(llm, "is $12,000", "update", before, correction)
    with opened(tmp_path, llm, **AT_ONCE) as memory:
        remember_budget(memory)
        messages = exchange("Actually, the budget for the Hawaii trip is $12,000 now.")
        memory.remember(messages, user_id=ALEX, session_id="March 20", wait=True)
        [stored] = facts(memory)
        assert stored.content == correction
        [old] = memory.get_all(user_id=ALEX, statuses=["superseded"])
        assert (old.content, old.superseded_by) == ("User's budget for the Hawaii trip is $10,000", stored.id)
        recalled = memory.recall(user("What's my budget for the Hawaii trip?"), user_id=ALEX, session_id="later")
        lines = [line for line in recalled.context.text.splitlines() if line.startswith("- User's")]
        assert lines == [f"- {correction}"]
        memory.undo(user_id=ALEX)
        assert contents(facts(memory)) == ["User's budget for the Hawaii trip is $10,000"]


@pytest.mark.parametrize("with_llm", [True, False])
def test_the_deployment_of_payment_service_is_kept_as_a_procedure(
    tmp_path: Path, llm: ScriptedLLM, with_llm: bool
) -> None:
    learns(llm, DEPLOY, claim(DEPLOY, type="procedural"))
    with opened(tmp_path, llm if with_llm else None, **AT_ONCE) as memory:
        memory.remember(exchange(DEPLOY), user_id=ALEX, session_id="monday", wait=True)
        [stored] = facts(memory)
        assert (stored.content, stored.type, stored.status) == (DEPLOY, "procedural", "active")
        recalled = memory.recall(user("How do I deploy payment-service?"), user_id=ALEX, session_id="friday")
        assert f"- {DEPLOY}\n" in recalled.context.text


def test_the_preset_learns_every_10_exchanges_with_5_turns_of_overlap(tmp_path: Path) -> None:
    settings = load({"home": tmp_path, "preset": "semantic-router"}, environ={}).settings
    assert (settings.learn_every, settings.learn_overlap) == (10, 5)


def test_every_10_exchanges_are_one_call_with_5_turns_read_along(tmp_path: Path, llm: ScriptedLLM) -> None:
    numbers = iter(range(1, 100))
    with opened(tmp_path, llm, preset="semantic-router", learn_every=10, learn_overlap=5) as memory:

        def say(exchanges: int) -> None:
            for _ in range(exchanges):
                messages = exchange(f"I moved box {next(numbers)} to the attic today.")
                memory.remember(messages, user_id=ALEX, session_id="long")
            memory.jobs.run_pending()

        say(9)
        assert llm_requests(llm) == []
        say(1)
        [first] = llm_requests(llm, EXTRACT)
        assert (len(new_turns(first)), len(read_along(first))) == (20, 0)
        say(10)
        [_, second] = llm_requests(llm, EXTRACT)
        assert (len(new_turns(second)), len(read_along(second))) == (20, 5)
        assert "box 11 " in new_turns(second)[0]


def test_what_is_left_of_ten_turns_is_learned_at_the_end_of_the_session(tmp_path: Path, llm: ScriptedLLM) -> None:
    learns(llm, BUDGET, claim("budget for Hawaii vacation is $10,000"))
    with opened(tmp_path, llm, preset="semantic-router", learn_every=10) as memory:
        memory.remember(exchange(BUDGET), user_id=ALEX, session_id="March 15")
        memory.jobs.run_pending()
        assert facts(memory) == []
        assert memory.sessions.end(user_id=ALEX, session_id="March 15", wait=True).state == "done"
        assert contents(facts(memory)) == ["budget for Hawaii vacation is $10,000"]


def test_a_drift_of_topic_is_learned_before_ten_turns_are_there(tmp_path: Path, llm: ScriptedLLM) -> None:
    learns(llm, BUDGET, claim("budget for Hawaii vacation is $10,000"))
    with opened(tmp_path, llm, preset="semantic-router", learn_every=10, learn_drift=0.2) as memory:
        memory.remember(exchange(BUDGET), user_id=ALEX, session_id="s")
        memory.remember(exchange("Hotels in Hawaii should fit the budget of the trip."), user_id=ALEX, session_id="s")
        memory.jobs.run_pending()
        assert facts(memory) == []
        memory.remember(exchange("Our database migration fails with a lock timeout."), user_id=ALEX, session_id="s")
        memory.jobs.run_pending()
        assert contents(facts(memory)) == ["budget for Hawaii vacation is $10,000"]


def test_the_end_of_the_session_of_dec_29_2024_becomes_an_episode_with_its_date(
    tmp_path: Path, llm: ScriptedLLM
) -> None:
    report = "On Dec 29 2024, user planned Hawaii vacation with $10,000 budget"
    llm.when(SESSION).reply(report)
    messages = [
        *exchange("I want to plan a vacation in Hawaii.", "Lovely!", timestamp="2024-12-29T10:00:00+00:00"),
        *exchange("My budget is $10,000.", timestamp="2024-12-29T10:05:00+00:00"),
    ]
    with opened(tmp_path, llm, **AT_ONCE) as memory:
        memory.remember(messages, user_id=ALEX, session_id="hawaii", wait=True)
        memory.sessions.end(user_id=ALEX, session_id="hawaii", wait=True)
        [episode] = [each for each in memory.get_all(user_id=ALEX) if each.category == "episode"]
        assert (episode.content, episode.type) == (report, "episodic")
        assert episode.occurred_at is not None
        assert episode.occurred_at.date().isoformat() == "2024-12-29"


def test_the_end_of_the_session_has_its_date_without_an_llm(tmp_path: Path) -> None:
    messages = exchange("I plan a Hawaii vacation with a budget of $10,000.", timestamp="2024-12-29T10:00:00+00:00")
    with opened(tmp_path, **AT_ONCE) as memory:
        memory.remember(messages, user_id=ALEX, session_id="hawaii", wait=True)
        memory.sessions.end(user_id=ALEX, session_id="hawaii", wait=True)
        [episode] = [each for each in memory.get_all(user_id=ALEX) if each.category == "episode"]
        assert episode.content.startswith("On Dec 29 2024, the user said:")
        assert "$10,000" in episode.content


def test_a_fact_that_is_nearly_the_same_updates_and_one_that_is_not_is_created(
    tmp_path: Path, llm: ScriptedLLM
) -> None:
    learns(llm, "budget for Hawaii is", claim("User's budget for the Hawaii trip is $10,000"))
    learns(llm, "As I said", claim("The budget of the user for the Hawaii trip is $10,000"))
    learns(llm, "hotel costs", claim("The hotel of the Hawaii trip costs $5,000"))
    with opened(tmp_path, llm, **AT_ONCE) as memory:
        for text in (
            "My budget for Hawaii is $10,000 for the trip.",
            "As I said, my budget for the Hawaii trip is $10,000.",
            "The hotel costs $5,000 on the Hawaii trip.",
        ):
            memory.remember(exchange(text), user_id=ALEX, session_id="s", wait=True)
        stored = facts(memory)
        assert len(stored) == 2
        budget = next(each for each in stored if "$10,000" in each.content)
        assert len(budget.evidence) == 2
        assert len(llm_requests(llm, EXTRACT)) == 3


def test_memories_of_a_project_are_seen_in_that_project_alone(tmp_path: Path) -> None:
    with opened(tmp_path, **AT_ONCE) as memory:
        memory.remember(exchange(DEPLOY), user_id=ALEX, project_id="payments", session_id="monday", wait=True)
        question = user("How do I deploy payment-service?")
        assert memory.recall(question, user_id=ALEX, project_id="payments", session_id="friday")
        assert not memory.recall(question, user_id=ALEX, project_id="other", session_id="friday")


async def test_10000_then_2000_added_then_12000_are_consolidated_into_one_memory_that_tells_of_both(
    tmp_path: Path, llm: ScriptedLLM
) -> None:
    before = ("Budget for Hawaii is $10,000", "Added $2,000 to Hawaii budget", "Final Hawaii budget is $12,000")
    after = "Hawaii trip budget: $12,000 (updated from initial $10,000)"
    for each in before:
        learns(llm, each, claim(each))
    operations: list[dict[str, Any]] = [{"op": "update", "memory": 3, "content": after}]
    operations += [{"op": "end", "memory": at, "content": "It is no longer the budget"} for at in (1, 2)]
    llm.when(CONSOLIDATE).reply_json({"operations": operations})
    async with opened_async(tmp_path, llm, **AT_ONCE) as memory:
        for each in before:
            await memory.remember(exchange(f"{each} for the trip."), user_id=ALEX, session_id="hawaii", wait=True)
        assert sorted(each.content for each in await memory.get_all(user_id=ALEX)) == sorted(before)

        dry = await consolidated(memory, dry_run=True)
        assert len(dry.steps) == 1
        assert len(await memory.get_all(user_id=ALEX)) == 3

        await consolidated(memory)
        [one] = await memory.get_all(user_id=ALEX)
        assert one.content == after
        old = await memory.get_all(user_id=ALEX, statuses=["superseded"])
        assert {each.superseded_by for each in old} == {one.id}
        question = user("What's my budget for the Hawaii trip?")
        recalled = await memory.recall(question, user_id=ALEX, session_id="later", filters={"category": "fact"})
        assert recalled.context.text == f"## User's Relevant Context\n\n- {after}\n"

        await memory.undo(user_id=ALEX)
        assert sorted(each.content for each in await memory.get_all(user_id=ALEX)) == sorted(before)


async def consolidated(memory: AsyncMemory, *, dry_run: bool = False) -> MaintenanceReport:
    """What upkeep does for Alex."""
    [report] = await memory.admin.maintain(["consolidate"], user_id=ALEX, dry_run=dry_run)
    return report
