"""Why a memory is not among the candidates of a search."""

from __future__ import annotations

from datetime import datetime

from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.query import Filter, matches
from recollect.model.scope import Level, Scope


def explain_absence(record: MemoryRecord, scope: Scope, filter: Filter, *, at: datetime, turns: bool) -> str:
    """Return the first condition of a search that a memory does not meet at the time `at`."""
    if record.status is not Status.ACTIVE:
        by = f" by {record.superseded_by}" if record.superseded_by else ""
        return {
            Status.FORGOTTEN: "it is forgotten",
            Status.SUPERSEDED: f"it was superseded{by}",
            Status.REVIEW: "it waits for review",
        }.get(record.status, f"its status is {record.status}")
    if record.valid_from is not None and record.valid_from > at:
        return f"it is valid only from {record.valid_from.isoformat()}"
    if record.valid_to is not None and record.valid_to <= at:
        return f"it has not been valid since {record.valid_to.isoformat()}"
    if record.expires_at is not None and record.expires_at <= at:
        return f"it expired at {record.expires_at.isoformat()}"
    if not scope.can_see(record.visibility_key):
        is_session = record.level is Level.SESSION
        place = f"session {record.scope.session!r}" if is_session else f"project {record.scope.project!r}"
        return f"it belongs to {place}, which this search does not cover"
    if not turns and record.category is Category.TURN:
        return "turns are not searched"
    if not matches(record, filter):
        return "it does not match the filter, or the time in the question"
    return "it is excluded from prompts, or not in the index yet"
