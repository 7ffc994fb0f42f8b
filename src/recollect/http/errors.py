"""Our errors as HTTP answers: one table of statuses, one shape."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from math import ceil
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.routing import Match

from recollect import errors
from recollect.http.auth.shapes import ErrorFormat, error_format_for

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
