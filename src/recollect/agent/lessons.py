"""What a run teaches, as far as rules can tell: what failed and what worked instead; why it was not finished."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from recollect.agent.answer import Answer
from recollect.agent.step import Call, Observation, Step
from recollect.prompts.data import shorten

_MAX_LESSONS = 3
_LESSON_CHARS = 120


def lessons_of(answer: Answer) -> tuple[str, ...]:
    """A sentence for each thing that went wrong, with what went right after it; nothing if all went well."""
    outcomes = list(_calls(answer.steps))
    lessons = []
    for at, (call, observation) in enumerate(outcomes):
        if observation.failed:
            # What the same tool did when it was asked otherwise, or else what was done next.
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
