"""Memories, one at a time and in lists."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from recollect.errors import InvalidInput
from recollect.http.auth.caller import Asking
from recollect.http.doors.given import Text
from recollect.http.doors.own.answers import (
    VERSIONED,
    WRITING,
    IfMatch,
    answered,
    cursor_of,
    failing,
    read_cursor,
    version_in,
)
from recollect.http.doors.own.asking import Acting, OfMemory, Place
from recollect.http.doors.own.filter_schema import Filters
from recollect.http.doors.own.repeating import IdempotencyKey, repeatable
from recollect.http.doors.own.routing import Serving, router
from recollect.http.doors.own.shapes import (
    AsOf,
    Changed,
    Cursor,
    Embedding,
    Even,
    Given,
    Label,
    Limit,
    Memory,
    MemoryFields,
    MemoryPage,
    Time,
    unsaid,
)
from recollect.model.asked import read_once, read_time
from recollect.model.filters import read_filter, where
from recollect.model.memory import Category, MemoryType, Status
from recollect.model.query import And, Filter, Listing, Not, Op, both
from recollect.model.result import Page
from recollect.model.scope import Level
from recollect.remember import NewMemory

memories = router("memories")
_TURNS = Not(where("category", Op.EQ, str(Category.TURN)))
_CHANGES = {**WRITING, **failing(404, 409, 412)}


class NewOne(MemoryFields):
    """A memory to keep, word for word."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": ["content"]},
                {
                    "required": ["key", "value"],
                    "properties": {"key": {"type": "string"}, "value": {"type": "string"}},
                },
            ],
            "example": {"content": "The budget for the Hawaii trip is $10,000", "tags": ["travel"]},
        }
    )

    content: Annotated[Text, Field(description="What it says; with key and value it can be left out.")] = unsaid()
    level: Annotated[Level, Field(strict=False, description="By default the project's, else the user's.")] = unsaid()
    correction: bool = Field(default=False, description="A new value for its key wins, however sure the old one is.")
    embedding: Embedding = unsaid()


class Edit(MemoryFields):
    """New values for fields of a memory; what is left out stays."""

    model_config = ConfigDict(
        json_schema_extra={"minProperties": 1, "example": {"content": "The budget is $12,000", "importance": 0.9}}
    )

    content: Text = unsaid()


class Wanted(Given):
    """Which memories to list."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"filters": {"category": "fact", "importance": {"gte": 0.5}}, "limit": 20}}
    )

    filters: Filters = Field(default_factory=dict)
    statuses: list[Annotated[Status, Field(strict=False)]] = Field(default_factory=lambda: [Status.ACTIVE])
    turns: bool = Field(default=False, description="Whether what was said is listed, too.")
    order: Literal["newest", "oldest"] = "newest"
    limit: Annotated[int, Field(ge=1, le=1000), Even] = 100
    cursor: str | None = Field(default=None, max_length=4000, pattern=r"^[A-Za-z0-9_-]+$")
    as_of: Time | None = Field(
        default=None, description="Lists what held at that moment, as it was then; statuses are left out."
    )


class Unwanted(Given):
    """Which memories to forget."""

    model_config = ConfigDict(json_schema_extra={"example": {"filters": {"tags": "draft"}}})

    filters: Filters = Field(description="An empty one means all of the scope, turns among them.")


class Forgotten(BaseModel):
    """How many memories were forgotten."""

    forgotten: int = Field(ge=0, examples=[3])


@memories.get("/memories", response_model=MemoryPage)
async def list_memories(
    place: Place,
    service: Serving,
    category: Annotated[list[Category] | None, Query(description="Any of these.")] = None,
    type: Annotated[list[MemoryType] | None, Query(description="Any of these.")] = None,
    level: Annotated[list[Level] | None, Query(description="Any of these.")] = None,
    key: Annotated[Label | None, Query(description="Facts of this key.")] = None,
    tag: Annotated[list[Label] | None, Query(description="All of these.")] = None,
    status: Annotated[list[Status] | None, Query(description="Any of these; by default, active.")] = None,
    turns: Annotated[bool, Query(description="Whether what was said is listed, too.")] = False,
    order: Annotated[Literal["newest", "oldest"], Query(description="Which come first.")] = "newest",
    limit: Limit = 100,
    cursor: Cursor = None,
    as_of: AsOf = None,
) -> JSONResponse:
    """List the memories in the scope, a page at a time. `POST /list` takes every filter.

    With `as_of` only what held at that moment is listed, as it was then, so no other status can be asked for.
    """
    chosen: list[Filter] = [
        where(name, Op.IN, [str(each) for each in wanted])
        for name, wanted in (("category", category), ("type", type), ("level", level))
        if wanted
    ]
    chosen += [where("key", Op.EQ, key)] if key is not None else []
    chosen += [where("tags", Op.CONTAINS, each) for each in tag or ()]
    listing = _listing(And(tuple(chosen)), status or (), turns=turns, order=order, limit=limit, cursor=cursor)
    return _page(await service.find(place, listing, as_of=read_time(as_of, name="as_of")))


@memories.post("/list", response_model=MemoryPage, responses=failing(413))
async def list_memories_by_filter(wanted: Wanted, place: Place, service: Serving) -> JSONResponse:
    """List the memories in the scope that pass a filter, a page at a time."""
    filter = read_filter(wanted.filters)
    listing = _listing(
        filter, wanted.statuses, turns=wanted.turns, order=wanted.order, limit=wanted.limit, cursor=wanted.cursor
    )
    return _page(await service.find(place, listing, as_of=read_time(wanted.as_of, name="as_of")))


def _listing(filter: Filter, statuses: Any, *, turns: bool, cursor: str | None, **more: Any) -> Listing:
    last = read_cursor(cursor, str)
    return Listing(
        filter=filter if turns else both(filter, _TURNS),
        statuses=tuple(statuses) or (Status.ACTIVE,),
        cursor=last[0] if last else None,
        **more,
    )


def _page(page: Page) -> JSONResponse:
    told = page.to_dict()
    return answered({**told, "cursor": None if page.cursor is None else cursor_of(page.cursor)})


@memories.post(
    "/memories",
    response_model=Changed,
    status_code=201,
    responses={
        201: {"description": "It is kept.", "headers": VERSIONED},
        200: {"model": Changed, "description": "It was known already; this is the one.", "headers": VERSIONED},
        **WRITING,
        **failing(409),
    },
)
async def add_memory(
    new: NewOne,
    caller: Asking,
    place: Place,
    by: Acting,
    service: Serving,
    idempotency_key: IdempotencyKey = None,
) -> JSONResponse:
    """Keep a memory, word for word; one that says the same as another is not kept twice."""
    caller.check_level(new.level)
    given = new.model_dump(exclude_unset=True, exclude_none=True, exclude={"content", "correction", "embedding"})
    vector = await service.care.given_vector(new.embedding)
    draft = NewMemory(content=new.content, fields=given, vector=vector, correction=new.correction)
    once = read_once(
        idempotency_key, "add", place.user, place.project, place.session, new.model_dump(exclude_unset=True)
    )
    outcome = caller.check_told(await service.add(place, draft, by=by, once=once))
    return answered(outcome.to_dict(), 201 if outcome.changed else 200)


@memories.post("/forget", response_model=Forgotten, responses={**WRITING, **failing(409)})
@repeatable()
async def forget_memories(unwanted: Unwanted, place: Place, by: Acting, service: Serving) -> JSONResponse:
    """Forget every memory of the scope that passes a filter; `POST /undo` brings all of them back."""
    count = await service.forget_all(place, Listing(filter=read_filter(unwanted.filters)), by=by)
    return answered({"forgotten": count})


@memories.get(
    "/memories/{memory_id}",
    response_model=Memory,
    responses={200: {"description": "The memory.", "headers": VERSIONED}, **failing(404)},
)
async def get_memory(memory_id: str, place: OfMemory, service: Serving, as_of: AsOf = None) -> JSONResponse:
    """One memory, in whatever state it is, or was at the moment `as_of`; 404 if it was not there yet."""
    return answered((await service.get(place, memory_id, as_of=read_time(as_of, name="as_of"))).to_dict())


@memories.patch(
    "/memories/{memory_id}",
    response_model=Changed,
    responses={200: {"description": "The memory as it now is.", "headers": VERSIONED}, **_CHANGES},
)
@repeatable()
async def update_memory(
    memory_id: str, edit: Edit, place: OfMemory, by: Acting, service: Serving, if_match: IfMatch = None
) -> JSONResponse:
    """Change a memory; with If-Match only if nobody else has changed it since."""
    version = await version_in(if_match, lambda: service.get(place, memory_id))
    outcome = await service.update(place, memory_id, edit_fields(edit), by=by, expected_version=version)
    return answered(outcome.to_dict())


@memories.delete(
    "/memories/{memory_id}",
    response_model=Changed,
    responses={200: {"description": "The memory as it now is: forgotten.", "headers": VERSIONED}, **_CHANGES},
)
@repeatable()
async def delete_memory(
    memory_id: str,
    place: OfMemory,
    by: Acting,
    service: Serving,
    sources: Annotated[
        bool, Query(description="Whether the turns it was learned from are forgotten, too: they say the same.")
    ] = True,
    if_match: IfMatch = None,
) -> JSONResponse:
    """Forget a memory: it is not found any more, and `restore` or `undo` brings it back. `erase` removes for good."""
    version = await version_in(if_match, lambda: service.get(place, memory_id))
    outcome = await service.forget(place, memory_id, by=by, expected_version=version, sources=sources)
    return answered(outcome.to_dict())


@memories.post(
    "/memories/{memory_id}/restore",
    response_model=Changed,
    responses={
        200: {"description": "The memory as it now is.", "headers": VERSIONED},
        **WRITING,
        **failing(404, 409),
    },
)
@repeatable()
async def restore_memory(memory_id: str, place: OfMemory, by: Acting, service: Serving) -> JSONResponse:
    """Make a forgotten or superseded memory active again; one that waited for review waits again."""
    return answered((await service.restore(place, memory_id, by=by)).to_dict())


def edit_fields(edit: MemoryFields) -> dict[str, Any]:
    """What an edit says, as the service takes it; a key or time that is null is taken away."""
    fields = edit.model_dump(exclude_unset=True)
    if not fields:
        raise InvalidInput("nothing to change; give the content or a field")
    return fields
