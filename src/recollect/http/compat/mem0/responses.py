"""The shapes that mem0's clients expect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from recollect.http.compat.mem0.scope import FIELDS, KINDS, public_id, to_entity
from recollect.http.compat.routing import Caller
from recollect.model.change import ChangeKind, HistoryEntry
from recollect.model.memory import MemoryRecord, text_hash

MEMORY_ID = "0198c6f1-5d2a-7c31-9a44-8f5a2f6b1c90.YWxleA"
Event: TypeAlias = Literal["ADD", "UPDATE", "DELETE"]
_EVENTS: Mapping[ChangeKind, Event] = {ChangeKind.ADD: "ADD", ChangeKind.RESTORE: "ADD", ChangeKind.FORGET: "DELETE"}


_AT = "2026-03-15T10:00:00+00:00"
_MEMORY: dict[str, JsonValue] = {
    "id": MEMORY_ID,
    "memory": "User is allergic to peanuts",
    "user_id": "alex",
    "agent_id": None,
    "app_id": None,
    "run_id": None,
    "hash": "2f7b1c90",
    "metadata": None,
    "categories": ["fact"],
    "created_at": _AT,
    "updated_at": _AT,
    "expiration_date": None,
}
_SEARCH_HIT: dict[str, JsonValue] = {**_MEMORY, "score": 0.91}


class Mem0Memory(BaseModel):
    """A memory; `score` only where it was searched for."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [_MEMORY]})

    id: str
    memory: str
    user_id: str | None
    agent_id: str | None
    app_id: str | None
    run_id: str | None
    hash: str
    metadata: dict[str, Any] | None
    categories: list[str]
    created_at: str
    updated_at: str
    expiration_date: str | None


class Mem0Happened(BaseModel):
    """A line of a memory's history."""

    id: str = Field(examples=["42"])
    memory_id: str = Field(examples=[MEMORY_ID])
    old_memory: str | None = Field(examples=[None])
    new_memory: str | None = Field(examples=["User is allergic to peanuts"])
    event: Event = Field(examples=["ADD"])
    user_id: str | None = Field(examples=["alex"])
    created_at: str = Field(examples=[_AT])
    updated_at: str = Field(examples=[_AT])


class Mem0Message(BaseModel):
    """What was done."""

    message: str = Field(examples=["Memory deleted successfully!"])


class Mem0Added(BaseModel):
    """What was kept or learned; what takes longer is PENDING, and is learned behind the answer."""

    results: list[dict[str, Any]] = Field(
        examples=[[{"id": MEMORY_ID, "memory": "User is allergic to peanuts", "event": "ADD"}]]
    )
    status: Literal["SUCCEEDED", "PENDING"] = Field(examples=["SUCCEEDED"])
    event_id: str | None = None


MemoryRows: TypeAlias = Annotated[
    list[dict[str, Any]],
    Field(description="Memories, or of each the fields that were asked for.", examples=[[_SEARCH_HIT]]),
]


class Mem0Paged(BaseModel):
    """A page of memories."""

    count: int = Field(ge=0, examples=[1])
    next: str | None = Field(description="The address of the next page.", examples=[None])
    previous: str | None = Field(examples=[None])
    results: MemoryRows


class Mem0Results(BaseModel):
    """Memories."""

    results: MemoryRows


class Mem0Entity(BaseModel):
    """A user, agent, app or run that has memories."""

    id: str = Field(examples=["alex"])
    name: str = Field(examples=["alex"])
    type: str = Field(examples=["user"], json_schema_extra={"enum": list(KINDS)})
    total_memories: int = Field(ge=0, examples=[12])
    metadata: dict[str, Any] | None = None
    created_at: str | None = None
    updated_at: str | None = None


class Mem0Entities(BaseModel):
    """Those who have memories."""

    count: int = Field(ge=0, examples=[1])
    next: str | None = None
    previous: str | None = None
    results: list[Mem0Entity]


class Mem0Pong(BaseModel):
    """This server answers; clients insist on an organisation and a project, so it has one of each."""

    status: str = Field(default="ok", examples=["ok"])
    org_id: str = Field(default="recollect", examples=["recollect"])
    project_id: str = Field(default="recollect", examples=["recollect"])
    user_email: str | None = None


def to_mem0_memory(record: MemoryRecord, caller: Caller, *, score: float | None = None) -> dict[str, Any]:
    """A memory as their clients expect it."""
    kind, name = to_entity(record.scope.user)
    metadata = {each: value for each, value in record.metadata.items() if each not in FIELDS}
    memory = {
        "id": public_id(record, caller),
        "memory": record.content,
        "user_id": name if kind == "user" else None,
        "agent_id": record.metadata.get("agent_id"),
        "app_id": record.metadata.get("app_id"),
        "run_id": record.scope.session or None,
        "hash": text_hash(record.content),
        "metadata": metadata or None,
        "categories": list(record.tags) or [str(record.category)],
        "created_at": _iso(record.created_at),
        "updated_at": _iso(record.updated_at),
        "expiration_date": record.expires_at.date().isoformat() if record.expires_at else None,
    }
    return memory if score is None else {**memory, "score": round(score, 6)}


def select_fields(memory: dict[str, Any], fields: Sequence[str] | None) -> dict[str, Any]:
    """Only the fields that were asked for, and the id."""
    return {name: memory[name] for name in memory if name == "id" or name in fields} if fields else memory


def to_mem0_history(record: MemoryRecord, entries: Sequence[HistoryEntry], memory_id: str) -> list[Mem0Happened]:
    """The lines of a memory's history, oldest first; entries come newest first and tell what they changed."""
    kind, name = to_entity(record.scope.user)
    content, lines = record.content, []
    for entry in entries:
        event: Event = _EVENTS.get(entry.verb, "UPDATE")
        before = (entry.before or {}).get("content", content)
        lines.append(
            Mem0Happened(
                id=str(entry.id),
                memory_id=memory_id,
                old_memory=None if event == "ADD" else before,
                new_memory=None if event == "DELETE" else content,
                event=event,
                user_id=name if kind == "user" else None,
                created_at=_iso(entry.at),
                updated_at=_iso(entry.at),
            )
        )
        content = before
    return lines[::-1]


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()
