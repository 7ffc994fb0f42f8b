"""What the ledger in memory keeps of one user, and how it reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from recollect.ledger.feeds import Fed
from recollect.ledger.plan import Known
from recollect.ledger.protocol import Derived, IndexRow
from recollect.ledger.reused import reused
from recollect.model.change import Applied, Entry, Once, Outcome
from recollect.model.memory import MemoryRecord, Status
from recollect.model.response import KeptResponse, Plain, Thread
from recollect.model.scope import Scope
from recollect.model.times import to_micros
from recollect.model.traits import speaker_of, traits_of
from recollect.model.turn import Conversation
from recollect.model.validity import HELD
from recollect.models.embedding import EmbeddingModel


@dataclass(slots=True)
class Row:
    """A memory, its number, the revision that last changed it, and its vectors."""

    number: int
    record: MemoryRecord
    revision: int
    vectors: dict[EmbeddingModel, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class User:
    """All that one user has. Rows and entries stand in the order they were made."""

    revision: int = 0
    epoch: int = 0
    rows: dict[str, Row] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    turn_ids: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    conversations: dict[tuple[str, str], Conversation] = field(default_factory=dict)
    done: dict[str, tuple[Once, Applied, datetime]] = field(default_factory=dict)
    responses: dict[str, KeptResponse] = field(default_factory=dict)
    threads: dict[str, Thread] = field(default_factory=dict)
    # The items of each thread by their id, with what they hold words of.
    thread_items: dict[str, dict[str, tuple[Plain, tuple[str, ...]]]] = field(default_factory=dict)
    # How far each index with a store of its own was fed.
    fed: dict[str, Fed] = field(default_factory=dict)


def known_of(user: User) -> Known:
    known = Known()
    for row in user.rows.values():
        known.hold(row.record)
    return known


def replayed(user: User, once: Once) -> Applied:
    first, applied, _ = user.done[once.key]
    if first.digest != once.digest:
        raise reused(once)
    outcomes = (
        Outcome(each.verb, copy_of(user.rows[each.record.id].record), each.changed) for each in applied.outcomes
    )
    return Applied(applied.batch, tuple(outcomes), replayed=True)


def copy_of(record: MemoryRecord) -> MemoryRecord:
    """A record that shares no dict with another, holding what a store of JSON would give back."""
    if not record.metadata and not record.detail:
        return record
    return replace(record, metadata=plain_copy(record.metadata), detail=plain_copy(record.detail))


def plain_copy(plain: Mapping[str, Any]) -> dict[str, Any]:
    copied: dict[str, Any] = json.loads(json.dumps(dict(plain)))
    return copied


def by_time(record: MemoryRecord) -> tuple[int, str]:
    return to_micros(record.created_at), record.id


def is_within(record: MemoryRecord, scope: Scope) -> bool:
    """Whether it belongs to the scope: the user's, or the project's, or the session's alone."""
    return scope.project in ("", record.scope.project) and scope.session in ("", record.scope.session)


def lines_of(
    user: User, scope: Scope, *, memory_id: str | None, before: int | None, after: int | None
) -> list[Entry]:
    """Lines of history, newest first; from a line on, oldest first."""
    found = [
        entry
        for entry in user.entries
        if (before is None or entry.id < before)
        and (after is None or entry.id > after)
        and (
            is_within(user.rows[entry.memory_id].record, scope) if memory_id is None else entry.memory_id == memory_id
        )
    ]
    return found[::-1] if after is None else found


def index_row(number: int, record: MemoryRecord, vector: bytes | None) -> IndexRow:
    """What an index is told of a record."""
    ends = min(filter(None, (record.valid_to, record.expires_at)), default=None)
    return IndexRow(
        row=number,
        place=record.place,
        status=str(record.status),
        session=record.scope.session,
        speaker=speaker_of(record),
        traits=traits_of(record),
        at=to_micros(record.occurred_at or record.created_at),
        begins=None if record.valid_from is None else to_micros(record.valid_from),
        ends=None if ends is None else to_micros(ends),
        vector=vector,
    )


def derived_from(user: User, turn_ids: Sequence[str]) -> dict[str, list[Derived]]:
    """The memories that name each of these turns as evidence and are active or superseded."""
    found: dict[str, list[Derived]] = {}
    wanted = set(turn_ids)
    for row in user.rows.values():
        record = row.record
        if record.status not in HELD:
            continue
        successor = record.superseded_by if record.status is Status.SUPERSEDED else None
        for source in wanted.intersection(record.evidence):
            found.setdefault(source, []).append(
                Derived(
                    id=record.id,
                    row=row.number,
                    status=record.status,
                    type=record.type,
                    category=record.category,
                    valid_to=record.valid_to,
                    superseded_by=successor,
                )
            )
    return found
