"""What mem0's routes come to, whichever of its servers they are of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time
from typing import Any

from fastapi import HTTPException

from recollect.errors import InvalidFilter, InvalidInput, NotAllowed, NotFound
from recollect.http.doors import mem0_given as given
from recollect.http.doors import mem0_shapes as shapes
from recollect.http.doors.asking import Caller
from recollect.http.doors.finding import NO_TURNS, held, looked_for, taken_on
from recollect.http.doors.mem0_filters import ANYONE, NOTHING, check_names, filter_for, left_empty, owners_named
from recollect.http.doors.mem0_names import Names, read_id, shown_id
from recollect.model.asked import read_messages
from recollect.model.filters import where
from recollect.model.invisible import normalise_invisible
from recollect.model.job import JobState
from recollect.model.memory import MemoryRecord, Trust
from recollect.model.message import role_of, text_of
from recollect.model.query import Filter, Listing, Op, both
from recollect.model.result import Hit
from recollect.model.scope import Scope
from recollect.model.times import as_utc
from recollect.model.turn import Role
from recollect.remember import NewMemory
from recollect.service import Service
from recollect.settings import Settings

# Their clients wait five minutes for what is learned; a model that takes longer than this is waited for no more.
LEARN_S = 60.0
_MOST_OWNERS = 100
_MOST_LISTED = 10_000
# Nobody is called this: ids hold no control characters.
_NOBODY = "\0"


async def add(service: Service, caller: Caller, asked: given.Mem0Add) -> shapes.Mem0Added:
    """Keep what was said and learn from it, or keep it word for word."""
    names = asked.names(asked.filters)
    fields = _times(asked.timestamp, asked.expiration_date)
    scope = names.scope(caller)
    if asked.infer:
        return await _learn(service, caller, names, asked, fields)
    results = []
    metadata = {**(asked.metadata or {}), **names.told}
    for message in read_messages(asked.messages):
        # What nobody sees says nothing, and is no reason to refuse the rest.
        role, text = role_of(message), normalise_invisible(text_of(message.get("content")))
        if role in tuple(Role) and text.strip():
            trust = Trust.HIGH if role == Role.USER else Trust.LOW
            given = {**fields, "metadata": metadata, "trust": str(trust)}
            new = NewMemory(content=text, fields=given)
            outcome = await service.add(scope, new, by=caller.by())
            said = {**fields, **({"metadata": metadata} if metadata else {})}
            after = await taken_on(service, scope, outcome, said, by=caller.by())
            event = "ADD" if outcome.changed else "UPDATE" if after.changed else "NONE"
            results.append(_added(after.record, caller, event))
    return shapes.Mem0Added(results=results, status="SUCCEEDED")


async def _learn(
    service: Service, caller: Caller, names: Names, asked: given.Mem0Add, fields: Mapping[str, Any]
) -> shapes.Mem0Added:
    scope = names.scope(caller)
    messages = read_messages(asked.messages)
    if asked.timestamp is not None:
        messages = tuple({"timestamp": fields["occurred_at"], **message} for message in messages)
    told = await service.remember(scope, messages, by=caller.by(), wait_s=LEARN_S)
    if told.job is None:
        return shapes.Mem0Added(results=[], status="SUCCEEDED")
    learned = Listing(filter=both(NO_TURNS, where("evidence", Op.IN, [turn.id for turn in told.turns])))
    results = []
    for record in await service.find(Scope(scope.user), replace(learned, limit=1000)):
        metadata = {**record.metadata, **(asked.metadata or {}), **names.told}
        given = {"metadata": metadata} if metadata != record.metadata else {}
        if asked.expiration_date:
            given["expires_at"] = fields["expires_at"]
        event = "ADD" if record.version == 1 else "UPDATE"
        if given:
            record = (await service.update(scope, record.id, given, by=caller.by())).record
        # What is changed by what was said has words from before in it.
        if caller.reads or event == "ADD":
            results.append(_added(record, caller, event))
    done = told.job.state is JobState.DONE
    return shapes.Mem0Added(results=results, status="SUCCEEDED" if done else "PENDING", event_id=told.job.id)


def _added(record: MemoryRecord, caller: Caller, event: str) -> dict[str, Any]:
    return {"id": shown_id(record, caller), "memory": record.content, "event": event}


async def search(
    service: Service, caller: Caller, settings: Settings, asked: given.Mem0Search
) -> list[dict[str, Any]]:
    """The memories that fit, best first, of all whose they may be."""
    limit = asked.top_k or asked.limit
    found: list[Hit] = []
    for scope, filter in await _meant(service, caller, asked.filter):
        wanted = looked_for(
            asked.query, settings, limit=limit, min_score=asked.threshold, filter=filter, everywhere=True
        )
        found += (await service.search(scope, wanted)).hits
    best = sorted(found, key=lambda hit: -hit.score)[: limit or settings.search_limit]
    told = (shapes.shaped(hit.record, caller, score=hit.score) for hit in best)
    return [shapes.cut(each, asked.fields) for each in told]


async def listed(
    service: Service, caller: Caller, asked: given.Mem0Wanted, *, page: int, size: int
) -> tuple[int, list[dict[str, Any]]]:
    """How many memories there are, and those of one page, newest first."""
    if page * size > _MOST_LISTED:
        raise NotFound(f"only the first {_MOST_LISTED:,} are listed by pages; narrow the filter, or export")
    count = 0
    records: list[MemoryRecord] = []
    for scope, filter in await _meant(service, caller, asked.filter):
        listing = Listing(filter=both(filter, NO_TURNS), limit=page * size)
        count += await service.count(scope, listing)
        records += (await service.find(scope, listing)).records
    records.sort(key=lambda record: record.created_at, reverse=True)
    told = [shapes.shaped(record, caller) for record in records[(page - 1) * size : page * size]]
    return count, [shapes.cut(each, asked.fields) for each in told]


async def _meant(service: Service, caller: Caller, plain: Mapping[str, Any]) -> list[tuple[Scope, Filter]]:
    """Whose memories a filter speaks of, and what must hold of them."""
    check_names(plain)
    named = owners_named(plain)
    if caller.user is not None:
        # Whoever is bound need not say so, and may name no other.
        for user in owners_named(plain, kinds=("user",)) - {ANYONE}:
            caller.scope(user)
        owners = {caller.user}
    else:
        if ANYONE in named and caller.project is not None:
            raise NotAllowed("who else there is concerns all projects, and this key is for one: name the users")
        owners = set(await service.users()) if ANYONE in named else named
        if not owners and ANYONE not in named:
            raise InvalidFilter("name whose memories are meant: one of user_id, agent_id, app_id and run_id")
    if len(owners) > _MOST_OWNERS:
        raise InvalidFilter(f"the filter speaks of {len(owners)} users; name at most {_MOST_OWNERS}")
    meant = [(caller.scope(user), filter_for(user, plain)) for user in sorted(owners)]
    meant = [(scope, filter) for scope, filter in meant if filter != NOTHING]
    if not meant and caller.user is None and filter_for(_NOBODY, plain) != NOTHING:
        raise InvalidFilter("the filter says whose memories are not meant; name those that are")
    return meant


async def get(service: Service, caller: Caller, id: str) -> dict[str, Any]:
    """One memory."""
    scope, own = read_id(id, caller)
    return shapes.shaped(await held(service, scope, own), caller)


async def update(service: Service, caller: Caller, id: str, change: given.Mem0Change) -> dict[str, Any]:
    """Change a memory; what metadata says of its agent and app stays."""
    scope, own = read_id(id, caller)
    record = caller.to_change(await held(service, scope, own))
    fields: dict[str, Any] = _times(change.timestamp, change.expiration_date)
    if change.content is not None:
        fields["content"] = change.content
    if change.metadata is not None:
        names = {name: record.metadata[name] for name in ("agent_id", "app_id") if name in record.metadata}
        fields["metadata"] = {**change.metadata, **names}
    if "expiration_date" in change.model_fields_set and change.expiration_date is None:
        fields["expires_at"] = None
    if not fields:
        raise InvalidInput("nothing to update; give text, metadata, timestamp or expiration_date")
    return shapes.shaped((await service.update(scope, own, fields, by=caller.by())).record, caller)


async def update_all(service: Service, caller: Caller, changes: list[given.Mem0BatchChange]) -> int:
    """Change several memories, after a look whether there are all of them."""
    for each in changes:
        scope, own = read_id(each.memory_id, caller)
        caller.to_change(await held(service, scope, own))
    for each in changes:
        await update(service, caller, each.memory_id, each)
    return len(changes)


async def delete(service: Service, caller: Caller, *ids: str) -> int:
    """Forget memories, after a look whether there are all of them."""
    asked = [read_id(id, caller) for id in ids]
    found = [(scope, caller.to_change(await held(service, scope, own))) for scope, own in asked]
    for scope, record in found:
        await service.forget(scope, record.id, by=caller.by())
    return len(found)


async def delete_all(service: Service, caller: Caller, names: Names, filters: Mapping[str, Any]) -> int:
    """Forget all memories of those who are named; everybody's cannot be named."""
    plain = {"AND": [names.given, filters]}
    if empty := left_empty(filters):
        raise InvalidInput(f"{empty[0]} is empty; name what is meant, or leave it out")
    if not names.given and not filters:
        raise InvalidInput("name whose memories are to go: one of user_id, agent_id, app_id and run_id")
    if ANYONE in owners_named(plain):
        raise InvalidInput('"*" would delete the memories of everybody; name those whose are to go')
    meant = await _meant(service, caller, plain)
    return sum([await service.forget_all(scope, Listing(filter=filter), by=caller.by()) for scope, filter in meant])


async def forget_everyone(service: Service, caller: Caller) -> int:
    """Forget all memories of all users; for callers who may."""
    if not caller.admin or caller.user is not None:
        raise HTTPException(403, "only an administrator may delete the memories of everybody")
    users = await service.users()
    return sum([await service.forget_all(caller.scope(user), Listing(), by=caller.by()) for user in users])


async def history(service: Service, caller: Caller, id: str) -> list[shapes.Mem0Happened]:
    """What happened to a memory, oldest first; also one that was deleted."""
    scope, own = read_id(id, caller)
    record = await held(service, scope, own, gone=True)
    entries = await service.history(scope, memory_id=own, limit=1000)
    return shapes.told_history(record, entries, id)


def _times(timestamp: float | str | None, expiration_date: str | None) -> dict[str, Any]:
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
