"""Decide which tombstones a batch of changes adds and removes; pure, so that every ledger decides alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from recollect.errors import Conflict
from recollect.ledger.plan import Plan
from recollect.model.erasure import Erasure, Target, TombstoneSet, digests_of
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Role, Turn


@dataclass(slots=True)
class TombstoneChanges:
    """The (role, text) of turns that need a tombstone, and of those that lose theirs."""

    added: list[tuple[str, str]] = field(default_factory=list)
    removed: list[tuple[str, str]] = field(default_factory=list)


def tombstone_changes(planned: Plan) -> TombstoneChanges:
    """Return what a plan does to turns: forgotten ones and former wordings get tombstones, restored ones lose them.

    A turn that is appended anew keeps the tombstone of its text: the older history can still be resent.
    """
    changes = TombstoneChanges()
    for record in planned.added.values():
        if record.category is Category.TURN and record.status is Status.FORGOTTEN:
            changes.added.append(role_and_text(record))
    for id, record in planned.changed.items():
        before = planned.originals[id]
        if record.category is not Category.TURN:
            continue
        if record.content != before.content and before.status is Status.ACTIVE:
            changes.added.append(role_and_text(before))
        if (record.status, record.content) == (before.status, before.content):
            continue
        if record.status is Status.FORGOTTEN:
            changes.added.append(role_and_text(record))
        elif record.status is Status.ACTIVE:
            changes.removed.append(role_and_text(record))
    return changes


def role_and_text(record: MemoryRecord) -> tuple[str, str]:
    """Return the role and the text of a turn's memory."""
    return str(record.detail.get("role", Role.USER)), record.content


def resent_turn_ids(
    turns: Sequence[Turn], keys: Sequence[str], forgotten_at: Mapping[str, datetime], *, received_at: datetime
) -> set[str]:
    """Return the ids of turns that were given before the same words were forgotten, or that name an erased turn."""
    result = set()
    for turn in turns:
        texts, ids = digests_of(keys, turn)
        if any(forgotten_at[text] > received_at for text in texts & forgotten_at.keys()) or ids & forgotten_at.keys():
            result.add(turn.id)
    return result


class TombstoneStore(Protocol):
    """Recognises what was forgotten or erased."""

    async def tombstoned(self, user: str, messages: Collection[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        """Return those of some messages, as (role, text), that match a forgotten or erased turn of the user."""
        ...

    async def has_tombstones(self, user: str) -> bool:
        """Return whether any turn of the user was ever forgotten or erased; cheap, asked with every chat."""
        ...

    async def tombstones(self, user: str) -> TombstoneSet:
        """Return all tombstones of the user with their keys, to be put into another ledger."""
        ...

    async def put_tombstones(self, user: str, incoming: TombstoneSet) -> None:
        """Take in tombstones of another ledger, to be recognised by its keys."""
        ...


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
