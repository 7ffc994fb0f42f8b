"""The end of a run: what was said goes to the log, what it came to to its conversation, and its episode is kept."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from recollect.agent.answer import Answer
from recollect.agent.habits import AgentConfig
from recollect.agent.lessons import lessons_of
from recollect.agent.step import Step
from recollect.agent.tools.memory_tools import MEMORY_TOOLS
from recollect.conversation.run import RecordedStep, RunRecord, StepKind
from recollect.errors import RecollectError
from recollect.model.change import Author
from recollect.model.effect import ModelUsage
from recollect.model.faults import format_traceback
from recollect.model.scope import Scope
from recollect.model.text import repair_text
from recollect.model.times import now
from recollect.model.turn import Turn
from recollect.service import Service

_log = logging.getLogger("recollect")
BY = "agent"
# What the LLM listens for in what an agent was asked and answered.
_MODE = "task"


@dataclass(frozen=True, slots=True)
class RecordedTurns:
    """What of a run is in the log, and why the rest is not, if that is so."""

    turns: tuple[Turn, ...] = ()
    note: str = ""


async def record_turns(
    service: Service, scope: Scope, question: str, answer: Answer, *, config: AgentConfig, by: str = BY
) -> RecordedTurns:
    """Put what was asked and answered in the log, to be learned from behind; durable when it returns."""
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
    """Keep what the run came to with its conversation, and as an episode if it was a task; a model confirms that.

    Nobody waits for it, so what goes wrong is logged.
    """
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
    spent = ModelUsage(
        user=scope.user,
        step=BY,
        model=model,
        calls=answer.model_calls,
        tokens_in=answer.tokens_in,
        tokens_out=answer.tokens_out,
        at=run.ended_at,
    )
    try:
        if spent.calls:
            await service.operations.record_usage(spent)
        await service.operations.end_run(scope, run)
    except RecollectError as error:
        _log.warning("what a run came to is not kept: %s", error)
    except Exception as error:
        # A fault of ours, or a part that was closed meanwhile: the answer is out, and nobody is there to raise it to.
        _log.error("what a run came to is not kept. %s", format_traceback(error))


def _skip_memory_calls(steps: Sequence[Step]) -> Iterator[Step]:
    """The steps but for what was done with memory: to look something up there is no work on the task."""
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
