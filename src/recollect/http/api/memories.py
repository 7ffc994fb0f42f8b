"""Routes for memories, one at a time and in lists, and for those that wait for review."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Depends, Query
from fastapi.responses import JSONResponse
from pydantic import ConfigDict, Field

from recollect.errors import InvalidInput
from recollect.http.api.idempotency import IdempotencyKey, idempotent
from recollect.http.api.schemas import (
    WITH_ETAG,
    WITH_ETAG_AND_IF_MATCH,
    AsOf,
    Cursor,
    ExpectedVersion,
    Limit,
    MemoryChangeResponse,
    MemoryFields,
    MemoryResponse,
    PageOf,
    decode_position,
    encode_cursor,
    json_response,
    optional_field,
)
from recollect.http.api.schemas import Filter as FilterBody
from recollect.http.auth.caller import CallerDep
from recollect.http.params import (
    CURSOR_PATTERN,
    Count,
    Embedding,
    Label,
    ResponseModel,
    StrictModel,
    Text,
    Time,
    example,
)
from recollect.http.routing import AuthorDep, MemoryScopeDep, ScopeDep, ServiceDep, create_api_router
from recollect.model.arguments import parse_idempotency_key, parse_time
from recollect.model.memory import Category, MemoryType, Status
from recollect.model.query import And, Filter, Listing, Not, Op, both, parse_filter, where
from recollect.model.result import FACETS, Page
from recollect.model.scope import Level
from recollect.remember import MemoryInput

memories_router = create_api_router("memories")
reviews_router = create_api_router("reviews")
_EXCLUDE_TURNS = Not(where("category", Op.EQ, str(Category.TURN)))


class AddMemoryBody(MemoryFields):
    """A memory to store verbatim: its content, or a key and a value."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": ["content"]},
                {
                    "required": ["key", "value"],
                    "properties": {"key": {"type": "string"}, "value": {"type": "string"}},
                },
            ],
            "examples": [{"content": "The budget for the Hawaii trip is $10,000", "tags": ["travel"]}],
        }
    )

    content: Annotated[Text, Field(description="The text; optional with key and value.")] = optional_field()
    level: Annotated[Level, Field(strict=False, description="By default the project's, else the user's.")] = (
        optional_field()
    )
    correction: bool = Field(default=False, description="Replace the value of the key however certain it is.")
    embedding: Embedding = optional_field()


class MemoryUpdate(MemoryFields):
    """New values for some fields of a memory."""

    model_config = ConfigDict(
        json_schema_extra={"minProperties": 1, "examples": [{"content": "The budget is $12,000", "importance": 0.9}]}
    )

    content: Text = optional_field()


class MemoryListBody(StrictModel):
    """Which memories to list."""

    model_config = example(filters={"category": "fact", "importance": {"gte": 0.5}}, limit=20)

    filters: FilterBody = Field(default_factory=lambda: FilterBody({}))
    statuses: list[Annotated[Status, Field(strict=False)]] = Field(default_factory=lambda: [Status.ACTIVE])
    turns: bool = Field(default=False, description="Whether to include turns.")
    order: Literal["newest", "oldest"] = "newest"
    limit: Count = 100
    cursor: str | None = Field(default=None, max_length=4000, pattern=CURSOR_PATTERN)
    as_of: Time | None = Field(default=None, description="List what was valid at this time; ignores `statuses`.")


class FacetsBody(StrictModel):
    """Which memories to count."""

    model_config = example(filters={"importance": {"gte": 0.5}}, statuses=["active", "review"])

    filters: FilterBody = Field(default_factory=lambda: FilterBody({}))
    statuses: list[Annotated[Status, Field(strict=False)]] = Field(default_factory=lambda: [Status.ACTIVE])
    turns: bool = Field(default=False, description="Whether to include turns.")


class FacetValue(ResponseModel):
    """A value of a field, and the number of memories that have it."""

    value: str = Field(description="Empty for memories without one.")
    count: int = Field(ge=1)


class FacetsResponse(ResponseModel):
    """The number of memories, and by each value of some fields: at most 100 values each."""

    total: int = Field(ge=0)
    facets: dict[Literal[FACETS], list[FacetValue]] = Field(  # type: ignore[valid-type]
        description="Most frequent first; `month` of the event or else of the statement, latest first."
    )


class ForgetBody(StrictModel):
    """Which memories to forget."""

    model_config = example(filters={"tags": "draft"})

    filters: FilterBody = Field(description="An empty filter selects all memories and turns of the scope.")


class ForgetResponse(ResponseModel):
    """The number of memories that were forgotten."""

    forgotten: int = Field(ge=0)


class ReviewResponse(MemoryChangeResponse):
    """A memory after a review."""

    superseded: list[str] = Field(description="The ids of the memories that it replaced.")


async def _query_filter(
    category: Annotated[list[Category] | None, Query(description="Any of these.")] = None,
    type: Annotated[list[MemoryType] | None, Query(description="Any of these.")] = None,
    level: Annotated[list[Level] | None, Query(description="Any of these.")] = None,
    key: Annotated[Label | None, Query(description="Facts with this key.")] = None,
    tag: Annotated[list[Label] | None, Query(description="All of these.")] = None,
) -> Filter:
    filters: list[Filter] = [
        where(name, Op.IN, [str(each) for each in values])
        for name, values in (("category", category), ("type", type), ("level", level))
        if values
    ]
    filters += [where("key", Op.EQ, key)] if key is not None else []
    return And((*filters, *(where("tags", Op.CONTAINS, each) for each in tag or ())))


_QueryFilter = Annotated[Filter, Depends(_query_filter)]
_Statuses = Annotated[list[Status] | None, Query(description="Any of these; by default active.")]
_Turns = Annotated[bool, Query(description="Whether to include turns.")]


@memories_router.get("/memories", response_model=PageOf[MemoryResponse])
async def list_memories(
    scope: ScopeDep,
    service: ServiceDep,
    filter: _QueryFilter,
    status: _Statuses = None,
    turns: _Turns = False,
    order: Annotated[Literal["newest", "oldest"], Query(description="Which come first.")] = "newest",
    limit: Limit = 100,
    cursor: Cursor = None,
    as_of: AsOf = None,
) -> JSONResponse:
    """List the memories of the scope, a page at a time. `POST /list` takes every filter.

    With `as_of` only memories that were valid at that time are listed, as they were then.
    """
    listing = _listing(filter, status or (), turns=turns, order=order, limit=limit, cursor=cursor)
    return _memory_page(await service.find(scope, listing, as_of=parse_time(as_of, name="as_of")))


@memories_router.post("/list", response_model=PageOf[MemoryResponse])
async def list_memories_by_filter(body: MemoryListBody, scope: ScopeDep, service: ServiceDep) -> JSONResponse:
    """List the memories of the scope that match a filter, a page at a time."""
    options = body.model_dump(include={"turns", "order", "limit", "cursor"})
    listing = _listing(parse_filter(body.filters.root), body.statuses, **options)
    return _memory_page(await service.find(scope, listing, as_of=parse_time(body.as_of, name="as_of")))


@memories_router.get("/facets", response_model=FacetsResponse)
async def count_by_field(
    scope: ScopeDep, service: ServiceDep, filter: _QueryFilter, status: _Statuses = None, turns: _Turns = False
) -> JSONResponse:
    """Count the memories of the scope by their fields; `POST /facets` takes every filter.

    The counts by status include the statuses that are not listed.
    """
    return json_response(await service.facets(scope, _listing(filter, status or (), turns=turns, cursor=None)))


@memories_router.post("/facets", response_model=FacetsResponse)
async def count_by_field_and_filter(body: FacetsBody, scope: ScopeDep, service: ServiceDep) -> JSONResponse:
    """Count the memories of the scope that match a filter by their fields.

    The counts by status include the statuses that are not listed.
    """
    listing = _listing(parse_filter(body.filters.root), body.statuses, turns=body.turns, cursor=None)
    return json_response(await service.facets(scope, listing))


def _listing(filter: Filter, statuses: Any, *, turns: bool, cursor: str | None, **more: Any) -> Listing:
    return Listing(
        filter=filter if turns else both(filter, _EXCLUDE_TURNS),
        statuses=tuple(statuses) or (Status.ACTIVE,),
        cursor=decode_position(cursor, str),
        **more,
    )


def _memory_page(page: Page) -> JSONResponse:
    return json_response({**page.to_dict(), "cursor": None if page.cursor is None else encode_cursor(page.cursor)})


@memories_router.post(
    "/memories",
    response_model=MemoryChangeResponse,
    status_code=201,
    responses={
        201: WITH_ETAG[200],
        200: {"model": MemoryChangeResponse, "description": "The memory existed already.", **WITH_ETAG[200]},
    },
)
async def add_memory(
    body: AddMemoryBody,
    caller: CallerDep,
    scope: ScopeDep,
    author: AuthorDep,
    service: ServiceDep,
    idempotency_key: IdempotencyKey = None,
) -> JSONResponse:
    """Store a memory verbatim; one that says the same as another is not stored twice."""
    caller.check_level(body.level)
    fields = body.model_dump(exclude_unset=True, exclude_none=True, exclude={"content", "correction", "embedding"})
    vector = await service.check_embedding(body.embedding)
    # A merge would show a stored memory, or report the write as refused.
    draft = MemoryInput(
        content=body.content, fields=fields, vector=vector, correction=body.correction, merge=caller.reads
    )
    token = parse_idempotency_key(
        idempotency_key, "add", scope.user, scope.project, scope.session, body.model_dump(exclude_unset=True)
    )
    outcome = caller.check_outcome_visible(await service.add(scope, draft, by=author, idempotency=token))
    return json_response(outcome, 201 if outcome.changed else 200)


@memories_router.post("/forget", response_model=ForgetResponse)
@idempotent()
async def forget_memories(body: ForgetBody, scope: ScopeDep, author: AuthorDep, service: ServiceDep) -> JSONResponse:
    """Forget every memory of the scope that matches a filter; `POST /undo` restores all of them."""
    count = await service.forget_all(scope, Listing(filter=parse_filter(body.filters.root)), by=author)
    return json_response({"forgotten": count})


@memories_router.get("/memories/{memory_id}", response_model=MemoryResponse, responses=WITH_ETAG)
async def get_memory(memory_id: str, scope: MemoryScopeDep, service: ServiceDep, as_of: AsOf = None) -> JSONResponse:
    """Return a memory in any status, or as it was at the time `as_of`; 404 if it did not exist then."""
    return json_response(await service.get(scope, memory_id, as_of=parse_time(as_of, name="as_of")))


@memories_router.patch("/memories/{memory_id}", response_model=MemoryChangeResponse, responses=WITH_ETAG_AND_IF_MATCH)
@idempotent()
async def update_memory(
    memory_id: str,
    body: MemoryUpdate,
    scope: MemoryScopeDep,
    author: AuthorDep,
    service: ServiceDep,
    version: ExpectedVersion,
) -> JSONResponse:
    """Change a memory; with If-Match only if nobody else has changed it since."""
    return json_response(
        await service.update(scope, memory_id, _changes(body), by=author, expected_version=await version())
    )


@memories_router.delete(
    "/memories/{memory_id}", response_model=MemoryChangeResponse, responses=WITH_ETAG_AND_IF_MATCH
)
@idempotent()
async def delete_memory(
    memory_id: str,
    scope: MemoryScopeDep,
    author: AuthorDep,
    service: ServiceDep,
    version: ExpectedVersion,
    sources: Annotated[bool, Query(description="Whether to forget the turns it was learned from as well.")] = True,
) -> JSONResponse:
    """Forget a memory: it is no longer found, and `restore` or `undo` brings it back. `erase` removes it for good."""
    return json_response(
        await service.forget(scope, memory_id, by=author, expected_version=await version(), sources=sources)
    )


@memories_router.post("/memories/{memory_id}/restore", response_model=MemoryChangeResponse, responses=WITH_ETAG)
@idempotent()
async def restore_memory(
    memory_id: str, scope: MemoryScopeDep, author: AuthorDep, service: ServiceDep
) -> JSONResponse:
    """Reactivate a forgotten or superseded memory; one that waited for review waits for it once more."""
    return json_response(await service.restore(scope, memory_id, by=author))


def _changes(body: MemoryUpdate) -> dict[str, Any]:
    fields = body.model_dump(exclude_unset=True)
    if not fields:
        raise InvalidInput("The body has nothing to change; send content or another field")
    return fields


@reviews_router.get("/reviews", response_model=PageOf[MemoryResponse])
async def list_reviews(
    scope: ScopeDep, service: ServiceDep, limit: Limit = 100, cursor: Cursor = None
) -> JSONResponse:
    """List the memories that wait for review, oldest first."""
    return _memory_page(await service.reviews.list(scope, limit=limit, cursor=decode_position(cursor, str)))


@reviews_router.patch("/reviews/{memory_id}", response_model=ReviewResponse, responses=WITH_ETAG_AND_IF_MATCH)
@idempotent()
async def edit_review(
    memory_id: str,
    body: MemoryUpdate,
    scope: MemoryScopeDep,
    author: AuthorDep,
    service: ServiceDep,
    version: ExpectedVersion,
) -> JSONResponse:
    """Change a memory that waits for review; it keeps waiting."""
    return json_response(
        await service.reviews.edit(scope, memory_id, _changes(body), by=author, expected_version=await version())
    )


@reviews_router.post("/reviews/{memory_id}/approve", response_model=ReviewResponse, responses=WITH_ETAG_AND_IF_MATCH)
@idempotent()
async def approve_review(
    memory_id: str, scope: MemoryScopeDep, author: AuthorDep, service: ServiceDep, version: ExpectedVersion
) -> JSONResponse:
    """Approve a memory, which is recalled from then on. With If-Match only the version that was reviewed is approved.

    Only a person approves (`X-Memory-Actor: person`), and not what the same person proposed.
    """
    return json_response(await service.reviews.approve(scope, memory_id, by=author, expected_version=await version()))


@reviews_router.post("/reviews/{memory_id}/reject", response_model=ReviewResponse, responses=WITH_ETAG_AND_IF_MATCH)
@idempotent()
async def reject_review(
    memory_id: str, scope: MemoryScopeDep, author: AuthorDep, service: ServiceDep, version: ExpectedVersion
) -> JSONResponse:
    """Forget a memory that waits for review."""
    return json_response(await service.reviews.reject(scope, memory_id, by=author, expected_version=await version()))
