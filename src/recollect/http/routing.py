"""The router, parameter checks and dependencies that the REST API and the compatible APIs share."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Coroutine
from dataclasses import replace
from threading import RLock
from typing import Annotated, Any, Literal, get_args, get_origin

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response, params
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.routing import compile_path

from recollect.config.settings import Settings
from recollect.errors import MissingUser, NotAllowed
from recollect.http.auth import caller as auth
from recollect.http.auth.caller import Caller, record_access
from recollect.http.errors import Error, ErrorFormat, api_error, error_responses, printable
from recollect.http.large_json import SMALL_CHARS, SafeJSONResponse, parse_json
from recollect.http.params import NO_CONTROL, NO_NUL, OWNER_PARAMS, SCOPE_HEADERS, SCOPE_PARAMS, DecodedHeader
from recollect.http.proxy.memory_options import InvalidField
from recollect.model.arguments import parse_author
from recollect.model.change import Author
from recollect.model.scope import Scope
from recollect.model.text import MAX_ID_CHARS
from recollect.service.handle import ServiceHandle
from recollect.service.service import Service

API_PREFIX = "/recollect/v1"
_COMMON_STATUSES = (400, 401, 403, 421, 429, 500, 503)
_DEFAULT_AUTHOR = "http"
_NAME: dict[str, Any] = {"max_length": MAX_ID_CHARS, "pattern": NO_CONTROL}


class Router(APIRouter):
    """A router that answers every error in one format and rejects query parameters that a route does not have.

    `read_only` names the routes that only read although they are no GET, `write_only` those that reveal nothing of
    what is stored; all other routes that change something take both permissions. `deleting` names the routes that
    delete although they are no DELETE. A router that is not `strict` ignores unknown query parameters, unless they
    name an owner. With `optional_slash` a path means the same with and without a slash at its end. Without
    `needs_caller` its paths are open to anyone.
    """

    def __init__(
        self,
        tag: str,
        *,
        prefix: str = "",
        operation_prefix: str = "",
        error_format: ErrorFormat = api_error,
        error_model: type[BaseModel] = Error,
        strict: bool = True,
        optional_slash: bool = True,
        needs_caller: bool = True,
        read_only: Collection[str] = (),
        write_only: Collection[str] = (),
        deleting: Collection[str] = (),
        dependencies: Collection[params.Depends] = (),
    ) -> None:
        self.error_format, self.error_model, self.strict = error_format, error_model, strict
        self._read_only, self._write_only, self.deleting = read_only, write_only, deleting
        self.optional_slash = optional_slash
        router = self

        class Route(_Route):
            owner = router

        super().__init__(
            prefix=prefix,
            tags=[tag],
            route_class=Route,
            dependencies=[*([Depends(self._check_permissions)] if needs_caller else ()), *dependencies],
            responses=self.error_responses(*_COMMON_STATUSES),
            generate_unique_id_function=lambda route: operation_prefix + route.name,
            default_response_class=SafeJSONResponse,
        )

    def error_responses(self, *statuses: int) -> dict[int | str, dict[str, Any]]:
        return error_responses(self.error_model, *statuses)

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
        """Add a route with the errors that its method and path imply."""
        statuses = [404] if "{" in path else []
        if more["methods"] != ["GET"]:
            is_read_only = (more.get("name") or endpoint.__name__) in self._read_only
            statuses += [413] if is_read_only else [409, 413, 507]
        more["responses"] = {**self.error_responses(*statuses), **(more.get("responses") or {})}
        super().add_api_route(path, endpoint, **more)

    async def _check_permissions(self, request: Request) -> None:
        caller, name = auth.get_caller(request), request.scope["route"].name
        if name not in self._write_only:
            caller.check_can_read()
        if request.method not in ("GET", "HEAD") and name not in self._read_only:
            caller.check_can_write()


# Several servers in one process share the routes.
_build_lock = RLock()


class _Route(APIRoute):
    owner: Router

    def __init__(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
        self.path, self.endpoint, self.methods = path, endpoint, set(more["methods"])
        self.name = more.get("name") or endpoint.__name__
        self._set_path_regex()
        self._arguments = more

    def __getattr__(self, name: str) -> Any:
        # A route is built when more of it is used than its path: building all took a third of the server's start.
        with _build_lock:
            if (arguments := self.__dict__.pop("_arguments", None)) is not None:
                super().__init__(self.path, self.endpoint, **arguments)
                self._set_path_regex()
        if name not in self.__dict__:
            raise AttributeError(name)
        return self.__dict__[name]

    def _set_path_regex(self) -> None:
        self.path_regex, self.path_format, self.param_convertors = compile_path(self.path)
        if self.owner.optional_slash:
            self.path_regex = re.compile(self.path_regex.pattern.removesuffix("$").removesuffix("/") + "/?$")

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        parameters = {
            each.alias: each.field_info.annotation
            for each in get_flat_params(self.dependant)
            if not isinstance(each.field_info, params.Path | params.Header)
        }
        single = [name for name, annotation in parameters.items() if not _is_list(annotation)]
        deletes = self.methods == {"DELETE"} or self.name in self.owner.deleting

        has_body = self.body_field is not None

        async def handle(request: Request) -> Response:
            names = [name for name, _ in request.query_params.multi_items()]
            ignored = () if self.owner.strict else [name for name in names if name not in OWNER_PARAMS]
            check_query_names(request, {*parameters, *ignored})
            for name in single:
                if names.count(name) > 1:
                    raise InvalidField(name, "must be given only once")
            if deletes:
                _check_not_empty(request, parameters)
            if has_body and len(body := await request.body()) > SMALL_CHARS and _is_json(request):
                request = _ParsedRequest(request, await parse_json(body))
            return await answer(request)

        return handle


class _ParsedRequest(Request):
    """A request with a large JSON body, which is parsed."""

    def __init__(self, request: Request, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._request, self._value = request, value

    async def body(self) -> bytes:
        return await self._request.body()

    async def json(self) -> Any:
        return self._value


def _is_json(request: Request) -> bool:
    """Return whether FastAPI parses the body as JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) is list or any(get_origin(each) is list for each in get_args(annotation))


def check_query_names(request: Request, allowed: Collection[str]) -> None:
    """Reject an unknown query parameter: a mistyped filter would list or delete too much."""
    for name in request.query_params:
        if name not in allowed:
            hint = f"use {', '.join(sorted(allowed))}" if allowed else "this path takes none"
            raise InvalidField(printable(name), f"is not a query parameter here; {hint}")


def _check_not_empty(request: Request, parameters: Collection[str]) -> None:
    """Reject an empty owner, project or session of a deletion: it would delete more than was meant."""
    empty = [
        *(name for name, value in request.query_params.multi_items() if name in SCOPE_PARAMS and not value),
        *(name for name in SCOPE_HEADERS if request.headers.get(name) == ""),
    ]
    for name in empty:
        if name in parameters or name in SCOPE_HEADERS:
            raise InvalidField(name, "is empty; name what is meant, or leave it out")


def _name_header(alias: str, description: str, example: str) -> Any:
    return Header(alias=alias, **_NAME, description=description, examples=[example])


UserHeader = Annotated[
    str | None, _name_header("X-Memory-User", "The user who owns the memories.", "alex"), DecodedHeader
]
ProjectHeader = Annotated[
    str | None, _name_header("X-Memory-Project", "One of the user's projects.", "hawaii"), DecodedHeader
]
_SessionHeader = Annotated[
    str | None, _name_header("X-Memory-Session", "A session of the user or project.", "monday"), DecodedHeader
]
_UserQuery = Annotated[str | None, Query(**_NAME, description="The same as X-Memory-User.")]
_ProjectQuery = Annotated[str | None, Query(**_NAME, description="The same as X-Memory-Project; overrides it.")]
_SessionQuery = Annotated[str | None, Query(**_NAME, description="The same as X-Memory-Session; overrides it.")]


# FastAPI calls a dependency that is not async in a thread, which takes longer than most answers.
async def _get_service(request: Request) -> Service:
    handle: ServiceHandle = request.app.state.service_handle
    return handle.get()


async def _get_settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


async def _get_caller(request: Request, user: UserHeader = None, project: ProjectHeader = None) -> Caller:
    """Return the caller; one who may act for any user acts for the user and project in the headers only."""
    caller = auth.get_caller(request)
    return replace(caller, user=caller.user or user or None, named_project=project or None)


ServiceDep = Annotated[Service, Depends(_get_service)]
SettingsDep = Annotated[Settings, Depends(_get_settings)]
CallerDep = Annotated[Caller, Depends(_get_caller)]


async def get_named_user(
    request: Request, caller: auth.CallerDep, x_memory_user: UserHeader = None, user_id: _UserQuery = None
) -> str:
    """Return the user that header or query name: 401 without one, 403 if they differ or are not the caller's."""
    if x_memory_user and user_id and x_memory_user != user_id:
        raise NotAllowed("X-Memory-User and user_id name different users")
    user = caller.resolve_user(x_memory_user or user_id) or ""
    if not user.strip():
        raise MissingUser("Name the user in X-Memory-User or in the query parameter user_id")
    named = Scope(user).user
    await record_access(request.scope, caller, named)
    return named


async def _get_whole_user(caller: auth.CallerDep, user: Annotated[str, Depends(get_named_user)]) -> str:
    if caller.project is not None:
        raise NotAllowed("This concerns all projects of a user, and the credentials are limited to one project")
    return user


async def _get_memory_scope(
    request: Request,
    memory_id: Annotated[str, Path(description="The id of a memory.")],
    caller: auth.CallerDep,
    user: Annotated[str, Depends(get_named_user)],
    service: ServiceDep,
) -> Scope:
    """Return the scope of the memory in the path; a memory of another project answers as if it did not exist."""
    if caller.project is not None:
        record = await service.get(Scope(user), memory_id)
        if request.method in ("GET", "HEAD"):
            caller.ensure_visible(record)
        else:
            caller.ensure_editable(record)
    return Scope(user)


async def _get_project(x_memory_project: ProjectHeader = None, project_id: _ProjectQuery = None) -> str:
    return project_id or x_memory_project or ""


async def _get_session(x_memory_session: _SessionHeader = None, session_id: _SessionQuery = None) -> str:
    return session_id or x_memory_session or ""


async def _get_scope(
    caller: auth.CallerDep,
    user: Annotated[str, Depends(get_named_user)],
    project: Annotated[str, Depends(_get_project)],
    session: Annotated[str, Depends(_get_session)],
) -> Scope:
    return caller.scope(user, project, session)


async def _get_author(
    caller: auth.CallerDep,
    x_memory_by: Annotated[
        str,
        Header(alias="X-Memory-By", **_NAME, min_length=1, description="Who makes the change, for the history."),
        DecodedHeader,
    ] = _DEFAULT_AUTHOR,
    x_memory_actor: Annotated[
        Literal["person", "agent"],
        Header(alias="X-Memory-Actor", description="Who acts: a person or a program. Only a person approves."),
    ] = "agent",
    why: Annotated[
        str, Query(max_length=2000, pattern=NO_NUL, description="The reason for the change, for the history.")
    ] = "",
) -> Author:
    if x_memory_actor == "person" and not caller.may_act_as_person:
        raise NotAllowed(
            "This key acts for a program: people approve with an admin key, a key created with --person, a token, or "
            "on the server"
        )
    who = x_memory_by
    if caller.kind != "local":
        who = caller.name if who == _DEFAULT_AUTHOR else f"{caller.name} {who}"
    return parse_author(who, why if why.strip() else "", actor=x_memory_actor)


async def _check_admin(caller: auth.CallerDep) -> None:
    caller.check_admin()


# A user with all projects, the scope of the memory in the path, and the scope that headers and query name.
UserDep = Annotated[str, Depends(_get_whole_user)]
MemoryScopeDep = Annotated[Scope, Depends(_get_memory_scope)]
ProjectDep = Annotated[str, Depends(_get_project)]
ScopeDep = Annotated[Scope, Depends(_get_scope)]
AuthorDep = Annotated[Author, Depends(_get_author)]
RequireAdmin = Depends(_check_admin)


def create_api_router(tag: str, *dependencies: params.Depends) -> Router:
    return Router(
        tag,
        prefix=API_PREFIX,
        optional_slash=False,
        read_only=("search", "recall", "list_memories_by_filter", "count_by_field_and_filter"),
        write_only=("add_memory", "remember", "import_memories", "get_version", "get_me"),
        deleting=("forget_memories",),
        dependencies=dependencies,
    )
