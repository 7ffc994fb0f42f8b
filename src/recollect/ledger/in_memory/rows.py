"""What the ledger in memory keeps of one user, and how it reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from recollect.ledger.idempotency import key_reuse_error
from recollect.ledger.index_feed import FeedPosition
from recollect.ledger.plan import ExistingRecords
from recollect.ledger.protocol import Derived, IndexRow
from recollect.model.change import Applied, HistoryEntry, IdempotencyToken, Outcome
from recollect.model.memory import MemoryRecord, Status
from recollect.model.response import Plain, StoredResponse, Thread
from recollect.model.scope import Scope
from recollect.model.times import to_micros
from recollect.model.traits import compute_traits, speaker_name
from recollect.model.turn import Conversation
from recollect.model.validity import EFFECTIVE_STATUSES
from recollect.models.embedding import EmbeddingModel


@dataclass(slots=True)
class StoredRow:
    """A memory, its number, the revision that last changed it, and its vectors."""

    number: int
    record: MemoryRecord
    revision: int
    vectors: dict[EmbeddingModel, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class UserState:
    """All that one user has. Rows and entries stand in the order they were made."""

    revision: int = 0
    epoch: int = 0
    rows: dict[str, StoredRow] = field(default_factory=dict)
    entries: list[HistoryEntry] = field(default_factory=list)
    turn_ids: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    conversations: dict[tuple[str, str], Conversation] = field(default_factory=dict)
    done: dict[str, tuple[IdempotencyToken, Applied, datetime]] = field(default_factory=dict)
    responses: dict[str, StoredResponse] = field(default_factory=dict)
    threads: dict[str, Thread] = field(default_factory=dict)
    # The items of each thread by their id, with what they hold words of.
    thread_items: dict[str, dict[str, tuple[Plain, tuple[str, ...]]]] = field(default_factory=dict)
    # How far each index with a store of its own was fed.
    feed_positions: dict[str, FeedPosition] = field(default_factory=dict)


def existing_records(user: UserState) -> ExistingRecords:
    existing = ExistingRecords()
    for row in user.rows.values():
        existing.add(row.record)
    return existing


def replayed(user: UserState, once: IdempotencyToken) -> Applied:
    first, applied, _ = user.done[once.key]
    if first.digest != once.digest:
        raise key_reuse_error(once)
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
    user: UserState, scope: Scope, *, memory_id: str | None, before: int | None, after: int | None
) -> list[HistoryEntry]:
    """Lines of history, newest first; from a line on, oldest first."""
    lines = [
        entry
        for entry in user.entries
        if (before is None or entry.id < before)
        and (after is None or entry.id > after)
        and (
            is_within(user.rows[entry.memory_id].record, scope) if memory_id is None else entry.memory_id == memory_id
        )
    ]
    return lines[::-1] if after is None else lines


def index_row(number: int, record: MemoryRecord, vector: bytes | None) -> IndexRow:
    """What an index is told of a record."""
    ends = min(filter(None, (record.valid_to, record.expires_at)), default=None)
    return IndexRow(
        row=number,
        visibility_key=record.visibility_key,
        status=str(record.status),
        session=record.scope.session,
        speaker=speaker_name(record),
        traits=compute_traits(record),
        at=to_micros(record.occurred_at or record.created_at),
        begins=None if record.valid_from is None else to_micros(record.valid_from),
        ends=None if ends is None else to_micros(ends),
        vector=vector,
    )


def derived_from(user: UserState, turn_ids: Sequence[str]) -> dict[str, list[Derived]]:
    """The memories that name each of these turns as evidence and are active or superseded."""
    result: dict[str, list[Derived]] = {}
    sources = set(turn_ids)
    for row in user.rows.values():
        record = row.record
        if record.status not in EFFECTIVE_STATUSES:
            continue
        successor = record.superseded_by if record.status is Status.SUPERSEDED else None
        for source in sources.intersection(record.evidence):
            result.setdefault(source, []).append(
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
    return result
