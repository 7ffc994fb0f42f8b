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
class DedupedTurns:
    """Turns as the ledger has them, by id, and the numbers of those that are still to be appended."""

    existing: Mapping[str, Turn]
    new_indexes: Sequence[int]


def dedupe_turns(
    scope: Scope,
    turns: Sequence[Turn],
    *,
    stored: Mapping[str, MemoryRecord],
    erasures: Sequence[Erasure],
    resent: Collection[str] = (),
) -> DedupedTurns:
    """Tell turns apart, by the memories of their ids and by what was erased of the user since they were given.

    `resent` are the ids of those that match a tombstone.
    """
    existing = {turn.id: _stored_turn(scope, stored[turn.id]) for turn in turns if turn.id in stored}
    # One of the future was made while a clock was wrong: it must not keep out what is said until then.
    erasures = [erasure for erasure in erasures if erasure.at <= now() + _SKEW]
    erased_ids = {id for erasure in erasures for id in erasure.ids}.union(resent)
    is_covered = any(_covers(erasure, scope) for erasure in erasures)
    new = [
        n for n, turn in enumerate(turns) if turn.id not in existing and turn.id not in erased_ids and not is_covered
    ]
    return DedupedTurns(existing, new)


def _covers(erasure: Erasure, scope: Scope) -> bool:
    if erasure.target is Target.USER:
        return True
    if erasure.target is Target.PROJECT:
        return erasure.project == scope.project
    return erasure.target is Target.SESSION and (erasure.project, erasure.session) == (scope.project, scope.session)


def turn_from_record(scope: Scope, record: MemoryRecord, position: int) -> Turn:
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


def _stored_turn(scope: Scope, record: MemoryRecord) -> Turn:
    if record.category is not Category.TURN or record.scope != scope or "position" not in record.detail:
        raise Conflict(f"{record.id} is the id of something else; give the turn its own")
    return turn_from_record(scope, record, record.detail["position"])
