"""What doors ask of the service alike: one memory of a scope, a listing, a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from recollect.config.settings import Settings
from recollect.errors import NotFound
from recollect.model.arguments import parse_limit, parse_score
from recollect.model.change import Author, Outcome
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.query import EVERYTHING, Filter, Not, Op, Where, both
from recollect.model.scope import Level, Scope
from recollect.model.text import validate_text
from recollect.model.times import now
from recollect.search import SearchRequest
from recollect.service.service import Service
from recollect.text.time_expressions import parse_time_filter

if TYPE_CHECKING:
    from recollect.model.change import Vector


# What is listed and searched for: what was kept or learned, not what was said.
EXCLUDE_TURNS: Filter = Not(Where("category", Op.EQ, str(Category.TURN)))


async def fetch_memory(service: Service, scope: Scope, id: str, *, include_inactive: bool = False) -> MemoryRecord:
    """A memory of the scope that is active, or `gone` all the same; unknown and foreign ids are the same NotFound."""
    record = await service.get(scope, id)
    if scope.session:
        is_inside = record.scope == scope
    else:
        is_shared = record.level is Level.USER and not record.scope.project
        is_inside = not scope.project or record.scope.project == scope.project or is_shared
    if not is_inside or not (include_inactive or record.status is Status.ACTIVE):
        raise NotFound(f"no memory {id}")
    return record


async def merge_into_existing(
    service: Service, scope: Scope, outcome: Outcome, fields: Mapping[str, Any], *, by: Author
) -> Outcome:
    """What adding came to: a memory that was there takes on what is said of it now, metadata beside its own."""
    if outcome.changed or not fields:
        return outcome
    changes = dict(fields)
    if "metadata" in changes:
        changes["metadata"] = {**outcome.record.metadata, **changes["metadata"]}
    return await service.update(scope, outcome.id, changes, by=by)


def matches_any(field: str, values: Sequence[str]) -> Filter:
    """True where the field has one of the values; without any, always."""
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
    """A search among memories, with what the settings say where the request does not; times in it are understood."""
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


def format_naive_utc(at: datetime) -> str:
    """A time in UTC to the second, without saying so, as services that know one zone write it."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")
