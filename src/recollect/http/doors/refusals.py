"""What OpenAPI says of the refusals of a door: each status with what the door itself answers for an example."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a request is not answered; `field` is what of it is wrong, if that is known."""

    status: int
    message: str
    kind: str
    field: str = ""
    retryable: bool = False
    wait_s: float = 1.0


Shape: TypeAlias = Callable[[Refusal], tuple[int, dict[str, Any]]]
Responses: TypeAlias = dict[int | str, dict[str, Any]]


class Refused(BaseModel):
    """Why a request is not answered, and what to do."""

    detail: str = Field(examples=["no memory 0198c6f1-0000-7000-8000-000000000000"])


def plain(refusal: Refusal) -> tuple[int, dict[str, Any]]:
    """The shape of most doors."""
    return refusal.status, {"detail": refusal.message}


# What any route can answer; what those that change something can; and those that name a thing.
ANY = (400, 401, 403, 421, 429, 500, 503)
CHANGING = (409, 413, 507)
NAMING = (404,)
_LATER = (429, 503, 507)
_SHAPES = "#/components/schemas/"
_WAIT = {"Retry-After": {"description": "Seconds to wait before trying again.", "schema": {"type": "integer"}}}
_WHO = {"WWW-Authenticate": {"description": "What to show, where no key or none that holds was shown.",
                             "schema": {"type": "string"}}}  # fmt: skip
_TOLD: Mapping[int, tuple[str, str, str]] = {
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


def pointing_to(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of an error as a pointer; of a model the framework would make one for each status of each route."""
    return {"schema": {"$ref": f"{_SHAPES}{model.__name__}"}}


def error_shapes(models: Iterable[type[BaseModel]]) -> dict[str, Any]:
    """What the pointers point to."""
    told = models_json_schema([(each, "serialization") for each in models], ref_template=_SHAPES + "{model}")[1]
    shapes: dict[str, Any] = told["$defs"]
    return shapes


def refusals(shape: Shape, model: type[BaseModel], *statuses: int) -> Responses:
    """The descriptions of these statuses."""
    return {status: _described(shape, model, status) for status in statuses}


def _described(shape: Shape, model: type[BaseModel], status: int) -> dict[str, Any]:
    told, kind, message = _TOLD[status]
    _, example = shape(Refusal(status=status, message=message, kind=kind, retryable=status in _LATER))
    described = {"description": told, "content": {"application/json": {**pointing_to(model), "example": example}}}
    headers = _WAIT if status in _LATER else _WHO if status == 401 else {}
    return described | ({"headers": headers} if headers else {})
