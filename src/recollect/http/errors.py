"""Our errors as HTTP answers: one table of statuses, one shape."""

from __future__ import annotations

from math import ceil

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from recollect import errors

STATUSES: dict[type[errors.RecollectError], int] = {
    errors.InvalidInput: 400,
    errors.Unauthenticated: 401,
    errors.NotAllowed: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.Unsupported: 501,
    errors.DiskFull: 507,
    errors.Backlog: 429,
    errors.Unavailable: 503,
    errors.StoreCorrupt: 500,
    errors.StoreTooNew: 500,
    errors.MissingExtra: 501,
    errors.RecollectError: 500,
}


def status_of(error: errors.RecollectError) -> int:
    """The status of an error: that of the nearest class in the table."""
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def install_errors(app: FastAPI) -> None:
    """Answer our errors with their status, a code and the message."""

    @app.exception_handler(errors.RecollectError)
    async def answer(request: Request, error: errors.RecollectError) -> JSONResponse:
        headers = {"Retry-After": str(ceil(getattr(error, "retry_after_s", 1)))} if error.retryable else {}
        body = {"error": {"code": type(error).__name__, "message": str(error), "retryable": error.retryable}}
        return JSONResponse(body, status_of(error), headers=headers)
