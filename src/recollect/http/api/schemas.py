"""Bodies, responses and query parameters that several routes of the REST API share."""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

from fastapi import Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, RootModel

from recollect.http.params import Id, Label, StrictModel, Text, Time, UnitFloat
from recollect.model.memory import Category, MemoryType, Status, Trust
from recollect.model.scope import Level

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
CURSOR_PATTERN = r"^[A-Za-z0-9_-]+$"
Cursor = Annotated[
    str | None,
    Query(max_length=4000, pattern=CURSOR_PATTERN, description="The cursor of the previous page."),
]
_T = TypeVar("_T")


class PageOf(BaseModel, Generic[_T]):
    """A page of results."""

    results: list[_T]
    cursor: str | None = Field(description="Requests the next page; null on the last page.")


class ListOf(BaseModel, Generic[_T]):
    """All results."""

    results: list[_T]


class MemoryResponse(BaseModel):
    """A memory."""

    id: str
    memory: str = Field(description="The text.")
    user_id: str
    project_id: str | None
    session_id: str | None
    level: Level
    type: MemoryType
    category: Category
    created_at: str = Field(json_schema_extra={"format": "date-time"})
    updated_at: str = Field(json_schema_extra={"format": "date-time"})
    key: str | None = Field(description="Set for facts that have one value at a time.")
    value: str | None
    importance: UnitFloat
    confidence: UnitFloat
    source: str
    trust: Trust
    occurred_at: str | None
    valid_from: str | None
    valid_to: str | None
    expires_at: str | None
    last_accessed_at: str | None
    access_count: int = Field(ge=0)
    superseded_by: str | None = Field(description="The id of the memory that replaced it.")
    status: Status = Field(description="Only active memories are recalled.")
    prompt_digest: str | None
    version: int = Field(ge=1, description="Also the ETag.")
    evidence: list[str] = Field(description="The ids of the turns it was learned from.")
    tags: list[str]
    metadata: JsonObject
    detail: JsonObject


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
