"""Decide which tombstones a batch of changes adds and removes; pure, so that every ledger decides alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from recollect.ledger.plan import Plan
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.tombstone import TombstoneSet, digests_of
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
