"""What OpenAPI says of the refusals of a door: each status with what the door itself answers for an example."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema


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
_AUTHENTICATE_HEADER = {"WWW-Authenticate": {"description": "What to show, where no key or none that holds was shown.",
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
