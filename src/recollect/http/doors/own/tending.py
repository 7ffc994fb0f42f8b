"""What a user's memory costs and holds, putting it in order, and what runs here."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from fastapi import Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from recollect import __version__
from recollect.http.doors.own.answers import WRITING, answered, failing
from recollect.http.doors.own.asking import Acting, Project, User
from recollect.http.doors.own.repeating import repeatable
from recollect.http.doors.own.routing import Serving, router
from recollect.http.doors.own.shapes import Given, Time
from recollect.model.asked import read_time
from recollect.model.scope import Scope
from recollect.service import Service
from recollect.upkeep.report import Chore

tending = router("usage and upkeep")
PartName = Literal["user", "day", "model", "step"]
Parts = Annotated[list[PartName] | None, Query(description="What sums are parted by; by default day, model, step.")]
Since = Annotated[Time | None, Query(description="From the beginning of this day, UTC.")]


class UsageTold(BaseModel):
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

    results: list[UsageTold]
    today: Today


class Stats(BaseModel):
    """How much there is."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"stats": {"memories": 120, "turns": 800, "superseded": 7, "history": 950}}}
    )

    stats: dict[str, int]


class ToDo(Given):
    """Which chores to do."""

    model_config = ConfigDict(json_schema_extra={"example": {"chores": ["consolidate"], "dry_run": True}})

    chores: list[Annotated[Chore, Field(strict=False)]] = Field(
        default_factory=lambda: [Chore.EXPIRE, Chore.QUOTA, Chore.PRUNE, Chore.CONSOLIDATE], max_length=20
    )
    dry_run: bool = Field(default=False, description="Only says what it would do.")


class StepTold(BaseModel):
    """One memory that was brought in, changed or forgotten, and why."""

    verb: str = Field(examples=["update"])
    id: str = Field(examples=["0199c3a1-7b5e-7c1d-9e1f-2a8d6f0c4b11"])
    memory: str = Field(examples=["The budget for the Hawaii trip is $10,000"])
    why: str = Field(examples=["says the same as another"])
    sources: list[str] = Field(examples=[["0199c3a1-7b5e-7c1d-9e1f-2a8d6f0c4b12"]])


class ReportTold(BaseModel):
    """What one chore did, or would do."""

    chore: Chore
    user_id: str = Field(examples=["alex"])
    dry_run: bool
    batch: str | None = Field(examples=[None])
    steps: list[StepTold]
    left: list[str] = Field(examples=[[]])
    stale: list[str] = Field(examples=[[]])
    looked_at: int
    more: bool
    calls: int
    tokens_in: int
    tokens_out: int


class Reports(BaseModel):
    """What each chore did."""

    results: list[ReportTold]


class VersionTold(BaseModel):
    """What runs here."""

    version: str = Field(examples=["0.1.0"])
    api: Literal["v1"]
    python: str = Field(examples=["3.11.7"])
    embedding_model: str = Field(examples=["recollect-static-1"])
    dimensions: int = Field(examples=[256])


async def usage_of(
    service: Service, user: str | None, since: str | None, parts: list[PartName] | None
) -> JSONResponse:
    """What models were asked, for a user or for all."""
    by = parts or ["day", "model", "step"]
    rows = await service.care.usage(user, since=read_time(since, name="since"), by=by)
    today = await service.care.spent_today(user)
    told = {"tokens": today.tokens, "calls": today.calls}
    return answered({"results": [row.to_dict() for row in rows], "today": told})


@tending.get("/usage", response_model=UsagePage)
async def get_usage(user: User, service: Serving, since: Since = None, part: Parts = None) -> JSONResponse:
    """What the LLM was asked for this user, and what that came to."""
    return await usage_of(service, user, since, part)


@tending.get("/stats", response_model=Stats)
async def get_stats(user: User, service: Serving) -> JSONResponse:
    """How much there is of this user."""
    return answered({"stats": dict(await service.stats(user))})


@tending.post("/upkeep", response_model=Reports, responses={**WRITING, **failing(409)})
@repeatable()
async def do_upkeep(todo: ToDo, user: User, project: Project, by: Acting, service: Serving) -> JSONResponse:
    """Put the user's memories in order now; each chore is one change that can be undone whole."""
    reports = await service.care.upkeep(Scope(user, project), todo.chores, by=by, dry_run=todo.dry_run)
    return answered({"results": [report.to_dict() for report in reports]})


@tending.get("/version", response_model=VersionTold)
async def get_version(service: Serving) -> JSONResponse:
    """What runs here."""
    model = service.model
    return answered(
        {
            "version": __version__,
            "api": "v1",
            "python": sys.version.split()[0],
            "embedding_model": model.name,
            "dimensions": model.dimensions,
        }
    )
