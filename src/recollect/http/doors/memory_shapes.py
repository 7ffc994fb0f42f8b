"""The shapes of /v1/memory: a memory, lists of them, what is asked, and how it is refused."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from recollect.http.doors.door import Refusal
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
    "Conflict": "CONFLICT",
    "Backlog": "TOO_MANY_REQUESTS",
    "TooManyFailures": "TOO_MANY_REQUESTS",
    "Refused": "FORBIDDEN",
}


class Memory(BaseModel):
    """A memory."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    id: str
    type: Type
    content: str
    user_id: str
    project_id: str | None = None
    source: str | None = None
    created_at: datetime
    access_count: int
    importance: float


class Memories(BaseModel):
    """Some memories, newest first; `cursor` goes on from there, if there are more."""

    memories: list[Memory]
    total: int = Field(description="How many there are in all.", examples=[1])
    limit: int = Field(examples=[20])
    cursor: str | None = None


class Found(BaseModel):
    """A memory and how well it fits, from 0 to 1."""

    memory: Memory
    score: float = Field(examples=[0.91])


class Retrieved(BaseModel):
    """What fits a query, best first."""

    results: list[Found]


class Deleted(BaseModel):
    """What was deleted."""

    success: bool = True
    message: str = Field(examples=["deleted 1 memory"])
    deleted: int = Field(examples=[1])


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")

    user_id: str | None = Field(None, description="Whose memory it is, unless a gateway says so.")


class NewMemory(_Asked):
    """A memory to keep, word for word."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"type": "semantic", "content": _BUDGET, "user_id": "user_123"}]}
    )

    content: str
    type: Type = "semantic"
    project_id: str | None = None
    source: str | None = None
    importance: float | None = Field(None, ge=0, le=1)


class ChangedMemory(_Asked):
    """What is to be different; what is left out stays."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"content": "User's budget for Hawaii is $12,000"}]})

    content: str | None = None
    type: Type | None = None
    source: str | None = None
    importance: float | None = Field(None, ge=0, le=1)


class Query(_Asked):
    """What is looked for, and whose it is."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"query": "What's my budget for the trip?", "user_id": "user_123"}]}
    )

    query: str
    project_id: str | None = None
    types: list[Type] = Field(default_factory=list, description="Only these types; without any, all.")
    limit: int | None = Field(None, ge=1, le=100)
    threshold: float | None = Field(None, ge=0, le=1, description="Least score; without one, what is set up.")


class ErrorBody(BaseModel):
    """What went wrong, as a code and in words."""

    code: str = Field(examples=["NOT_FOUND"])
    message: str = Field(examples=[f"no memory {_ID}"])


class Error(BaseModel):
    """A refusal."""

    error: ErrorBody


def refused(refusal: Refusal) -> tuple[int, dict[str, Any]]:
    """A refusal with its code; what does not answer is told as memory that is not there."""
    code = f"INVALID_{refusal.field.upper()}" if refusal.field else _CODES.get(refusal.kind, "INVALID_INPUT")
    status = 401 if code == "MISSING_USER_ID" else refusal.status
    if status in (503, 507):
        code = "MEMORY_NOT_AVAILABLE"
    elif status in (404, 405) and code == "FORBIDDEN":
        code = "NOT_FOUND"
    elif status >= 500:
        code = "INTERNAL_ERROR"
    return status, {"error": {"code": code, "message": refusal.message}}


def shaped(record: MemoryRecord) -> Memory:
    """A memory as this door shows it."""
    return Memory(
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


def found(hit: Hit) -> Found:
    """A hit as this door shows it."""
    return Found(memory=shaped(hit.record), score=round(hit.score, 6))
