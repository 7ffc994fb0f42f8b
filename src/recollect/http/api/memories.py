"""Memories, one at a time and in lists."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from recollect.errors import InvalidInput
from recollect.http.api.idempotency import IdempotencyKey, idempotent
from recollect.http.api.responses import (
    ETAG_HEADER,
    WRITE_ERRORS,
    IfMatch,
    decode_cursor,
    encode_cursor,
    error_responses,
    json_response,
    parse_if_match,
)
from recollect.http.api.routing import AuthorDep, MemoryScopeDep, ScopeDep, ServiceDep, create_router
from recollect.http.api.schemas import (
    EXAMPLE_MEMORY,
    AsOf,
    Cursor,
    Embedding,
    Filters,
    IntegralFloat,
    Label,
    Limit,
    MemoryChangeResponse,
    MemoryFields,
    MemoryPage,
    MemoryResponse,
    StrictBody,
    Time,
    example_config,
    optional_field,
)
from recollect.http.auth.caller import CallerDep
from recollect.http.params import Text
from recollect.model.arguments import parse_idempotency_key, parse_time
from recollect.model.memory import Category, MemoryType, Status
from recollect.model.query import And, Filter, Listing, Not, Op, both, parse_filter, where
from recollect.model.result import Page
from recollect.model.scope import Level
from recollect.remember import MemoryInput

memories_router = create_router("memories")
_EXCLUDE_TURNS = Not(where("category", Op.EQ, str(Category.TURN)))
_CHANGE_ERRORS = {**WRITE_ERRORS, **error_responses(404, 409, 412)}


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

    content: Annotated[Text, Field(description="What it says; with key and value it can be left out.")] = (
        optional_field()
    )
    level: Annotated[Level, Field(strict=False, description="By default the project's, else the user's.")] = (
        optional_field()
    )
    correction: bool = Field(default=False, description="A new value for its key wins, however sure the old one is.")
    embedding: Embedding = optional_field()


class MemoryEdit(MemoryFields):
    """New values for fields of a memory; what is left out stays."""

    model_config = ConfigDict(
        json_schema_extra={"minProperties": 1, "example": {"content": "The budget is $12,000", "importance": 0.9}}
    )

    content: Text = optional_field()


class MemoryListRequest(StrictBody):
    """Which memories to list."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"filters": {"category": "fact", "importance": {"gte": 0.5}}, "limit": 20}}
    )

    filters: Filters = Field(default_factory=dict)
    statuses: list[Annotated[Status, Field(strict=False)]] = Field(default_factory=lambda: [Status.ACTIVE])
    turns: bool = Field(default=False, description="Whether what was said is listed, too.")
    order: Literal["newest", "oldest"] = "newest"
    limit: Annotated[int, Field(ge=1, le=1000), IntegralFloat] = 100
    cursor: str | None = Field(default=None, max_length=4000, pattern=r"^[A-Za-z0-9_-]+$")
    as_of: Time | None = Field(
        default=None, description="Lists what held at that moment, as it was then; statuses are left out."
    )


class ForgetRequest(StrictBody):
    """Which memories to forget."""

    model_config = ConfigDict(json_schema_extra={"example": {"filters": {"tags": "draft"}}})

    filters: Filters = Field(description="An empty one means all of the scope, turns among them.")


class Forgotten(BaseModel):
    """How many memories were forgotten."""

    forgotten: int = Field(ge=0, examples=[3])


@memories_router.get("/memories", response_model=MemoryPage)
async def list_memories(
    place: ScopeDep,
    service: ServiceDep,
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
    filters: list[Filter] = [
        where(name, Op.IN, [str(each) for each in values])
        for name, values in (("category", category), ("type", type), ("level", level))
        if values
    ]
    filters += [where("key", Op.EQ, key)] if key is not None else []
    filters += [where("tags", Op.CONTAINS, each) for each in tag or ()]
    listing = _listing(And(tuple(filters)), status or (), turns=turns, order=order, limit=limit, cursor=cursor)
    return _memory_page(await service.find(place, listing, as_of=parse_time(as_of, name="as_of")))


@memories_router.post("/list", response_model=MemoryPage, responses=error_responses(413))
async def list_memories_by_filter(wanted: MemoryListRequest, place: ScopeDep, service: ServiceDep) -> JSONResponse:
    """List the memories in the scope that pass a filter, a page at a time."""
    filter = parse_filter(wanted.filters)
    listing = _listing(
        filter, wanted.statuses, turns=wanted.turns, order=wanted.order, limit=wanted.limit, cursor=wanted.cursor
    )
    return _memory_page(await service.find(place, listing, as_of=parse_time(wanted.as_of, name="as_of")))


def _listing(filter: Filter, statuses: Any, *, turns: bool, cursor: str | None, **more: Any) -> Listing:
    last = decode_cursor(cursor, str)
    return Listing(
        filter=filter if turns else both(filter, _EXCLUDE_TURNS),
        statuses=tuple(statuses) or (Status.ACTIVE,),
        cursor=last[0] if last else None,
        **more,
    )


def _memory_page(page: Page) -> JSONResponse:
    body = page.to_dict()
    return json_response({**body, "cursor": None if page.cursor is None else encode_cursor(page.cursor)})


@memories_router.post(
    "/memories",
    response_model=MemoryChangeResponse,
    status_code=201,
    responses={
        201: {"description": "It is kept.", "headers": ETAG_HEADER},
        200: {
            "model": MemoryChangeResponse,
            "description": "It was known already; this is the one.",
            "headers": ETAG_HEADER,
        },
        **WRITE_ERRORS,
        **error_responses(409),
    },
)
async def add_memory(
    new: NewOne,
    caller: CallerDep,
    place: ScopeDep,
    by: AuthorDep,
    service: ServiceDep,
    idempotency_key: IdempotencyKey = None,
) -> JSONResponse:
    """Keep a memory, word for word; one that says the same as another is not kept twice."""
    caller.check_level(new.level)
    fields = new.model_dump(exclude_unset=True, exclude_none=True, exclude={"content", "correction", "embedding"})
    vector = await service.check_embedding(new.embedding)
    draft = MemoryInput(content=new.content, fields=fields, vector=vector, correction=new.correction)
    once = parse_idempotency_key(
        idempotency_key, "add", place.user, place.project, place.session, new.model_dump(exclude_unset=True)
    )
    outcome = caller.check_outcome_visible(await service.add(place, draft, by=by, idempotency=once))
    return json_response(outcome.to_dict(), 201 if outcome.changed else 200)


@memories_router.post("/forget", response_model=Forgotten, responses={**WRITE_ERRORS, **error_responses(409)})
@idempotent()
async def forget_memories(
    unwanted: ForgetRequest, place: ScopeDep, by: AuthorDep, service: ServiceDep
) -> JSONResponse:
    """Forget every memory of the scope that passes a filter; `POST /undo` brings all of them back."""
    count = await service.forget_all(place, Listing(filter=parse_filter(unwanted.filters)), by=by)
    return json_response({"forgotten": count})


@memories_router.get(
    "/memories/{memory_id}",
    response_model=MemoryResponse,
    responses={200: {"description": "The memory.", "headers": ETAG_HEADER}, **error_responses(404)},
)
async def get_memory(memory_id: str, place: MemoryScopeDep, service: ServiceDep, as_of: AsOf = None) -> JSONResponse:
    """One memory, in whatever state it is, or was at the moment `as_of`; 404 if it was not there yet."""
    return json_response((await service.get(place, memory_id, as_of=parse_time(as_of, name="as_of"))).to_dict())


@memories_router.patch(
    "/memories/{memory_id}",
    response_model=MemoryChangeResponse,
    responses={200: {"description": "The memory as it now is.", "headers": ETAG_HEADER}, **_CHANGE_ERRORS},
)
@idempotent()
async def update_memory(
    memory_id: str,
    edit: MemoryEdit,
    place: MemoryScopeDep,
    by: AuthorDep,
    service: ServiceDep,
    if_match: IfMatch = None,
) -> JSONResponse:
    """Change a memory; with If-Match only if nobody else has changed it since."""
    version = await parse_if_match(if_match, lambda: service.get(place, memory_id))
    outcome = await service.update(place, memory_id, edit_fields(edit), by=by, expected_version=version)
    return json_response(outcome.to_dict())


@memories_router.delete(
    "/memories/{memory_id}",
    response_model=MemoryChangeResponse,
    responses={200: {"description": "The memory as it now is: forgotten.", "headers": ETAG_HEADER}, **_CHANGE_ERRORS},
)
@idempotent()
async def delete_memory(
    memory_id: str,
    place: MemoryScopeDep,
    by: AuthorDep,
    service: ServiceDep,
    sources: Annotated[
        bool, Query(description="Whether the turns it was learned from are forgotten, too: they say the same.")
    ] = True,
    if_match: IfMatch = None,
) -> JSONResponse:
    """Forget a memory: it is not found any more, and `restore` or `undo` brings it back. `erase` removes for good."""
    version = await parse_if_match(if_match, lambda: service.get(place, memory_id))
    outcome = await service.forget(place, memory_id, by=by, expected_version=version, sources=sources)
    return json_response(outcome.to_dict())


@memories_router.post(
    "/memories/{memory_id}/restore",
    response_model=MemoryChangeResponse,
    responses={
        200: {"description": "The memory as it now is.", "headers": ETAG_HEADER},
        **WRITE_ERRORS,
        **error_responses(404, 409),
    },
)
@idempotent()
async def restore_memory(memory_id: str, place: MemoryScopeDep, by: AuthorDep, service: ServiceDep) -> JSONResponse:
    """Make a forgotten or superseded memory active again; one that waited for review waits again."""
    return json_response((await service.restore(place, memory_id, by=by)).to_dict())


def edit_fields(edit: MemoryFields) -> dict[str, Any]:
    """What an edit says, as the service takes it; a key or time that is null is taken away."""
    fields = edit.model_dump(exclude_unset=True)
    if not fields:
        raise InvalidInput("nothing to change; give the content or a field")
    return fields


reviews_router = create_router("reviews")
_REVIEW_RESPONSES = {
    200: {"description": "The memory as it now is.", "headers": ETAG_HEADER},
    **WRITE_ERRORS,
    **error_responses(404, 409, 412),
}


class ReviewResponse(MemoryChangeResponse):
    """A memory after it was looked at."""

    model_config = example_config(EXAMPLE_MEMORY, event="update", redacted=[], superseded=[])

    superseded: list[str] = Field(description="The ids of those it took the place of.")


@reviews_router.get("/reviews", response_model=MemoryPage)
async def list_reviews(
    place: ScopeDep, service: ServiceDep, limit: Limit = 100, cursor: Cursor = None
) -> JSONResponse:
    """What waits for a person to look at it, oldest first."""
    last = decode_cursor(cursor, str)
    page = await service.reviews.list(place, limit=limit, cursor=last[0] if last else None)
    return json_response({**page.to_dict(), "cursor": None if page.cursor is None else encode_cursor(page.cursor)})


@reviews_router.patch("/reviews/{memory_id}", response_model=ReviewResponse, responses=_REVIEW_RESPONSES)
@idempotent()
async def edit_review(
    memory_id: str,
    edit: MemoryEdit,
    place: MemoryScopeDep,
    by: AuthorDep,
    service: ServiceDep,
    if_match: IfMatch = None,
) -> JSONResponse:
    """Change what a memory that waits for review says; it goes on waiting."""
    version = await parse_if_match(if_match, lambda: service.get(place, memory_id))
    done = await service.reviews.edit(place, memory_id, edit_fields(edit), by=by, expected_version=version)
    return json_response(done.to_dict())


@reviews_router.post("/reviews/{memory_id}/approve", response_model=ReviewResponse, responses=_REVIEW_RESPONSES)
@idempotent()
async def approve_review(
    memory_id: str, place: MemoryScopeDep, by: AuthorDep, service: ServiceDep, if_match: IfMatch = None
) -> JSONResponse:
    """Let it be recalled from now on. Only a person approves (`X-Memory-Actor: person`), and not what they proposed.

    With If-Match nothing is approved that was changed since it was looked at.
    """
    version = await parse_if_match(if_match, lambda: service.get(place, memory_id))
    done = await service.reviews.approve(place, memory_id, by=by, expected_version=version)
    return json_response(done.to_dict())


@reviews_router.post("/reviews/{memory_id}/reject", response_model=ReviewResponse, responses=_REVIEW_RESPONSES)
@idempotent()
async def reject_review(
    memory_id: str, place: MemoryScopeDep, by: AuthorDep, service: ServiceDep, if_match: IfMatch = None
) -> JSONResponse:
    """Forget it, unused."""
    version = await parse_if_match(if_match, lambda: service.get(place, memory_id))
    done = await service.reviews.reject(place, memory_id, by=by, expected_version=version)
    return json_response(done.to_dict())
