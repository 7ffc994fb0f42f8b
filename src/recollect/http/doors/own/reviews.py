"""What was learned but is not used before a person has looked at it."""

from __future__ import annotations

from fastapi.responses import JSONResponse
from pydantic import Field

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
from recollect.http.doors.own.memories import Edit, edit_fields
from recollect.http.doors.own.repeating import repeatable
from recollect.http.doors.own.routing import Serving, router
from recollect.http.doors.own.shapes import MEMORY, Changed, Cursor, Limit, MemoryPage, example

reviews = router("reviews")
_REVIEWS = {
    200: {"description": "The memory as it now is.", "headers": VERSIONED},
    **WRITING,
    **failing(404, 409, 412),
}


class ReviewTold(Changed):
    """A memory after it was looked at."""

    model_config = example(MEMORY, event="update", redacted=[], superseded=[])

    superseded: list[str] = Field(description="The ids of those it took the place of.")


@reviews.get("/reviews", response_model=MemoryPage)
async def list_reviews(place: Place, service: Serving, limit: Limit = 100, cursor: Cursor = None) -> JSONResponse:
    """What waits for a person to look at it, oldest first."""
    last = read_cursor(cursor, str)
    page = await service.care.reviews(place, limit=limit, cursor=last[0] if last else None)
    return answered({**page.to_dict(), "cursor": None if page.cursor is None else cursor_of(page.cursor)})


@reviews.patch("/reviews/{memory_id}", response_model=ReviewTold, responses=_REVIEWS)
@repeatable()
async def edit_review(
    memory_id: str, edit: Edit, place: OfMemory, by: Acting, service: Serving, if_match: IfMatch = None
) -> JSONResponse:
    """Change what a memory that waits for review says; it goes on waiting."""
    version = await version_in(if_match, lambda: service.get(place, memory_id))
    done = await service.care.edit_review(place, memory_id, edit_fields(edit), by=by, expected_version=version)
    return answered(done.to_dict())


@reviews.post("/reviews/{memory_id}/approve", response_model=ReviewTold, responses=_REVIEWS)
@repeatable()
async def approve_review(
    memory_id: str, place: OfMemory, by: Acting, service: Serving, if_match: IfMatch = None
) -> JSONResponse:
    """Let it be recalled from now on. Only a person approves (`X-Memory-Actor: person`), and not what they proposed.

    With If-Match nothing is approved that was changed since it was looked at.
    """
    version = await version_in(if_match, lambda: service.get(place, memory_id))
    done = await service.care.approve(place, memory_id, by=by, expected_version=version)
    return answered(done.to_dict())


@reviews.post("/reviews/{memory_id}/reject", response_model=ReviewTold, responses=_REVIEWS)
@repeatable()
async def reject_review(
    memory_id: str, place: OfMemory, by: Acting, service: Serving, if_match: IfMatch = None
) -> JSONResponse:
    """Forget it, unused."""
    version = await version_in(if_match, lambda: service.get(place, memory_id))
    done = await service.care.reject(place, memory_id, by=by, expected_version=version)
    return answered(done.to_dict())
