"""The memory of a run: what it starts with, and storing its turns, its episode and its lessons."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

from recollect.agent.config import AgentConfig
from recollect.agent.tools.memory_tools import EPISODES, FACTS, MEMORY_TOOLS
from recollect.agent.types import Answer, Call, Observation, Step
from recollect.errors import RecollectError
from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.change import Author, ModelUsage
from recollect.model.memory import Category
from recollect.model.result import Hit
from recollect.model.scope import Scope
from recollect.model.text import repair_text
from recollect.model.times import now
from recollect.model.turn import Conversation, Turn
from recollect.observability.tracing import format_traceback
from recollect.prompts.rendering import shorten
from recollect.service.service import Service
from recollect.service.tool_memory import ToolMemory
from recollect.sessions.agent_runs import RecordedStep, RunRecord, StepKind

_log = logging.getLogger("recollect")
BY = "agent"
# The extraction mode for turns of an agent.
_MODE = "task"
_MAX_LESSONS = 3
_LESSON_CHARS = 120


def lessons_of(answer: Answer) -> tuple[str, ...]:
    """Return a sentence for each failure and what worked instead; nothing if nothing failed."""
    outcomes = list(_calls(answer.steps))
    lessons = []
    for at, (call, observation) in enumerate(outcomes):
        if observation.failed:
            # A later successful call of the same tool, or else the next successful call.
            after = [later for later, later_observation in outcomes[at + 1 :] if not later_observation.failed]
            instead = next((later for later in after if later.tool == call.tool), after[0] if after else None)
            failure = f"{_short(call.signature)} failed: {_short(observation.text).rstrip('.')}"
            lessons.append(f"{failure}; {_short(instead.signature)} worked." if instead else f"{failure}.")
    if answer.ended not in ("answered", "failed"):
        lessons.insert(0, f"It was not finished within its {answer.ended} after {answer.actions} actions.")
    return tuple(dict.fromkeys(lessons))[:_MAX_LESSONS]


def _calls(steps: Sequence[Step]) -> Iterator[tuple[Call, Observation]]:
    for step in steps:
        by_call_id = {each.call_id: each for each in step.observations}
        yield from ((call, by_call_id[call.id]) for call in step.calls if call.id in by_call_id)


def _short(text: str) -> str:
    return shorten(" ".join(text.split()), _LESSON_CHARS)


@frozen_dataclass
class RecordedTurns:
    """The recorded turns of a run; `note` says why there are none, if they failed."""

    turns: tuple[Turn, ...] = ()
    note: str = ""


async def record_turns(
    service: Service, scope: Scope, question: str, answer: Answer, *, config: AgentConfig, by: str = BY
) -> RecordedTurns:
    """Append question and answer to the log; they are durable when this returns, and learned from later."""
    if not config.learns:
        return RecordedTurns()
    messages = [{"role": "user", "content": repair_text(question)}]
    if answer.ended in ("answered", "iterations"):
        messages.append({"role": "assistant", "content": repair_text(answer.text)})
    try:
        remembered = await service.remember(scope, messages, by=Author(by), mode=_MODE)
    except RecollectError as error:
        return RecordedTurns(note=f"not remembered: {error}")
    return RecordedTurns(tuple(remembered.turns))


async def finish_run(
    service: Service,
    scope: Scope,
    question: str,
    answer: Answer,
    *,
    recorded: RecordedTurns,
    config: AgentConfig,
    model: str,
) -> None:
    """Store the invocation and, if it was a task, the episode of a run; errors are logged, since nobody waits."""
    work = tuple(_skip_memory_calls(answer.steps)) if config.records else ()
    run = RunRecord(
        id=answer.run_id,
        goal=repair_text(question),
        steps=tuple(_to_run_steps(work)),
        answer=repair_text(answer.text),
        success=answer.success,
        lessons=lessons_of(replace(answer, steps=work)) if config.records else (),
        turns=tuple(turn.id for turn in recorded.turns),
        last_turn=recorded.turns[-1].position if recorded.turns else 0,
        ended_at=now(),
    )
    usage = ModelUsage(
        user=scope.user,
        step=BY,
        model=model,
        calls=answer.model_calls,
        tokens_in=answer.tokens_in,
        tokens_out=answer.tokens_out,
        at=run.ended_at,
    )
    try:
        if usage.calls:
            await service.usage.record(usage)
        await service.sessions.end_run(scope, run)
    except RecollectError as error:
        _log.warning("a run is not stored: %s", error)
    except Exception as error:
        # A bug, or a part that was closed: the answer was returned, so there is no caller to raise it to.
        _log.error("a run is not stored. %s", format_traceback(error))


def _skip_memory_calls(steps: Sequence[Step]) -> Iterator[Step]:
    """Yield the steps without calls of memory tools, which are no work on the task."""
    for step in steps:
        calls = tuple(call for call in step.calls if call.tool not in MEMORY_TOOLS)
        ids = {call.id for call in calls}
        if calls or not step.calls:
            yield replace(
                step,
                calls=calls,
                observations=tuple(observation for observation in step.observations if observation.call_id in ids),
            )


def _to_run_steps(steps: Sequence[Step]) -> Iterator[RecordedStep]:
    for step in steps:
        if step.thought:
            yield RecordedStep(StepKind.THOUGHT, repair_text(step.thought))
        failed = {observation.call_id for observation in step.observations if observation.failed}
        for call in step.calls:
            plain = f"{call.signature} (failed)" if call.id in failed else call.signature
            yield RecordedStep(StepKind.ACTION, repair_text(plain))
        for observation in step.observations:
            yield RecordedStep(StepKind.OBSERVATION, repair_text(observation.text))


_STYLE = "react-mem"


@frozen_dataclass(kw_only=True)
class StartContext:
    """The memories that a run starts with; `notes` say what is missing and why."""

    block: str = ""
    facts: tuple[str, ...] = ()
    episodes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


async def start_run(memory: ToolMemory, question: str, *, state: str, config: AgentConfig) -> StartContext:
    """Fetch memories for a run; without them if memory is unavailable. The question is embedded once."""
    try:
        async with asyncio.timeout(config.recall_s):
            facts, episodes, conversation = await _fetch(memory, question, state, config)
    except TimeoutError:
        return StartContext(notes=(f"without memory: it took more than {config.recall_s:g} s",))
    except RecollectError as error:
        return StartContext(notes=(f"without memory: {error}",))
    episode_text = " ".join(hit.memory for hit in episodes)
    # Drop lessons that one of the episodes contains.
    facts = [hit for hit in facts if hit.record.category is not Category.LESSON or hit.memory not in episode_text]
    context = memory.service.format_context(
        _STYLE, [*facts, *episodes], budget_tokens=config.memory_tokens, conversation=conversation
    )
    return StartContext(
        block=context.text,
        facts=tuple(hit.id for hit in facts),
        episodes=tuple(hit.id for hit in episodes),
        notes=tuple(f"left out: {reason}" for reason in set(context.dropped.values())),
    )


async def _fetch(
    memory: ToolMemory, question: str, state: str, config: AgentConfig
) -> tuple[Sequence[Hit], Sequence[Hit], Conversation]:
    texts = [question, f"{question}\n{state}"] if state else [question]
    vectors = await memory.service.embed_queries(texts)
    return await asyncio.gather(
        memory.search(texts[0], config.facts, among=FACTS, turns=False, vector=vectors[0]),
        memory.search(texts[-1], config.episodes, among=EPISODES, turns=False, vector=vectors[-1]),
        memory.service.conversation(memory.scope),
    )
