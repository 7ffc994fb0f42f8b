"""Routes for the sample data, which shows an empty page's features."""

from __future__ import annotations

from fastapi.responses import JSONResponse
from pydantic import Field

from recollect.http.api.idempotency import idempotent
from recollect.http.api.schemas import json_response
from recollect.http.params import ResponseModel
from recollect.http.routing import AuthorDep, ServiceDep, UserDep, create_api_router
from recollect.service.sample import SAMPLE_PROJECT, add_sample, remove_sample

sample_router = create_api_router("sample")


class SampleResponse(ResponseModel):
    """The sample."""

    project_id: str = Field(description="The project that it is in.")
    added: int = Field(ge=0, description="The number of memories that were added; 0 if they were there.")
    sessions: list[str]


class SampleErasedResponse(ResponseModel):
    """The number of turns and memories that were erased."""

    erased: int = Field(ge=0)


@sample_router.post(
    "/sample",
    response_model=SampleResponse,
    status_code=201,
    responses={200: {"model": SampleResponse, "description": "The sample was there already."}},
)
@idempotent()
async def add_sample_data(user: UserDep, author: AuthorDep, service: ServiceDep) -> JSONResponse:
    """Add the sessions and memories of an invented person to the user's project `sample`."""
    report = await add_sample(service, user, by=author)
    body = {"project_id": SAMPLE_PROJECT, "added": report.added, "sessions": list(report.sessions)}
    return json_response(body, 201 if report.added else 200)


@sample_router.delete("/sample", response_model=SampleErasedResponse)
@idempotent(erases=True)
async def erase_sample_data(user: UserDep, author: AuthorDep, service: ServiceDep) -> JSONResponse:
    """Erase the sample for good: its sessions, and memories with the tag `sample` in the project `sample`."""
    return json_response({"erased": await remove_sample(service, user, by=author)})
