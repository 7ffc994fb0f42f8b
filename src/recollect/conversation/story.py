"""The story of a task as a model tells it and as a memory keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recollect.model.invisible import normalise_invisible
from recollect.models.structured import InvalidAnswer, Partial
from recollect.write.screening.redact import redact

_MAX_STEPS = 8
_MAX_LESSONS = 3
_MAX_CHARS = 600

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "task": {"type": "boolean"},
        "goal": {"type": "string"},
        "steps": {"type": "array", "items": {"type": "string"}},
        "outcome": {"type": "string"},
        "lessons": {"type": "array", "items": {"type": "string"}},
        "summary": {"type": "string"},
    },
    "required": ["task", "goal", "steps", "outcome", "lessons", "summary"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSummary:
    """What was wanted, done, achieved and learned; `made` from what was "given", or by a "model"."""

    goal: str
    steps: tuple[str, ...] = ()
    outcome: str = ""
    lessons: tuple[str, ...] = ()
    summary: str = ""
    task: bool = True
    made: str = "given"
    digest: str | None = None

    @property
    def text(self) -> str:
        """The story in words, a line for each part that there is."""
        lines = [f"Goal: {self.goal}"]
        if self.steps:
            lines.append("Steps: " + " ".join(f"{at}. {step}" for at, step in enumerate(self.steps, 1)))
        if self.outcome:
            lines.append(f"Outcome: {self.outcome}")
        if self.lessons:
            lines.append(f"Lessons: {' '.join(self.lessons)}")
        return "\n".join(lines)

    @property
    def detail(self) -> dict[str, Any]:
        """The parts by their names; lessons are one text, as episodes have them."""
        return {
            "goal": self.goal,
            "steps": list(self.steps),
            "outcome": self.outcome,
            "lessons": "\n".join(self.lessons),
        }


def parse_task_summary(value: object) -> TaskSummary | Partial[TaskSummary]:
    """The story that a model's answer tells, or an InvalidAnswer; one of several is as good as one alone."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, Mapping):
        raise InvalidAnswer("it must be one JSON object")
    task = value.get("task", True)
    summary = TaskSummary(
        goal=_text(value.get("goal")),
        steps=_texts(value.get("steps"), _MAX_STEPS),
        outcome=_text(value.get("outcome")),
        lessons=_texts(value.get("lessons"), _MAX_LESSONS),
        summary=_text(value.get("summary")),
        task=task is not False and str(task).casefold() != "false",
    )
    if not summary.task:
        return summary
    if not summary.goal:
        raise InvalidAnswer("goal must be a sentence")
    missing = [name for name in ("steps", "outcome") if not getattr(summary, name)]
    if missing:
        return Partial(summary, tuple(f"{name} must not be empty" for name in missing), score=2 - len(missing))
    return summary


def _texts(value: object, max_count: int) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.splitlines()
    if not isinstance(value, list):
        return ()
    texts = (_text(each) for each in value)
    return tuple(dict.fromkeys(text for text in texts if text))[:max_count]


def _text(value: object) -> str:
    if not isinstance(value, str):
        return ""
    return redact(" ".join(normalise_invisible(value).split())).text[:_MAX_CHARS]
