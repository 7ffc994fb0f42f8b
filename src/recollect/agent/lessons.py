"""What a run teaches, as far as rules can tell: what failed and what worked instead; why it was not finished."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from recollect.agent.answer import Answer
from recollect.agent.step import Call, Observed, Step
from recollect.prompts.data import shortened

_MOST = 3
_CHARS = 120


def lessons_of(answer: Answer) -> tuple[str, ...]:
    """A sentence for each thing that went wrong, with what went right after it; nothing if all went well."""
    made = list(_calls(answer.steps))
    lessons = []
    for at, (call, seen) in enumerate(made):
        if seen.failed:
            # What the same tool did when it was asked otherwise, or else what was done next.
            after = [later for later, observed in made[at + 1 :] if not observed.failed]
            instead = next((later for later in after if later.tool == call.tool), after[0] if after else None)
            told = f"{_short(call.plain)} failed: {_short(seen.text).rstrip('.')}"
            lessons.append(f"{told}; {_short(instead.plain)} worked." if instead else f"{told}.")
    if answer.ended not in ("answered", "failed"):
        lessons.insert(0, f"It was not finished within its {answer.ended} after {answer.actions} actions.")
    return tuple(dict.fromkeys(lessons))[:_MOST]


def _calls(steps: Sequence[Step]) -> Iterator[tuple[Call, Observed]]:
    for step in steps:
        seen = {each.call_id: each for each in step.observed}
        yield from ((call, seen[call.id]) for call in step.calls if call.id in seen)


def _short(text: str) -> str:
    return shortened(" ".join(text.split()), _CHARS)
