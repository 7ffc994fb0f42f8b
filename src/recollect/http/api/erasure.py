"""Routes that erase for good, with receipts, and the log of erasures for backups."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from recollect.http.api.idempotency import idempotent, reject_idempotency_key
from recollect.http.api.responses import json_response, list_response
from recollect.http.api.schemas import ListOf
from recollect.http.params import Id, Label, StrictModel, Time, example
from recollect.http.routing import AuthorDep, RequireAdmin, ServiceDep, UserDep, create_api_router
from recollect.model.arguments import parse_time
from recollect.model.erasure import ErasureRequest, Target, parse_erasure, user_digest
from recollect.model.scope import Scope

erasure_router = create_api_router("erasing")
admin_erasure_router = create_api_router("admin", RequireAdmin)
Since = Annotated[Time | None, Query(description="Only erasures since this time.")]


class EraseBody(StrictModel):
    """The target of an erasure: a memory or a turn by its id, a session, a project, or the whole user."""

    model_config = example(target="session", session_id="monday")

    target: Annotated[Target, Field(strict=False)]
    id: Id | None = Field(default=None, description="The memory or turn.")
    session_id: Id | None = None
    project_id: Id | None = Field(default=None, description="The project, or the project of the session.")


class StoreErasureResponse(BaseModel):
    """The result of an erasure in one store."""

    store: str
    counts: dict[str, int]
    reached: bool = Field(description="Whether the bytes are gone as well.")
    note: str
    parts: dict[str, bool]


class RebuiltItem(BaseModel):
    """A derived item, such as a summary, that is rebuilt from the sources that stay."""

    kind: str
    project_id: str | None
    session_id: str | None
    sources: list[str]
    turns: list[int] | None


class UnreachableStore(BaseModel):
    """A store that the erasure cannot reach, and the remedy."""

    store: str
    note: str


class ErasureReceiptResponse(BaseModel):
    """The receipt of an erasure: ids and counts, and nothing of what was erased."""

    id: str
    at: str
    target: Target
    target_id: str | None
    user_id: str
    project_id: str | None
    session_id: str | None
    reached: bool
    stores: list[StoreErasureResponse]
    remade: list[RebuiltItem]
    stays: list[str] = Field(description="The turns it was learned from, which stay; erase them separately.")
    hidden: list[str] = Field(description="The turns of `stays` that are forgotten, because they say the same.")
    out_of_reach: list[UnreachableStore]


class ErasureLogEntry(StrictModel):
    """An erasure in the log, to be replayed on an older backup; the user is a digest."""

    id: Id
    at: Time
    user: Id
    target: Annotated[Target, Field(strict=False)]
    project: Label = ""
    session: Label = ""
    ids: list[Id] = Field(default_factory=list)


class ReplayErasuresBody(StrictModel):
    """Erasures to replay on a database that was restored from an older backup."""

    model_config = example(
        erasures=[{"id": "e1", "at": "2026-03-15T10:00:00Z", "user": "3f0e1c5d2b7a4988", "target": "user"}]
    )

    erasures: list[ErasureLogEntry]


@erasure_router.post("/erase", response_model=ErasureReceiptResponse, responses=erasure_router.error_responses(404))
@idempotent(erases=True, ignores_key=lambda arguments: arguments["body"].target is Target.USER)
async def erase(body: EraseBody, user: UserDep, author: AuthorDep, service: ServiceDep) -> JSONResponse:
    """Erase a memory, a turn, a session, a project or the whole user for good, with everything derived from it.

    It cannot be undone. The receipt reports what was erased from each store, what stays and what is out of reach. The
    turns a memory was learned from are forgotten with it; erase each turn to remove it as well.
    """
    scope = Scope(user, body.project_id or "", body.session_id or "")
    request = ErasureRequest(body.target, body.id or "")
    return json_response(await service.erasure.erase(scope, request, by=author))


@erasure_router.get("/erasures", response_model=ListOf[ErasureLogEntry])
async def list_erasures(user: UserDep, service: ServiceDep, since: Since = None) -> JSONResponse:
    """List the user's erasures, oldest first."""
    erasures, digest = await service.erasure.list(parse_time(since, name="since")), user_digest(user)
    return list_response([each for each in erasures if each.user == digest])


@admin_erasure_router.get("/admin/erasures", response_model=ListOf[ErasureLogEntry])
async def list_all_erasures(service: ServiceDep, since: Since = None) -> JSONResponse:
    """List the erasures of all users, oldest first: keep them outside of the database and replay them on a backup."""
    return list_response(await service.erasure.list(parse_time(since, name="since")))


@admin_erasure_router.post(
    "/admin/erasures/replay",
    response_model=ListOf[ErasureReceiptResponse],
    dependencies=[reject_idempotency_key("an erasure that was replayed before is skipped")],
)
async def replay_erasures(body: ReplayErasuresBody, author: AuthorDep, service: ServiceDep) -> JSONResponse:
    """Erase, in a database restored from an older backup, what was erased since; returns a receipt for each erasure.

    Erasures that the database knows of, or that select nothing, are skipped. Replay before anything is written.
    """
    erasures = [parse_erasure(each.model_dump()) for each in body.erasures]
    return list_response(await service.erasure.replay(erasures, by=author))
