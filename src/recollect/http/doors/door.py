"""A door: a router whose refusals have its own shape, and that does not pass over what it does not know."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Sequence
from math import ceil
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from recollect.errors import RecollectError
from recollect.http.doors.parameters import (
    empty_headers,
    empty_names,
    passed_over,
    query_names,
    repeated_names,
    single_names,
    strange_names,
)
from recollect.http.doors.refusals import ANY, CHANGING, NAMING, Refusal, Refused, Responses, Shape, plain, refusals
from recollect.http.doors.rights import rights
from recollect.http.errors import status_of
from recollect.http.proxy.steering import InvalidField

_MOST_CHARS = 500
# What checks of ours find, by the names of their errors.
_CHECKS = ("InvalidInput", "InvalidText")


class Door(APIRouter):
    """A router; a path means the same with a slash at its end and without."""

    def __init__(
        self,
        *,
        called: str,
        shape: Shape = plain,
        refused: type[BaseModel] = Refused,
        strict: bool = True,
        reading: Collection[str] = (),
        adding: Collection[str] = (),
        **more: Any,
    ) -> None:
        class Route(_DoorRoute):
            pass

        Route.shape, Route.strict = staticmethod(shape), strict
        self.shape = shape
        self.refused = refused
        super().__init__(
            route_class=Route,
            dependencies=[rights(reading=reading, adding=adding)],
            responses=self.failing(*ANY),
            # A client that is made of the description has a name for each that can be read.
            generate_unique_id_function=lambda route: f"{called}_{route.name}",
            **more,
        )

    def failing(self, *statuses: int) -> Responses:
        """What OpenAPI says of refusals with these statuses."""
        return refusals(self.shape, self.refused, *statuses)

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
        """Add the route with the refusals that are likely there, and its twin that differs by the slash."""
        statuses = (*(CHANGING if more["methods"] != ["GET"] else ()), *(NAMING if "{" in path else ()))
        more["responses"] = {**self.failing(*statuses), **(more.get("responses") or {})}
        super().add_api_route(path, endpoint, **more)
        twin = path[:-1] if path.endswith("/") else f"{path}/"
        super().add_api_route(twin, endpoint, **{**more, "include_in_schema": False})


class _DoorRoute(APIRoute):
    shape: Shape = staticmethod(plain)
    strict: bool = True

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        known, single = set(query_names(self.dependant)), set(single_names(self.dependant))

        async def guarded(request: Request) -> Response:
            try:
                check_known(request, known if self.strict else {*known, *passed_over(request)})
                check_once(request, single)
                if request.method == "DELETE":
                    check_filled(request, known)
                return await answer(request)
            except (RecollectError, RequestValidationError, HTTPException) as error:
                refusal = refusal_of(error)
                status, body = self.shape(refusal)
                headers = {"Retry-After": str(ceil(refusal.wait_s))} if refusal.retryable else None
                return JSONResponse(body, status, headers=headers)

        return guarded


def check_known(request: Request, known: set[str]) -> None:
    """Raise an InvalidField for a query parameter that means nothing: a mistyped filter would delete too much."""
    if strange := strange_names(request, known):
        told = f"known are {', '.join(sorted(known))}" if known else "this path takes none"
        raise InvalidField(_shown(strange[0]), f"is no query parameter here; {told}")


def check_once(request: Request, single: set[str]) -> None:
    """Raise an InvalidField for a query parameter that comes twice where one is meant."""
    if repeated := repeated_names(request, single):
        raise InvalidField(repeated[0], "is given more than once, and one is meant")


def check_filled(request: Request, known: set[str]) -> None:
    """Raise an InvalidField for a parameter without a value: a filter that a slip left empty deletes too much."""
    if empty := [*empty_names(request, known), *empty_headers(request)]:
        raise InvalidField(empty[0], "is empty; name what is meant, or leave it out")


def refusal_of(error: RecollectError | RequestValidationError | HTTPException) -> Refusal:
    """What is told of an error."""
    if isinstance(error, HTTPException):
        # The only one of the framework's own that reaches us with this status.
        if error.status_code == 400:
            return Refusal(status=400, message="the body cannot be read as JSON", kind="InvalidInput", field="body")
        return Refusal(status=error.status_code, message=_shown(str(error.detail)), kind="Refused")
    if isinstance(error, RequestValidationError):
        return _invalid(error.errors())
    return Refusal(
        status=status_of(error),
        message=_shown(str(error)),
        kind=type(error).__name__,
        field=error.name if isinstance(error, InvalidField) else "",
        retryable=error.retryable,
        wait_s=getattr(error, "retry_after_s", 1.0),
    )


def _invalid(problems: Sequence[Any]) -> Refusal:
    """The first of the problems, in words; what was given is not repeated, it may be long or secret."""
    problem = problems[0]
    if problem["type"] == "json_invalid":
        return Refusal(status=400, message="the body is not JSON", kind="InvalidInput", field="body")
    # The first part says where in the request, unless that is all there is to say.
    where = [str(part) for part in problem["loc"][1:]] or [str(part) for part in problem["loc"]]
    if problem["type"] in _CHECKS:
        return Refusal(status=400, message=_shown(f"{'.'.join(where)} {problem['msg']}"), kind=problem["type"])
    message = f"{'.'.join(where)}: {problem['msg']}"
    return Refusal(status=400, message=_shown(message), kind="InvalidInput", field=_shown(where[0]))


def _shown(text: str) -> str:
    """Text of a request as an answer can repeat it: cut, and without characters that no answer can hold."""
    return text[:_MOST_CHARS].encode("utf-8", "backslashreplace").decode()
