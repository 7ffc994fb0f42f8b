"""What concerns all users: for whoever looks after the server."""

from __future__ import annotations

from bisect import bisect_right
from typing import Annotated, Literal

from fastapi import Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from recollect.config.settings import LoadedSettings, rows
from recollect.http.api.erasure import ErasureList, Receipts
from recollect.http.api.idempotency import reject_idempotency_key
from recollect.http.api.jobs import JobPage, States, jobs_page
from recollect.http.api.maintenance import Parts, Since, StatsResponse, UsagePage, usage_response
from recollect.http.api.responses import WRITE_ERRORS, decode_cursor, encode_cursor, error_responses, json_response
from recollect.http.api.routing import AuthorDep, RequireAdmin, ServiceDep, SettingsDep, create_router
from recollect.http.api.schemas import NO_CONTROL, Cursor, Id, Label, Limit, NextCursor, StrictBody, Time
from recollect.model.arguments import parse_time
from recollect.model.erasure import parse_erasure

admin_router = create_router("admin", RequireAdmin)


class UserPage(BaseModel):
    """Users in order."""

    results: list[str] = Field(examples=[["alex", "dana"]])
    cursor: NextCursor


class SettingItem(BaseModel):
    """A setting as it is in force."""

    name: str = Field(examples=["search_limit"])
    value: str = Field(description="As text; of a secret only whether there is one.", examples=["10"])
    default: str = Field(examples=["10"])
    variable: str = Field(examples=["RECOLLECT_SEARCH_LIMIT"])
    description: str = Field(examples=["How many memories a search gives at most."])


class SettingsResponse(BaseModel):
    """Every setting."""

    results: list[SettingItem]


NoIds = Annotated[list[Id], Field(max_length=0)]


class _Erased(StrictBody):
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
    ids: NoIds = Field(default_factory=list)


class _ErasedProject(_Erased):
    target: Literal["project"]
    project: Id
    session: Literal[""] = ""
    ids: NoIds = Field(default_factory=list)


class _ErasedUser(_Erased):
    target: Literal["user"]
    project: Literal[""] = ""
    session: Literal[""] = ""
    ids: NoIds = Field(default_factory=list)


ErasureInput = Annotated[_ErasedOne | _ErasedSession | _ErasedProject | _ErasedUser, Field(discriminator="target")]


class ToReplay(StrictBody):
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

    erasures: list[ErasureInput]


@admin_router.get("/admin/users", response_model=UserPage)
async def list_users(service: ServiceDep, limit: Limit = 100, cursor: Cursor = None) -> JSONResponse:
    """Everyone who has memories."""
    last = decode_cursor(cursor, str)
    users = sorted(await service.users())
    begin = bisect_right(users, last[0]) if last else 0
    page = users[begin : begin + limit]
    more = encode_cursor(page[-1]) if begin + limit < len(users) else None
    return json_response({"results": page, "cursor": more})


@admin_router.get("/admin/stats", response_model=StatsResponse)
async def get_all_stats(service: ServiceDep) -> JSONResponse:
    """How much there is of all users."""
    return json_response({"stats": dict(await service.stats())})


@admin_router.get("/admin/usage", response_model=UsagePage)
async def get_all_usage(service: ServiceDep, since: Since = None, part: Parts = None) -> JSONResponse:
    """What the LLM was asked for all users, and what that came to."""
    return await usage_response(service, None, since, part)


@admin_router.get("/admin/jobs", response_model=JobPage)
async def list_all_jobs(
    service: ServiceDep,
    state: States = None,
    of_user: Annotated[
        str | None, Query(min_length=1, max_length=300, pattern=NO_CONTROL, description="Only of this user.")
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> JSONResponse:
    """The jobs of all users, newest first."""
    return await jobs_page(service, of_user, states=state, limit=limit, cursor=cursor)


@admin_router.get("/admin/settings", response_model=SettingsResponse)
async def get_settings(settings: SettingsDep) -> JSONResponse:
    """The settings in force; secrets are not shown."""
    results = [
        {
            "name": row.name,
            "value": row.value,
            "default": row.default,
            "variable": row.variable,
            "description": row.description,
        }
        for row in rows(LoadedSettings(settings))
    ]
    return json_response({"results": results})


@admin_router.get("/admin/erasures", response_model=ErasureList)
async def list_all_erasures(
    service: ServiceDep, since: Annotated[Time | None, Query(description="Only those since then.")] = None
) -> JSONResponse:
    """What was erased of anyone, oldest first: to be kept outside the database, and replayed on an older copy."""
    erasures = await service.erasure.list(parse_time(since, name="since"))
    return json_response({"results": [each.to_dict() for each in erasures]})


@admin_router.post(
    "/admin/erasures/replay",
    response_model=Receipts,
    responses={**WRITE_ERRORS, **error_responses(409)},
    dependencies=[reject_idempotency_key("what was replayed before is passed over")],
)
async def replay_erasures(given: ToReplay, by: AuthorDep, service: ServiceDep) -> JSONResponse:
    """Erase again, in a database restored from an older copy, what was erased since; a receipt for each.

    What this database knows of, or has nothing of, is passed over. Do it before anything is written.
    """
    erasures = [parse_erasure(each.model_dump()) for each in given.erasures]
    receipts = await service.erasure.replay(erasures, by=by)
    return json_response({"results": [receipt.to_dict() for receipt in receipts]})
