"""The end of a run: what was said goes to the log, what it came to to its conversation, and its episode is kept."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from recollect.agent.answer import Answer
from recollect.agent.habits import AgentHabits
from recollect.agent.lessons import lessons_of
from recollect.agent.step import Step
from recollect.conversation.run import Run, RunStep, StepKind
from recollect.errors import RecollectError
from recollect.model.change import By
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


async def tell(service: Service, scope: Scope, question: str, answer: Answer, *, habits: AgentHabits) -> Told:
    """Put what was asked and answered in the log, to be learned from behind; durable when it returns."""
    if not habits.learns:
        return Told()
    said = [{"role": "user", "content": mended_text(question)}]
    if answer.ended in ("answered", "iterations"):
        said.append({"role": "assistant", "content": mended_text(answer.text)})
    try:
        remembered = await service.remember(scope, said, by=By(BY), mode=_MODE)
    except RecollectError as error:
        return Told(note=f"not remembered: {error}")
    return Told(tuple(remembered.turns))


async def end(
    service: Service, scope: Scope, question: str, answer: Answer, *, told: Told, habits: AgentHabits
) -> None:
    """Keep what the run came to with its conversation, and as an episode if it was a task; a model confirms that.

    Nobody waits for it, so what goes wrong is logged.
    """
    run = Run(
        id=answer.run_id,
        goal=mended_text(question),
        steps=tuple(_steps(answer.steps)) if habits.records else (),
        answer=mended_text(answer.text),
        success=answer.success,
        lessons=lessons_of(answer) if habits.records else (),
        turns=tuple(turn.id for turn in told.turns),
        last_turn=told.turns[-1].position if told.turns else 0,
        ended_at=now(),
    )
    try:
        await service.care.end_run(scope, run)
    except RecollectError as error:
        _log.warning("what a run came to is not kept: %s", error)
    except Exception as error:
        # A fault of ours, or a part that was closed meanwhile: the answer is out, and nobody is there to raise it to.
        _log.error("what a run came to is not kept. %s", traced_fault(error))


def _steps(steps: tuple[Step, ...]) -> Iterator[RunStep]:
    for step in steps:
        if step.thought:
            yield RunStep(StepKind.THOUGHT, mended_text(step.thought))
        failed = {seen.call_id for seen in step.observed if seen.failed}
        for call in step.calls:
            plain = f"{call.plain} (failed)" if call.id in failed else call.plain
            yield RunStep(StepKind.ACTION, mended_text(plain))
        for seen in step.observed:
            yield RunStep(StepKind.OBSERVATION, mended_text(seen.text))
