"""Responses of the REST API: JSON with ETags, pages with opaque cursors, and If-Match."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Protocol, TypeVar

from fastapi import Depends, Header, Path
from fastapi.responses import JSONResponse

from recollect.errors import InvalidInput, StaleVersion
from recollect.http.errors import Error, error_responses
from recollect.http.routing import MemoryScopeDep, ServiceDep

# A list of ETags as HTTP writes them, weak ones included; a bare number is accepted too.
_TAG = r'(?:W/)?"[!#-~]*"|[0-9]{1,18}'
_TAGS = re.compile(rf"\s*(?:{_TAG})(?:\s*,\s*(?:{_TAG}))*\s*")
_VERSION = re.compile(r'(?:W/)?"?([0-9]{1,18})"?')
_ETAG_HEADER = {"ETag": {"description": "The version, for If-Match.", "schema": {"type": "string"}}}
WITH_ETAG: dict[int | str, dict[str, Any]] = {200: {"headers": _ETAG_HEADER}}
WITH_ETAG_AND_IF_MATCH = {**WITH_ETAG, **error_responses(Error, 412)}
EVENT_STREAM = "text/event-stream"
EVENT_STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def _expected_version(
    memory_id: Annotated[str, Path(description="The id of a memory.")],
    scope: MemoryScopeDep,
    service: ServiceDep,
    if_match: Annotated[
        str | None,
        Header(
            alias="If-Match",
            description="The last seen ETag, or several: 412 if the memory has another version by now.",
            # Documented here and checked below, which explains what is wrong.
            json_schema_extra={"pattern": rf"^(\*|({_TAG})( *, *({_TAG}))*)$"},
        ),
    ] = None,
) -> Callable[[], Awaitable[int | None]]:
    """Return a function for the version that If-Match requires: of several ETags the one that the memory has now.

    It is called when the change is made, because a request that is repeated with its idempotency key is not checked.
    """
    if if_match is not None and if_match.strip() != "*" and not _TAGS.fullmatch(if_match):
        raise InvalidInput('If-Match must be an ETag such as "3", or several separated by commas')

    async def resolve() -> int | None:
        if if_match is None or if_match.strip() == "*":
            return None
        tags = re.findall(_TAG, if_match)
        versions = [int(match[1]) for tag in tags if (match := _VERSION.fullmatch(tag))]
        if len(tags) == len(versions) == 1:
            return versions[0]
        current = (await service.get(scope, memory_id)).version
        if current not in versions:
            raise StaleVersion(f"The memory is at version {current}, which If-Match does not name: read it and retry")
        return current

    return resolve


ExpectedVersion = Annotated[Callable[[], Awaitable[int | None]], Depends(_expected_version)]


class _Serializable(Protocol):
    def to_dict(self) -> dict[str, Any]: ...


_Item = TypeVar("_Item", bound=_Serializable)


def json_response(body: Mapping[str, Any] | _Serializable, status: int = 200) -> JSONResponse:
    """Return a body without another validation; a `version` in it becomes the ETag."""
    plain = body if isinstance(body, Mapping) else body.to_dict()
    version = plain.get("version")
    return JSONResponse(plain, status, headers={"ETag": f'"{version}"'} if isinstance(version, int) else None)


def list_response(items: Sequence[_Serializable]) -> JSONResponse:
    """Return a list that is not paged."""
    return json_response({"results": [each.to_dict() for each in items]})


def page_response(items: Sequence[_Item], limit: int, make_cursor: Callable[[_Item], str]) -> JSONResponse:
    """Return a page of `limit` items; the caller fetched one more, which shows whether there is a next page."""
    more = make_cursor(items[limit - 1]) if len(items) > limit else None
    return json_response({"results": [each.to_dict() for each in items[:limit]], "cursor": more})


def encode_cursor(*parts: str | int) -> str:
    """Return an opaque cursor."""
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None, *kinds: type) -> tuple[Any, ...] | None:
    """Return the parts of a cursor; InvalidInput unless they have these types."""
    if cursor is None:
        return None
    try:
        parts = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars="-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        parts = None
    if not isinstance(parts, list) or [type(part) for part in parts] != list(kinds):
        raise InvalidInput("cursor is not a cursor of this list; pass the one of the previous page")
    return tuple(parts)


def decode_position(cursor: str | None, kind: type) -> Any:
    """Return the one part of a cursor, or None without a cursor."""
    parts = decode_cursor(cursor, kind)
    return parts[0] if parts else None
