"""The shapes of /api/sessions: memories of a session in camelCase, times without a zone."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from recollect.http.doors.finding import format_naive_utc
from recollect.http.doors.given import RequiredName, StrictModel, Text, UnitFloat
from recollect.http.doors.refusals import ErrorInfo
from recollect.model.memory import Category, MemoryRecord

SessionMemoryType: TypeAlias = Literal["fact", "preference", "insight"]
_EXAMPLE_MEMORY: dict[str, JsonValue] = {
    "id": "0198c6f1-5d2a-7c31-9a44-8f5a2f6b1c90",
    "sessionId": "7d0f3f5e-8f0a-4a53-9a83-3f1f0f6f8c11",
    "memoryContent": "The project deadline is March 15th",
    "memoryType": "fact",
    "importance": 0.9,
    "createdAt": "2026-02-11T10:00:00",
    "lastAccessedAt": "2026-02-11T12:30:00",
}
_EXAMPLE_NEW: dict[str, JsonValue] = {
    "content": "User prefers detailed explanations",
    "type": "preference",
    "importance": 0.7,
}
# The three types of this door and what else can be known; whatever is missing here is a fact.
_TYPE_BY_CATEGORY: dict[Category, SessionMemoryType] = {
    Category.PREFERENCE: "preference",
    Category.INSTRUCTION: "preference",
    Category.INSIGHT: "insight",
    Category.LESSON: "insight",
}


class SessionMemory(BaseModel):
    """A memory of a session; times are UTC."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE_MEMORY]})

    id: str
    sessionId: str
    memoryContent: str
    memoryType: SessionMemoryType
    importance: UnitFloat
    createdAt: str = Field(description="In UTC, to the second.")
    lastAccessedAt: str


class NewSessionMemory(StrictModel):
    """A memory that someone writes down by hand."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE_NEW]})

    content: Text
    type: SessionMemoryType = "fact"
    importance: UnitFloat = 0.5


class NewSession(StrictModel):
    """A session to begin; without an id it is given one."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"sessionId": _EXAMPLE_MEMORY["sessionId"]}]})

    sessionId: RequiredName | None = None


class SessionCreated(BaseModel):
    """A session."""

    sessionId: str = Field(examples=[_EXAMPLE_MEMORY["sessionId"]])


class Relevant(BaseModel):
    """The memories that fit a query, best first, and the text that tells them to a model; empty without any."""

    memories: list[SessionMemory]
    context: str = Field(
        examples=[
            "Relevant memories from this session:\n- [FACT] The project deadline is March 15th (importance: 0.9)\n\n"
            "Use these memories to provide contextually aware responses."
        ]
    )


class SessionRefused(BaseModel):
    """Why a request is not answered."""

    error: str = Field(examples=["SessionNotFoundException"])
    detail: str = Field(examples=["user default has no session 7d0f3f5e-8f0a-4a53-9a83-3f1f0f6f8c11"])


def render_session_error(error: ErrorInfo) -> tuple[int, dict[str, Any]]:
    """A refusal by the name of its exception: a missing session and a missing memory can be told apart."""
    names = {"NotFound": "MemoryNotFoundException", "SessionNotFound": "SessionNotFoundException"}
    return error.status, {"error": names.get(error.kind, error.kind), "detail": error.message}


def to_session_memory(record: MemoryRecord) -> SessionMemory:
    """A memory as this door shows it."""
    return SessionMemory(
        id=record.id,
        sessionId=record.scope.session,
        memoryContent=record.content,
        memoryType=_TYPE_BY_CATEGORY.get(record.category, "fact"),
        importance=record.importance,
        createdAt=format_naive_utc(record.created_at),
        lastAccessedAt=format_naive_utc(record.last_accessed_at or record.created_at),
    )
