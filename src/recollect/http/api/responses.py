"""How this door answers: plain JSON, versions as ETags, cursors nobody has to understand, and errors as described."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Protocol, TypeVar

from fastapi import Header
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from recollect.errors import InvalidInput, StaleVersion
from recollect.http.errors import schema_ref
from recollect.model.memory import MemoryRecord

# A list of tags as HTTP writes them, weak ones too; a bare number is taken for one.
_TAG = r'(?:W/)?"[!#-~]*"|[0-9]{1,18}'
_TAGS = re.compile(rf"\s*(?:{_TAG})(?:\s*,\s*(?:{_TAG}))*\s*")
_VERSION = re.compile(r'(?:W/)?"?([0-9]{1,18})"?')


class Trouble(BaseModel):
    """What went wrong, in words for people and in a code for programs."""

    code: str = Field(description="The kind of error.", examples=["NotFound"])
    message: str = Field(description="What to change, or what happened.", examples=["no memory 0190f3b2"])
    retryable: bool = Field(description="Whether the same request can succeed later.", examples=[False])


class Error(BaseModel):
    """Every error of this API."""

    error: Trouble


_RETRY_AFTER_HEADER = {
    "Retry-After": {"description": "Seconds to wait before trying again.", "schema": {"type": "integer"}}
}
_ALLOW_HEADER = {"Allow": {"description": "The methods there are.", "schema": {"type": "string"}}}
_STATUS_DOCS: Mapping[int, tuple[str, str, str]] = {
    400: ("What was sent cannot be used; the message says what to change.", "InvalidInput", "limit: 1 to 1000"),
    401: ("No user is named, or not who is asking.", "MissingUser", "name the user whose memories these are"),
    403: ("This may not be asked by whoever asks.", "NotAllowed", "a request is about one user"),
    404: ("There is no such thing of this user's; what is another's answers the same.", "NotFound", "no memory 7"),
    405: ("There is no such method here.", "MethodNotAllowed", "there is GET, POST here"),
    409: ("It would break a promise: the message says which.", "Conflict", "memory 7 already says the same"),
    412: ("It is no longer at the version in If-Match.", "StaleVersion", "memory 7 is at version 3, not 2"),
    413: ("The request, or a line of it, is too large.", "TooLarge", "the request is larger than 32 MiB"),
    421: ("This server does not answer to that host name.", "ForeignHost", "this server does not answer to that"),
    429: ("Too much is asked, or waits to be done for this user.", "Backlog", "1,000 jobs of this user are due"),
    500: ("A fault of this server; its log says more.", "InternalServerError", "this server made a mistake"),
    501: ("What is set up here cannot do that.", "Unsupported", "this backend does not claim that ability"),
    503: ("A part that is needed does not answer.", "StoreBusy", "other writers held the ledger for too long"),
    507: ("There is no space left; nothing was kept.", "DiskFull", "no space left for the ledger"),
}  # fmt: skip
_RETRYABLE_STATUSES = (429, 503, 507)


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The descriptions of errors, for OpenAPI."""
    return {status: _describe_status(status) for status in statuses}


def _describe_status(status: int) -> dict[str, Any]:
    description, code, message = _STATUS_DOCS[status]
    example = {"error": {"code": code, "message": message, "retryable": status in _RETRYABLE_STATUSES}}
    response: dict[str, Any] = {
        "description": description,
        "content": {"application/json": {**schema_ref(Error), "example": example}},
    }
    if status in _RETRYABLE_STATUSES:
        response["headers"] = _RETRY_AFTER_HEADER
    return response | ({"headers": _ALLOW_HEADER} if status == 405 else {})


COMMON_ERRORS = error_responses(400, 401, 403, 421, 429, 500, 503)
WRITE_ERRORS = error_responses(413, 507)
ETAG_HEADER = {"ETag": {"description": "The version, for If-Match.", "schema": {"type": "string"}, "example": '"3"'}}

IfMatch = Annotated[
    str | None,
    Header(
        description="The ETag it was last seen with, or several: whoever comes second is answered 412.",
        examples=['"3"'],
        # Described, and checked where it is read: that says in words what is wrong.
        json_schema_extra={"pattern": rf"^(\*|({_TAG})( *, *({_TAG}))*)$"},
    ),
]


async def parse_if_match(if_match: str | None, load: Callable[[], Awaitable[MemoryRecord]]) -> int | None:
    """The version that an If-Match names, if it names one; `*` is satisfied by any.

    Of several it is the one that the memory is at, as `seen` reads it; whoever changes it then is noticed as ever.
    """
    if if_match is None or if_match.strip() == "*":
        return None
    if not _TAGS.fullmatch(if_match):
        raise InvalidInput('If-Match is a version as the ETag told it, such as "3", or several with commas between')
    tags = re.findall(_TAG, if_match)
    versions = [int(match[1]) for tag in tags if (match := _VERSION.fullmatch(tag))]
    if len(tags) == len(versions) == 1:
        return versions[0]
    current = (await load()).version
    if current not in versions:
        raise StaleVersion(f"it is at version {current}, and If-Match names another: read it again and retry")
    return current


def json_response(body: Mapping[str, Any], status: int = 200) -> JSONResponse:
    """Plain values as they are, without being looked through once more; what has a version carries it as an ETag."""
    version = body.get("version")
    headers = {"ETag": f'"{version}"'} if isinstance(version, int) else None
    return JSONResponse(body, status, headers=headers)


class _Serializable(Protocol):
    def to_dict(self) -> dict[str, Any]: ...


_Item = TypeVar("_Item", bound=_Serializable)


def page_response(items: Sequence[_Item], limit: int, make_cursor: Callable[[_Item], str]) -> JSONResponse:
    """A page of so many; one more was asked for, so that a cursor is given only where there is more."""
    more = make_cursor(items[limit - 1]) if len(items) > limit else None
    return json_response({"results": [each.to_dict() for each in items[:limit]], "cursor": more})


def encode_cursor(*parts: str | int) -> str:
    """A cursor that stands for these, for who passes it back and looks no further."""
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None, *kinds: type) -> tuple[Any, ...] | None:
    """What a cursor stands for, if there is one."""
    if cursor is None:
        return None
    try:
        decoded = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars="-_", validate=True)
        parts = json.loads(decoded)
    except (binascii.Error, ValueError, RecursionError):
        parts = None
    is_valid = isinstance(parts, list) and len(parts) == len(kinds)
    if not is_valid or any(type(part) is not kind for part, kind in zip(parts, kinds, strict=True)):
        raise InvalidInput("this is no cursor of this list; pass the one that came with the page before")
    return tuple(parts)
