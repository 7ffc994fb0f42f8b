"""When to learn from turns: after a number of turns, when the topic changes, or after idle time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta

from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.change import Vector
from recollect.model.job import JobKind, NewJob
from recollect.model.scope import Scope
from recollect.model.turn import Role, Turn
from recollect.read.question_context import needs_context

# An agent answers in several turns; exchanges of more than these on average are not waited for.
_MAX_TURNS_PER_EXCHANGE = 4
# The topic is that of so many user turns.
_TOPIC_TURNS = 3


@frozen_dataclass(kw_only=True)
class Triggers:
    """When to learn from a conversation.

    After `every` new exchanges; turns within `wait_s` of each other are learned from together. When the topic
    changes: the cosine of a user turn to each of those before it is below `drift`; 0 for never. Else after
    `idle_s` without a turn. `model` is that of the chat that the turns came from.
    """

    every: int = 1
    wait_s: float = 0.0
    drift: float = 0.0
    idle_s: float = 1800.0
    model: str = ""

    @property
    def max_turns(self) -> int:
        """The number of new turns after which to learn in any case."""
        return self.every * _MAX_TURNS_PER_EXCHANGE

    def are_enough(self, turns: Sequence[Turn]) -> bool:
        """Return whether so many new turns are to be learned from now."""
        return len(turns) >= self.max_turns or _count_exchanges([turn.role for turn in turns]) >= self.every


def extraction_job(scope: Scope, triggers: Triggers, *, is_due: bool, now: datetime) -> NewJob:
    """Return the job that learns from new turns: soon if it is due, else when the conversation is idle."""
    soon = now + timedelta(seconds=triggers.wait_s)
    if is_due:
        return NewJob(kind=JobKind.EXTRACT, key=job_key(scope), due_at=soon)
    # A job that became due by an earlier turn, such as the question of this answer, is not postponed.
    idle = now + timedelta(seconds=triggers.idle_s)
    return NewJob(kind=JobKind.EXTRACT, key=job_key(scope), due_at=idle, postpone_after=soon)


def close_job(scope: Scope) -> NewJob:
    """Return the job that ends a conversation: writes its episode and promotes its memories."""
    return NewJob(kind=JobKind.CLOSE, key=job_key(scope))


def job_key(scope: Scope) -> str:
    """Return the key of all jobs of a conversation."""
    return json.dumps([scope.project, scope.session])


def topic_texts(turns: Sequence[Turn]) -> list[str]:
    """Return the texts of the last user turns, which tell the topic."""
    return [turn.content for turn in turns if turn.role is Role.USER][-_TOPIC_TURNS:]


def has_drifted(
    before: Sequence[Vector | None], turns: Sequence[Turn], vectors: Sequence[Vector | None], drift: float
) -> bool:
    """Return whether the cosine of a user turn to each of those before it is below `drift`.

    "And how much is that?" has no topic of its own.
    """
    topic = [vector for vector in before if vector is not None]
    for turn, vector in zip(turns, vectors, strict=True):
        if turn.role is not Role.USER or vector is None or needs_context(turn.content):
            continue
        if topic and max(float(each @ vector) for each in topic) < drift:
            return True
        topic = [*topic, vector][-_TOPIC_TURNS:]
    return False


def _count_exchanges(roles: Sequence[Role]) -> int:
    """Return the number of user turns, without the last one if only others were answered so far."""
    is_open = Role.ASSISTANT in roles and roles[-1] is Role.USER
    return roles.count(Role.USER) - is_open
