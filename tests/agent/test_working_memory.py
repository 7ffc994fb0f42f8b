"""Working memory stays within its budget: the last steps verbatim, a digest of the older ones."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.agent.types import Call, Observation, Step
from recollect.agent.working_memory import MIN_TOKENS, WorkingMemory, WorkingMemoryLimits, fit_step
from recollect.errors import InvalidInput
from recollect.models.openai_chat import OpenAIChat
from recollect.sessions.agent_runs import StepKind
from recollect.testing.scripted_llm import ScriptedLLM
from recollect.text.tokens import count_tokens
from tests.support.llm_faults import hang, http_error

COMPRESS = "An agent is working on a task"


def step(number: int, *, result: str = "", thought: str = "", failed: bool = False, calls: int = 1) -> Step:
    made = [Call(id=f"c{number}.{at}", tool=f"look_{number}", arguments={"at": at}) for at in range(calls)]
    seen = [
        Observation(call_id=call.id, tool=call.tool, text=result or f"value {number}", failed=failed) for call in made
    ]
    return Step(thought=thought or f"Let me see. I look at {number}.", calls=tuple(made), observations=tuple(seen))


texts = st.one_of(
    st.text(max_size=300),
    st.text(alphabet="ab 1.\n日é😀", min_size=200, max_size=1000),
    st.sampled_from(["x" * 2500, "word " * 700, "9" * 800, "{" * 900, "\n" * 700, "😀" * 400]),
)
steps = st.builds(
    step,
    st.integers(0, 99),
    result=texts,
    thought=texts,
    failed=st.booleans(),
    calls=st.integers(0, 8),
)
all_limits = st.builds(
    lambda tokens, keep, more: WorkingMemoryLimits(tokens=tokens, keep_steps=keep, max_tokens=tokens + more),
    st.integers(400, 4000),
    st.integers(1, 5),
    st.sampled_from([0, 100, 5000]),
)


@settings(max_examples=25)
@given(all_limits, st.lists(steps, max_size=8))
def test_the_total_stays_within_the_budget_and_the_last_steps_are_verbatim(
    limits: WorkingMemoryLimits, added: list[Step]
) -> None:
    async def run() -> None:
        memory = WorkingMemory(limits)
        stored: list[Step] = []
        for each in added:
            stored.append(await memory.add(each))
            assert memory.tokens <= limits.max_tokens
            # Only the last steps may exceed the threshold.
            assert memory.tokens <= limits.tokens or len(memory.steps) <= limits.keep_steps
            assert memory.tokens == sum(item.tokens for item in memory.items) + count_tokens(memory.summary)
            # A step is cut only when it is added, if it is too long.
            assert memory.steps[-limits.keep_steps :] == tuple(stored[-limits.keep_steps :])
            assert len(memory.steps) >= min(limits.keep_steps, len(stored))
            if each.tokens <= limits.max_step_tokens:
                assert stored[-1] == each

    asyncio.run(run())


async def test_results_and_decisions_survive_compression() -> None:
    memory = WorkingMemory(WorkingMemoryLimits(tokens=2000, keep_steps=2))
    long = "Everything there is to say about it, and then some more. " * 40
    for number in range(15):
        await memory.add(step(number, result=f"port {number}", thought=f"{long}I choose {number}."))
    assert memory.compressed
    for number in range(memory.compressed):
        assert f"look_{number}(at=0) -> port {number}\n" in f"{memory.summary}\n"
        assert f"decided: I choose {number}." in memory.summary
    assert "some more" not in memory.summary


async def test_decisions_are_dropped_before_results() -> None:
    memory = WorkingMemory(WorkingMemoryLimits(tokens=MIN_TOKENS, keep_steps=1, max_tokens=MIN_TOKENS))
    for number in range(30):
        await memory.add(step(number, result=f"answer {number} " + "and more " * 40))
    report = memory.summary
    assert count_tokens(report) <= 100
    assert "decided" not in report
    assert "look_28(at=0) -> answer 28" in report
    assert "earlier lines" in report


async def test_nothing_is_compressed_while_everything_fits() -> None:
    memory = WorkingMemory(WorkingMemoryLimits(tokens=2000))
    for number in range(5):
        await memory.add(step(number))
    assert (memory.compressed, memory.summary, len(memory.steps)) == (0, "", 5)
    kinds = [item.kind for item in memory.items[:3]]
    assert kinds == [StepKind.THOUGHT, StepKind.ACTION, StepKind.OBSERVATION]
    assert all(item.tokens > 0 and item.at.tzinfo is not None for item in memory.items)
    assert memory.items[2].metadata == {"tool": "look_0", "call_id": "c0.0", "failed": False}


async def test_a_long_result_is_verbatim_while_recent_and_shortened_later() -> None:
    memory = WorkingMemory()
    long = step(1, result="The first line. " + "word " * 4000)
    assert await memory.add(long) == long
    assert memory.tokens > memory.limits.tokens
    for number in range(2, 5):
        await memory.add(step(number))
    assert "look_1(at=0) -> The first line." in memory.summary
    assert memory.tokens < 1000


async def test_the_model_is_not_asked_for_every_step(llm: ScriptedLLM) -> None:
    llm.when(COMPRESS).reply("It was looked at.")
    chat = OpenAIChat(llm.base_url, model="m")
    memory = WorkingMemory(WorkingMemoryLimits(tokens=2000, keep_steps=2), chat=chat)
    for number in range(20):
        await memory.add(step(number, result="found " * 300))
    assert memory.compressed > 10
    assert 2 < len(llm.calls("chat")) < 13
    await chat.close()


async def test_without_a_limit_nothing_is_cut() -> None:
    memory = WorkingMemory(WorkingMemoryLimits(tokens=0))
    long = step(1, result="word " * 5_000)
    assert await memory.add(long) is long
    for number in range(20):
        await memory.add(step(number))
    assert len(memory.steps) == 21
    assert memory.summary == ""


async def test_the_digest_has_the_summary_of_the_model_and_the_results(llm: ScriptedLLM) -> None:
    llm.when(COMPRESS).reply("The port is in the configuration; the registry does not know it.")
    chat = OpenAIChat(llm.base_url, model="m")
    memory = WorkingMemory(WorkingMemoryLimits(tokens=800, keep_steps=2, max_tokens=800), chat=chat)
    for number in range(12):
        await memory.add(step(number, result=f"port {number}", thought="thinking " * 80))
    assert memory.summary.startswith("The port is in the configuration")
    assert f"look_{memory.compressed - 1}(at=0) -> port" in memory.summary
    assert memory.tokens <= 800
    assert memory.usage.calls == len(llm.calls("chat")) > 0
    await chat.close()


@pytest.mark.parametrize("reply", ["", "word " * 3000])
async def test_rules_summarise_if_the_answer_of_the_model_is_unusable(llm: ScriptedLLM, reply: str) -> None:
    llm.default = reply
    chat = OpenAIChat(llm.base_url, model="m", timeout_s=30)
    memory = WorkingMemory(WorkingMemoryLimits(tokens=800, keep_steps=2, max_tokens=800), chat=chat)
    for number in range(8):
        await memory.add(step(number, result=f"port {number}", thought="thinking " * 80))
    assert "look_0(at=0) -> port 0" in memory.summary
    assert "word word" not in memory.summary
    await chat.close()


async def test_rules_summarise_while_the_model_is_unavailable(llm: ScriptedLLM) -> None:
    llm.fault(http_error(500), times=None)
    chat = OpenAIChat(llm.base_url, model="m", timeout_s=30)
    memory = WorkingMemory(WorkingMemoryLimits(tokens=400, keep_steps=1, max_tokens=400), chat=chat)
    for number in range(5):
        await memory.add(step(number, thought="thinking " * 80))
    assert "look_0(at=0) -> value 0" in memory.summary
    await chat.close()


async def test_rules_summarise_if_the_model_is_too_slow(llm: ScriptedLLM) -> None:
    llm.fault(hang(), times=None)
    chat = OpenAIChat(llm.base_url, model="m", timeout_s=60)
    memory = WorkingMemory(WorkingMemoryLimits(tokens=400, keep_steps=1, max_tokens=400), chat=chat)
    for number in range(5):
        await memory.add(step(number, thought="thinking " * 80), within_s=0.05 if number < 4 else 0)
    assert "look_0(at=0) -> value 0" in memory.summary
    await chat.close()


def test_a_long_step_keeps_the_beginning_of_each_part() -> None:
    long = step(1, thought="think " * 400, result="result " * 400, calls=3)
    cut = fit_step(long, 500)
    assert cut.tokens <= 500
    assert [call.signature for call in cut.calls] == [call.signature for call in long.calls]
    assert all(seen.text.startswith("result result") for seen in cut.observations)
    assert cut.thought.startswith("think think")
    decided = fit_step(Step(thought="Well, let me see. " * 200 + "So I take the train."), 200)
    assert decided.tokens <= 200
    assert decided.thought.endswith("So I take the train.")


def test_invalid_limits_are_refused() -> None:
    for wrong in ({"tokens": 100}, {"keep_steps": 0}, {"tokens": 2000, "max_tokens": 1000}):
        with pytest.raises(InvalidInput):
            WorkingMemoryLimits(**wrong)
