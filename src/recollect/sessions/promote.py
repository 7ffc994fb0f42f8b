"""Promote important memories of a session to the project or the user when the conversation ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from recollect.model.change import Change, Supersede
from recollect.model.memory import Category, MemoryRecord, Status, Trust
from recollect.model.scope import Level, Scope
from recollect.model.turn import Conversation
from recollect.model.validity import is_valid_now
from recollect.sessions.step_output import stable_id

MIN_IMPORTANCE = 0.6
MIN_CONFIDENCE = 0.5

# The log, summaries and episodes outlive the session anyway.
_NO_FACTS = frozenset({Category.TURN, Category.SUMMARY, Category.EPISODE})


def promote(
    scope: Scope,
    memories: Sequence[MemoryRecord],
    conversation: Conversation,
    *,
    now: datetime,
    min_importance: float = MIN_IMPORTANCE,
) -> list[Change]:
    """Return changes that move important memories of a session to its project, or to the user without one.

    `memories` are those that the scope sees. A promoted memory supersedes the original, and has its session and
    evidence. A keyed fact is not promoted if the long-term level has another value with a higher confidence. A second
    call finds nothing to do.
    """
    session = conversation.scope
    level = session.default_level
    if not session.session or scope.user != session.user:
        return []
    long_term = _long_term_by_key(memories, session, level)
    changes: list[Change] = []
    for record in _promotable(memories, session, min_importance, now):
        other = long_term.get((record.category, record.key)) if record.key is not None else None
        if other is not None and other.value != record.value and other.confidence > record.confidence:
            continue
        changes.append(Supersede(record.id, _promoted(record, level, now=now), expected_version=record.version))
    return changes


def _promotable(
    memories: Sequence[MemoryRecord], session: Scope, min_importance: float, now: datetime
) -> list[MemoryRecord]:
    return [
        record
        for record in memories
        if record.level is Level.SESSION
        and record.scope == session
        and record.category not in _NO_FACTS
        and record.trust is not Trust.NONE
        and record.importance >= min_importance
        and record.confidence >= MIN_CONFIDENCE
        and is_valid_now(record, now)
    ]


def _long_term_by_key(
    memories: Sequence[MemoryRecord], session: Scope, level: Level
) -> Mapping[tuple[Category, str | None], MemoryRecord]:
    place = session.visibility_key(level)
    return {
        (record.category, record.key): record
        for record in memories
        if record.key is not None and record.status is Status.ACTIVE and record.visibility_key == place
    }


def _promoted(record: MemoryRecord, level: Level, *, now: datetime) -> MemoryRecord:
    return replace(
        record,
        id=stable_id(record.scope, "promoted", at=record.created_at, source_ids=[record.id]),
        level=level,
        detail={**record.detail, "promoted_from_id": record.id},
        created_at=now,
        updated_at=now,
        version=1,
        superseded_by=None,
        last_accessed_at=None,
        access_count=0,
    )
