"""Bodies, responses, query parameters, cursors and ETags that several routes of the REST API share."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar, get_type_hints

from fastapi import Depends, Header, Path, Query
from fastapi.responses import JSONResponse
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, RootModel, create_model

from recollect.errors import InvalidInput, StaleVersion
from recollect.http.errors import Error, error_responses
from recollect.http.large_json import SafeJSONResponse, SlicedJSONResponse
from recollect.http.params import CURSOR_PATTERN, Id, Label, ResponseModel, StrictModel, Text, Time, UnitFloat
from recollect.http.routing import MemoryScopeDep, ServiceDep
from recollect.model.memory import MemoryRecord, MemoryType, Status, Trust

# The largest number that every store can compare.
_MAX_NUMBER = 2**62


def check_number_range(filters: dict[str, Any]) -> dict[str, Any]:
    """Return the filter unless one of its numbers is larger than every store can compare."""
    pending: list[Any] = [filters]
    while pending:
        match pending.pop():
            case dict() as inside:
                pending += inside.values()
            case list() as inside:
                pending += inside
            case int() | float() as number if not -_MAX_NUMBER <= number <= _MAX_NUMBER:
                raise ValueError(f"a number must be between -{_MAX_NUMBER} and {_MAX_NUMBER}")
    return filters


class Filter(RootModel[Annotated[dict[str, Any], AfterValidator(check_number_range)]]):
    """A filter by fields of a memory and `metadata.NAME`: all names must match.

    A value means eq (contains for tags and evidence), a list means in, an object has operators: eq, ne, in, contains,
    gt, gte, lt, lte. `and`, `or` and `not` combine filters.
    """

    model_config = ConfigDict(
        strict=True,
        json_schema_extra={"examples": [{"category": "fact", "importance": {"gte": 0.5}, "not": {"tags": "old"}}]},
    )


LabelList = Annotated[list[Label], Field(max_length=256)]
JsonObject = dict[str, Any]
AsOf = Annotated[Time | None, Query(description="Answer from what was valid at this time.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="The maximum number of results.")]
Cursor = Annotated[str | None, Query(max_length=4000, pattern=CURSOR_PATTERN, description="Of the previous page.")]
_T = TypeVar("_T")


class PageOf(ResponseModel, Generic[_T]):
    """A page of results."""

    results: list[_T]
    cursor: str | None = Field(description="Requests the next page; null on the last page.")


class ListOf(ResponseModel, Generic[_T]):
    """All results."""

    results: list[_T]


_M = TypeVar("_M", bound=BaseModel)
_SCOPE_FIELDS = {"user_id": str, "project_id": str | None, "session_id": str | None}


def fields_of(source: type, *omit: str) -> Callable[[type[_M]], type[_M]]:
    """Add the fields of a dataclass to a response, as its `to_dict` writes them; those of the response stay."""

    def add_fields(model: type[_M]) -> type[_M]:
        hints = get_type_hints(source)
        types: dict[str, Any] = {each.name: hints[each.name] for each in fields(source)}
        if types.pop("scope", None) is not None:
            types |= _SCOPE_FIELDS
        added: dict[str, Any] = {
            name: (kind, ...) for name, kind in types.items() if name not in {*omit, *model.model_fields}
        }
        return create_model(model.__name__, __base__=model, __doc__=model.__doc__, __module__=__name__, **added)

    return add_fields


@fields_of(MemoryRecord, "content")
class MemoryResponse(ResponseModel):
    """A memory."""

    id: str
    memory: str = Field(description="The text.")
    key: str | None = Field(description="Set for facts that have one value at a time.")
    importance: UnitFloat
    confidence: UnitFloat
    access_count: int = Field(ge=0)
    superseded_by: str | None = Field(description="The id of the memory that replaced it.")
    status: Status = Field(description="Only active memories are recalled.")
    version: int = Field(ge=1, description="Also the ETag.")
    evidence: list[str] = Field(description="The ids of the turns it was learned from.")


class MemoryChangeResponse(MemoryResponse):
    """A memory after a change."""

    event: Literal["add", "update", "supersede", "forget", "restore", "undo", "none"] = Field(
        description="The change; none if nothing had to change."
    )
    redacted: list[str] = Field(description="The kinds of secrets that were removed.")


class MemoryHit(MemoryResponse):
    """A search result."""

    score: UnitFloat
    scores: dict[str, float] = Field(description="The parts of the score.")
    why: str = Field(description="The reason in words, if `explain` was set.")


def optional_field() -> Any:
    """Return the default of a field that may be left out but must not be null."""
    return Field(default_factory=lambda: None)


class MemoryFields(StrictModel):
    """The fields of a memory that a client can set; null removes a key, value or time."""

    type: Annotated[MemoryType, Field(strict=False)] = optional_field()
    category: Annotated[
        Literal[
            "fact", "preference", "insight", "identity", "constraint", "instruction", "event", "summary", "episode",
            "lesson",
        ],
        Field(description="Turns are added by /remember, files by the memory tool."),
    ] = optional_field()  # fmt: skip
    key: Annotated[Id, Field(description="Makes it a fact that has one value at a time.")] | None = None
    value: Text | None = None
    importance: UnitFloat = optional_field()
    confidence: UnitFloat = optional_field()
    tags: LabelList = optional_field()
    metadata: JsonObject = optional_field()
    detail: JsonObject = optional_field()
    evidence: LabelList = optional_field()
    source: Label = optional_field()
    trust: Annotated[Trust, Field(strict=False)] = optional_field()
    occurred_at: Time | None = None
    valid_from: Time | None = None
    valid_to: Time | None = None
    expires_at: Time | None = None


# A list of ETags as HTTP writes them, weak ones included; a bare number is accepted too.
_TAG = r'(?:W/)?"[!#-~]*"|[0-9]{1,18}'
_TAGS = re.compile(rf"\s*(?:{_TAG})(?:\s*,\s*(?:{_TAG}))*\s*")
_VERSION = re.compile(r'(?:W/)?"?([0-9]{1,18})"?')
_ETAG_HEADER = {"ETag": {"description": "The version, for If-Match.", "schema": {"type": "string"}}}
WITH_ETAG: dict[int | str, dict[str, Any]] = {200: {"headers": _ETAG_HEADER}}
WITH_ETAG_AND_IF_MATCH = {**WITH_ETAG, **error_responses(Error, 412)}


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
    return SafeJSONResponse(plain, status, headers={"ETag": f'"{version}"'} if isinstance(version, int) else None)


def list_response(items: Sequence[_Serializable]) -> JSONResponse:
    return json_response({"results": [each.to_dict() for each in items]})


def page_response(items: Sequence[_Item], limit: int, make_cursor: Callable[[_Item], str]) -> JSONResponse:
    """Return a page of `limit` items; the caller fetched one more, which shows whether there is a next page."""
    more = make_cursor(items[limit - 1]) if len(items) > limit else None
    return SlicedJSONResponse({"results": [each.to_dict() for each in items[:limit]], "cursor": more})


def encode_cursor(*parts: str | int) -> str:
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
