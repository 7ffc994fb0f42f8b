"""What several routes take and give: ids, times, memories, pages."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from recollect.http.doors.given import Text
from recollect.model.memory import Category, MemoryType, Status, Trust
from recollect.model.scope import Level


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
