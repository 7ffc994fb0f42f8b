"""When to learn from what was said: after so many turns, when the topic changes, or when nothing more comes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from recollect.model.job import JobKind, NewJob
from recollect.model.scope import Scope
from recollect.model.turn import Conversation, Role, Turn

if TYPE_CHECKING:
    from recollect.model.change import Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class Triggers:
    """What makes it time to learn.

    A conversation is learned from once it has `every` turns that were not; turns that come within `wait_s` of each
    other are learned from together. A topic changes where a user turn is less like the one before it than
    `drift`; 0 never. What is left is learned from after `idle_s` without a word. `payload` is recorded in the job.
    """

    every: int = 1
    wait_s: float = 0.0
    drift: float = 0.0
    idle_s: float = 1800.0
    payload: Mapping[str, Any] = field(default_factory=dict)


def extraction_job(
    scope: Scope,
    conversation: Conversation,
    turns: Sequence[Turn],
    triggers: Triggers,
    *,
    drifted: bool,
    now: datetime,
) -> NewJob:
    """The job that learns from these new turns of a conversation, due when one of the triggers says so."""
    pending_turns = conversation.turn_count - conversation.learned_to + len(turns)
    is_time = drifted or pending_turns >= triggers.every
    wait_s = triggers.wait_s if is_time else triggers.idle_s
    # While nothing makes it time, each word puts the idle end off; a burst is not put off by its own turns.
    return NewJob(
        kind=JobKind.EXTRACT,
        key=job_key(scope),
        payload=triggers.payload,
        due_at=now + timedelta(seconds=wait_s),
        postpone=not is_time,
    )


def close_job(scope: Scope) -> NewJob:
    """The job that ends a conversation: learns what is left, writes its episode, promotes what matters."""
    return NewJob(kind=JobKind.CLOSE, key=job_key(scope))


def job_key(scope: Scope) -> str:
    """What all jobs of one conversation share."""
    return json.dumps([scope.project, scope.session])


def has_drifted(before: Vector | None, turns: Sequence[Turn], vectors: Sequence[Vector | None], drift: float) -> bool:
    """Whether a user turn is about something else than the one before it: their cosine is below `drift`."""
    if not drift:
        return False
    for turn, vector in zip(turns, vectors, strict=True):
        if turn.role is not Role.USER or vector is None:
            continue
        if before is not None and float(before @ vector) < drift:
            return True
        before = vector
    return False
