"""What mem0's routes come to, whichever of its servers they are of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time
from typing import Any

from fastapi import HTTPException

from recollect.config.settings import Settings
from recollect.errors import InvalidFilter, InvalidInput, NotAllowed, NotFound
from recollect.http.compat.mem0 import requests as given
from recollect.http.compat.mem0 import responses as shapes
from recollect.http.compat.mem0.filters import (
    ANYONE,
    MATCH_NOTHING,
    check_names,
    filter_for,
    find_empty_names,
    find_owners,
)
from recollect.http.compat.mem0.scope import EntityIds, parse_public_id, public_id
from recollect.http.compat.routing import Caller
from recollect.http.compat.search import EXCLUDE_TURNS, build_search_request, fetch_memory, merge_into_existing
from recollect.model.arguments import parse_messages
from recollect.model.job import JobState
from recollect.model.memory import MemoryRecord, Trust
from recollect.model.messages import message_role, message_text
from recollect.model.query import Filter, Listing, Op, both, where
from recollect.model.result import Hit
from recollect.model.scope import Scope
from recollect.model.text import normalise_invisible
from recollect.model.times import as_utc
from recollect.model.turn import Role
from recollect.remember import MemoryInput
from recollect.service.service import Service

# Their clients wait five minutes for what is learned; a model that takes longer than this is waited for no more.
LEARN_S = 60.0
_MAX_OWNERS = 100
_MAX_LISTED = 10_000
# Nobody is called this: ids hold no control characters.
_NOBODY = "\0"


async def add(service: Service, caller: Caller, request: given.Mem0Add) -> shapes.Mem0Added:
    """Keep what was said and learn from it, or keep it word for word."""
    names = request.entity_ids(request.filters)
    fields = _time_fields(request.timestamp, request.expiration_date)
    scope = names.scope(caller)
    if request.infer:
        return await _learn(service, caller, names, request, fields)
    results = []
    metadata = {**(request.metadata or {}), **names.as_metadata}
    for message in parse_messages(request.messages):
        # What nobody sees says nothing, and is no reason to refuse the rest.
        role, text = message_role(message), normalise_invisible(message_text(message.get("content")))
        if role in tuple(Role) and text.strip():
            trust = Trust.HIGH if role == Role.USER else Trust.LOW
            new_fields = {**fields, "metadata": metadata, "trust": str(trust)}
            new = MemoryInput(content=text, fields=new_fields)
            outcome = await service.add(scope, new, by=caller.author())
            changes = {**fields, **({"metadata": metadata} if metadata else {})}
            merged = await merge_into_existing(service, scope, outcome, changes, by=caller.author())
            event = "ADD" if outcome.changed else "UPDATE" if merged.changed else "NONE"
            results.append(_added_item(merged.record, caller, event))
    return shapes.Mem0Added(results=results, status="SUCCEEDED")


async def _learn(
    service: Service, caller: Caller, names: EntityIds, request: given.Mem0Add, fields: Mapping[str, Any]
) -> shapes.Mem0Added:
    scope = names.scope(caller)
    messages = parse_messages(request.messages)
    if request.timestamp is not None:
        messages = tuple({"timestamp": fields["occurred_at"], **message} for message in messages)
    result = await service.remember(scope, messages, by=caller.author(), wait_s=LEARN_S)
    if result.job is None:
        return shapes.Mem0Added(results=[], status="SUCCEEDED")
    learned = Listing(filter=both(EXCLUDE_TURNS, where("evidence", Op.IN, [turn.id for turn in result.turns])))
    results = []
    for record in await service.find(Scope(scope.user), replace(learned, limit=1000)):
        metadata = {**record.metadata, **(request.metadata or {}), **names.as_metadata}
        changes = {"metadata": metadata} if metadata != record.metadata else {}
        if request.expiration_date:
            changes["expires_at"] = fields["expires_at"]
        event = "ADD" if record.version == 1 else "UPDATE"
        if changes:
            record = (await service.update(scope, record.id, changes, by=caller.author())).record
        # What is changed by what was said has words from before in it.
        if caller.reads or event == "ADD":
            results.append(_added_item(record, caller, event))
    done = result.job.state is JobState.DONE
    return shapes.Mem0Added(results=results, status="SUCCEEDED" if done else "PENDING", event_id=result.job.id)


def _added_item(record: MemoryRecord, caller: Caller, event: str) -> dict[str, Any]:
    return {"id": public_id(record, caller), "memory": record.content, "event": event}


async def search(
    service: Service, caller: Caller, settings: Settings, request: given.Mem0Search
) -> list[dict[str, Any]]:
    """The memories that fit, best first, of all whose they may be."""
    limit = request.top_k or request.limit
    hits: list[Hit] = []
    for scope, filter in await _resolve_targets(service, caller, request.filter):
        search_request = build_search_request(
            request.query, settings, limit=limit, min_score=request.threshold, filter=filter, everywhere=True
        )
        hits += (await service.search(scope, search_request)).hits
    best = sorted(hits, key=lambda hit: -hit.score)[: limit or settings.search_limit]
    memories = (shapes.to_mem0_memory(hit.record, caller, score=hit.score) for hit in best)
    return [shapes.select_fields(each, request.fields) for each in memories]


async def list_memories(
    service: Service, caller: Caller, request: given.Mem0ListRequest, *, page: int, size: int
) -> tuple[int, list[dict[str, Any]]]:
    """How many memories there are, and those of one page, newest first."""
    if page * size > _MAX_LISTED:
        raise NotFound(f"only the first {_MAX_LISTED:,} are listed by pages; narrow the filter, or export")
    count = 0
    records: list[MemoryRecord] = []
    for scope, filter in await _resolve_targets(service, caller, request.filter):
        listing = Listing(filter=both(filter, EXCLUDE_TURNS), limit=page * size)
        count += await service.count(scope, listing)
        records += (await service.find(scope, listing)).records
    records.sort(key=lambda record: record.created_at, reverse=True)
    memories = [shapes.to_mem0_memory(record, caller) for record in records[(page - 1) * size : page * size]]
    return count, [shapes.select_fields(each, request.fields) for each in memories]


async def _resolve_targets(service: Service, caller: Caller, plain: Mapping[str, Any]) -> list[tuple[Scope, Filter]]:
    """Whose memories a filter speaks of, and what must hold of them."""
    check_names(plain)
    named = find_owners(plain)
    if caller.user is not None:
        # Whoever is bound need not say so, and may name no other.
        for user in find_owners(plain, kinds=("user",)) - {ANYONE}:
            caller.scope(user)
        owners = {caller.user}
    else:
        if ANYONE in named and caller.project is not None:
            raise NotAllowed("who else there is concerns all projects, and this key is for one: name the users")
        owners = set(await service.users()) if ANYONE in named else named
        if not owners and ANYONE not in named:
            raise InvalidFilter("name whose memories are meant: one of user_id, agent_id, app_id and run_id")
    if len(owners) > _MAX_OWNERS:
        raise InvalidFilter(f"the filter speaks of {len(owners)} users; name at most {_MAX_OWNERS}")
    targets = [(caller.scope(user), filter_for(user, plain)) for user in sorted(owners)]
    targets = [(scope, filter) for scope, filter in targets if filter != MATCH_NOTHING]
    if not targets and caller.user is None and filter_for(_NOBODY, plain) != MATCH_NOTHING:
        raise InvalidFilter("the filter says whose memories are not meant; name those that are")
    return targets


async def get(service: Service, caller: Caller, id: str) -> dict[str, Any]:
    """One memory."""
    scope, record_id = parse_public_id(id, caller)
    return shapes.to_mem0_memory(await fetch_memory(service, scope, record_id), caller)


async def update(service: Service, caller: Caller, id: str, change: given.Mem0Change) -> dict[str, Any]:
    """Change a memory; what metadata says of its agent and app stays."""
    scope, record_id = parse_public_id(id, caller)
    record = caller.ensure_editable(await fetch_memory(service, scope, record_id))
    fields: dict[str, Any] = _time_fields(change.timestamp, change.expiration_date)
    if change.content is not None:
        fields["content"] = change.content
    if change.metadata is not None:
        names = {name: record.metadata[name] for name in ("agent_id", "app_id") if name in record.metadata}
        fields["metadata"] = {**change.metadata, **names}
    if "expiration_date" in change.model_fields_set and change.expiration_date is None:
        fields["expires_at"] = None
    if not fields:
        raise InvalidInput("nothing to update; give text, metadata, timestamp or expiration_date")
    return shapes.to_mem0_memory((await service.update(scope, record_id, fields, by=caller.author())).record, caller)


async def update_all(service: Service, caller: Caller, changes: list[given.Mem0BatchChange]) -> int:
    """Change several memories, after a look whether there are all of them."""
    for each in changes:
        scope, record_id = parse_public_id(each.memory_id, caller)
        caller.ensure_editable(await fetch_memory(service, scope, record_id))
    for each in changes:
        await update(service, caller, each.memory_id, each)
    return len(changes)


async def delete(service: Service, caller: Caller, *ids: str) -> int:
    """Forget memories, after a look whether there are all of them."""
    targets = [parse_public_id(id, caller) for id in ids]
    records = [
        (scope, caller.ensure_editable(await fetch_memory(service, scope, record_id))) for scope, record_id in targets
    ]
    for scope, record in records:
        await service.forget(scope, record.id, by=caller.author())
    return len(records)


async def delete_all(service: Service, caller: Caller, names: EntityIds, filters: Mapping[str, Any]) -> int:
    """Forget all memories of those who are named; everybody's cannot be named."""
    plain = {"AND": [names.present, filters]}
    if empty := find_empty_names(filters):
        raise InvalidInput(f"{empty[0]} is empty; name what is meant, or leave it out")
    if not names.present and not filters:
        raise InvalidInput("name whose memories are to go: one of user_id, agent_id, app_id and run_id")
    if ANYONE in find_owners(plain):
        raise InvalidInput('"*" would delete the memories of everybody; name those whose are to go')
    targets = await _resolve_targets(service, caller, plain)
    return sum(
        [await service.forget_all(scope, Listing(filter=filter), by=caller.author()) for scope, filter in targets]
    )


async def forget_all_users(service: Service, caller: Caller) -> int:
    """Forget all memories of all users; for callers who may."""
    if not caller.admin or caller.user is not None:
        raise HTTPException(403, "only an administrator may delete the memories of everybody")
    users = await service.users()
    return sum([await service.forget_all(caller.scope(user), Listing(), by=caller.author()) for user in users])


async def history(service: Service, caller: Caller, id: str) -> list[shapes.Mem0Happened]:
    """What happened to a memory, oldest first; also one that was deleted."""
    scope, record_id = parse_public_id(id, caller)
    record = await fetch_memory(service, scope, record_id, include_inactive=True)
    entries = await service.history(scope, memory_id=record_id, limit=1000)
    return shapes.to_mem0_history(record, entries, id)


def _time_fields(timestamp: float | str | None, expiration_date: str | None) -> dict[str, Any]:
    """When it happened, and until when it holds: to the end of the day, in UTC."""
    fields: dict[str, Any] = {}
    if timestamp is not None:
        fields["occurred_at"] = as_utc(timestamp, name="timestamp").isoformat()
    if expiration_date is not None:
        try:
            day = date.fromisoformat(expiration_date)
        except ValueError:
            raise InvalidInput(f"expiration_date is a day such as 2027-01-01, not {expiration_date[:40]!r}") from None
        fields["expires_at"] = datetime.combine(day, time.max, UTC).isoformat()
    return fields
