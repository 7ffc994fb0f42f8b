"""The shapes of /v1/memory: a memory, lists of them, what is asked, and how it is refused."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from recollect.http.doors.given import IntegralFloat, Name, StrictModel, Text, UnitFloat, require_one_of
from recollect.http.doors.refusals import ErrorInfo
from recollect.model.memory import MemoryRecord
from recollect.model.result import Hit

Type = Literal["semantic", "procedural", "episodic", "reflective"]
_ID = "0198c6f1-5d2a-7c31-9a44-8f5a2f6b1c90"
_BUDGET = "User's budget for Hawaii is $10,000"
_EXAMPLE: dict[str, JsonValue] = {
    "id": _ID,
    "type": "semantic",
    "content": _BUDGET,
    "user_id": "user_123",
    "project_id": "project_abc",
    "source": "conversation",
    "created_at": "2026-03-15T10:00:00Z",
    "access_count": 3,
    "importance": 0.8,
}
# What each of our errors is called here.
_CODES = {
    "MissingUser": "MISSING_USER_ID",
    "Unauthenticated": "UNAUTHENTICATED",
    "NotAllowed": "FORBIDDEN",
    "NotFound": "NOT_FOUND",
    "InvalidText": "INVALID_TEXT",
}
# What is told by its status alone, whoever refuses.
_BY_STATUS = {
    401: "UNAUTHENTICATED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    409: "CONFLICT",
    413: "TOO_LARGE",
    421: "FOREIGN_HOST",
    429: "TOO_MANY_REQUESTS",
    503: "MEMORY_NOT_AVAILABLE",
    507: "MEMORY_NOT_AVAILABLE",
}


class StoredMemory(BaseModel):
    """A memory."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    id: str
    type: Type
    content: str
    user_id: str
    project_id: str | None = None
    source: str | None = None
    created_at: datetime
    access_count: int = Field(ge=0)
    importance: UnitFloat


class StoredMemories(BaseModel):
    """Some memories, newest first; `cursor` goes on from there, if there are more."""

    memories: list[StoredMemory]
    total: int = Field(ge=0, description="How many there are in all.", examples=[1])
    limit: int = Field(examples=[20])
    cursor: str | None = None


class ScoredMemory(BaseModel):
    """A memory and how well it fits, from 0 to 1."""

    memory: StoredMemory
    score: UnitFloat = Field(examples=[0.91])


class Retrieved(BaseModel):
    """What fits a query, best first."""

    results: list[ScoredMemory]


class Deleted(BaseModel):
    """What was deleted."""

    success: bool = Field(default=True, examples=[True])
    message: str = Field(examples=["deleted 1 memory"])
    deleted: int = Field(ge=0, examples=[1])


class _UserBody(StrictModel):
    user_id: Name | None = Field(default=None, description="Whose memory it is, unless a gateway says so.")


class NewMemory(_UserBody):
    """A memory to keep, word for word."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"type": "semantic", "content": _BUDGET, "user_id": "user_123"}]}
    )

    content: Text
    type: Type = "semantic"
    project_id: Name | None = None
    source: Name | None = None
    importance: UnitFloat | None = None


class ChangedMemory(_UserBody):
    """What is to be different; what is left out stays."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [*require_one_of("content", "type", "source"), *require_one_of("importance", kind="number")],
            "examples": [{"content": "Final Hawaii budget is $12,000"}],
        }
    )

    content: Text | None = None
    type: Type | None = None
    source: Name | None = None
    importance: UnitFloat | None = None


class MemoryQuery(_UserBody):
    """What is looked for, and whose it is."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"query": "What's my budget for the trip?", "user_id": "user_123"}]}
    )

    query: Text
    project_id: Name | None = None
    types: list[Type] = Field(default_factory=list, description="Only these types; without any, all.")
    limit: Annotated[int, Field(ge=1, le=100), IntegralFloat] | None = None
    threshold: UnitFloat | None = Field(default=None, description="Least score; without one, what is set up.")


class ErrorBody(BaseModel):
    """What went wrong, as a code and in words."""

    code: str = Field(examples=["NOT_FOUND"])
    message: str = Field(examples=[f"no memory {_ID}"])


class MemoryRefused(BaseModel):
    """A refusal."""

    error: ErrorBody


def render_memory_error(error: ErrorInfo) -> tuple[int, dict[str, Any]]:
    """A refusal with its code; what does not answer is told as memory that is not there."""
    default = "INTERNAL_ERROR" if error.status >= 500 else "INVALID_INPUT"
    code = _CODES.get(error.kind) or _BY_STATUS.get(error.status, default)
    if error.field:
        code = f"INVALID_{error.field.upper()}"
    return error.status, {"error": {"code": code, "message": error.message}}


def to_stored_memory(record: MemoryRecord) -> StoredMemory:
    """A memory as this door shows it."""
    return StoredMemory(
        id=record.id,
        type=record.type.value,
        content=record.content,
        user_id=record.scope.user,
        project_id=record.scope.project or None,
        source=record.source or None,
        created_at=record.created_at,
        access_count=record.access_count,
        importance=record.importance,
    )


def to_scored_memory(hit: Hit) -> ScoredMemory:
    """A hit as this door shows it."""
    return ScoredMemory(memory=to_stored_memory(hit.record), score=round(hit.score, 6))
