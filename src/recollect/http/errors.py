"""HTTP errors: the status of each error, the JSON shapes of the interfaces, and what OpenAPI says about them."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from math import ceil
from typing import Any, TypeAlias

from fastapi import FastAPI, Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Scope, Send

from recollect import errors
from recollect.http.large_json import SafeJSONResponse
from recollect.http.params import PATTERN_REMEDIES
from recollect.http.proxy.asgi_io import BadRequest, send_json
from recollect.http.proxy.memory_options import InvalidField

_log = logging.getLogger("recollect")
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
    errors.MissingExtra: 501,
    errors.RecollectError: 500,
}
# Codes and messages of errors that the framework raises.
_CODES = {
    400: "InvalidInput",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    413: "TooLarge",
    429: "TooManyRequests",
}
_MESSAGES = {400: "The body is not valid JSON", 404: "This path does not exist"}
_NOT_AN_OBJECT = ("model_attributes_type", "model_type", "dict_type", "union_tag_not_found")
_MAX_MESSAGE_CHARS = 500
_MAX_VALUE_CHARS = 40
_EMPTY = "is empty; give it at least one visible character"
_UNUSABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_WORD_START = re.compile("(?<!^)(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """An error response before it has the shape of an interface; `parameter` names the invalid one, if known."""

    status: int
    code: str
    message: str
    parameter: str = ""
    # Set if the same request can succeed later.
    retry_after_s: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def retryable(self) -> bool:
        return self.retry_after_s is not None

    @property
    def all_headers(self) -> dict[str, str]:
        """Return the response headers, with `Retry-After` where a retry can help."""
        retry = {} if self.retry_after_s is None else {"Retry-After": str(max(1, ceil(self.retry_after_s)))}
        return {**self.headers, **retry}


ErrorFormat: TypeAlias = Callable[[ErrorInfo], dict[str, Any]]


def api_error(error: ErrorInfo) -> dict[str, Any]:
    return {"error": {"code": error.code, "message": error.message, "retryable": error.retryable}}


class ErrorDetail(BaseModel):
    """A code for programs and a message for people."""

    code: str = Field(description="The kind of error, such as NotFound.")
    message: str = Field(description="What happened, or what to change.")
    retryable: bool = Field(description="Whether the same request can succeed later.")


class Error(BaseModel):
    """An error of the REST API."""

    error: ErrorDetail


def openai_error(error: ErrorInfo) -> dict[str, Any]:
    """Return the error body that OpenAI clients parse."""
    status, code = error.status, _WORD_START.sub("_", error.code).lower()
    kind = "rate_limit_error" if status == 429 else "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": error.message, "type": kind, "param": error.parameter or None, "code": code or None}}


async def send_openai_error(
    send: Send, error: errors.RecollectError, headers: Mapping[str, str] | None = None
) -> None:
    status, code, parameter = status_of(error), "", ""
    match error:
        case BadRequest():
            status, code, parameter = error.status, error.code or "", error.param or ""
        case InvalidField():
            code, parameter = "invalid_memory_field", error.name
        case errors.MissingUser():
            code, parameter = "missing_user_id", "user"
        case errors.InvalidInput():
            code = "invalid_body"
        case errors.NotAllowed() | errors.NotFound():
            code = type(error).__name__
        case errors.UpstreamUnavailable():
            status, code = 502, getattr(error, "code", type(error).__name__)
            _log.warning("%s", error)
    retry_after_s = getattr(error, "retry_after_s", 1.0) if error.retryable and status != 502 else None
    info = ErrorInfo(status, code, str(error), parameter, retry_after_s, headers or {})
    await send_json(send, status, openai_error(info), info.all_headers)


# By path prefix; the longest matching prefix counts.
PROXY_ERROR_FORMATS: Mapping[str, ErrorFormat] = {"/v1/": openai_error, "/chat/completions": openai_error}


def error_format_for(path: str, formats: Mapping[str, ErrorFormat]) -> ErrorFormat:
    matching = [prefix for prefix in formats if path.startswith(prefix)]
    return formats[max(matching, key=len)] if matching else api_error


def status_of(error: errors.RecollectError) -> int:
    """Return the HTTP status of an error: that of the nearest class in the table."""
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def describe_error(request: Request, error: Exception) -> ErrorInfo:
    """Translate an exception into an error response; unexpected exceptions reveal nothing."""
    if isinstance(error, RequestValidationError):
        return _describe_validation(error.errors(), request.scope.get("route"))
    if isinstance(error, HTTPException):
        return _describe_http_exception(request, error)
    if not isinstance(error, errors.RecollectError):
        return ErrorInfo(500, "InternalServerError", "Internal server error; the server's log has the details")
    is_failed_match = isinstance(error, errors.StaleVersion) and "if-match" in request.headers
    return error_info(error, status=412 if is_failed_match else None)


def error_info(
    error: errors.RecollectError, *, status: int | None = None, headers: Mapping[str, str] | None = None
) -> ErrorInfo:
    """Describe an error of ours; its status is that of its class unless another is named."""
    is_field = isinstance(error, InvalidField)
    return ErrorInfo(
        status or status_of(error),
        "InvalidInput" if is_field else type(error).__name__,
        printable(str(error)),
        parameter=error.name if isinstance(error, InvalidField) else "",
        retry_after_s=getattr(error, "retry_after_s", 1.0) if error.retryable else None,
        headers=headers or {},
    )


def _describe_http_exception(request: Request, error: HTTPException) -> ErrorInfo:
    status, headers = error.status_code, dict(error.headers or {})
    phrase = HTTPStatus(status).phrase
    message = _MESSAGES.get(status, phrase) if status == 400 or error.detail == phrase else str(error.detail)
    if status == 405 and (methods := _allowed_methods(request)):
        headers["Allow"] = ", ".join(methods)
        message = f"Method {request.method} is not allowed here; use {headers['Allow']}"
    code = _CODES.get(status, f"Status{status}")
    retry_after_s = 1.0 if status in (429, 503) else None
    parameter = "body" if status == 400 else ""
    return ErrorInfo(status, code, printable(message), parameter, retry_after_s, headers)


def _describe_validation(problems: Sequence[Any], route: object) -> ErrorInfo:
    """Describe the first problem; a value of the body is not repeated, because it may be long or private."""
    problem = problems[0]
    part, *where = (str(each) for each in problem["loc"])
    name, kind = ".".join(where) or f"The {part}", problem["type"]
    if kind == "json_invalid":
        reason = problem.get("ctx", {}).get("error", "it is incomplete")
        return ErrorInfo(400, "InvalidInput", f"The body is not valid JSON: {reason}", parameter="body")
    if part == "body" and not where and kind in _NOT_AN_OBJECT:
        message = "The body must be a JSON object, sent with Content-Type: application/json"
    elif kind == "extra_forbidden":
        message = f"{name} is not a field of this request"
    elif kind == "missing":
        message = f"{name} is missing"
    elif kind == "string_pattern_mismatch":
        message = f"{name} {_describe_mismatch(problem['input'], problem['ctx']['pattern'], shown=part != 'body')}"
    elif kind == "string_too_long":
        message = f"{name} is {len(problem['input'])} characters long; the limit is {problem['ctx']['max_length']}"
    elif kind == "string_too_short":
        message = f"{name} {_EMPTY}"
    elif kind == "string_unicode":
        message = f"{name} holds a lone surrogate (half of a character); remove it"
    elif kind in ("InvalidInput", "InvalidText"):
        return ErrorInfo(400, kind, printable(f"{name} {problem['msg']}"))
    else:
        message = f"{name}: {problem['msg']}"
    if message.endswith(_EMPTY) and _is_optional(route, part, where):
        message += ", or leave it out"
    return ErrorInfo(400, "InvalidInput", printable(message), parameter=printable(where[0] if where else part))


def _is_optional(route: object, part: str, where: Sequence[str]) -> bool:
    """Return whether a route is known to have this parameter, or field of its body, as an optional one."""
    if not isinstance(route, APIRoute) or len(where) != 1:
        return False
    if part != "body":
        matching = [each for each in get_flat_params(route.dependant) if each.alias == where[0]]
        return bool(matching) and not any(each.field_info.is_required() for each in matching)
    model = route.body_field.field_info.annotation if route.body_field else None
    fields = model.model_fields if isinstance(model, type) and issubclass(model, BaseModel) else {}
    return any(where[0] in (name, each.alias) and not each.is_required() for name, each in fields.items())


def _describe_mismatch(value: str, pattern: str, *, shown: bool) -> str:
    """Say what is wrong with a text that does not match its pattern, and what to do; quote the value if `shown`."""
    if bad := _UNUSABLE.search(value):
        return f"holds {_describe_character(bad.group())} at position {bad.start()}; remove it"
    if not value.strip() or pattern not in PATTERN_REMEDIES:
        return _EMPTY
    quoted = f"{value[:_MAX_VALUE_CHARS]!r} " if shown else ""
    return f"{quoted}{PATTERN_REMEDIES[pattern]}"


def _describe_character(character: str) -> str:
    if character == "\0":
        return "a NUL character"
    return "a lone surrogate (half of a character)" if "\ud800" <= character <= "\udfff" else "a control character"


def printable(text: str) -> str:
    """Return text of a request cut to a safe length, with unpaired surrogates escaped."""
    return text[:_MAX_MESSAGE_CHARS].encode("utf-8", "backslashreplace").decode()


def _allowed_methods(request: Request) -> list[str]:
    """Return all methods of the path; the framework reports those of the first matching route only."""
    matching = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    # A fixed path counts, not a path with a parameter that matches it as well.
    same_path = [route for route in matching if getattr(route, "path", "") == getattr(matching[0], "path", "")]
    return sorted({method for route in same_path for method in getattr(route, "methods", None) or ()})


def error_response(error: ErrorInfo, error_format: ErrorFormat) -> JSONResponse:
    return SafeJSONResponse(error_format(error), error.status, headers=error.all_headers)


async def send_error(scope: Scope, send: Send, error: ErrorInfo, formats: Mapping[str, ErrorFormat]) -> None:
    """Answer a request that a middleware rejects in the error format of the interface that serves the path."""
    await send_json(send, error.status, error_format_for(scope["path"], formats)(error), error.all_headers)


def install_error_handlers(app: FastAPI, formats: Mapping[str, ErrorFormat]) -> None:
    """Answer every exception in the error format of the interface that serves the path."""

    async def handle(request: Request, error: Exception) -> JSONResponse:
        return error_response(describe_error(request, error), error_format_for(request.url.path, formats))

    for kind in (errors.RecollectError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, handle)


_SCHEMA_REF_PREFIX = "#/components/schemas/"
_RETRYABLE_STATUSES = (429, 503, 507)
_RETRY_AFTER = {"Retry-After": {"description": "Seconds to wait before a retry.", "schema": {"type": "integer"}}}
_AUTHENTICATE = {"WWW-Authenticate": {"description": "How to authenticate.", "schema": {"type": "string"}}}
_STATUS_DESCRIPTIONS = {
    400: "The request is invalid; the message names the parameter and what to change.",
    401: "The request names no user, or has no valid credentials.",
    403: "The caller may not do this, or not for this user.",
    404: "The user has no such item; an item of another user answers the same.",
    409: "The request conflicts with what is stored; the message has the reason.",
    412: "The memory is no longer at the version in If-Match.",
    413: "The request, or a line of it, is too large.",
    421: "This server does not serve that host name.",
    429: "A rate limit or quota is exceeded.",
    500: "Internal server error; the server's log has the details.",
    502: "The upstream does not answer.",
    503: "A required component is unavailable.",
    507: "The disk is full; nothing was stored.",
}


def error_responses(model: type[BaseModel], *statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return what OpenAPI says about these statuses.

    The schema is a reference: of a model the framework would create one schema for each status of each route.
    """
    schema = {"$ref": f"{_SCHEMA_REF_PREFIX}{model.__name__}"}
    responses: dict[int | str, dict[str, Any]] = {}
    for status in statuses:
        headers = _RETRY_AFTER if status in _RETRYABLE_STATUSES else _AUTHENTICATE if status == 401 else {}
        responses[status] = {
            "description": _STATUS_DESCRIPTIONS[status],
            "content": {"application/json": {"schema": schema}},
            **({"headers": headers} if headers else {}),
        }
    return responses


def error_schemas(models: Iterable[type[BaseModel]]) -> dict[str, Any]:
    """Return the schemas that the references of `error_responses` point to, by their names."""
    pairs = [(each, "serialization") for each in models]
    schemas: dict[str, Any] = models_json_schema(pairs, ref_template=_SCHEMA_REF_PREFIX + "{model}")[1]["$defs"]  # type: ignore[arg-type]
    return schemas
