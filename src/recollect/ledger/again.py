"""Turns that may have come before: which of them are there, which went with an erasure, which are new.

Pure, so that every ledger decides alike.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from recollect.errors import Conflict
from recollect.model.erase import Erasure, Target
from recollect.model.memory import Category, MemoryRecord
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Role, Turn

# How far the clocks of those who share a ledger may be apart.
_SKEW = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Sifted:
    """Turns as the ledger has them, by id, and the numbers of those that are still to be appended."""

    there: Mapping[str, Turn]
    new: Sequence[int]


def sift(
    scope: Scope,
    turns: Sequence[Turn],
    *,
    known: Mapping[str, MemoryRecord],
    erasures: Sequence[Erasure],
    resent: Collection[str] = (),
) -> Sifted:
    """Tell turns apart, by the memories of their ids and by what was erased of the user since they were given.

    `resent` are the ids of those that match a tombstone.
    """
    there = {turn.id: _as_kept(scope, known[turn.id]) for turn in turns if turn.id in known}
    # One of the future was made while a clock was wrong: it must not keep out what is said until then.
    erasures = [erasure for erasure in erasures if erasure.at <= now() + _SKEW]
    gone = {id for erasure in erasures for id in erasure.ids}.union(resent)
    covered = any(_covers(erasure, scope) for erasure in erasures)
    new = [n for n, turn in enumerate(turns) if turn.id not in there and turn.id not in gone and not covered]
    return Sifted(there, new)


def _covers(erasure: Erasure, scope: Scope) -> bool:
    if erasure.target is Target.USER:
        return True
    if erasure.target is Target.PROJECT:
        return erasure.project == scope.project
    return erasure.target is Target.SESSION and (erasure.project, erasure.session) == (scope.project, scope.session)


def turn_of(scope: Scope, record: MemoryRecord, position: int) -> Turn:
    """The turn that was kept as this record."""
    return Turn(
        id=record.id,
        scope=scope,
        role=Role(record.detail["role"]),
        content=record.content,
        said_at=record.created_at,
        name=record.detail.get("name"),
        position=position,
    )


def _as_kept(scope: Scope, record: MemoryRecord) -> Turn:
    if record.category is not Category.TURN or record.scope != scope or "position" not in record.detail:
        raise Conflict(f"{record.id} is the id of something else; give the turn its own")
    return turn_of(scope, record, record.detail["position"])
