"""The filter language as a JSON schema, so that OpenAPI says all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from recollect.http.params import Text
from recollect.model.memory import Category, MemoryType, Status, Trust
from recollect.model.query import FIELDS, MAX_VALUES, OPERATORS, ORDERING, Kind, Op
from recollect.model.scope import Level

FILTER_SCHEMA_NAME = "Filter"
# Stands where a schema is to be pointed at, with its name: it points at itself, which cannot be written in place.
FILTER_MARKER = "x-recollect-filter"
_NO_NUL = r"^[^\x00]*$"
_TEXT = {"type": "string", "pattern": _NO_NUL}
# As far as every store counts.
_MAX_NUMBER = 2**62
_NUMBER = {"type": "number", "minimum": -_MAX_NUMBER, "maximum": _MAX_NUMBER}
_TIME = {
    "anyOf": [
        {"type": "string", "format": "date-time", "example": "2026-03-15T10:00:00Z"},
        {"type": "number", "minimum": -62135596800, "maximum": 253402300799, "description": "Seconds since 1970."},
    ]
}
_JSON = {"anyOf": [_TEXT, _NUMBER, {"type": "boolean"}]}
_VALUES: Mapping[Kind, Mapping[str, Any]] = {
    Kind.TEXT: _TEXT,
    Kind.NUMBER: _NUMBER,
    Kind.TIME: _TIME,
    Kind.TEXTS: _TEXT,
    Kind.JSON: _JSON,
}
_SELF_REF = {"$ref": f"#/components/schemas/{FILTER_SCHEMA_NAME}"}


def check_number_range(filters: dict[str, Any]) -> dict[str, Any]:
    """The filter itself, if every store can count as far as its numbers."""
    pending: list[Any] = [filters]
    while pending:
        match pending.pop():
            case dict() as inside:
                pending += inside.values()
            case list() as inside:
                pending += inside
            case int() | float() as number if not -_MAX_NUMBER <= number <= _MAX_NUMBER:
                raise ValueError(f"a number is from -{_MAX_NUMBER} to {_MAX_NUMBER}")
    return filters


Filters = Annotated[
    dict[str, Any],
    Field(strict=True),
    AfterValidator(check_number_range),
    WithJsonSchema({"type": "object", FILTER_MARKER: FILTER_SCHEMA_NAME}),
]


def filter_schema() -> dict[str, Any]:
    """The schema of a filter; every field with what it can be compared with."""
    fields = {name: _comparison(kind) for name, kind in FIELDS.items() if kind is not Kind.JSON}
    inside = "[A-Za-z0-9_][A-Za-z0-9_ -]{0,63}"
    metadata = _comparison(Kind.JSON)
    several = {"type": "array", "items": _SELF_REF}
    return {
        "type": "object",
        "description": "Every name must hold. A value stands for eq (of tags and evidence: contains), a list for in.",
        "properties": {
            **fields,
            "metadata": {
                "type": "object",
                "patternProperties": {f"^{inside}$": metadata},
                "additionalProperties": False,
            },
            "and": several,
            "or": several,
            "not": {"anyOf": [_SELF_REF, several]},
        },
        "patternProperties": {rf"^metadata\.{inside}$": metadata},
        "additionalProperties": False,
        "examples": [{"category": "fact", "importance": {"gte": 0.5}, "not": {"tags": "old"}}],
    }


def _comparison(kind: Kind) -> dict[str, Any]:
    value = _VALUES[kind]
    values = {"type": "array", "items": value, "maxItems": MAX_VALUES}
    operators = {str(op): _operand(kind, op, value, values) for op in sorted(OPERATORS[kind])}
    compared = {"type": "object", "properties": operators, "additionalProperties": False, "minProperties": 1}
    return {"anyOf": [value, values, compared]}


def _operand(kind: Kind, op: Op, value: Mapping[str, Any], values: Mapping[str, Any]) -> Mapping[str, Any]:
    if op is Op.IN:
        return values
    if kind is Kind.JSON and op in ORDERING:
        # True is neither more nor less than anything.
        return {"anyOf": [_TEXT, _NUMBER]}
    return value


def _coerce_integral(value: Any) -> Any:
    """In JSON 17.0 is as whole as 17."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


NO_CONTROL = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"
Id = Annotated[str, Field(min_length=1, max_length=300, pattern=NO_CONTROL)]
Label = Annotated[str, Field(max_length=300, pattern=NO_CONTROL)]
UnitFloat = Annotated[float, Field(ge=0, le=1)]
Time = Annotated[
    str,
    Field(
        max_length=64, description="ISO 8601; without a zone it is UTC.", json_schema_extra={"format": "date-time"}
    ),
]
IntegralFloat = BeforeValidator(_coerce_integral)
LabelList = Annotated[list[Label], Field(max_length=256)]
JsonObject = dict[str, Any]
Embedding = Annotated[
    list[float],
    Field(min_length=1, max_length=16384, description="A ready-made vector of the embedding model in use."),
]

AsOf = Annotated[
    Time | None, Query(description="What held at that moment, as it was then.", examples=["2026-03-15T10:00:00Z"])
]
Limit = Annotated[int, Query(ge=1, le=1000, description="At most so many.")]
Cursor = Annotated[
    str | None,
    Query(
        max_length=4000,
        pattern=r"^[A-Za-z0-9_-]+$",
        description="The cursor of the page before; without one, the first page.",
    ),
]
NextCursor = Annotated[
    str | None, Field(description="Goes on from here; none on the last page.", examples=["WzE3NTgsICJhIl0"])
]
EXAMPLE_MEMORY: dict[str, Any] = {
    "id": "0199c3a1-7b5e-7c1d-9e1f-2a8d6f0c4b11",
    "memory": "The budget for the Hawaii trip is $10,000",
    "user_id": "alex",
    "project_id": "hawaii",
    "session_id": None,
    "level": "project",
    "type": "semantic",
    "category": "fact",
    "created_at": "2026-03-15T10:00:00+00:00",
    "updated_at": "2026-03-15T10:00:00+00:00",
    "key": None,
    "value": None,
    "importance": 0.5,
    "confidence": 1.0,
    "source": "",
    "trust": "high",
    "occurred_at": None,
    "valid_from": None,
    "valid_to": None,
    "expires_at": None,
    "last_accessed_at": None,
    "access_count": 0,
    "superseded_by": None,
    "status": "active",
    "prompt_digest": None,
    "version": 1,
    "evidence": [],
    "tags": ["travel"],
    "metadata": {},
    "detail": {},
}


def example_config(*more: dict[str, Any], **fields: Any) -> ConfigDict:
    """The configuration of a shape that is given, with one example of it."""
    return ConfigDict(json_schema_extra={"example": {**(more[0] if more else {}), **fields}})


class StrictBody(BaseModel):
    """What a caller sends: nothing that is not described, and nothing of another kind."""

    model_config = ConfigDict(extra="forbid", strict=True)


class MemoryResponse(BaseModel):
    """One memory: what it says, whose it is, how sure it is, where it came from, how it stands."""

    model_config = example_config(EXAMPLE_MEMORY)

    id: str
    memory: str = Field(description="What it says.")
    user_id: str
    project_id: str | None
    session_id: str | None
    level: Level
    type: MemoryType
    category: Category
    created_at: str = Field(json_schema_extra={"format": "date-time"})
    updated_at: str = Field(json_schema_extra={"format": "date-time"})
    key: str | None = Field(description="Of facts that have one value at a time.")
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
    superseded_by: str | None = Field(description="The memory that took its place.")
    status: Status = Field(description="Only what is active is recalled.")
    prompt_digest: str | None
    version: int = Field(ge=1, description="Also its ETag.")
    evidence: list[str] = Field(description="The ids of the turns it was learned from.")
    tags: list[str]
    metadata: JsonObject
    detail: JsonObject


class MemoryChangeResponse(MemoryResponse):
    """A memory as it now is, and what happened to it."""

    model_config = example_config(EXAMPLE_MEMORY, event="add", redacted=[])

    event: Literal["add", "update", "supersede", "forget", "restore", "undo", "none"] = Field(
        description="What was done; none if it was so already."
    )
    redacted: list[str] = Field(description="The kinds of secrets that were kept out.")


class MemoryHit(MemoryResponse):
    """A memory that was found: how well it fits, from 0 to 1, and what that is made of."""

    model_config = example_config(EXAMPLE_MEMORY, score=0.83, scores={"relevance": 0.83}, why="")

    score: UnitFloat
    scores: dict[str, float]
    why: str = Field(description="The reason in words, where an explanation was asked for.")


class MemoryPage(BaseModel):
    """Some memories in order."""

    results: list[MemoryResponse]
    cursor: NextCursor


class ChangedList(BaseModel):
    """What became of several memories."""

    results: list[MemoryChangeResponse]


def optional_field() -> Any:
    """The default of what may be left out but not be null."""
    return Field(default_factory=lambda: None)


class MemoryFields(StrictBody):
    """What can be said of a memory; what is null is taken away."""

    type: Annotated[MemoryType, Field(strict=False)] = optional_field()
    category: Annotated[
        Literal[
            "fact", "preference", "insight", "identity", "constraint", "instruction", "event", "summary", "episode",
            "lesson",
        ],
        Field(description="Turns come in by remember, files by the tool that models write them with."),
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
