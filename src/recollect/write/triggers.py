"""When to learn from turns: after a number of turns, when the topic changes, or after idle time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from recollect.model.job import JobKind, NewJob
from recollect.model.scope import Scope
from recollect.model.turn import Conversation, Role, Turn

if TYPE_CHECKING:
    from recollect.model.change import Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class Triggers:
    """When to learn from a conversation.

    After `every` new turns; turns within `wait_s` of each other are learned from together. When the topic changes:
    the cosine of two consecutive user turns is below `drift`; 0 for never. Else after `idle_s` without a turn.
    `model` is that of the chat that the turns came from.
    """

    every: int = 1
    wait_s: float = 0.0
    drift: float = 0.0
    idle_s: float = 1800.0
    model: str = ""


def extraction_job(
    scope: Scope,
    conversation: Conversation,
    turns: Sequence[Turn],
    triggers: Triggers,
    *,
    drifted: bool,
    now: datetime,
) -> NewJob:
    """Return the job that learns from new turns, due at the time of the first trigger."""
    pending_turns = conversation.turn_count - conversation.learned_to + len(turns)
    is_time = drifted or pending_turns >= triggers.every
    wait_s = triggers.wait_s if is_time else triggers.idle_s
    # Each turn postpones the idle time; turns of a burst do not postpone each other.
    return NewJob(
        kind=JobKind.EXTRACT,
        key=job_key(scope),
        due_at=now + timedelta(seconds=wait_s),
        postpone=not is_time,
    )


def close_job(scope: Scope) -> NewJob:
    """Return the job that ends a conversation: writes its episode and promotes its memories."""
    return NewJob(kind=JobKind.CLOSE, key=job_key(scope))


def job_key(scope: Scope) -> str:
    """Return the key of all jobs of a conversation."""
    return json.dumps([scope.project, scope.session])


def has_drifted(before: Vector | None, turns: Sequence[Turn], vectors: Sequence[Vector | None], drift: float) -> bool:
    """Return whether the cosine of a user turn and the one before it is below `drift`."""
    if not drift:
        return False
    for turn, vector in zip(turns, vectors, strict=True):
        if turn.role is not Role.USER or vector is None:
            continue
        if before is not None and float(before @ vector) < drift:
            return True
        before = vector
    return False
