"""The work behind the answers."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from recollect.errors import Conflict
from recollect.http.doors.own.answers import WRITING, a_page, answered, cursor_of, failing, read_cursor
from recollect.http.doors.own.asking import User
from recollect.http.doors.own.repeating import repeatable
from recollect.http.doors.own.routing import Serving, router
from recollect.http.doors.own.shapes import Cursor, Limit, NextCursor, Plain
from recollect.model.job import JobKind, JobState
from recollect.service import Service

jobs = router("jobs")
States = Annotated[list[JobState] | None, Query(description="Any of these; by default, all.")]


JobId = Annotated[str, Path(description="The id of a job.", examples=["0199c3a1-7b5e-7c1d-9e1f-2a8d6f0c4b13"])]


class JobTold(BaseModel):
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
    payload: Plain
    tries: int
    due_at: str
    created_at: str
    updated_at: str
    worker: str | None
    leased_until: str | None
    error: str | None
    result: Plain | None


class JobPage(BaseModel):
    """Some jobs, newest first."""

    results: list[JobTold]
    cursor: NextCursor


async def page_of_jobs(
    service: Service, user: str | None, *, states: list[JobState] | None, limit: int, cursor: str | None
) -> JSONResponse:
    """A page of jobs, of a user or of all."""
    last = read_cursor(cursor, str)
    before = last[0] if last else None
    found = await service.care.jobs(user, states=states or (), limit=limit + 1, before=before)
    return a_page(found, limit, lambda job: cursor_of(job.id))


@jobs.get("/jobs", response_model=JobPage)
async def list_jobs(
    user: User, service: Serving, state: States = None, limit: Limit = 100, cursor: Cursor = None
) -> JSONResponse:
    """The user's jobs, newest first."""
    return await page_of_jobs(service, user, states=state, limit=limit, cursor=cursor)


@jobs.get("/jobs/{job_id}", response_model=JobTold, responses=failing(404))
async def get_job(job_id: JobId, user: User, service: Serving) -> JSONResponse:
    """One job and how it stands."""
    return answered((await service.care.job(user, job_id)).to_dict())


@jobs.post("/jobs/{job_id}/replay", response_model=JobTold, responses={**WRITING, **failing(404, 409)})
@repeatable()
async def replay_job(job_id: JobId, user: User, service: Serving) -> JSONResponse:
    """Have a dead or cancelled job done after all."""
    job = await service.care.job(user, job_id)
    replayed = await service.care.replay(user, [job_id])
    if not replayed:
        raise Conflict(f"job {job_id} is {job.state}; only what is dead or cancelled is done again")
    return answered(replayed[0].to_dict())


@jobs.post("/jobs/{job_id}/cancel", response_model=JobTold, responses={**WRITING, **failing(404, 409)})
@repeatable()
async def cancel_job(job_id: JobId, user: User, service: Serving) -> JSONResponse:
    """Keep a waiting or running job from having any effect."""
    job = await service.care.job(user, job_id)
    cancelled = await service.care.cancel(user, [job_id])
    if not cancelled:
        raise Conflict(f"job {job_id} is {job.state}; only what waits or runs can be cancelled")
    return answered(cancelled[0].to_dict())
