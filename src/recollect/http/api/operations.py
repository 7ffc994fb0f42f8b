"""Routes for background jobs, usage, maintenance and versions, and for administrators of the server."""

from __future__ import annotations

import sys
from bisect import bisect_right
from typing import Annotated, Literal

from fastapi import Path, Query
from fastapi.responses import JSONResponse
from pydantic import ConfigDict, Field

from recollect import __version__
from recollect.config.settings import LoadedSettings, rows
from recollect.errors import Conflict
from recollect.http.api.idempotency import idempotent
from recollect.http.api.schemas import (
    Cursor,
    JsonObject,
    Limit,
    ListOf,
    PageOf,
    decode_position,
    encode_cursor,
    fields_of,
    json_response,
    list_response,
    page_response,
)
from recollect.http.params import NO_CONTROL, ResponseModel, StrictModel, Time, example
from recollect.http.routing import (
    AuthorDep,
    ProjectDep,
    RequireAdmin,
    ServiceDep,
    SettingsDep,
    UserDep,
    create_api_router,
)
from recollect.model.arguments import parse_time
from recollect.model.job import Job, JobState
from recollect.model.scope import Scope
from recollect.model.usage import SpentToday, Usage
from recollect.service.jobs import MaintenanceReport, MaintenanceTask
from recollect.service.sample import SAMPLE_PROJECT, add_sample, remove_sample
from recollect.service.service import Service

jobs_router = create_api_router("jobs")
maintenance_router = create_api_router("usage and upkeep")
admin_router = create_api_router("admin", RequireAdmin)
States = Annotated[list[JobState] | None, Query(description="Any of these; by default all.")]
JobId = Annotated[str, Path(description="The id of a job.")]
UsageGroup = Literal["user", "day", "model", "step"]
Groups = Annotated[list[UsageGroup] | None, Query(description="Group by these; by default day, model and step.")]
Since = Annotated[Time | None, Query(description="From the beginning of this day, UTC.")]


@fields_of(Job, "lease")
class JobResponse(ResponseModel):
    """A job."""

    key: str | None
    state: JobState = Field(description="A dead job has failed for good and waits for an operator.")
    payload: JsonObject


@fields_of(Usage, "user")
class UsageItem(ResponseModel):
    """A sum of LLM usage; the fields it is not grouped by are null."""

    user_id: str | None


@fields_of(SpentToday)
class UsageToday(ResponseModel):
    """LLM usage since midnight, UTC."""


class UsagePage(ResponseModel):
    """LLM usage."""

    results: list[UsageItem]
    today: UsageToday


class StatsResponse(ResponseModel):
    """The number of stored records of each kind."""

    stats: dict[str, int]


class UpkeepBody(StrictModel):
    """Maintenance tasks to run."""

    model_config = example(chores=["consolidate"], dry_run=True)

    chores: list[Annotated[MaintenanceTask, Field(strict=False)]] = Field(
        default_factory=lambda: [
            MaintenanceTask.EXPIRE,
            MaintenanceTask.QUOTA,
            MaintenanceTask.PRUNE,
            MaintenanceTask.CONSOLIDATE,
        ],
        max_length=20,
    )
    dry_run: bool = Field(default=False, description="Only report what would change.")


class MaintenanceStepResponse(ResponseModel):
    """A memory that was added, changed or forgotten, and the reason."""

    verb: str
    id: str
    memory: str
    why: str
    sources: list[str]


@fields_of(MaintenanceReport, "user")
class MaintenanceReportResponse(ResponseModel):
    """The changes that a maintenance task made, or would make."""

    user_id: str
    steps: list[MaintenanceStepResponse]


class VersionResponse(ResponseModel):
    """The versions of the server, the API and the embedding model."""

    version: str
    api: Literal["v1"]
    python: str
    embedding_model: str
    dimensions: int


class SettingItem(ResponseModel):
    """A setting."""

    model_config = ConfigDict(from_attributes=True)

    name: str
    value: str = Field(description="The value as text; for a secret only whether it is set.")
    default: str
    variable: str = Field(description="The environment variable.")
    source: str = Field(description="default, preset, file, environment or command line, with a name.")
    description: str


@jobs_router.get("/jobs", response_model=PageOf[JobResponse])
async def list_jobs(
    user: UserDep, service: ServiceDep, state: States = None, limit: Limit = 100, cursor: Cursor = None
) -> JSONResponse:
    """List the user's jobs, newest first."""
    return await _job_page(service, user, state, limit, cursor)


async def _job_page(
    service: Service, user: str | None, states: list[JobState] | None, limit: int, cursor: str | None
) -> JSONResponse:
    before = decode_position(cursor, str)
    jobs = await service.jobs.list(user, states=states or (), limit=limit + 1, before=before)
    return page_response(jobs, limit, lambda job: encode_cursor(job.id))


@jobs_router.get("/jobs/{job_id}", response_model=JobResponse)
async def get_job(job_id: JobId, user: UserDep, service: ServiceDep) -> JSONResponse:
    """Return a job."""
    return json_response(await service.jobs.get(user, job_id))


@jobs_router.post("/jobs/{job_id}/replay", response_model=JobResponse)
@idempotent()
async def replay_job(job_id: JobId, user: UserDep, service: ServiceDep) -> JSONResponse:
    """Run a dead or cancelled job."""
    job = await service.jobs.get(user, job_id)
    replayed = await service.jobs.replay(user, [job_id])
    if not replayed:
        raise Conflict(f"Job {job_id} is {job.state}; only dead and cancelled jobs can be replayed")
    return json_response(replayed[0])


@jobs_router.post("/jobs/{job_id}/cancel", response_model=JobResponse)
@idempotent()
async def cancel_job(job_id: JobId, user: UserDep, service: ServiceDep) -> JSONResponse:
    """Cancel a waiting or running job, so that it has no effect."""
    job = await service.jobs.get(user, job_id)
    cancelled = await service.jobs.cancel(user, [job_id])
    if not cancelled:
        raise Conflict(f"Job {job_id} is {job.state}; only waiting and running jobs can be cancelled")
    return json_response(cancelled[0])


@maintenance_router.get("/usage", response_model=UsagePage)
async def get_usage(user: UserDep, service: ServiceDep, since: Since = None, part: Groups = None) -> JSONResponse:
    """Return the LLM calls and tokens of the user."""
    return await _usage_page(service, user, since, part)


async def _usage_page(
    service: Service, user: str | None, since: str | None, groups: list[UsageGroup] | None
) -> JSONResponse:
    by = groups or ["day", "model", "step"]
    usage = await service.usage.report(user, since=parse_time(since, name="since"), by=by)
    today = await service.usage.spent_today(user)
    body = {"results": [each.to_dict() for each in usage], "today": {"tokens": today.tokens, "calls": today.calls}}
    return json_response(body)


@maintenance_router.get("/stats", response_model=StatsResponse)
async def get_stats(user: UserDep, service: ServiceDep) -> JSONResponse:
    """Return the number of the user's records of each kind."""
    return json_response({"stats": dict(await service.stats(user))})


@maintenance_router.post("/upkeep", response_model=ListOf[MaintenanceReportResponse])
@idempotent()
async def do_upkeep(
    body: UpkeepBody, user: UserDep, project: ProjectDep, author: AuthorDep, service: ServiceDep
) -> JSONResponse:
    """Run maintenance on the user's memories now; each task is one change that can be undone."""
    scope = Scope(user, project)
    return list_response(await service.jobs.run_maintenance(scope, body.chores, by=author, dry_run=body.dry_run))


@maintenance_router.get("/version", response_model=VersionResponse)
async def get_version(service: ServiceDep) -> JSONResponse:
    """Return the versions of the server, the API and the embedding model."""
    model, python = service.model, sys.version.split()[0]
    versions = {"version": __version__, "api": "v1", "python": python}
    return json_response({**versions, "embedding_model": model.name, "dimensions": model.dimensions})


@admin_router.get("/admin/users", response_model=PageOf[str])
async def list_users(service: ServiceDep, limit: Limit = 100, cursor: Cursor = None) -> JSONResponse:
    """List the users who have memories."""
    last = decode_position(cursor, str)
    users = sorted(await service.users())
    begin = 0 if last is None else bisect_right(users, last)
    page = users[begin : begin + limit]
    more = encode_cursor(page[-1]) if begin + limit < len(users) else None
    return json_response({"results": page, "cursor": more})


@admin_router.get("/admin/stats", response_model=StatsResponse)
async def get_all_stats(service: ServiceDep) -> JSONResponse:
    """Return the number of records of each kind, of all users."""
    return json_response({"stats": dict(await service.stats())})


@admin_router.get("/admin/usage", response_model=UsagePage)
async def get_all_usage(service: ServiceDep, since: Since = None, part: Groups = None) -> JSONResponse:
    """Return the LLM calls and tokens of all users."""
    return await _usage_page(service, None, since, part)


@admin_router.get("/admin/jobs", response_model=PageOf[JobResponse])
async def list_all_jobs(
    service: ServiceDep,
    state: States = None,
    of_user: Annotated[
        str | None, Query(min_length=1, max_length=300, pattern=NO_CONTROL, description="Only jobs of this user.")
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> JSONResponse:
    """List the jobs of all users, newest first."""
    return await _job_page(service, of_user, state, limit, cursor)


@admin_router.get("/admin/settings")
async def get_settings(settings: SettingsDep) -> ListOf[SettingItem]:
    """Return the settings in force, without secrets."""
    return ListOf(
        results=[SettingItem.model_validate(row) for row in rows(LoadedSettings(settings, settings.sources))]
    )


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
