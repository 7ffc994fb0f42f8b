"""What was learned but is not used before a person has looked at it."""

from __future__ import annotations

from fastapi.responses import JSONResponse
from pydantic import Field

from recollect.http.doors.own.answers import (
    ETAG_HEADER,
    WRITE_ERRORS,
    IfMatch,
    decode_cursor,
    encode_cursor,
    error_responses,
    json_response,
    parse_if_match,
)
from recollect.http.doors.own.asking import AuthorDep, MemoryScopeDep, ScopeDep
from recollect.http.doors.own.memories import MemoryEdit, edit_fields
from recollect.http.doors.own.repeating import idempotent
from recollect.http.doors.own.routing import ServiceDep, create_router
from recollect.http.doors.own.shapes import (
    EXAMPLE_MEMORY,
    Cursor,
    Limit,
    MemoryChangeResponse,
    MemoryPage,
    example_config,
)

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
    page = await service.operations.reviews(place, limit=limit, cursor=last[0] if last else None)
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
    done = await service.operations.edit_review(place, memory_id, edit_fields(edit), by=by, expected_version=version)
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
    done = await service.operations.approve(place, memory_id, by=by, expected_version=version)
    return json_response(done.to_dict())


@reviews_router.post("/reviews/{memory_id}/reject", response_model=ReviewResponse, responses=_REVIEW_RESPONSES)
@idempotent()
async def reject_review(
    memory_id: str, place: MemoryScopeDep, by: AuthorDep, service: ServiceDep, if_match: IfMatch = None
) -> JSONResponse:
    """Forget it, unused."""
    version = await parse_if_match(if_match, lambda: service.get(place, memory_id))
    done = await service.operations.reject(place, memory_id, by=by, expected_version=version)
    return json_response(done.to_dict())
