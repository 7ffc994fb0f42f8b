"""Runs of agents and the invocations they report, and a cheap test whether turns may be work on a task."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import Any

from recollect.errors import InvalidInput
from recollect.model.ids import new_id
from recollect.model.scope import Scope
from recollect.model.text import repair_text, validate_id
from recollect.model.times import as_utc, now
from recollect.model.turn import Conversation, Role, Turn
from recollect.sessions.step_output import step_position

# With fewer actions a run is an answer, not a task.
MIN_ACTIONS = 2
MIN_TURNS = 4
# An item of a list, a shell prompt or a code fence.
_STEPS = re.compile(r"^[ \t]{0,8}(?:\d{1,2}[.)]|[-*•]|\$|>|```)[ \t]?\S?", re.MULTILINE)
_WORD = re.compile(r"[^\W_]+")
_MAX_CHARS = 4_000


class StepKind(StrEnum):
    """The kind of a step of a run."""

    THOUGHT = "thought"
    ACTION = "action"
    OBSERVATION = "observation"


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One thought, action or observation."""

    kind: StepKind
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run: the goal, the steps and the answer; `turns` are the ids of its turns.

    `success` is None if unknown. `lessons` are the agent's own. `last_turn` is the position of its last turn.
    """

    id: str
    goal: str
    steps: tuple[RecordedStep, ...] = ()
    answer: str = ""
    success: bool | None = None
    lessons: tuple[str, ...] = ()
    turns: tuple[str, ...] = ()
    last_turn: int = 0
    ended_at: datetime

    @property
    def actions(self) -> tuple[str, ...]:
        return tuple(step.content for step in self.steps if step.kind is StepKind.ACTION and step.content.strip())

    @property
    def is_task(self) -> bool:
        """Return whether it took several actions or has lessons."""
        return bool(self.goal.strip()) and (len(self.actions) >= MIN_ACTIONS or bool(self.lessons))


def parse_run(
    id: str | None,
    goal: str,
    *,
    steps: Sequence[Mapping[str, str]],
    answer: str,
    success: bool | None,
    lessons: Sequence[str],
) -> RunRecord:
    """Return a run that ends now, or raise InvalidInput."""
    kinds = tuple(StepKind)
    for step in steps:
        if not isinstance(step, Mapping) or step.get("kind") not in kinds or not isinstance(step.get("content"), str):
            raise InvalidInput(
                f"a step is {{'kind': one of {', '.join(kinds)}, 'content': text}}, not {type(step).__name__}"
            )
    if isinstance(lessons, str) or not all(isinstance(lesson, str) for lesson in lessons):
        raise InvalidInput("lessons are a list of texts")
    return RunRecord(
        id=validate_id(id, name="run_id") if id else new_id(),
        goal=repair_text(goal),
        steps=tuple(RecordedStep(StepKind(step["kind"]), repair_text(step["content"])) for step in steps),
        answer=repair_text(answer),
        success=success,
        lessons=tuple(map(repair_text, lessons)),
        ended_at=now(),
    )


def may_be_task(turns: Sequence[Turn]) -> bool:
    """Return whether the turns may be work on a task; only a cheap test whether to ask a model."""
    users = [turn for turn in turns if turn.role is Role.USER]
    assistant_turns = [turn for turn in turns if turn.role is Role.ASSISTANT]
    if len(turns) < MIN_TURNS or len(users) < 2 or not assistant_turns:
        return False
    requests, ends = _task_cues()
    has_request = any(_contains_phrase(turn.content, requests) for turn in users)
    has_steps = any(len(_STEPS.findall(turn.content[:_MAX_CHARS])) > 1 for turn in assistant_turns)
    has_end = any(_contains_phrase(turn.content, ends) for turn in users[1:])
    return has_request and (has_steps or has_end)


def _contains_phrase(text: str, phrases: Sequence[str]) -> bool:
    plain = _spaced(text[:_MAX_CHARS])
    return any(phrase in plain for phrase in phrases)


def _spaced(text: str) -> str:
    """Return the words with one space around each, so that phrases match whole words."""
    return f" {' '.join(_WORD.findall(text.casefold()))} "


@cache
def _task_cues() -> tuple[list[str], list[str]]:
    """Return the phrases that request work, and those that end it."""
    table = tomllib.loads((files(__package__) / "task_cues.toml").read_text(encoding="utf-8"))
    requests, ends = (
        [_spaced(phrase) for phrases in table[name].values() for phrase in phrases] for name in ("asks", "ends")
    )
    return requests, ends


def unprocessed_notes(conversation: Conversation) -> list[Mapping[str, Any]]:
    """Return the invocations that agents reported since the conversation last ended.

    Those of runs have their own episodes, and those of turns are in the log.
    """
    notes = [each for each in conversation.invocations if "run_id" not in each and "turn_end" not in each]
    done = step_position(conversation, "told")
    ends = [at for at, each in enumerate(notes) if note_digest(each) == done]
    return notes[ends[-1] + 1 :] if ends else notes


def note_digest(invocation: Mapping[str, Any]) -> int:
    """Return a number that identifies the invocation; its index does not, since old invocations are dropped."""
    serialized = json.dumps(invocation, sort_keys=True, default=str).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(serialized, digest_size=6).digest()) or 1


def notes_as_turns(scope: Scope, invocations: Sequence[Mapping[str, Any]], *, now: datetime) -> list[Turn]:
    """Return each invocation as a user turn and an assistant turn."""
    turns: list[Turn] = []
    for each in invocations:
        at = as_utc(each["timestamp"]) if each.get("timestamp") else now
        did = "\n".join(filter(str.strip, (_text(each, "summary"), _text(each, "result"))))
        for role, text in ((Role.USER, _text(each, "query")), (Role.ASSISTANT, did)):
            if text.strip():
                id = f"told-{note_digest(each)}-{role}"
                position = len(turns) + 1
                turns.append(Turn(id=id, scope=scope, role=role, content=text, said_at=at, position=position))
    return turns


def _text(invocation: Mapping[str, Any], name: str) -> str:
    return str(invocation.get(name) or "")
