"""Routes for administrators: API keys, backups, and the health of all parts."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import Path, Query, Request
from fastapi.responses import JSONResponse
from pydantic import Field

from recollect.config.settings import ledger_path
from recollect.http.api.schemas import (
    Cursor,
    Limit,
    ListOf,
    PageOf,
    decode_cursor,
    encode_cursor,
    json_response,
    list_response,
    page_response,
)
from recollect.http.health import HealthMonitor
from recollect.http.params import Name, RequiredName, ResponseModel, StrictModel, Time, example
from recollect.http.routing import RequireAdmin, ServiceDep, SettingsDep, create_api_router
from recollect.http.upstream.learning import UpstreamModels, describe_start
from recollect.model.arguments import parse_time
from recollect.model.key import new_key
from recollect.model.times import now
from recollect.service.diagnosis import CheckResult, check_folder
from recollect.service.logs import AccessRow

keys_router = create_api_router("admin", RequireAdmin)


class KeyBody(StrictModel):
    """A key to create: for a user, for everyone, or for an administrator."""

    model_config = example(for_user="alex", name="phone", person=True)

    for_user: RequiredName | None = Field(default=None, description="The user whose memories it gives access to.")
    project_id: RequiredName | None = Field(default=None, description="Only this project.")
    everyone: bool = Field(
        default=False, description="Access to every user, for an application that names its users."
    )
    admin: bool = Field(default=False, description="Access to everything, including keys, jobs and users.")
    read: bool = True
    write: bool = True
    person: bool = Field(
        default=False, description="A person's: changes may be recorded as a person's, who approves."
    )
    name: Name = Field(default="", description="Its name in the list and in the history.")
    expires_at: Time | None = None


class KeyResponse(ResponseModel):
    """An API key, without its text."""

    id: str
    name: str
    user_id: str | None
    project_id: str | None
    admin: bool
    read: bool
    write: bool
    person: bool
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None


class NewKeyResponse(KeyResponse):
    """A new key with its text."""

    key: str = Field(description="The key itself, which cannot be shown again.")


class AccessResponse(ResponseModel):
    """An entry of the audit log."""

    at: str = Field(description="The minute.", json_schema_extra={"format": "date-time"})
    who: str
    user_id: str | None = Field(description="Null for a user who no longer exists.")
    user_digest: str = Field(description="The same for all entries of a user.")
    route: str


class CheckResponse(ResponseModel):
    """The result of a check."""

    name: str
    state: Literal["ok", "warn", "fail"]
    message: str
    mend: str = Field(description="What to do about it; empty if nothing is known or needed.")


class ModelStateResponse(ResponseModel):
    """An embedding model known to the ledger, and how many memories have a vector of it."""

    model: str
    dimensions: int
    state: Literal["current", "pending", "retired", "idle"]
    done: int
    total: int


class HealthReport(ResponseModel):
    """The checks of all parts; `ok` unless one failed."""

    ok: bool
    checks: list[CheckResponse]
    models: list[ModelStateResponse]


class BackupResponse(ResponseModel):
    """A backup of the whole ledger."""

    file: str = Field(description="Its path on the machine where it was made.")
    made_at: str = Field(json_schema_extra={"format": "date-time"})
    engine: Literal["sqlite", "postgres"]
    bytes: int
    rows: dict[str, int]
    digest: str
    exists: bool = Field(description="Whether the server finds the file at its path.")


@keys_router.get("/admin/backups", response_model=ListOf[BackupResponse])
async def list_backups(service: ServiceDep) -> JSONResponse:
    """List the newest backups of this ledger, newest first, made here or with `recollect backup make`."""
    return json_response({"results": await service.transfer.backups()})


@keys_router.post("/admin/backups", response_model=BackupResponse, status_code=201)
async def make_backup(service: ServiceDep, settings: SettingsDep) -> JSONResponse:
    """Back up everything into a file in the folder `backups` of the server's home, while it is in use.

    It contains the memories of all users and hashes of the API keys: protect it like the database.
    """
    folder = settings.home.expanduser() / "backups"
    await asyncio.to_thread(folder.mkdir, mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{now():%Y-%m-%d-%H%M%S-%f}.backup"
    made = await service.transfer.backup(path, force=False, progress=lambda done, total: None)
    return JSONResponse({**made.to_dict(), "exists": True}, 201)


@keys_router.get("/admin/keys", response_model=ListOf[KeyResponse])
async def list_keys(service: ServiceDep) -> JSONResponse:
    """List all API keys, oldest first, including expired and revoked ones."""
    return list_response(await service.api_keys.list_keys())


@keys_router.post("/admin/keys", response_model=NewKeyResponse, status_code=201)
async def create_key(body: KeyBody, service: ServiceDep) -> JSONResponse:
    """Create an API key, whose text only this answer has.

    The first key ends the access without keys on this machine.
    """
    new = await service.api_keys.add(
        new_key(
            user=body.for_user,
            project=body.project_id,
            everyone=body.everyone,
            admin=body.admin,
            reads=body.read,
            writes=body.write,
            person=body.person,
            name=body.name,
            expires_at=parse_time(body.expires_at, name="expires_at"),
        )
    )
    return JSONResponse({**new.key.to_dict(), "key": new.text}, 201, headers={"Cache-Control": "no-store"})


@keys_router.delete("/admin/keys/{key_id}", response_model=KeyResponse)
async def revoke_key(
    key_id: Annotated[str, Path(description="The id of an API key.")], service: ServiceDep
) -> JSONResponse:
    """Revoke an API key: here at once, in other processes within seconds."""
    return json_response(await service.api_keys.revoke(key_id))


@keys_router.get("/admin/audit", response_model=PageOf[AccessResponse])
async def list_accesses(
    service: ServiceDep,
    of_user: Annotated[RequiredName | None, Query(description="Only accesses to this user's memories.")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> JSONResponse:
    """List who looked at whose memories in the page with a key for several users, newest first.

    There is one entry a minute for each user and route. Entries are kept when the user is erased.
    """
    last = decode_cursor(cursor, int, str, str, str)
    before = AccessRow(*last) if last else None
    entries = await service.audit.list(user=of_user, before=before, limit=limit + 1)
    return page_response(entries, limit, lambda entry: encode_cursor(*entry.row))


@keys_router.get("/admin/health", response_model=HealthReport)
async def get_health(
    request: Request,
    service: ServiceDep,
    settings: SettingsDep,
    deep: Annotated[bool, Query(description="Also check every page of the ledger, which can take minutes.")] = False,
) -> JSONResponse:
    """Check all parts, as `recollect doctor` does: the state of each, and the remedy."""
    monitor: HealthMonitor = request.app.state.health_monitor
    await monitor.check()
    checks = [CheckResult(part, problem.message, "warn") for part, problem in monitor.problems.items()]
    models: UpstreamModels | None = request.app.state.models
    checks.append(CheckResult("learning", describe_start(settings) if models is None else models.describe()))
    if "://" not in settings.database and settings.database != "memory:":
        checks += check_folder(ledger_path(settings).parent)
    checks += [each async for each in service.diagnose(index=settings.index, deep=deep)]
    states = [
        {
            "model": state.model.name,
            "dimensions": state.model.dimensions,
            "state": state.phase,
            "done": state.embedded,
            "total": state.to_embed,
        }
        for state in await service.model_states()
    ]
    plain = [{"name": each.name, "state": each.state, "message": each.message, "mend": each.mend} for each in checks]
    return json_response({"ok": all(each.state != "fail" for each in checks), "checks": plain, "models": states})
