"""Who asks, for the doors of designs that people know: the caller, the service and the settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from math import ceil
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from recollect.config.settings import Settings
from recollect.errors import RecollectError
from recollect.http.auth import caller as auth
from recollect.http.auth.caller import Caller, require_permissions
from recollect.http.errors import (
    COMMON_STATUSES,
    LOOKUP_STATUSES,
    WRITE_STATUSES,
    ErrorInfo,
    ErrorRenderer,
    Refused,
    Responses,
    describe_errors,
    render_plain_error,
    status_of,
)
from recollect.http.params import (
    DecodedHeader,
    empty_headers,
    empty_names,
    ignorable_names,
    query_names,
    redecode_header,
    repeated_names,
    single_names,
    unknown_names,
)
from recollect.http.proxy.memory_options import InvalidField
from recollect.http.service_provider import get_service
from recollect.model.text import MAX_ID_CHARS
from recollect.service.service import Service

_USER_HEADER, _PROJECT_HEADER = "X-Memory-User", "X-Memory-Project"
# As a header carries it, and as a scope takes it.
_NAME_CONSTRAINTS = {"max_length": MAX_ID_CHARS, "pattern": r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"}
UserHeader = Annotated[
    str | None,
    Header(
        alias=_USER_HEADER, **_NAME_CONSTRAINTS, description="Whose memory it is, as for chats.", examples=["alex"]
    ),
    DecodedHeader,
]
ProjectHeader = Annotated[
    str | None,
    Header(
        alias=_PROJECT_HEADER, **_NAME_CONSTRAINTS, description="One of the user's projects.", examples=["hawaii"]
    ),
    DecodedHeader,
]


def get_caller_with_headers(request: Request) -> Caller:
    """Who asks; whoever may speak for any user speaks for the one that a header names, and for no other."""
    caller, headers = auth.get_caller(request), request.headers
    user, project = (
        redecode_header(headers.get(_USER_HEADER)) or None,
        redecode_header(headers.get(_PROJECT_HEADER)) or None,
    )
    return replace(caller, user=caller.user or user, named_project=project)


def get_settings(request: Request) -> Settings:
    """The settings of the application."""
    settings: Settings = request.app.state.settings
    return settings


async def _caller_dependency(request: Request, user: UserHeader = None, project: ProjectHeader = None) -> Caller:
    return get_caller_with_headers(request)


async def _service_dependency(request: Request) -> Service:
    return get_service(request)


async def _settings_dependency(request: Request) -> Settings:
    return get_settings(request)


CallerDep = Annotated[Caller, Depends(_caller_dependency)]
ServiceDep = Annotated[Service, Depends(_service_dependency)]
SettingsDep = Annotated[Settings, Depends(_settings_dependency)]

__all__ = ["Caller", "CallerDep", "ServiceDep", "SettingsDep"]


_MAX_CHARS = 500
# What checks of ours find, by the names of their errors.
_OWN_ERROR_TYPES = ("InvalidInput", "InvalidText")


class CompatRouter(APIRouter):
    """A router; a path means the same with a slash at its end and without."""

    def __init__(
        self,
        *,
        operation_prefix: str,
        render_error: ErrorRenderer = render_plain_error,
        error_model: type[BaseModel] = Refused,
        strict: bool = True,
        read_only: Collection[str] = (),
        write_only: Collection[str] = (),
        **more: Any,
    ) -> None:
        class Route(_CompatRoute):
            pass

        Route.render_error, Route.strict = staticmethod(render_error), strict
        self.render_error = render_error
        self.error_model = error_model
        super().__init__(
            route_class=Route,
            dependencies=[require_permissions(read_only=read_only, write_only=write_only)],
            responses=self.error_responses(*COMMON_STATUSES),
            # A client that is made of the description has a name for each that can be read.
            generate_unique_id_function=lambda route: f"{operation_prefix}_{route.name}",
            **more,
        )

    def error_responses(self, *statuses: int) -> Responses:
        """What OpenAPI says of refusals with these statuses."""
        return describe_errors(self.render_error, self.error_model, *statuses)

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
        """Add the route with the refusals that are likely there, and its twin that differs by the slash."""
        statuses = (
            *(WRITE_STATUSES if more["methods"] != ["GET"] else ()),
            *(LOOKUP_STATUSES if "{" in path else ()),
        )
        more["responses"] = {**self.error_responses(*statuses), **(more.get("responses") or {})}
        super().add_api_route(path, endpoint, **more)
        twin = path[:-1] if path.endswith("/") else f"{path}/"
        super().add_api_route(twin, endpoint, **{**more, "include_in_schema": False})


class _CompatRoute(APIRoute):
    render_error: ErrorRenderer = staticmethod(render_plain_error)
    strict: bool = True

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        allowed, single = set(query_names(self.dependant)), set(single_names(self.dependant))

        async def handle(request: Request) -> Response:
            try:
                check_query_names(request, allowed if self.strict else {*allowed, *ignorable_names(request)})
                check_not_repeated(request, single)
                if request.method == "DELETE":
                    check_not_empty(request, allowed)
                return await answer(request)
            except (RecollectError, RequestValidationError, HTTPException) as error:
                info = to_error_info(error)
                status, body = self.render_error(info)
                headers = {"Retry-After": str(ceil(info.wait_s))} if info.retryable else None
                return JSONResponse(body, status, headers=headers)

        return handle


def check_query_names(request: Request, allowed: set[str]) -> None:
    """Raise an InvalidField for a query parameter that means nothing: a mistyped filter would delete too much."""
    if unknown := unknown_names(request, allowed):
        hint = f"known are {', '.join(sorted(allowed))}" if allowed else "this path takes none"
        raise InvalidField(_printable(unknown[0]), f"is no query parameter here; {hint}")


def check_not_repeated(request: Request, single: set[str]) -> None:
    """Raise an InvalidField for a query parameter that comes twice where one is meant."""
    if repeated := repeated_names(request, single):
        raise InvalidField(repeated[0], "is given more than once, and one is meant")


def check_not_empty(request: Request, allowed: set[str]) -> None:
    """Raise an InvalidField for a parameter without a value: a filter that a slip left empty deletes too much."""
    if empty := [*empty_names(request, allowed), *empty_headers(request)]:
        raise InvalidField(empty[0], "is empty; name what is meant, or leave it out")


def to_error_info(error: RecollectError | RequestValidationError | HTTPException) -> ErrorInfo:
    """What is told of an error."""
    if isinstance(error, HTTPException):
        # The only one of the framework's own that reaches us with this status.
        if error.status_code == 400:
            return ErrorInfo(status=400, message="the body cannot be read as JSON", kind="InvalidInput", field="body")
        return ErrorInfo(status=error.status_code, message=_printable(str(error.detail)), kind="Refused")
    if isinstance(error, RequestValidationError):
        return _validation_error_info(error.errors())
    return ErrorInfo(
        status=status_of(error),
        message=_printable(str(error)),
        kind=type(error).__name__,
        field=error.name if isinstance(error, InvalidField) else "",
        retryable=error.retryable,
        wait_s=getattr(error, "retry_after_s", 1.0),
    )


def _validation_error_info(problems: Sequence[Any]) -> ErrorInfo:
    """The first of the problems, in words; what was given is not repeated, it may be long or secret."""
    problem = problems[0]
    if problem["type"] == "json_invalid":
        return ErrorInfo(status=400, message="the body is not JSON", kind="InvalidInput", field="body")
    # The first part says where in the request, unless that is all there is to say.
    where = [str(part) for part in problem["loc"][1:]] or [str(part) for part in problem["loc"]]
    if problem["type"] in _OWN_ERROR_TYPES:
        return ErrorInfo(status=400, message=_printable(f"{'.'.join(where)} {problem['msg']}"), kind=problem["type"])
    message = f"{'.'.join(where)}: {problem['msg']}"
    return ErrorInfo(status=400, message=_printable(message), kind="InvalidInput", field=_printable(where[0]))


def _printable(text: str) -> str:
    """Text of a request as an answer can repeat it: cut, and without characters that no answer can hold."""
    return text[:_MAX_CHARS].encode("utf-8", "backslashreplace").decode()
