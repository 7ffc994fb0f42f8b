"""What a user's memory costs and holds, putting it in order, and what runs here."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from fastapi import Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from recollect import __version__
from recollect.http.api.idempotency import idempotent
from recollect.http.api.responses import WRITE_ERRORS, error_responses, json_response
from recollect.http.api.routing import AuthorDep, ProjectDep, ServiceDep, UserDep, create_router
from recollect.http.api.schemas import StrictBody, Time
from recollect.maintenance.tasks import MaintenanceTask
from recollect.model.arguments import parse_time
from recollect.model.scope import Scope
from recollect.service.service import Service

maintenance_router = create_router("usage and upkeep")
PartName = Literal["user", "day", "model", "step"]
Parts = Annotated[list[PartName] | None, Query(description="What sums are parted by; by default day, model, step.")]
Since = Annotated[Time | None, Query(description="From the beginning of this day, UTC.")]


class UsageItem(BaseModel):
    """A sum; what it was not parted by is null."""

    user_id: str | None = Field(examples=[None])
    day: str | None = Field(examples=["2026-03-15"])
    model: str | None = Field(examples=["gpt-5-mini"])
    step: str | None = Field(examples=["extract"])
    calls: int = Field(examples=[14])
    tokens_in: int = Field(examples=[21_000])
    tokens_out: int = Field(examples=[1_900])


class Today(BaseModel):
    """Since midnight, UTC."""

    tokens: int = Field(examples=[22_900])
    calls: int = Field(examples=[14])


class UsagePage(BaseModel):
    """What the LLM was asked, and what that came to."""

    results: list[UsageItem]
    today: Today


class StatsResponse(BaseModel):
    """How much there is."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"stats": {"memories": 120, "turns": 800, "superseded": 7, "history": 950}}}
    )

    stats: dict[str, int]


class ToDo(StrictBody):
    """Which chores to do."""

    model_config = ConfigDict(json_schema_extra={"example": {"chores": ["consolidate"], "dry_run": True}})

    chores: list[Annotated[MaintenanceTask, Field(strict=False)]] = Field(
        default_factory=lambda: [
            MaintenanceTask.EXPIRE,
            MaintenanceTask.QUOTA,
            MaintenanceTask.PRUNE,
            MaintenanceTask.CONSOLIDATE,
        ],
        max_length=20,
    )
    dry_run: bool = Field(default=False, description="Only says what it would do.")


class MaintenanceStepResponse(BaseModel):
    """One memory that was brought in, changed or forgotten, and why."""

    verb: str = Field(examples=["update"])
    id: str = Field(examples=["0199c3a1-7b5e-7c1d-9e1f-2a8d6f0c4b11"])
    memory: str = Field(examples=["The budget for the Hawaii trip is $10,000"])
    why: str = Field(examples=["says the same as another"])
    sources: list[str] = Field(examples=[["0199c3a1-7b5e-7c1d-9e1f-2a8d6f0c4b12"]])


class MaintenanceReportResponse(BaseModel):
    """What one chore did, or would do."""

    chore: MaintenanceTask
    user_id: str = Field(examples=["alex"])
    dry_run: bool
    batch: str | None = Field(examples=[None])
    steps: list[MaintenanceStepResponse]
    left: list[str] = Field(examples=[[]])
    stale: list[str] = Field(examples=[[]])
    looked_at: int
    more: bool
    calls: int
    tokens_in: int
    tokens_out: int


class Reports(BaseModel):
    """What each chore did."""

    results: list[MaintenanceReportResponse]


class VersionResponse(BaseModel):
    """What runs here."""

    version: str = Field(examples=["0.1.0"])
    api: Literal["v1"]
    python: str = Field(examples=["3.11.7"])
    embedding_model: str = Field(examples=["recollect-static-1"])
    dimensions: int = Field(examples=[256])


async def usage_response(
    service: Service, user: str | None, since: str | None, parts: list[PartName] | None
) -> JSONResponse:
    """What models were asked, for a user or for all."""
    by = parts or ["day", "model", "step"]
    rows = await service.usage.report(user, since=parse_time(since, name="since"), by=by)
    today = await service.usage.spent_today(user)
    today_body = {"tokens": today.tokens, "calls": today.calls}
    return json_response({"results": [row.to_dict() for row in rows], "today": today_body})


@maintenance_router.get("/usage", response_model=UsagePage)
async def get_usage(user: UserDep, service: ServiceDep, since: Since = None, part: Parts = None) -> JSONResponse:
    """What the LLM was asked for this user, and what that came to."""
    return await usage_response(service, user, since, part)


@maintenance_router.get("/stats", response_model=StatsResponse)
async def get_stats(user: UserDep, service: ServiceDep) -> JSONResponse:
    """How much there is of this user."""
    return json_response({"stats": dict(await service.stats(user))})


@maintenance_router.post("/upkeep", response_model=Reports, responses={**WRITE_ERRORS, **error_responses(409)})
@idempotent()
async def do_upkeep(
    todo: ToDo, user: UserDep, project: ProjectDep, by: AuthorDep, service: ServiceDep
) -> JSONResponse:
    """Put the user's memories in order now; each chore is one change that can be undone whole."""
    reports = await service.jobs.run_maintenance(Scope(user, project), todo.chores, by=by, dry_run=todo.dry_run)
    return json_response({"results": [report.to_dict() for report in reports]})


@maintenance_router.get("/version", response_model=VersionResponse)
async def get_version(service: ServiceDep) -> JSONResponse:
    """What runs here."""
    model = service.model
    return json_response(
        {
            "version": __version__,
            "api": "v1",
            "python": sys.version.split()[0],
            "embedding_model": model.name,
            "dimensions": model.dimensions,
        }
    )
