"""The mem0 APIs: the routes of mem0's platform, in all versions, and of the server that mem0 users run themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import Body, HTTPException, Path, Query, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from recollect.errors import InvalidFilter, InvalidInput, NotAllowed, NotFound
from recollect.http.api.schemas import check_number_range
from recollect.http.auth.caller import Caller
from recollect.http.compat.context import EXCLUDE_TURNS, Context, ContextDep, parse_public_id, public_id
from recollect.http.compat.mem0_filters import (
    ANYONE,
    FIELDS,
    KINDS,
    MATCH_NOTHING,
    MAX_NAME_CHARS,
    METADATA_FIELDS,
    EntityFields,
    EntityQuery,
    check_entity_fields,
    entity_metadata,
    entity_names,
    entity_scope,
    filter_for,
    find_owners,
    parse_entity_ids,
    parse_query_filter,
    to_entity,
    to_iso,
    to_mem0_memory,
    user_from_filter,
)
from recollect.http.errors import ErrorInfo
from recollect.http.params import (
    Count,
    FreeText,
    RequiredName,
    ResponseModel,
    Seconds,
    Text,
    Time,
    UnitFloat,
    example,
)
from recollect.http.routing import Router, check_query_names
from recollect.model.arguments import parse_messages
from recollect.model.change import ChangeKind, HistoryEntry
from recollect.model.job import JobState
from recollect.model.memory import MemoryRecord, Trust
from recollect.model.messages import describe_excess, message_role, message_text
from recollect.model.query import MAX_VALUES, Filter, Listing, Op, both, where
from recollect.model.result import Hit
from recollect.model.scope import Scope
from recollect.model.text import MAX_TEXT_BYTES, normalise_invisible
from recollect.model.times import as_utc
from recollect.model.turn import Role
from recollect.remember import MemoryInput

_MEMORY_ID = "0198c6f1-5d2a-7c31-9a44-8f5a2f6b1c90.YWxleA"
Event: TypeAlias = Literal["ADD", "UPDATE", "DELETE"]
_EVENTS: Mapping[ChangeKind, Event] = {ChangeKind.ADD: "ADD", ChangeKind.RESTORE: "ADD", ChangeKind.FORGET: "DELETE"}
Timestamp = Annotated[Seconds | Time, Field(description="When it was said: ISO 8601, or seconds since 1970.")]
Day = Annotated[str, Field(max_length=10, json_schema_extra={"format": "date"}, description="The last valid day.")]
Filters = Annotated[
    dict[str, Any],
    Field(
        strict=True,
        description="All names must match. A value means eq, a list means in, an object has operators; AND, OR and "
        "NOT combine filters. A name that is no field of a memory is one in its metadata.",
    ),
    AfterValidator(check_number_range),
]


def _check_message(message: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(message.get("role"), str):
        raise ValueError("a message must be an object with a role and content")
    return message


_Message = Annotated[
    dict[str, Any],
    AfterValidator(_check_message),
    WithJsonSchema(
        {"type": "object", "properties": {"role": {"type": "string"}, "content": {}}, "required": ["role"]}
    ),
]


class Mem0Add(EntityFields):
    """Messages to learn from, or to store verbatim if `infer` is false."""

    model_config = example(messages=[{"role": "user", "content": "I'm allergic to peanuts"}], user_id="alex")

    messages: Annotated[str, Field(max_length=MAX_TEXT_BYTES)] | _Message | list[_Message]
    filters: Annotated[dict[str, Any], AfterValidator(check_entity_fields)] | None = Field(
        default=None, description="The owner, where clients name it here."
    )
    metadata: dict[str, Any] | None = None
    infer: bool = True
    timestamp: Timestamp | None = None
    expiration_date: Day | None = None


class Mem0ListRequest(EntityFields):
    """A filter; the owner is named by a field, in the filter, by `X-Memory-User` or by the key."""

    model_config = example(filters={"user_id": "alex"})

    filters: Filters | None = None
    categories: list[FreeText] | None = Field(default=None, max_length=MAX_VALUES)
    start_date: Time | None = None
    end_date: Time | None = None
    metadata: Annotated[dict[str, Any], Field(strict=True), AfterValidator(check_number_range)] | None = None
    fields: list[str] | None = Field(default=None, description="Return only these fields of each memory.")

    @property
    def filter(self) -> dict[str, Any]:
        parts: list[dict[str, Any]] = [self.entity_ids(user_from_filter(self.filters)), self.filters or {}]
        if self.categories:
            parts.append({"categories": {"in": self.categories}})
        if self.metadata:
            parts.append({"metadata": self.metadata})
        bounds = {"gte": self.start_date, "lte": self.end_date}
        created_at = {op: each for op, each in bounds.items() if each is not None}
        return {"AND": [*filter(None, parts), *([{"created_at": created_at}] if created_at else [])]}


class Mem0Search(Mem0ListRequest):
    """A search."""

    model_config = example(query="What must Alex not eat?", filters={"user_id": "alex"}, top_k=5)

    query: Text
    top_k: Count | None = None
    limit: Count | None = Field(default=None, description="The same as top_k, which overrides it.")
    threshold: UnitFloat | None = None


class Mem0Change(BaseModel):
    """New values for some fields of a memory; an `expiration_date` of null removes it."""

    model_config = ConfigDict(
        extra="ignore", strict=True, json_schema_extra={"examples": [{"text": "Alex is allergic to nuts"}]}
    )

    text: Text | None = None
    data: Text | None = None
    memory: Text | None = None
    metadata: dict[str, Any] | None = None
    timestamp: Timestamp | None = None
    expiration_date: Day | None = None

    @property
    def content(self) -> str | None:
        """Return the new text, by whichever name."""
        return next((each for each in (self.text, self.data, self.memory) if each is not None), None)


class Mem0BatchItem(Mem0Change):
    """One memory of a batch, and its new values if it is to change."""

    model_config = example(memory_id=_MEMORY_ID, text="Alex is allergic to nuts")

    memory_id: str


class Mem0Batch(BaseModel):
    """Several memories."""

    model_config = example(memories=[{"memory_id": _MEMORY_ID, "text": "Alex is allergic to nuts"}])

    memories: list[Mem0BatchItem] = Field(min_length=1, max_length=1000)


MemoryId = Annotated[str, Path(description="The id of a memory, as these routes return it.")]
EntityKind = Annotated[Literal["user", "agent", "app", "run"], Path(description="The kind of the entity.")]
EntityName = Annotated[RequiredName, Path(description="The name of the entity; not `*`.")]


class Mem0Error(ResponseModel):
    """An error."""

    detail: str


class Mem0Memory(ResponseModel):
    """A memory."""

    model_config = ConfigDict(extra="allow")

    id: str
    memory: str
    user_id: str | None
    agent_id: str | None
    app_id: str | None
    run_id: str | None
    hash: str
    metadata: dict[str, Any] | None
    categories: list[str]
    created_at: str
    updated_at: str
    expiration_date: str | None


class Mem0Updated(Mem0Memory):
    """The memory after a change."""

    message: str = "Memory updated successfully!"


class Mem0HistoryEntry(ResponseModel):
    """A change of a memory."""

    id: str
    memory_id: str
    old_memory: str | None
    new_memory: str | None
    event: Event
    user_id: str | None
    created_at: str
    updated_at: str


class Mem0Message(ResponseModel):
    """A message that says what was done."""

    message: str


class Mem0Added(ResponseModel):
    """The memories that were stored or learned; PENDING if learning continues in the background."""

    results: list[dict[str, Any]]
    status: Literal["SUCCEEDED", "PENDING"]
    event_id: str | None = None


MemoryRows: TypeAlias = Annotated[
    list[dict[str, Any]], Field(description="Memories, or the requested fields of each; with a score in a search.")
]


class Mem0Paged(ResponseModel):
    """A page of memories."""

    count: int = Field(ge=0)
    next: str | None = Field(description="The URL of the next page.")
    previous: str | None
    results: MemoryRows


class Mem0Results(ResponseModel):
    """Memories."""

    results: MemoryRows


class Mem0Entity(ResponseModel):
    """A user, agent, app or run that has memories."""

    id: str
    name: str
    type: str = Field(json_schema_extra={"enum": list(KINDS)})
    total_memories: int = Field(ge=0)
    metadata: dict[str, Any] | None = None
    created_at: str | None = None
    updated_at: str | None = None


class Mem0Entities(ResponseModel):
    """The entities that have memories."""

    count: int = Field(ge=0)
    next: str | None = None
    previous: str | None = None
    results: list[Mem0Entity]


class Mem0Pong(ResponseModel):
    """The server's status; clients require an organisation and a project."""

    status: str = "ok"
    org_id: str = "recollect"
    project_id: str = "recollect"
    user_email: str | None = None


def to_mem0_history(record: MemoryRecord, entries: Sequence[HistoryEntry], memory_id: str) -> list[Mem0HistoryEntry]:
    """Return the changes of a memory, oldest first; `entries` come newest first and have only what they changed."""
    kind, name = to_entity(record.scope.user)
    content, changes = record.content, []
    for entry in entries:
        event: Event = _EVENTS.get(entry.verb, "UPDATE")
        before = (entry.before or {}).get("content", content)
        changes.append(
            Mem0HistoryEntry(
                id=str(entry.id),
                memory_id=memory_id,
                old_memory=None if event == "ADD" else before,
                new_memory=None if event == "DELETE" else content,
                event=event,
                user_id=name if kind == "user" else None,
                created_at=to_iso(entry.at),
                updated_at=to_iso(entry.at),
            )
        )
        content = before
    return changes[::-1]


# mem0's clients wait five minutes for learning; an LLM that takes longer than this is not waited for.
LEARN_S = 60.0
_MAX_OWNERS = 100
_MAX_LISTED = 10_000
# No user has this name: ids contain no control characters.
_NOBODY = "\0"
_NAME_THE_OWNER = "Name the owner of the memories: one of user_id, agent_id, app_id and run_id"
# Parameters that clients add to every request; this server has no organisations.
_IGNORED_PARAMS = {"org_id", "project_id", "org_name", "project_name", "api_version", "output_format", "version"}


def _format_error(error: ErrorInfo) -> dict[str, Any]:
    return {"detail": error.message}


platform = Router(
    "mem0 platform",
    operation_prefix="mem0_",
    error_format=_format_error,
    error_model=Mem0Error,
    strict=False,
    read_only=["search", "search_before", "get_all", "get_all_before"],
    write_only=["add", "ping"],
)
server = Router(
    "mem0 server",
    operation_prefix="mem0_server_",
    error_format=_format_error,
    error_model=Mem0Error,
    strict=False,
    read_only=["search"],
    write_only=["add"],
)
_OR_NOT_FOUND = platform.error_responses(404)


PageNumber = Annotated[int | None, Query(ge=1, description="The page, from 1.")]
PageSize = Annotated[int, Query(ge=1, le=1000, description="The number of memories on a page.")]


@platform.get("/v1/ping/")
async def ping() -> Mem0Pong:
    """Return the server's status; clients call this with their key when they start."""
    return Mem0Pong()


@server.post("/memories", responses=_OR_NOT_FOUND)
@platform.post("/v1/memories/", operation_id="mem0_add_before", responses=_OR_NOT_FOUND)
@platform.post("/v3/memories/add/", responses=_OR_NOT_FOUND)
async def add(ctx: ContextDep, body: Mem0Add) -> Mem0Added:
    """Learn from messages, or store them verbatim; returns what was added."""
    names = body.entity_ids(body.filters)
    fields = _time_fields(body.timestamp, body.expiration_date)
    scope = entity_scope(names, ctx.caller)
    if body.infer:
        return await _learn(ctx, names, body, fields)
    results = []
    metadata = {**(body.metadata or {}), **entity_metadata(names)}
    merged_fields = {**fields, **({"metadata": metadata} if metadata else {})}
    for message in parse_messages(body.messages):
        # Messages without visible text are skipped instead of rejecting the whole request.
        role, text = message_role(message), normalise_invisible(message_text(message.get("content")))
        if role in tuple(Role) and text.strip():
            trust = Trust.HIGH if role == Role.USER else Trust.LOW
            new = MemoryInput(content=text, fields={**fields, "metadata": metadata, "trust": str(trust)})
            added, merged = await ctx.add(scope, new, merged_fields)
            event = "ADD" if added.changed else "UPDATE" if merged.changed else "NONE"
            results.append(_added_item(merged.record, ctx.caller, event))
    return Mem0Added(results=results, status="SUCCEEDED")


async def _learn(ctx: Context, names: Mapping[str, str], body: Mem0Add, fields: Mapping[str, Any]) -> Mem0Added:
    scope, messages = entity_scope(names, ctx.caller), parse_messages(body.messages)
    if excess := describe_excess(messages):
        raise InvalidInput(f"`messages` must not have {excess}")
    if body.timestamp is not None:
        messages = tuple({"timestamp": fields["occurred_at"], **message} for message in messages)
    result = await ctx.service.remember(scope, messages, by=ctx.caller.author(), wait_s=LEARN_S)
    if result.job is None:
        return Mem0Added(results=[], status="SUCCEEDED")
    learned = Listing(filter=both(EXCLUDE_TURNS, where("evidence", Op.IN, [turn.id for turn in result.turns])))
    results = []
    for record in await ctx.service.find(Scope(scope.user), replace(learned, limit=1000)):
        metadata = {**record.metadata, **(body.metadata or {}), **entity_metadata(names)}
        changes = {"metadata": metadata} if metadata != record.metadata else {}
        if body.expiration_date:
            changes["expires_at"] = fields["expires_at"]
        event = "ADD" if record.version == 1 else "UPDATE"
        if changes:
            record = await ctx.update(scope, record.id, changes)
        # A memory that was updated contains text from before, which a caller without read permission may not see.
        if ctx.caller.reads or event == "ADD":
            results.append(_added_item(record, ctx.caller, event))
    done = result.job.state is JobState.DONE
    return Mem0Added(results=results, status="SUCCEEDED" if done else "PENDING", event_id=result.job.id)


def _added_item(record: MemoryRecord, caller: Caller, event: str) -> dict[str, Any]:
    return {"id": public_id(record, caller), "memory": record.content, "event": event}


def _time_fields(timestamp: float | str | None, expiration_date: str | None) -> dict[str, Any]:
    """Return when it happened, and when it expires: at the end of the day, in UTC."""
    fields: dict[str, Any] = {}
    if timestamp is not None:
        fields["occurred_at"] = as_utc(timestamp, name="timestamp").isoformat()
    if expiration_date is not None:
        try:
            day = date.fromisoformat(expiration_date)
        except ValueError:
            message = f"expiration_date must be a day such as 2027-01-01, got {expiration_date[:40]!r}"
            raise InvalidInput(message) from None
        fields["expires_at"] = datetime.combine(day, time.max, UTC).isoformat()
    return fields


@server.post("/search")
@platform.post("/v3/memories/search/")
async def search(ctx: ContextDep, body: Mem0Search) -> Mem0Results:
    """Return the memories that match a query, best first."""
    return Mem0Results(results=await _search(ctx, body))


@platform.post("/v1/memories/search/", operation_id="mem0_search_first")
@platform.post("/v2/memories/search/")
async def search_before(ctx: ContextDep, body: Mem0Search) -> MemoryRows:
    """Return the memories that match a query, best first, as a bare list for older clients."""
    return await _search(ctx, body)


async def _search(ctx: Context, body: Mem0Search) -> list[dict[str, Any]]:
    limit = body.top_k or body.limit
    hits: list[Hit] = []
    for scope, filter in await _resolve_targets(ctx, body.filter):
        result = await ctx.search(
            scope, body.query, limit=limit, min_score=body.threshold, filter=filter, everywhere=True
        )
        hits += result.hits
    best = sorted(hits, key=lambda hit: -hit.score)[: limit or ctx.settings.search_limit]
    return [to_mem0_memory(hit.record, ctx.caller, score=hit.score, fields=body.fields) for hit in best]


async def _resolve_targets(ctx: Context, plain: Mapping[str, Any]) -> list[tuple[Scope, Filter]]:
    names = entity_names(plain)
    owners = find_owners(names)
    if ctx.caller.user is not None:
        # A caller limited to a user need not name it, and may name no other.
        for field, name in names:
            if field == "user_id" and name != ANYONE:
                ctx.caller.scope(name)
        owners = {ctx.caller.user}
    elif ANYONE in owners:
        if ctx.caller.project is not None:
            raise NotAllowed("A key for one project may not list all users: name the users")
        owners = set(await ctx.service.users())
    elif not owners:
        raise InvalidFilter(_NAME_THE_OWNER)
    if len(owners) > _MAX_OWNERS:
        raise InvalidFilter(f"The filter selects {len(owners)} users; the limit is {_MAX_OWNERS}")
    targets = [(ctx.caller.scope(user), filter_for(user, plain)) for user in sorted(owners)]
    targets = [(scope, filter) for scope, filter in targets if filter != MATCH_NOTHING]
    if not targets and ctx.caller.user is None and filter_for(_NOBODY, plain) != MATCH_NOTHING:
        raise InvalidFilter("The filter only excludes users; name the users to include")
    return targets


@platform.post("/v3/memories/", responses=_OR_NOT_FOUND)
async def get_all(
    ctx: ContextDep, request: Request, body: Mem0ListRequest, page: PageNumber = None, page_size: PageSize = 100
) -> Mem0Paged:
    """List the memories that match a filter, newest first, a page at a time."""
    return await _list_page(ctx, request, body, page or 1, page_size)


@platform.post("/v2/memories/", responses=_OR_NOT_FOUND)
async def get_all_before(
    ctx: ContextDep, request: Request, body: Mem0ListRequest, page: PageNumber = None, page_size: PageSize = 100
) -> Mem0Paged | MemoryRows:
    """List the memories that match a filter, as older clients expect it: a bare list unless a page is named."""
    result = await _list_page(ctx, request, body, page or 1, page_size)
    return result if page else result.results


@platform.get("/v1/memories/", responses=_OR_NOT_FOUND)
async def get_all_first(
    ctx: ContextDep, request: Request, owner: EntityQuery, page: PageNumber = None, page_size: PageSize = 100
) -> Mem0Paged | MemoryRows:
    """List the memories of an owner, newest first, as the oldest clients expect it."""
    return await get_all_before(ctx, request, Mem0ListRequest(**owner.model_dump()), page, page_size)


@server.get("/memories", name="get_all")
async def get_all_of_server(
    ctx: ContextDep,
    owner: EntityQuery,
    limit: Annotated[int, Query(ge=1, le=1000, description="The maximum number of memories.")] = 100,
) -> Mem0Results:
    """List the memories of an owner, newest first."""
    _, results = await _list_memories(ctx, Mem0ListRequest(**owner.model_dump()), page=1, size=limit)
    return Mem0Results(results=results)


async def _list_page(ctx: Context, request: Request, body: Mem0ListRequest, page: int, size: int) -> Mem0Paged:
    count, results = await _list_memories(ctx, body, page=page, size=size)
    return Mem0Paged(
        count=count,
        next=str(request.url.include_query_params(page=page + 1)) if page * size < count else None,
        previous=str(request.url.include_query_params(page=page - 1)) if page > 1 else None,
        results=results,
    )


async def _list_memories(
    ctx: Context, body: Mem0ListRequest, *, page: int, size: int
) -> tuple[int, list[dict[str, Any]]]:
    """Return the number of memories, and those of one page, newest first."""
    if page * size > _MAX_LISTED:
        raise NotFound(f"Pages contain the first {_MAX_LISTED:,} memories only; narrow the filter, or export")
    count = 0
    records: list[MemoryRecord] = []
    for scope, filter in await _resolve_targets(ctx, body.filter):
        listing = Listing(filter=both(filter, EXCLUDE_TURNS), limit=page * size)
        count += await ctx.service.count(scope, listing)
        records += (await ctx.service.find(scope, listing)).records
    records.sort(key=lambda record: record.created_at, reverse=True)
    shown = records[(page - 1) * size : page * size]
    return count, [to_mem0_memory(record, ctx.caller, fields=body.fields) for record in shown]


@server.delete("/memories")
@platform.delete("/v1/memories/")
async def delete_all(
    ctx: ContextDep,
    request: Request,
    owner: EntityQuery,
    filters: Annotated[str | None, Query(description="Which memories of the owner, as a filter in JSON.")] = None,
) -> Mem0Message:
    """Forget all memories of an owner, or those that match a filter; this can be undone."""
    check_query_names(request, {*FIELDS, "filters", *_IGNORED_PARAMS})
    parsed = parse_query_filter(filters)
    await _delete_all(ctx, owner.entity_ids(user_from_filter(parsed)), parsed)
    return Mem0Message(message="Memories deleted successfully!")


async def _delete_all(ctx: Context, names: Mapping[str, str], filters: Mapping[str, Any]) -> None:
    plain = {"AND": [names, filters]}
    if not names and not filters:
        raise InvalidInput(_NAME_THE_OWNER)
    for field, name in entity_names(plain):
        if not name:
            raise InvalidInput(f"{field} is empty; name what is meant, or leave it out")
        if field == "user_id" and name == ANYONE:
            raise InvalidInput('"*" would delete the memories of all users; name the owner')
    for scope, filter in await _resolve_targets(ctx, plain):
        await ctx.forget_all(scope, filter)


@server.get("/memories/{memory_id}")
@platform.get("/v1/memories/{memory_id}/")
async def get(ctx: ContextDep, memory_id: MemoryId) -> Mem0Memory:
    """Return a memory."""
    scope, record_id = parse_public_id(memory_id, ctx.caller)
    record = await ctx.fetch(scope, record_id)
    return Mem0Memory.model_validate(to_mem0_memory(record, ctx.caller))


@server.put("/memories/{memory_id}")
@platform.put("/v1/memories/{memory_id}/")
async def update(ctx: ContextDep, memory_id: MemoryId, body: Mem0Change) -> Mem0Updated:
    """Change a memory; the history has the previous version."""
    return Mem0Updated.model_validate(to_mem0_memory(await _update(ctx, memory_id, body), ctx.caller))


async def _update(ctx: Context, id: str, change: Mem0Change) -> MemoryRecord:
    """Change a memory; its agent and app stay in the metadata."""
    scope, record = await _fetch_editable(ctx, id)
    fields = _time_fields(change.timestamp, change.expiration_date)
    if change.content is not None:
        fields["content"] = change.content
    if change.metadata is not None:
        names = {name: record.metadata[name] for name in METADATA_FIELDS if name in record.metadata}
        fields["metadata"] = {**change.metadata, **names}
    if "expiration_date" in change.model_fields_set and change.expiration_date is None:
        fields["expires_at"] = None
    if not fields:
        raise InvalidInput("The body has nothing to change; send text, metadata, timestamp or expiration_date")
    return await ctx.update(scope, record.id, fields)


async def _fetch_editable(ctx: Context, id: str) -> tuple[Scope, MemoryRecord]:
    scope, record_id = parse_public_id(id, ctx.caller)
    return scope, await ctx.fetch_editable(scope, record_id)


@server.delete("/memories/{memory_id}")
@platform.delete("/v1/memories/{memory_id}/")
async def delete(ctx: ContextDep, memory_id: MemoryId) -> Mem0Message:
    """Forget a memory; this can be undone."""
    await _delete(ctx, memory_id)
    return Mem0Message(message="Memory deleted successfully!")


async def _delete(ctx: Context, *ids: str) -> None:
    """Forget memories, after checking that all of them exist."""
    for scope, record in [await _fetch_editable(ctx, id) for id in ids]:
        await ctx.forget(scope, record.id)


@server.get("/memories/{memory_id}/history")
@platform.get("/v1/memories/{memory_id}/history/")
async def history(ctx: ContextDep, memory_id: MemoryId) -> list[Mem0HistoryEntry]:
    """List the changes of a memory, oldest first; also of one that was deleted."""
    scope, record_id = parse_public_id(memory_id, ctx.caller)
    record = await ctx.fetch(scope, record_id, include_inactive=True)
    entries = await ctx.service.history(scope, memory_id=record_id, limit=1000)
    return to_mem0_history(record, entries, memory_id)


@platform.put("/v1/batch/", responses=_OR_NOT_FOUND)
async def update_batch(ctx: ContextDep, body: Mem0Batch) -> Mem0Message:
    """Change several memories; none if one of them does not exist."""
    for each in body.memories:
        await _fetch_editable(ctx, each.memory_id)
    for each in body.memories:
        await _update(ctx, each.memory_id, each)
    return Mem0Message(message=f"Successfully updated {len(body.memories)} memories")


@platform.delete("/v1/batch/", responses=_OR_NOT_FOUND)
async def delete_batch(ctx: ContextDep, body: Mem0Batch) -> Mem0Message:
    """Forget several memories; none if one of them does not exist."""
    await _delete(ctx, *(each.memory_id for each in body.memories))
    return Mem0Message(message=f"Successfully deleted {len(body.memories)} memories")


@platform.get("/v1/entities/")
async def entities(ctx: ContextDep) -> Mem0Entities:
    """List the entities that have memories; a caller limited to a user sees that user alone."""
    if ctx.caller.project is not None and ctx.caller.user is None:
        raise NotAllowed("A key for one project may not list all users")
    results = []
    for user in [ctx.caller.user] if ctx.caller.user is not None else await ctx.service.users():
        kind, name = to_entity(user)
        if total := await ctx.service.count(ctx.caller.scope(user), Listing(filter=EXCLUDE_TURNS)):
            results.append(Mem0Entity(id=user, name=name, type=kind, total_memories=total))
    return Mem0Entities(count=len(results), results=results)


@platform.delete("/v1/entities/{kind}/{name}/", operation_id="mem0_delete_entity_before")
@platform.delete("/v2/entities/{kind}/{name}/")
async def delete_entity(ctx: ContextDep, kind: EntityKind, name: EntityName) -> Mem0Message:
    """Forget all memories of a user, agent, app or run."""
    if kind != "user" and len(name) > MAX_NAME_CHARS:
        raise NotFound(f"No {kind} has this name: it is longer than {MAX_NAME_CHARS} characters")
    await _delete_all(ctx, parse_entity_ids({f"{kind}_id": name}), {})
    return Mem0Message(message="Entity deleted successfully.")


@server.post("/reset")
async def reset(ctx: ContextDep) -> Mem0Message:
    """Forget all memories of all users; for administrators."""
    if not ctx.caller.admin or ctx.caller.user is not None:
        raise HTTPException(403, "Only an administrator may delete the memories of all users")
    for user in await ctx.service.users():
        await ctx.forget_all(ctx.caller.scope(user))
    return Mem0Message(message="All memories reset")


@server.post("/configure")
async def configure(
    config: Annotated[dict[str, Any], Body(examples=[{"llm": {"provider": "openai"}}])],
) -> Mem0Message:
    """Always rejected: the operator configures this server in its settings."""
    raise HTTPException(403, "The operator configures this server in its settings; see `recollect config show`")
