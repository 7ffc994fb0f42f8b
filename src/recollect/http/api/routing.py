"""The routes of this door: what cannot be used is told in one sentence with 400, and no parameter goes unnoticed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response, params
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from recollect.config.settings import Settings
from recollect.errors import InvalidInput, MissingUser, NotAllowed
from recollect.http.api.responses import COMMON_ERRORS
from recollect.http.auth.caller import CallerDep, require_permissions
from recollect.http.params import (
    SCOPE_PARAMS,
    DecodedHeader,
    empty_headers,
    empty_names,
    query_names,
    repeated_names,
    single_names,
    unknown_names,
)
from recollect.http.service_provider import get_service
from recollect.model.arguments import parse_author
from recollect.model.change import Author
from recollect.model.scope import Scope
from recollect.service.service import Service

API_PREFIX = "/recollect/v1"
_REQUEST_PARTS = {"body": "the body", "query": "the address", "path": "the path", "header": "the headers"}


_READ_ONLY_ROUTES = ("search", "recall", "list_memories_by_filter")
_WRITE_ONLY_ROUTES = ("add_memory", "remember", "import_memories", "get_version")
# What deletes though it is no DELETE, and what says where: left empty by a slip, it would delete too much.
DELETING_ROUTES = ("forget_memories",)
_NOT_AN_OBJECT = ("model_attributes_type", "model_type", "dict_type", "union_tag_not_found")


class ApiRoute(APIRoute):
    """A route that says what is wrong with a request; an unknown parameter is a slip, not a wish to be ignored."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        allowed, single = frozenset(query_names(self.dependant)), frozenset(single_names(self.dependant))
        deletes = self.methods == {"DELETE"} or self.name in DELETING_ROUTES

        async def handler(request: Request) -> Response:
            if unknown := unknown_names(request, allowed):
                raise InvalidInput(_describe_unknown(unknown[0], allowed))
            if repeated := repeated_names(request, single):
                raise InvalidInput(f"{repeated[0]} is given more than once, and one is meant")
            if deletes and (empty := [*empty_names(request, SCOPE_PARAMS), *empty_headers(request)]):
                raise InvalidInput(f"{empty[0]} is empty; name what is meant, or leave it out")
            try:
                return await handle(request)
            except RequestValidationError as error:
                raise InvalidInput(describe_validation_error(error)) from None

        return handler


def _describe_unknown(name: str, allowed: frozenset[str]) -> str:
    hint = f"there are {', '.join(sorted(allowed))}" if allowed else "there are none here"
    return f"there is no parameter {name[:100]!r}; {hint}"


def describe_validation_error(error: RequestValidationError) -> str:
    """The first thing that is wrong, as a sentence; what was sent is not repeated, for it may be private."""
    errors = error.errors()
    if not errors:
        return "the request cannot be used"
    first = errors[0]
    part, *where = (str(each) for each in first["loc"])
    if first["type"] == "json_invalid":
        return f"the body is no JSON: {first.get('ctx', {}).get('error', 'it breaks off')}"
    if part == "body" and not where and first["type"] in _NOT_AN_OBJECT:
        return "the body is a JSON object; send one, with Content-Type: application/json"
    name = ".".join(where) or _REQUEST_PARTS.get(part, part)
    if first["type"] == "extra_forbidden":
        return f"there is no field {name} here"
    if first["type"] == "missing":
        return f"{name} is missing" if where else f"{_REQUEST_PARTS.get(part, part)} is missing"
    message = str(first["msg"])
    return f"{name}: {message[:1].lower()}{message[1:]}"


def create_router(tag: str, *dependencies: params.Depends) -> APIRouter:
    """A part of this door; every route of it can fail in the ways that any can."""
    return APIRouter(
        prefix=API_PREFIX,
        tags=[tag],
        dependencies=[require_permissions(read_only=_READ_ONLY_ROUTES, write_only=_WRITE_ONLY_ROUTES), *dependencies],
        route_class=ApiRoute,
        responses=COMMON_ERRORS,
        generate_unique_id_function=lambda route: route.name,
    )


async def _service_dependency(request: Request) -> Service:
    return get_service(request)


async def _settings_dependency(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


ServiceDep = Annotated[Service, Depends(_service_dependency)]
SettingsDep = Annotated[Settings, Depends(_settings_dependency)]


_DEFAULT_AUTHOR = "http"
# As a header carries it, and as a scope takes it.
_NAME_CONSTRAINTS = {"max_length": 300, "pattern": r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"}


async def get_named_user(
    caller: CallerDep,
    x_memory_user: Annotated[
        str | None,
        Header(**_NAME_CONSTRAINTS, description="The user whose memories these are.", examples=["alex"]),
        DecodedHeader,
    ] = None,
    user_id: Annotated[
        str | None,
        Query(
            **_NAME_CONSTRAINTS,
            description="The same as X-Memory-User, where no header can be set.",
            examples=["alex"],
        ),
    ] = None,
) -> str:
    """The user: 401 where none is named, 403 for another than the caller's, or if the header names a second one."""
    if x_memory_user and user_id and x_memory_user != user_id:
        raise NotAllowed("X-Memory-User and user_id name two users; a request is about one")
    user = caller.resolve_user(x_memory_user or user_id) or ""
    if not user.strip():
        raise MissingUser("name the user whose memories these are: X-Memory-User, or user_id in the address")
    return Scope(user).user


async def get_whole_user(caller: CallerDep, user: Annotated[str, Depends(get_named_user)]) -> str:
    """The user, all of whose memories this is about: not for those who may see one project only."""
    if caller.project is not None:
        raise NotAllowed("this concerns all projects of a user, and whoever asks here speaks for one project")
    return user


async def get_memory_scope(
    request: Request,
    memory_id: Annotated[str, Path(description="The id of a memory.")],
    caller: CallerDep,
    user: Annotated[str, Depends(get_named_user)],
    service: ServiceDep,
) -> Scope:
    """Where the memory in the path is looked for; one of another project is as unknown as one that is not there."""
    if caller.project is not None:
        record = await service.get(Scope(user), memory_id)
        if request.method in ("GET", "HEAD"):
            caller.ensure_visible(record)
        else:
            caller.ensure_editable(record)
    return Scope(user)


async def get_project(
    x_memory_project: Annotated[
        str | None,
        Header(**_NAME_CONSTRAINTS, description="One of the user's projects.", examples=["hawaii"]),
        DecodedHeader,
    ] = None,
    project_id: Annotated[
        str | None,
        Query(
            **_NAME_CONSTRAINTS,
            description="The same as X-Memory-Project, and stronger than it.",
            examples=["hawaii"],
        ),
    ] = None,
) -> str:
    """The project, or nothing."""
    return project_id or x_memory_project or ""


async def get_session_name(
    x_memory_session: Annotated[
        str | None,
        Header(**_NAME_CONSTRAINTS, description="A session of the project or user.", examples=["monday"]),
        DecodedHeader,
    ] = None,
    session_id: Annotated[
        str | None,
        Query(
            **_NAME_CONSTRAINTS,
            description="The same as X-Memory-Session, and stronger than it.",
            examples=["monday"],
        ),
    ] = None,
) -> str:
    """The session, or nothing."""
    return session_id or x_memory_session or ""


async def get_scope(
    caller: CallerDep,
    user: Annotated[str, Depends(get_named_user)],
    project: Annotated[str, Depends(get_project)],
    session: Annotated[str, Depends(get_session_name)],
) -> Scope:
    """The user, and the project and session where they are named."""
    return caller.scope(user, project, session)


async def get_author(
    caller: CallerDep,
    x_memory_by: Annotated[
        str,
        Header(
            **_NAME_CONSTRAINTS, min_length=1, description="Who does this, as history tells it.", examples=["dana"]
        ),
        DecodedHeader,
    ] = _DEFAULT_AUTHOR,
    x_memory_actor: Annotated[
        Literal["person", "agent"],
        Header(description="Whether a person does this or a program by itself. Only a person approves."),
    ] = "agent",
    why: Annotated[
        str,
        Query(
            max_length=2000,
            pattern=r"^[^\x00]*$",
            description="Why this is done, as history tells it.",
            examples=["asked by mail"],
        ),
    ] = "",
) -> Author:
    """Who acts, and why; a key says for itself whose it is, and speaks for a program."""
    if x_memory_actor == "person" and caller.kind == "key" and not caller.admin:
        raise NotAllowed("this key speaks for a program: people approve with an admin key, a token or at the server")
    who = x_memory_by
    if caller.kind != "local":
        who = caller.name if who == _DEFAULT_AUTHOR else f"{caller.name} {who}"
    return parse_author(who, why if why.strip() else "", actor=x_memory_actor)


async def require_admin(caller: CallerDep) -> None:
    """Lets through who may look after everyone's memories."""
    caller.check_admin()


UserDep = Annotated[str, Depends(get_whole_user)]
MemoryScopeDep = Annotated[Scope, Depends(get_memory_scope)]
ProjectDep = Annotated[str, Depends(get_project)]
ScopeDep = Annotated[Scope, Depends(get_scope)]
AuthorDep = Annotated[Author, Depends(get_author)]
RequireAdmin = Depends(require_admin)
