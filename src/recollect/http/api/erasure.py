"""Removing for good, and the proof of it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Body, Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from recollect.http.api.idempotency import idempotent
from recollect.http.api.responses import WRITE_ERRORS, error_responses, json_response
from recollect.http.api.routing import AuthorDep, ServiceDep, UserDep, create_router
from recollect.http.api.schemas import Id, StrictBody, Time
from recollect.model.arguments import parse_time
from recollect.model.erasure import ErasureRequest, Target, user_digest
from recollect.model.scope import Scope

erasure_router = create_router("erasing")


class _One(StrictBody):
    model_config = ConfigDict(json_schema_extra={"example": {"target": "memory", "id": "0199c3a1"}})

    target: Literal["memory", "turn"]
    id: Id


class _Session(StrictBody):
    target: Literal["session"]
    session_id: Id
    project_id: Annotated[Id, Field(description="The project it is in, if it is in one.")] | None = None


class _Project(StrictBody):
    target: Literal["project"]
    project_id: Id


class _Everything(StrictBody):
    target: Literal["user"]


EraseBody = Annotated[_One | _Session | _Project | _Everything, Field(discriminator="target")]


class StoreErasureResponse(BaseModel):
    """What went from one store."""

    store: str = Field(examples=["ledger"])
    counts: dict[str, int] = Field(examples=[{"memories": 3, "turns": 12}])
    reached: bool = Field(description="Whether the bytes are gone as well.")
    note: str = Field(examples=[""])
    parts: dict[str, bool]


class RebuiltItem(BaseModel):
    """Something that went though some of what it rested on stays: it is made anew from that."""

    kind: str = Field(examples=["summary"])
    project_id: str | None = Field(examples=[None])
    session_id: str | None = Field(examples=["monday"])
    sources: list[str] = Field(examples=[[]])
    turns: list[int] | None


class UnreachableStore(BaseModel):
    """Somewhere that no erasure reaches from here, and what to do about it."""

    store: str = Field(examples=["upstream"])
    note: str = Field(examples=["what was sent to a model is its operator's to erase"])


class ErasureReceiptResponse(BaseModel):
    """What an erasure came to in each store; it holds ids and counts, none of what was erased."""

    id: str = Field(examples=["0199c3a1-7b5e-7c1d-9e1f-2a8d6f0c4b15"])
    at: str = Field(examples=["2026-03-15T10:00:00+00:00"])
    target: Target
    target_id: str | None = Field(examples=[None])
    user_id: str = Field(examples=["alex"])
    project_id: str | None = Field(examples=[None])
    session_id: str | None = Field(examples=["monday"])
    reached: bool
    stores: list[StoreErasureResponse]
    remade: list[RebuiltItem]
    stays: list[str] = Field(
        description="What it was learned from, which stays; erase it, too, if it has to go.", examples=[[]]
    )
    hidden: list[str] = Field(
        description="Of what stays, the turns that are forgotten with it: they say the same.", examples=[[]]
    )
    out_of_reach: list[UnreachableStore]


class ErasureItem(BaseModel):
    """An erasure as it is kept, to be done again on a backup that is older; the user is a digest."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "id": "0199c3a1-7b5e-7c1d-9e1f-2a8d6f0c4b15",
                "at": "2026-03-15T10:00:00+00:00",
                "user": "3f0e1c5d2b7a4988a6d0c1b2e3f40516",
                "target": "session",
                "project": "",
                "session": "monday",
                "ids": [],
            }
        }
    )

    id: str
    at: str
    user: str
    target: Target
    project: str
    session: str
    ids: list[str]


class ErasureList(BaseModel):
    """What was erased, oldest first."""

    results: list[ErasureItem]


class Receipts(BaseModel):
    """A receipt for each erasure."""

    results: list[ErasureReceiptResponse]


@erasure_router.post(
    "/erase", response_model=ErasureReceiptResponse, responses={**WRITE_ERRORS, **error_responses(404, 409)}
)
@idempotent(erases=True, ignores_key=lambda given: isinstance(given["wanted"], _Everything))
async def erase(
    wanted: Annotated[EraseBody, Body(openapi_examples={
        "a memory": {"value": {"target": "memory", "id": "0199c3a1-7b5e-7c1d-9e1f-2a8d6f0c4b11"}},
        "a session": {"value": {"target": "session", "session_id": "monday"}},
        "all of the user": {"value": {"target": "user"}},
    })],
    user: UserDep,
    by: AuthorDep,
    service: ServiceDep,
) -> JSONResponse:  # fmt: skip
    """Remove a memory, a turn, a session, a project or all of the user for good, with what was derived from it.

    It cannot be undone. The receipt says what went from each store, what stays and what is out of reach. The turns a
    memory was learned from are forgotten with it; to remove them, too, erase each turn.
    """
    scope, request = Scope(user), ErasureRequest(Target.USER)
    match wanted:
        case _One():
            request = ErasureRequest(Target(wanted.target), wanted.id)
        case _Session():
            scope, request = Scope(user, wanted.project_id or "", wanted.session_id), ErasureRequest(Target.SESSION)
        case _Project():
            scope, request = Scope(user, wanted.project_id), ErasureRequest(Target.PROJECT)
        case _Everything():
            pass
    return json_response((await service.erasure.erase(scope, request, by=by)).to_dict())


@erasure_router.get("/erasures", response_model=ErasureList)
async def list_erasures(
    user: UserDep,
    service: ServiceDep,
    since: Annotated[Time | None, Query(description="Only those since then.")] = None,
) -> JSONResponse:
    """What was erased of this user, oldest first."""
    erasures = await service.erasure.list(parse_time(since, name="since"))
    digest = user_digest(user)
    results: list[Any] = [each.to_dict() for each in erasures if each.user == digest]
    return json_response({"results": results})
