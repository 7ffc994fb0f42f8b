"""What recalling may cost: what the LLM is asked is put down behind the answer, and not asked beyond the limit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recollect.errors import InvalidInput, StoreUnavailable
from recollect.ledger.ledger import Ledger
from recollect.ledger.sqlite import open_in_memory
from recollect.model.change import ModelUsage
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.usage import LlmQuota
from recollect.models.openai_chat import OpenAIChat
from recollect.read.llm_budget import LlmBudget, MeteredChat
from recollect.read.rewrite import rewrite
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.ledger_samples import BY, MODEL, add, memory
from tests.support.llm_faults import delay, http_error
from tests.support.remember_samples import ALEX, BIKE_MESSAGE, llm_requests, opened, opened_async, say

VAGUE = [{"role": "user", "content": text} for text in ("I plan the Hawaii vacation", "How much?")]
WHOLE = "What is the budget for the Hawaii vacation?"
AT = datetime(2026, 6, 15, 12, tzinfo=UTC)


def cost(home: Path, **user: str) -> dict[tuple[str | None, str | None], int]:
    """How often which model was asked by which step, as the ledger has it."""
    with opened(home) as memory:
        return {(each.model, each.step): each.calls for each in memory.admin.usage(parts=["model", "step"], **user)}


@pytest.mark.parametrize(("mode", "step"), [("llm", "rewrite"), ("hyde", "hyde")])
def test_what_recall_asks_is_recorded_for_the_user_under_its_own_step(
    tmp_path: Path, llm: ScriptedLLM, mode: str, step: str
) -> None:
    with opened(tmp_path, llm, rewrite=mode, learn="off") as memory:
        memory.add("The Hawaii budget is $10,000", user_id=ALEX)
        memory.add("Sam likes tea", user_id="sam")
        llm.default = WHOLE
        for _ in range(2):
            assert "by the LLM" in " ".join(memory.recall(VAGUE, user_id=ALEX).notes)
    assert cost(tmp_path, user_id=ALEX) == {("scripted", step): 2}
    assert cost(tmp_path, user_id="sam") == {}
    with opened(tmp_path) as memory:
        [spent] = memory.admin.usage(user_id=ALEX)
        assert (spent.tokens_in, spent.tokens_out) == (llm.stats.prompt_tokens, llm.stats.completion_tokens)
        together = spent.tokens_in + spent.tokens_out
        assert memory.admin.spent_today().tokens == memory.admin.spent_today(user_id=ALEX).tokens == together > 0


def test_without_an_llm_recall_costs_nothing(tmp_path: Path) -> None:
    with opened(tmp_path, rewrite="llm") as memory:
        memory.add("The Hawaii budget is $10,000", user_id=ALEX)
        memory.recall(VAGUE, user_id=ALEX)
    assert cost(tmp_path) == {}


def test_beyond_the_limit_of_a_user_terms_are_added_and_it_is_said(tmp_path: Path, llm: ScriptedLLM) -> None:
    with opened(tmp_path, llm, rewrite="llm", learn="off", llm_user_tokens_per_day=1) as memory:
        for user in (ALEX, "sam"):
            memory.add("The Hawaii budget is $10,000", user_id=user)
        llm.default = WHOLE
        assert memory.recall(VAGUE, user_id=ALEX).query == WHOLE
        # What the first one cost is not in the ledger yet, and counts all the same.
        recalled = memory.recall(VAGUE, user_id=ALEX)
        assert recalled.query == "How much? Hawaii vacation plan"
        assert [each.memory for each in recalled] == ["The Hawaii budget is $10,000"]
        messages = "the LLM has used today's 1 tokens of this user; terms of the user's last messages added"
        assert messages in recalled.notes
        assert memory.recall(VAGUE, user_id="sam").query == WHOLE
        assert len(llm_requests(llm)) == 2


def test_beyond_the_limit_of_the_installation_nobody_asks_the_llm(tmp_path: Path, llm: ScriptedLLM) -> None:
    with opened(tmp_path, llm, rewrite="hyde", llm_tokens_per_day=1) as memory:
        memory.add("The Hawaii budget is $10,000", user_id="sam")
        assert say(memory, BIKE_MESSAGE)["by"] == "llm"
        notes = memory.recall(VAGUE, user_id="sam").notes
        assert any("the LLM has used today's 1 tokens of all users" in note for note in notes)
        report = say(memory, "My name is Sam.", user_id="sam")
        assert report["by"] == "selector, since the LLM has used today's 1 tokens of all users"
        assert len(llm_requests(llm)) == 1


def test_what_recall_spends_counts_against_learning(tmp_path: Path, llm: ScriptedLLM) -> None:
    more: dict[str, Any] = {"rewrite": "llm", "llm_user_tokens_per_day": 1}
    with opened(tmp_path, llm, **more) as memory:
        memory.add("The Hawaii budget is $10,000", user_id=ALEX)
        llm.default = WHOLE
        memory.recall(VAGUE, user_id=ALEX)
    with opened(tmp_path, llm, **more) as memory:
        assert "today's 1 tokens of this user" in say(memory, BIKE_MESSAGE)["by"]


def test_yesterdays_tokens_are_no_longer_counted(tmp_path: Path, llm: ScriptedLLM) -> None:
    yesterday = spent(ALEX, tokens_in=50, at=now() - timedelta(days=1))

    async def spend() -> None:
        async with opened_async(tmp_path) as memory:
            await memory.add("The Hawaii budget is $10,000", user_id=ALEX)
            ledger = (await memory.service()).deps.ledger
            await ledger.apply(Scope(ALEX), [], by=BY, effects=[yesterday])

    asyncio.run(spend())
    with opened(tmp_path, llm, rewrite="llm", llm_user_tokens_per_day=50, llm_tokens_per_day=50) as memory:
        llm.default = WHOLE
        assert memory.recall(VAGUE, user_id=ALEX).query == WHOLE


def test_nobody_is_asked_for_a_user_of_whom_nothing_is_kept(tmp_path: Path, llm: ScriptedLLM) -> None:
    with opened(tmp_path, llm, rewrite="hyde") as memory:
        assert any("the user has no memories" in note for note in memory.recall(VAGUE, user_id=ALEX).notes)
        assert llm_requests(llm) == []
        assert memory.admin.users() == []


async def test_a_recall_on_a_local_ledger_reads_little_and_stays_in_its_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened_async(tmp_path) as memory:
        for number in range(40):
            await memory.add(f"The budget of trip {number} is ${number},000", user_id=ALEX)
        service = await memory.service()
        assert service.search_deps.late is not None
        await service.search_deps.late.flush(ALEX)
        await memory.recall("What is the budget of trip 7?", user_id=ALEX)
        engine, loop, this_task = service.deps.ledger.engine, asyncio.get_running_loop(), asyncio.current_task()
        read, run_in_executor, steps = engine.read, loop.run_in_executor, list[str]()

        async def record_read(*args: Any, **options: Any) -> Any:
            steps.append("read")
            return await read(*args, **options)

        def record_hop(*args: Any) -> Any:
            # Background tasks may use threads.
            steps.extend(["hop"] if asyncio.current_task() is this_task else [])
            return run_in_executor(*args)

        monkeypatch.setattr(engine, "read", record_read)
        monkeypatch.setattr(loop, "run_in_executor", record_hop)
        recalled = await memory.recall("How expensive is trip 9?", user_id=ALEX)
        assert "trip 9" in recalled.context.text
        assert "hop" not in steps
        # Pinned facts, revision, full text, token vectors, records once or twice, and facts of turns.
        assert steps.count("read") <= 7


def spent(user: str = "ann", **fields: Any) -> ModelUsage:
    return ModelUsage(**{"user": user, "step": "rewrite", "model": "small", "at": AT, **fields})


class Away:
    """A ledger that can be away, and counts how often it is asked."""

    def __init__(self, ledger: Ledger) -> None:
        self.inner = ledger
        self.requests: list[str] = []
        self.error: Exception | None = None
        self.tried = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        self.requests.append(name)
        self.tried.set()
        if self.error is not None:
            raise self.error
        return getattr(self.inner, name)


@pytest.fixture
async def ledger() -> AsyncIterator[Any]:
    inner = await open_in_memory(MODEL)
    for user in ("ann", "bob"):
        await add(inner, memory(scope=Scope(user)))
    yield Away(inner)
    await inner.close()


async def calls(ledger: Any) -> dict[str | None, int]:
    return {each.user: each.calls for each in await ledger.inner.usage(by=["user"])}


async def test_what_is_noted_is_written_in_one_go_for_each_user_and_at_the_latest_when_it_closes(ledger: Any) -> None:
    spending = LlmBudget(ledger, wait_s=600)
    for user in ("ann", "bob", "ann"):
        spending.record(spent(user, tokens_in=5, tokens_out=2))
    await asyncio.sleep(0)
    assert await calls(ledger) == {}
    await spending.close()
    assert await calls(ledger) == {"ann": 2, "bob": 1}
    assert ledger.requests == ["apply", "apply"]
    [ann, _] = await ledger.inner.usage(by=["user"])
    assert (ann.tokens_in, ann.tokens_out) == (10, 4)


async def test_it_is_written_without_anyone_closing(ledger: Any) -> None:
    spending = LlmBudget(ledger, wait_s=0)
    spending.record(spent())
    async with asyncio.timeout(60):
        while not await calls(ledger):  # noqa: ASYNC110 - nothing tells that it is written
            await asyncio.sleep(0.01)
    await spending.close()
    assert await calls(ledger) == {"ann": 1}


async def test_what_is_spent_while_the_ledger_is_away_is_written_when_it_is_back(ledger: Any) -> None:
    spending = LlmBudget(ledger, wait_s=0)
    ledger.error = StoreUnavailable("away")
    spending.record(spent())
    await ledger.tried.wait()
    spending.record(spent(step="hyde"))
    ledger.error = None
    await spending.close()
    assert await calls(ledger) == {"ann": 2}


async def test_a_ledger_that_stays_away_holds_up_no_end_and_is_told_of(
    ledger: Any, caplog: pytest.LogCaptureFixture
) -> None:
    spending = LlmBudget(ledger, wait_s=0)
    ledger.error = StoreUnavailable("away")
    spending.record(spent(calls=3))
    await ledger.tried.wait()
    with caplog.at_level(logging.WARNING, logger="recollect"):
        async with asyncio.timeout(60):
            await spending.close()
    assert "3 LLM calls are not recorded" in caplog.text


async def test_what_the_ledger_refuses_for_good_is_not_tried_for_ever(ledger: Any) -> None:
    spending = LlmBudget(ledger, wait_s=0)
    ledger.error = InvalidInput("never")
    spending.record(spent())
    await ledger.tried.wait()
    ledger.error = None
    await spending.close()
    assert (await calls(ledger), ledger.requests) == ({}, ["apply"])


async def test_without_a_limit_what_was_spent_is_not_looked_up(ledger: Any) -> None:
    assert await LlmBudget(ledger).refusal("ann") == ""
    assert "spent_today" not in ledger.requests
    assert await LlmBudget(ledger, LlmQuota(user=1)).refusal("ann") == ""
    assert ledger.requests.count("spent_today") == 1


async def test_what_waits_to_be_written_counts_and_is_not_counted_for_others(ledger: Any) -> None:
    today = now()
    spending = LlmBudget(ledger, LlmQuota(user=10, everyone=15), wait_s=600)
    spending.record(spent("ann", tokens_in=10, at=today))
    assert "10 tokens of this user" in await spending.refusal("ann")
    assert await spending.refusal("bob") == ""
    spending.record(spent("bob", tokens_out=5, at=today))
    assert "15 tokens of all users" in await spending.refusal("bob")
    await spending.close()
    assert "10 tokens of this user" in await spending.refusal("ann")


async def test_a_question_that_nobody_answers_in_time_counts_as_a_call(ledger: Any, llm: ScriptedLLM) -> None:
    chat, spending = OpenAIChat(llm.base_url, model="small"), LlmBudget(ledger)
    llm.fault(delay(30))
    done = await rewrite(VAGUE, mode="llm", llm=MeteredChat(chat, "ann", spending), timeout_s=0.2)
    assert (done.method, "did not answer" in done.note or "no help" in done.note) == ("terms", True)
    await spending.close()
    await chat.close()
    [results] = await ledger.inner.usage("ann")
    assert (results.step, results.calls, results.tokens_in) == ("rewrite", 1, 0)


async def test_an_answer_without_words_is_on_the_bill_with_its_tokens(ledger: Any, llm: ScriptedLLM) -> None:
    chat, spending = OpenAIChat(llm.base_url, model="small"), LlmBudget(ledger)
    choice = {"message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}
    llm.fault(http_error(200, {"choices": [choice], "usage": {"prompt_tokens": 40, "completion_tokens": 3}}))
    done = await rewrite(VAGUE, mode="hyde", llm=MeteredChat(chat, "ann", spending), timeout_s=60)
    assert done.method == "terms"
    await spending.close()
    await chat.close()
    [results] = await ledger.inner.usage("ann")
    assert (results.step, results.calls, results.tokens_in, results.tokens_out) == ("hyde", 1, 40, 3)


def test_a_bill_that_cannot_be_written_fails_no_recall(
    tmp_path: Path, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*args: Any, **options: Any) -> Any:
        raise StoreUnavailable("the ledger takes no writes")

    with opened(tmp_path, llm, rewrite="llm", learn="off") as memory:
        memory.add("The Hawaii budget is $10,000", user_id=ALEX)
        llm.default = WHOLE
        with monkeypatch.context() as patched:
            patched.setattr(Ledger, "apply", away)
            recalled = memory.recall(VAGUE, user_id=ALEX)
        assert (recalled.outcome, recalled.query) == ("used", WHOLE)
    assert cost(tmp_path) == {("scripted", "rewrite"): 1}
