"""What concerns all users: for whoever looks after the server."""

from __future__ import annotations

from bisect import bisect_right
from typing import Annotated, Literal

from fastapi import Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from recollect.http.doors.own.answers import WRITING, answered, cursor_of, failing, read_cursor
from recollect.http.doors.own.asking import Acting, Admin
from recollect.http.doors.own.erasing import Erasures, Receipts
from recollect.http.doors.own.jobs import JobPage, States, page_of_jobs
from recollect.http.doors.own.repeating import keyless
from recollect.http.doors.own.routing import Serving, Set, router
from recollect.http.doors.own.shapes import NO_CONTROL, Cursor, Given, Id, Label, Limit, NextCursor, Time
from recollect.http.doors.own.tending import Parts, Since, Stats, UsagePage, usage_of
from recollect.model.asked import read_time
from recollect.model.erase import read_erasure
from recollect.settings import Loaded, rows

admin = router("admin", Admin)


class UserPage(BaseModel):
    """Users in order."""

    results: list[str] = Field(examples=[["alex", "dana"]])
    cursor: NextCursor


class SettingTold(BaseModel):
    """A setting as it is in force."""

    name: str = Field(examples=["search_limit"])
    value: str = Field(description="As text; of a secret only whether there is one.", examples=["10"])
    default: str = Field(examples=["10"])
    variable: str = Field(examples=["RECOLLECT_SEARCH_LIMIT"])
    description: str = Field(examples=["How many memories a search gives at most."])


class SettingsTold(BaseModel):
    """Every setting."""

    results: list[SettingTold]


Nothing = Annotated[list[Id], Field(max_length=0)]


class _Erased(Given):
    id: Id
    at: Time
    user: Id


class _ErasedOne(_Erased):
    target: Literal["turn", "memory"]
    project: Literal[""] = ""
    session: Literal[""] = ""
    ids: list[Id] = Field(min_length=1)


class _ErasedSession(_Erased):
    target: Literal["session"]
    project: Label = ""
    session: Id
    ids: Nothing = Field(default_factory=list)


class _ErasedProject(_Erased):
    target: Literal["project"]
    project: Id
    session: Literal[""] = ""
    ids: Nothing = Field(default_factory=list)


class _ErasedUser(_Erased):
    target: Literal["user"]
    project: Literal[""] = ""
    session: Literal[""] = ""
    ids: Nothing = Field(default_factory=list)


ErasureGiven = Annotated[_ErasedOne | _ErasedSession | _ErasedProject | _ErasedUser, Field(discriminator="target")]


class ToReplay(Given):
    """Erasures to do again on a database that was restored from an older copy."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "erasures": [
                    {
                        "id": "0199c3a1-7b5e-7c1d-9e1f-2a8d6f0c4b15",
                        "at": "2026-03-15T10:00:00+00:00",
                        "user": "3f0e1c5d2b7a4988a6d0c1b2e3f40516",
                        "target": "session",
                        "session": "monday",
                    }
                ]
            }
        }
    )

    erasures: list[ErasureGiven]


@admin.get("/admin/users", response_model=UserPage)
async def list_users(service: Serving, limit: Limit = 100, cursor: Cursor = None) -> JSONResponse:
    """Everyone who has memories."""
    last = read_cursor(cursor, str)
    users = sorted(await service.users())
    begin = bisect_right(users, last[0]) if last else 0
    page = users[begin : begin + limit]
    more = cursor_of(page[-1]) if begin + limit < len(users) else None
    return answered({"results": page, "cursor": more})


@admin.get("/admin/stats", response_model=Stats)
async def get_all_stats(service: Serving) -> JSONResponse:
    """How much there is of all users."""
    return answered({"stats": dict(await service.stats())})


@admin.get("/admin/usage", response_model=UsagePage)
async def get_all_usage(service: Serving, since: Since = None, part: Parts = None) -> JSONResponse:
    """What the LLM was asked for all users, and what that came to."""
    return await usage_of(service, None, since, part)


@admin.get("/admin/jobs", response_model=JobPage)
async def list_all_jobs(
    service: Serving,
    state: States = None,
    of_user: Annotated[
        str | None, Query(min_length=1, max_length=300, pattern=NO_CONTROL, description="Only of this user.")
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> JSONResponse:
    """The jobs of all users, newest first."""
    return await page_of_jobs(service, of_user, states=state, limit=limit, cursor=cursor)


@admin.get("/admin/settings", response_model=SettingsTold)
async def get_settings(settings: Set) -> JSONResponse:
    """The settings in force; secrets are not shown."""
    told = [
        {
            "name": row.name,
            "value": row.value,
            "default": row.default,
            "variable": row.variable,
            "description": row.description,
        }
        for row in rows(Loaded(settings))
    ]
    return answered({"results": told})


@admin.get("/admin/erasures", response_model=Erasures)
async def list_all_erasures(
    service: Serving, since: Annotated[Time | None, Query(description="Only those since then.")] = None
) -> JSONResponse:
    """What was erased of anyone, oldest first: to be kept outside the database, and replayed on an older copy."""
    found = await service.care.erasures(read_time(since, name="since"))
    return answered({"results": [each.to_dict() for each in found]})


@admin.post(
    "/admin/erasures/replay",
    response_model=Receipts,
    responses={**WRITING, **failing(409)},
    dependencies=[keyless("what was replayed before is passed over")],
)
async def replay_erasures(given: ToReplay, by: Acting, service: Serving) -> JSONResponse:
    """Erase again, in a database restored from an older copy, what was erased since; a receipt for each.

    What this database knows of, or has nothing of, is passed over. Do it before anything is written.
    """
    erasures = [read_erasure(each.model_dump()) for each in given.erasures]
    receipts = await service.care.replay_erasures(erasures, by=by)
    return answered({"results": [receipt.to_dict() for receipt in receipts]})
