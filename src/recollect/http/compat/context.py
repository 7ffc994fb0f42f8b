"""What the compatible APIs share: the caller, the service and the settings of a request, and calls of the service."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import Depends
from pydantic import Field

from recollect.config.settings import Settings
from recollect.errors import InvalidInput
from recollect.frozen_dataclass import frozen_dataclass
from recollect.http.auth.caller import Caller
from recollect.http.params import IntegralFloat, StrictModel, Time
from recollect.http.proxy.memory_options import InvalidField
from recollect.http.routing import CallerDep, ServiceDep, SettingsDep
from recollect.model.change import Outcome
from recollect.model.ids import memory_not_found
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.query import EVERYTHING, Filter, Listing, Not, Op, Where, both
from recollect.model.result import SearchResult
from recollect.model.scope import Level, Scope
from recollect.model.times import now
from recollect.remember import MemoryInput
from recollect.search import SearchRequest
from recollect.service.service import Service
from recollect.text.time_expressions import parse_time_filter

# A hundred years.
_MAX_TTL_S = 3_155_760_000
EXCLUDE_TURNS: Filter = Not(Where("category", Op.EQ, str(Category.TURN)))


def matches_any(field: str, values: Sequence[str]) -> Filter:
    """Return a filter that matches any of the values; without values it matches everything."""
    return Where(field, Op.IN, tuple(values)) if values else EVERYTHING


class ExpiringModel(StrictModel):
    """A request body that can limit the lifetime of a memory."""

    ttl: Annotated[int, Field(ge=1, le=_MAX_TTL_S), IntegralFloat] | None = Field(
        default=None, description="Lifetime in seconds, instead of `expires_at`."
    )
    expires_at: Time | None = Field(default=None, description="When it expires; null removes an expiry.")

    def expiry(self) -> dict[str, datetime | str | None]:
        """Return the field of the memory that the request sets, or nothing."""
        if self.ttl is not None and self.expires_at is not None:
            raise InvalidField("ttl", "and expires_at exclude each other; send one of them")
        if self.ttl is not None:
            return {"expires_at": now() + timedelta(seconds=self.ttl)}
        return {"expires_at": self.expires_at} if "expires_at" in self.model_fields_set else {}


@frozen_dataclass
class Context:
    """The caller, the service and the settings of a request."""

    caller: Caller
    service: Service
    settings: Settings

    async def fetch(self, scope: Scope, id: str, *, include_inactive: bool = False) -> MemoryRecord:
        """Return a memory of the scope that is active and not expired; NotFound for all others alike."""
        record = await self.service.get(scope, id)
        if scope.session:
            is_inside = record.scope == scope
        else:
            is_shared = record.level is Level.USER and not record.scope.project
            is_inside = not scope.project or record.scope.project == scope.project or is_shared
        is_active = record.status is Status.ACTIVE and not (record.expires_at and record.expires_at <= now())
        if not is_inside or not (include_inactive or is_active):
            raise memory_not_found(id)
        return record

    async def fetch_editable(self, scope: Scope, id: str) -> MemoryRecord:
        """Return an active memory of the scope that the caller may change."""
        return self.caller.ensure_editable(await self.fetch(scope, id))

    async def add(
        self, scope: Scope, new: MemoryInput, merged: Mapping[str, Any], *, is_shown: bool = False
    ) -> tuple[Outcome, Outcome]:
        """Add a memory; if it exists, merge these fields into it. Return the outcomes of adding and merging.

        If the memory `is_shown` in the response, a caller who may not read gets a Conflict for an existing one.
        """
        # A merge with a similar one would show it, or report the write as refused.
        new = replace(new, merge=self.caller.reads)
        added = await self.service.add(scope, new, by=self.caller.author())
        if is_shown:
            self.caller.check_outcome_visible(added)
        if added.changed or not merged:
            return added, added
        changes = dict(merged)
        if "metadata" in changes:
            changes["metadata"] = {**added.record.metadata, **changes["metadata"]}
        return added, await self.service.update(scope, added.id, changes, by=self.caller.author())

    async def update(self, scope: Scope, id: str, fields: Mapping[str, Any]) -> MemoryRecord:
        return (await self.service.update(scope, id, fields, by=self.caller.author())).record

    async def forget(self, scope: Scope, id: str) -> None:
        await self.service.forget(scope, id, by=self.caller.author())

    async def forget_all(self, scope: Scope, filter: Filter = EVERYTHING) -> int:
        """Forget all memories and turns of a scope that match the filter, and return their number."""
        return await self.service.forget_all(scope, Listing(filter=filter), by=self.caller.author())

    async def search(
        self,
        scope: Scope,
        query: str,
        *,
        limit: int | None = None,
        min_score: float | None = None,
        filter: Filter = EVERYTHING,
        embedding: Sequence[float] | None = None,
        everywhere: bool = False,
    ) -> SearchResult:
        """Search for memories, with defaults from the settings; times in the query narrow the search."""
        settings = self.settings
        times = parse_time_filter(query, at=now(), mode=settings.time_words)
        request = SearchRequest(
            query=query,
            limit=settings.search_limit if limit is None else limit,
            min_score=settings.search_min_score if min_score is None else min_score,
            filter=both(both(filter, EXCLUDE_TURNS), times.filter),
            vector=await self.service.check_embedding(embedding),
            periods=times.periods,
            turns=False,
            everywhere=everywhere,
        )
        return await self.service.search(scope, request)


async def _get_context(caller: CallerDep, service: ServiceDep, settings: SettingsDep) -> Context:
    return Context(caller, service, settings)


ContextDep = Annotated[Context, Depends(_get_context)]
SEPARATOR = "."


def public_id(record: MemoryRecord, caller: Caller) -> str:
    if caller.user is not None:
        return record.id
    return f"{record.id}{SEPARATOR}{urlsafe_b64encode(record.scope.user.encode()).decode().rstrip('=')}"


def parse_public_id(id: str, caller: Caller) -> tuple[Scope, str]:
    """Return the scope and record id of a public id; NotFound if it is malformed or of another user."""
    record_id, separator, encoded_user = id.partition(SEPARATOR)
    user = _decode_user(encoded_user) if separator else caller.user
    if user and caller.user in (None, user):
        with suppress(InvalidInput):
            return caller.scope(user), record_id
    raise memory_not_found(id[:400])


def _decode_user(encoded: str) -> str:
    try:
        return urlsafe_b64decode(encoded.encode() + b"=" * (-len(encoded) % 4)).decode()
    except (NotBase64, ValueError):
        return ""
