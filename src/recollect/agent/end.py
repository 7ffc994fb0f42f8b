"""The end of a run: what was said goes to the log, what it came to to its conversation, and its episode is kept."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from recollect.agent.answer import Answer
from recollect.agent.habits import AgentHabits
from recollect.agent.lessons import lessons_of
from recollect.agent.step import Step
from recollect.agent.tools.memory_tools import MEMORY_TOOLS
from recollect.conversation.run import Run, RunStep, StepKind
from recollect.errors import RecollectError
from recollect.model.change import By
from recollect.model.effect import Spent
from recollect.model.faults import traced_fault
from recollect.model.scope import Scope
from recollect.model.text import mended_text
from recollect.model.times import now
from recollect.model.turn import Turn
from recollect.service import Service

_log = logging.getLogger("recollect")
BY = "agent"
# What the LLM listens for in what an agent was asked and answered.
_MODE = "task"


@dataclass(frozen=True, slots=True)
class Told:
    """What of a run is in the log, and why the rest is not, if that is so."""

    turns: tuple[Turn, ...] = ()
    note: str = ""


async def tell(
    service: Service, scope: Scope, question: str, answer: Answer, *, habits: AgentHabits, by: str = BY
) -> Told:
    """Put what was asked and answered in the log, to be learned from behind; durable when it returns."""
    if not habits.learns:
        return Told()
    said = [{"role": "user", "content": mended_text(question)}]
    if answer.ended in ("answered", "iterations"):
        said.append({"role": "assistant", "content": mended_text(answer.text)})
    try:
        remembered = await service.remember(scope, said, by=By(by), mode=_MODE)
    except RecollectError as error:
        return Told(note=f"not remembered: {error}")
    return Told(tuple(remembered.turns))


async def end(
    service: Service, scope: Scope, question: str, answer: Answer, *, told: Told, habits: AgentHabits, model: str
) -> None:
    """Keep what the run came to with its conversation, and as an episode if it was a task; a model confirms that.

    Nobody waits for it, so what goes wrong is logged.
    """
    work = tuple(_without_memory(answer.steps)) if habits.records else ()
    run = Run(
        id=answer.run_id,
        goal=mended_text(question),
        steps=tuple(_steps(work)),
        answer=mended_text(answer.text),
        success=answer.success,
        lessons=lessons_of(replace(answer, steps=work)) if habits.records else (),
        turns=tuple(turn.id for turn in told.turns),
        last_turn=told.turns[-1].position if told.turns else 0,
        ended_at=now(),
    )
    spent = Spent(
        user=scope.user,
        step=BY,
        model=model,
        calls=answer.asked,
        tokens_in=answer.tokens_in,
        tokens_out=answer.tokens_out,
        at=run.ended_at,
    )
    try:
        if spent.calls:
            await service.care.put_down(spent)
        await service.care.end_run(scope, run)
    except RecollectError as error:
        _log.warning("what a run came to is not kept: %s", error)
    except Exception as error:
        # A fault of ours, or a part that was closed meanwhile: the answer is out, and nobody is there to raise it to.
        _log.error("what a run came to is not kept. %s", traced_fault(error))


def _without_memory(steps: Sequence[Step]) -> Iterator[Step]:
    """The steps but for what was done with memory: to look something up there is no work on the task."""
    for step in steps:
        calls = tuple(call for call in step.calls if call.tool not in MEMORY_TOOLS)
        ids = {call.id for call in calls}
        if calls or not step.calls:
            yield replace(step, calls=calls, observed=tuple(seen for seen in step.observed if seen.call_id in ids))


def _steps(steps: Sequence[Step]) -> Iterator[RunStep]:
    for step in steps:
        if step.thought:
            yield RunStep(StepKind.THOUGHT, mended_text(step.thought))
        failed = {seen.call_id for seen in step.observed if seen.failed}
        for call in step.calls:
            plain = f"{call.plain} (failed)" if call.id in failed else call.plain
            yield RunStep(StepKind.ACTION, mended_text(plain))
        for seen in step.observed:
            yield RunStep(StepKind.OBSERVATION, mended_text(seen.text))
