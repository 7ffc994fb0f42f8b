"""What is wrong with a request, told in the shape OpenAI's clients read."""

from __future__ import annotations

import json
from typing import Any

from recollect.errors import InvalidInput, MissingUser, NotAllowed, NotFound, RecollectError, UpstreamBroken
from recollect.http.errors import status_of


class BadRequest(InvalidInput):
    """A request that cannot be served; `param` names the field, `code` is for programs."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class RequestTooLarge(BadRequest):
    """A body that is larger than anyone means to send."""


def error_body(message: str, *, kind: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """The body of an error."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def error_response(error: RecollectError) -> tuple[int, bytes]:
    """The status and the body that tell of an error."""
    status = (
        413 if isinstance(error, RequestTooLarge) else 502 if isinstance(error, UpstreamBroken) else status_of(error)
    )
    kind = "server_error" if status >= 500 else "invalid_request_error"
    param, code = (error.param, error.code) if isinstance(error, BadRequest) else (None, None)
    if isinstance(error, NotFound):
        code = "not_found"
    elif isinstance(error, NotAllowed):
        code = "not_allowed"
    elif isinstance(error, MissingUser):
        param, code = "user", "missing_user_id"
    return status, json.dumps(error_body(str(error), kind=kind, param=param, code=code)).encode()


def unsupported_error(what: str, *, param: str, instead: str) -> BadRequest:
    """Say that an upstream which speaks only chat completions cannot do it, and what to do."""
    message = f"{what} cannot be sent to an upstream that speaks only chat completions: {instead}"
    return BadRequest(message, param=param, code="unsupported_value")
