"""Routes for the page's login, and for callers who ask who they are."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field, SecretStr

from recollect import __version__
from recollect.config.settings import Settings
from recollect.http.auth.caller import Caller, CallerDep
from recollect.http.auth.middleware import Authenticator
from recollect.http.auth.rules import AnonymousAccess
from recollect.http.params import ResponseModel, StrictModel, example
from recollect.http.routing import API_PREFIX, Router, create_api_router
from recollect.http.upstream.learning import UpstreamModels, describe_start, has_upstream

login_router = Router("login", prefix=API_PREFIX, optional_slash=False, needs_caller=False)
me_router = create_api_router("login")


class LoginBody(StrictModel):
    """The key to log in with."""

    model_config = example(key="rk_...")

    key: Annotated[SecretStr, Field(strict=False, min_length=1, max_length=200, description="An API key.")]


class ServerInfo(ResponseModel):
    """The server, as far as a page shows it."""

    version: str
    learning: str = Field(description="How facts are learned from chats, in words.")
    llm: str | None = Field(description="The LLM of the settings.")
    upstream: bool = Field(description="Whether chats are answered by a model; otherwise from memory.")
    chat_model: str | None = Field(description="The model that the last chat named, if any.")
    needs_keys: bool = Field(description="Whether requests without credentials are rejected.")
    base_path: str = Field(description="The setting `base_path`.")


class MeResponse(ResponseModel):
    """The caller and the server."""

    kind: Literal["local", "key", "gateway", "jwt"] = Field(description="How the caller was authenticated.")
    name: str = Field(description="The name in the history.")
    user_id: str | None = Field(description="The user the caller is limited to; null if they may name any.")
    project_id: str | None = Field(description="The project the caller is limited to; null if they may name any.")
    admin: bool
    read: bool
    write: bool
    acts_as_person: bool = Field(description="Whether X-Memory-Actor may be `person`.")
    by_cookie: bool = Field(description="Whether the key came in the cookie, so that logging out has an effect.")
    needs_login: Literal[False] = Field(description="False: a caller who has to log in is answered with 401.")
    default_user: str = Field(description="The user of chats that name none.")
    server: ServerInfo


@login_router.post("/login", response_model=MeResponse)
async def log_in(body: LoginBody, request: Request) -> JSONResponse:
    """Log in with a key, which the answer stores in a cookie that scripts cannot read.

    A request that is authenticated by the cookie needs the header `X-Recollect-Page: 1`, unless it is a GET.
    """
    authenticator: Authenticator = request.app.state.authenticator
    key = body.key.get_secret_value().strip()
    caller = await authenticator.log_in(request.scope, key)
    cookie = authenticator.cookie(key, request.scope)
    return JSONResponse(
        _describe_caller(request, caller), headers={"Set-Cookie": cookie, "Cache-Control": "no-store"}
    )


@login_router.post("/logout", status_code=204, response_class=Response)
async def log_out(request: Request) -> Response:
    """Delete the cookie; the key stays valid."""
    authenticator: Authenticator = request.app.state.authenticator
    return Response(status_code=204, headers={"Set-Cookie": authenticator.cookie("", request.scope)})


@me_router.get("/me", response_model=MeResponse)
async def get_me(request: Request, caller: CallerDep) -> JSONResponse:
    """Return who the caller is, what they may do, and how this server works."""
    return JSONResponse(_describe_caller(request, caller), headers={"Cache-Control": "no-store"})


def _describe_caller(request: Request, caller: Caller) -> dict[str, object]:
    settings: Settings = request.app.state.settings
    models: UpstreamModels | None = request.app.state.models
    authenticator: Authenticator = request.app.state.authenticator
    server = ServerInfo(
        version=__version__,
        learning=describe_start(settings) if models is None else models.describe(),
        llm=settings.llm or None,
        upstream=has_upstream(settings),
        chat_model=(models.last_model if models is not None else "") or None,
        needs_keys=caller.kind != "local" or authenticator.rules.anonymous is AnonymousAccess.NEVER,
        base_path=settings.base_path,
    )
    return MeResponse(
        kind=caller.kind,
        name=caller.name,
        user_id=caller.user,
        project_id=caller.project,
        admin=caller.admin,
        read=caller.reads,
        write=caller.writes,
        acts_as_person=caller.may_act_as_person,
        by_cookie=caller.by_cookie,
        needs_login=False,
        default_user=settings.chat_user,
        server=server,
    ).model_dump()
