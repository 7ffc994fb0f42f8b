"""Reads and writes that the compatible APIs share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from recollect.config.settings import Settings
from recollect.errors import NotFound
from recollect.http.auth.caller import Caller
from recollect.model.arguments import parse_limit, parse_score
from recollect.model.change import Outcome
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.query import EVERYTHING, Filter, Not, Op, Where, both
from recollect.model.scope import Level, Scope
from recollect.model.text import validate_text
from recollect.model.times import now
from recollect.recall import SearchRequest
from recollect.remember import MemoryInput
from recollect.service.service import Service
from recollect.text.time_expressions import parse_time_filter

if TYPE_CHECKING:
    from recollect.model.change import Vector

EXCLUDE_TURNS: Filter = Not(Where("category", Op.EQ, str(Category.TURN)))


async def fetch_memory(service: Service, scope: Scope, id: str, *, include_inactive: bool = False) -> MemoryRecord:
    """Return an active memory of the scope; NotFound for unknown ids and those of others alike."""
    record = await service.get(scope, id)
    if scope.session:
        is_inside = record.scope == scope
    else:
        is_shared = record.level is Level.USER and not record.scope.project
        is_inside = not scope.project or record.scope.project == scope.project or is_shared
    if not is_inside or not (include_inactive or record.status is Status.ACTIVE):
        raise NotFound(f"no memory {id}")
    return record


async def add_or_merge(
    service: Service,
    scope: Scope,
    new: MemoryInput,
    merged: Mapping[str, Any],
    caller: Caller,
    *,
    is_shown: bool = False,
) -> tuple[Outcome, Outcome]:
    """Add a memory; if it exists, merge these fields into it. Return the outcomes of adding and merging.

    If the memory `is_shown` in the response, a caller without read permission gets a Conflict for an existing one.
    """
    added = await service.add(scope, new, by=caller.author())
    if is_shown:
        caller.check_outcome_visible(added)
    if added.changed or not merged:
        return added, added
    changes = dict(merged)
    if "metadata" in changes:
        changes["metadata"] = {**added.record.metadata, **changes["metadata"]}
    return added, await service.update(scope, added.id, changes, by=caller.author())


async def forget_memory(service: Service, scope: Scope, record: MemoryRecord, caller: Caller) -> None:
    """Forget a memory that the caller may edit."""
    await service.forget(scope, caller.ensure_editable(record).id, by=caller.author())


def matches_any(field: str, values: Sequence[str]) -> Filter:
    """Return a filter that matches any of the values; without values it matches everything."""
    return Where(field, Op.IN, tuple(values)) if values else EVERYTHING


def build_search_request(
    query: str,
    settings: Settings,
    *,
    limit: int | None = None,
    min_score: float | None = None,
    filter: Filter = EVERYTHING,
    vector: Vector | None = None,
    everywhere: bool = False,
) -> SearchRequest:
    """Return a search for memories, with defaults from the settings; times in the query narrow it."""
    query = validate_text(query, name="query")
    times = parse_time_filter(query, at=now(), mode=settings.time_words)
    return SearchRequest(
        query=query,
        limit=parse_limit(settings.search_limit if limit is None else limit),
        min_score=parse_score(settings.search_min_score if min_score is None else min_score, name="threshold"),
        filter=both(both(filter, EXCLUDE_TURNS), times.filter),
        vector=vector,
        periods=times.periods,
        turns=False,
        everywhere=everywhere,
    )
