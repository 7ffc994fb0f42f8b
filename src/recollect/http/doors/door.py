"""A door: a router whose refusals have its own shape, and that does not pass over what it does not know."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from fastapi import APIRouter, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from recollect.errors import RecollectError
from recollect.http.doors.rights import rights
from recollect.http.errors import status_of
from recollect.http.proxy.steering import InvalidField

_MOST_CHARS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a request is not answered; `field` is what of it is wrong, if that is known."""

    status: int
    message: str
    kind: str
    field: str = ""
    retryable: bool = False


Shape: TypeAlias = Callable[[Refusal], tuple[int, dict[str, Any]]]


class Refused(BaseModel):
    """Why a request is not answered, and what to do."""

    detail: str = Field(examples=["no memory 0198c6f1-0000-7000-8000-000000000000"])


def plain(refusal: Refusal) -> tuple[int, dict[str, Any]]:
    """The shape of most doors."""
    return refusal.status, {"detail": refusal.message}


def refusals(model: type[BaseModel], *statuses: int) -> dict[int | str, dict[str, Any]]:
    """What OpenAPI says of a door's refusals."""
    told = {
        400: "Something in the request is wrong.",
        401: "No user was named, or not who asks.",
        404: "There is no such thing here.",
    }
    told |= {403: "It belongs to someone else.", 503: "Memory does not answer."}
    each: dict[int | str, dict[str, Any]] = {
        status: {"model": model, "description": told[status]} for status in statuses or (400, 403, 404, 503)
    }
    return {**each, "default": {"model": model, "description": "Whatever else is refused."}}


class Door(APIRouter):
    """A router; a path means the same with a slash at its end and without."""

    def __init__(
        self,
        *,
        shape: Shape = plain,
        strict: bool = True,
        reading: Collection[str] = (),
        adding: Collection[str] = (),
        **more: Any,
    ) -> None:
        class Route(_DoorRoute):
            pass

        Route.shape, Route.strict = staticmethod(shape), strict
        self.shape = shape
        super().__init__(route_class=Route, dependencies=[rights(reading=reading, adding=adding)], **more)

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
        """Add the route, and its twin that differs by the slash."""
        super().add_api_route(path, endpoint, **more)
        twin = path[:-1] if path.endswith("/") else f"{path}/"
        super().add_api_route(twin, endpoint, **{**more, "include_in_schema": False})


class _DoorRoute(APIRoute):
    shape: Shape = staticmethod(plain)
    strict: bool = True

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        known = set(_query_names(self.dependant))

        async def guarded(request: Request) -> Response:
            try:
                if self.strict:
                    check_known(request, known)
                return await answer(request)
            except (RecollectError, RequestValidationError, HTTPException) as error:
                refusal = refusal_of(error)
                status, body = self.shape(refusal)
                headers = {"Retry-After": "1"} if refusal.retryable else None
                return JSONResponse(body, status, headers=headers)

        return guarded


def _query_names(dependant: Dependant) -> Iterator[str]:
    yield from (parameter.alias for parameter in dependant.query_params)
    for needed in dependant.dependencies:
        yield from _query_names(needed)


def check_known(request: Request, known: set[str]) -> None:
    """Raise an InvalidField for a query parameter that means nothing: a mistyped filter would delete too much."""
    for name in request.query_params:
        if name not in known:
            told = f"known are {', '.join(sorted(known))}" if known else "this path takes none"
            raise InvalidField(_shown(name), f"is no query parameter here; {told}")


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
    )


def _invalid(problems: Sequence[Any]) -> Refusal:
    """The first of the problems, in words; what was given is not repeated, it may be long or secret."""
    problem = problems[0]
    if problem["type"] == "json_invalid":
        return Refusal(status=400, message="the body is not JSON", kind="InvalidInput", field="body")
    # The first part says where in the request, unless that is all there is to say.
    where = [str(part) for part in problem["loc"][1:]] or [str(part) for part in problem["loc"]]
    message = f"{'.'.join(where)}: {problem['msg']}"
    return Refusal(status=400, message=_shown(message), kind="InvalidInput", field=_shown(where[0]))


def _shown(text: str) -> str:
    """Text of a request as an answer can repeat it: cut, and without characters that no answer can hold."""
    return text[:_MOST_CHARS].encode("utf-8", "backslashreplace").decode()
