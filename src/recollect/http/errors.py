"""Refusals before a door is reached, in the words of the door: a client reads one shape of errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from math import ceil
from typing import Any, TypeAlias

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.routing import Match

from recollect import errors

# Of a status, the name of an error and its message.
ErrorFormat: TypeAlias = Callable[[int, str, str], Mapping[str, Any]]
_WORD_START = re.compile("(?<!^)(?=[A-Z])")


def openai_error(status: int, code: str, message: str) -> Mapping[str, Any]:
    """As OpenAI's clients read it."""
    kind = "invalid_request_error" if status < 500 else "api_error"
    code = _WORD_START.sub("_", code).lower()
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def api_error(status: int, code: str, message: str) -> Mapping[str, Any]:
    """As our own API tells of errors."""
    return {"error": {"code": code, "message": message, "retryable": status in (429, 503)}}


def combined_error(status: int, code: str, message: str) -> Mapping[str, Any]:
    """As OpenAI's clients and our own read it, for who refuses before it matters whose path it is."""
    error = openai_error(status, code, message)["error"] | {"retryable": status in (429, 503)}
    return {"error": error | ({"type": "rate_limit_error"} if status == 429 else {})}


# By how a path begins; the longest that fits counts.
PROXY_ERROR_FORMATS: Mapping[str, ErrorFormat] = {
    "/v1/": openai_error,
    "/chat/completions": openai_error,
}


def error_format_for(path: str, formats: Mapping[str, ErrorFormat], default: ErrorFormat = api_error) -> ErrorFormat:
    """How errors look there."""
    matching = [prefix for prefix in formats if path.startswith(prefix)]
    return formats[max(matching, key=len)] if matching else default


STATUSES: dict[type[errors.RecollectError], int] = {
    errors.InvalidInput: 400,
    errors.Unauthenticated: 401,
    errors.MissingUser: 401,
    errors.NotAllowed: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.QuotaReached: 429,
    errors.Unsupported: 501,
    errors.DiskFull: 507,
    errors.Backlog: 429,
    errors.Unavailable: 503,
    errors.StoreCorrupt: 500,
    errors.StoreTooNew: 500,
    errors.MissingExtra: 501,
    errors.RecollectError: 500,
}
# How errors are called that no code of ours raises, and what is said of them.
_CODES = {
    400: "InvalidInput",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    413: "TooLarge",
    429: "TooManyRequests",
}
_MESSAGES = {
    401: "say who you are, and whose memories these are",
    403: "this may not be asked by you",
    404: "there is nothing at this address",
}


def status_of(error: errors.RecollectError) -> int:
    """The status of an error: that of the nearest class in the table."""
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def install_error_handlers(app: FastAPI, formats: Mapping[str, ErrorFormat]) -> None:
    """Answer our errors with their status, a code and the message, and all others as the door does."""

    @app.exception_handler(errors.RecollectError)
    async def answer(request: Request, error: errors.RecollectError) -> JSONResponse:
        headers = {"Retry-After": str(ceil(getattr(error, "retry_after_s", 1)))} if error.retryable else {}
        status = status_of(error)
        if isinstance(error, errors.StaleVersion) and "if-match" in request.headers:
            status = 412
        return JSONResponse(error_body(type(error).__name__, str(error), error.retryable), status, headers=headers)

    @app.exception_handler(HTTPException)
    async def answer_http(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        if error.status_code == 405 and (methods := _allowed_methods(request)):
            headers["Allow"] = ", ".join(methods)
        phrase = HTTPStatus(error.status_code).phrase
        message = str(error.detail) if error.detail != phrase else _MESSAGES.get(error.status_code, phrase.lower())
        if error.status_code == 405:
            message = f"there is {headers.get('Allow', 'another method')} here"
        code = _CODES.get(error.status_code, f"Status{error.status_code}")
        body = error_format_for(request.url.path, formats)(error.status_code, code, message)
        return JSONResponse(body, error.status_code, headers=headers)

    @app.exception_handler(Exception)
    async def answer_fault(request: Request, error: Exception) -> JSONResponse:
        # What it was is in the log; what it says may be somebody's words.
        body = error_format_for(request.url.path, formats)(
            500, "InternalServerError", "this server made a mistake; its log says which"
        )
        return JSONResponse(body, 500)


def error_body(code: str, message: str, retryable: bool) -> dict[str, Any]:
    """An error as it is answered."""
    return {"error": {"code": code, "message": message, "retryable": retryable}}


def _allowed_methods(request: Request) -> list[str]:
    """Every method that there is at the address; the framework tells those of the first route only."""
    methods: set[str] = set()
    matching = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    for route in matching:
        # What the address stands for by itself, not what it would be for the name of.
        if getattr(route, "path", None) == getattr(matching[0], "path", None):
            methods |= getattr(route, "methods", None) or set()
    return sorted(methods)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorInfo:
    """Why a request is not answered; `field` is what of it is wrong, if that is known."""

    status: int
    message: str
    kind: str
    field: str = ""
    retryable: bool = False
    wait_s: float = 1.0


ErrorRenderer: TypeAlias = Callable[[ErrorInfo], tuple[int, dict[str, Any]]]
Responses: TypeAlias = dict[int | str, dict[str, Any]]


class Refused(BaseModel):
    """Why a request is not answered, and what to do."""

    detail: str = Field(examples=["no memory 0198c6f1-0000-7000-8000-000000000000"])


def render_plain_error(error: ErrorInfo) -> tuple[int, dict[str, Any]]:
    """The shape of most doors."""
    return error.status, {"detail": error.message}


# What any route can answer; what those that change something can; and those that name a thing.
COMMON_STATUSES = (400, 401, 403, 421, 429, 500, 503)
WRITE_STATUSES = (409, 413, 507)
LOOKUP_STATUSES = (404,)
_RETRYABLE_STATUSES = (429, 503, 507)
_SCHEMA_REF_PREFIX = "#/components/schemas/"
_RETRY_AFTER_HEADER = {
    "Retry-After": {"description": "Seconds to wait before trying again.", "schema": {"type": "integer"}}
}
_AUTHENTICATE_HEADER = {"WWW-Authenticate": {"description": "How to authenticate; sent when no valid key was shown.",
                             "schema": {"type": "string"}}}  # fmt: skip
_STATUS_DOCS: Mapping[int, tuple[str, str, str]] = {
    400: ("Something in the request is wrong; the message says what to change.", "InvalidInput",
          "limit: Input should be less than or equal to 1000"),
    401: ("No user is named, or not who is asking.", "Unauthenticated",
          "show a key: Authorization: Bearer rk_..., or X-API-Key; `recollect keys add` makes one"),
    403: ("Whoever asks may not do this, or not for this user.", "NotAllowed",
          "whoever asks here speaks for one user, and another one was named"),
    404: ("There is no such thing of this user's; what is another's answers the same.", "NotFound",
          "no memory 0198c6f1-0000-7000-8000-000000000000"),
    409: ("It would break a promise: the message says which.", "Conflict",
          "memory 0198c6f1-0000-7000-8000-000000000000 already says the same"),
    413: ("The request is too large.", "TooLarge",
          "the request is larger than 32 MiB, which is the limit; max_body_mb sets it"),
    421: ("This server does not answer to that host name.", "ForeignHost",
          "this server does not answer to that host name; allowed_hosts names those it does"),
    429: ("Too much is asked, or waits to be done for this user.", "Backlog",
          "more is asked for in a minute than may be: try again in 3 s"),
    500: ("A fault of this server; its log says more.", "InternalServerError",
          "this server made a mistake; its log says which"),
    502: ("The upstream does not answer.", "UpstreamUnavailable", "the upstream does not answer"),
    503: ("Memory does not answer.", "StoreBusy", "other writers held the ledger for too long"),
    507: ("There is no space left; nothing was kept.", "DiskFull", "no space left for the ledger"),
}  # fmt: skip


def schema_ref(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of an error as a pointer; of a model the framework would make one for each status of each route."""
    return {"schema": {"$ref": f"{_SCHEMA_REF_PREFIX}{model.__name__}"}}


def error_schemas(models: Iterable[type[BaseModel]]) -> dict[str, Any]:
    """What the pointers point to."""
    generated = models_json_schema(
        [(each, "serialization") for each in models], ref_template=_SCHEMA_REF_PREFIX + "{model}"
    )[1]
    schemas: dict[str, Any] = generated["$defs"]
    return schemas


def describe_errors(render: ErrorRenderer, model: type[BaseModel], *statuses: int) -> Responses:
    """The descriptions of these statuses."""
    return {status: _describe_status(render, model, status) for status in statuses}


def _describe_status(render: ErrorRenderer, model: type[BaseModel], status: int) -> dict[str, Any]:
    description, kind, message = _STATUS_DOCS[status]
    _, example = render(ErrorInfo(status=status, message=message, kind=kind, retryable=status in _RETRYABLE_STATUSES))
    response = {
        "description": description,
        "content": {"application/json": {**schema_ref(model), "example": example}},
    }
    headers = _RETRY_AFTER_HEADER if status in _RETRYABLE_STATUSES else _AUTHENTICATE_HEADER if status == 401 else {}
    return response | ({"headers": headers} if headers else {})
