"""The work behind the answers."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from recollect.errors import Conflict
from recollect.http.api.idempotency import idempotent
from recollect.http.api.responses import (
    WRITE_ERRORS,
    decode_cursor,
    encode_cursor,
    error_responses,
    json_response,
    page_response,
)
from recollect.http.api.routing import ServiceDep, UserDep, create_router
from recollect.http.api.schemas import Cursor, JsonObject, Limit, NextCursor
from recollect.model.job import JobKind, JobState
from recollect.service.service import Service

jobs_router = create_router("jobs")
States = Annotated[list[JobState] | None, Query(description="Any of these; by default, all.")]


JobId = Annotated[str, Path(description="The id of a job.", examples=["0199c3a1-7b5e-7c1d-9e1f-2a8d6f0c4b13"])]


class JobResponse(BaseModel):
    """A job and how it stands."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "id": "0199c3a1-7b5e-7c1d-9e1f-2a8d6f0c4b13",
                "user_id": "alex",
                "project_id": None,
                "session_id": "monday",
                "kind": "extract",
                "key": "monday",
                "state": "waiting",
                "priority": 0,
                "payload": {},
                "tries": 0,
                "due_at": "2026-06-01T09:30:00+00:00",
                "created_at": "2026-06-01T09:30:00+00:00",
                "updated_at": "2026-06-01T09:30:00+00:00",
                "worker": None,
                "leased_until": None,
                "error": None,
                "result": None,
            }
        }
    )

    id: str
    user_id: str
    project_id: str | None
    session_id: str | None
    kind: JobKind
    key: str | None
    state: JobState = Field(description="A dead one has failed for good and waits for a person.")
    priority: int
    payload: JsonObject
    tries: int
    due_at: str
    created_at: str
    updated_at: str
    worker: str | None
    leased_until: str | None
    error: str | None
    result: JsonObject | None


class JobPage(BaseModel):
    """Some jobs, newest first."""

    results: list[JobResponse]
    cursor: NextCursor


async def jobs_page(
    service: Service, user: str | None, *, states: list[JobState] | None, limit: int, cursor: str | None
) -> JSONResponse:
    """A page of jobs, of a user or of all."""
    last = decode_cursor(cursor, str)
    before = last[0] if last else None
    jobs = await service.jobs.list(user, states=states or (), limit=limit + 1, before=before)
    return page_response(jobs, limit, lambda job: encode_cursor(job.id))


@jobs_router.get("/jobs", response_model=JobPage)
async def list_jobs(
    user: UserDep, service: ServiceDep, state: States = None, limit: Limit = 100, cursor: Cursor = None
) -> JSONResponse:
    """The user's jobs, newest first."""
    return await jobs_page(service, user, states=state, limit=limit, cursor=cursor)


@jobs_router.get("/jobs/{job_id}", response_model=JobResponse, responses=error_responses(404))
async def get_job(job_id: JobId, user: UserDep, service: ServiceDep) -> JSONResponse:
    """One job and how it stands."""
    return json_response((await service.jobs.get(user, job_id)).to_dict())


@jobs_router.post(
    "/jobs/{job_id}/replay", response_model=JobResponse, responses={**WRITE_ERRORS, **error_responses(404, 409)}
)
@idempotent()
async def replay_job(job_id: JobId, user: UserDep, service: ServiceDep) -> JSONResponse:
    """Have a dead or cancelled job done after all."""
    job = await service.jobs.get(user, job_id)
    replayed = await service.jobs.replay(user, [job_id])
    if not replayed:
        raise Conflict(f"job {job_id} is {job.state}; only what is dead or cancelled is done again")
    return json_response(replayed[0].to_dict())


@jobs_router.post(
    "/jobs/{job_id}/cancel", response_model=JobResponse, responses={**WRITE_ERRORS, **error_responses(404, 409)}
)
@idempotent()
async def cancel_job(job_id: JobId, user: UserDep, service: ServiceDep) -> JSONResponse:
    """Keep a waiting or running job from having any effect."""
    job = await service.jobs.get(user, job_id)
    cancelled = await service.jobs.cancel(user, [job_id])
    if not cancelled:
        raise Conflict(f"job {job_id} is {job.state}; only what waits or runs can be cancelled")
    return json_response(cancelled[0].to_dict())
