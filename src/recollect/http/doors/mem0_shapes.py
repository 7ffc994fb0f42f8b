"""The shapes that mem0's clients send and expect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from recollect.http.doors.asking import Caller
from recollect.http.doors.mem0_names import FIELDS, Names, entity, read_names, shown_id
from recollect.model.change import Entry, Verb
from recollect.model.memory import MemoryRecord, text_hash

_ID = "0198c6f1-5d2a-7c31-9a44-8f5a2f6b1c90.YWxleA"
_SAID: list[JsonValue] = [{"role": "user", "content": "I'm allergic to peanuts"}]
_FILTERS: dict[str, JsonValue] = {"AND": [{"user_id": "alex"}, {"created_at": {"gte": "2026-01-01"}}]}
_EVENTS = {Verb.ADD: "ADD", Verb.RESTORE: "ADD", Verb.FORGET: "DELETE"}


class Named(BaseModel):
    """What names whose memory it is; names this server does not know are passed over."""

    model_config = ConfigDict(extra="ignore")

    user_id: str | None = Field(None, examples=["alex"])
    agent_id: str | None = None
    app_id: str | None = None
    run_id: str | None = None

    def names(self, *others: Mapping[str, Any] | None) -> Names:
        """The names, here or else in the others."""
        return read_names({name: getattr(self, name) for name in FIELDS}, *others)


class Add(Named):
    """What was said, to be learned from; with `infer` false, to be kept word for word."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"messages": _SAID, "user_id": "alex"}]})

    messages: str | dict[str, Any] | list[dict[str, Any]]
    filters: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    infer: bool = True
    timestamp: int | float | str | None = None
    expiration_date: str | None = Field(None, examples=["2027-01-01"])


class Wanted(Named):
    """Which memories are wanted."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"filters": {"user_id": "alex"}}]})

    filters: dict[str, Any] | None = None
    categories: list[str] | None = None
    start_date: str | None = None
    end_date: str | None = None
    metadata: dict[str, Any] | None = None
    fields: list[str] | None = Field(default=None, description="Only these fields of each memory.")

    @property
    def filter(self) -> dict[str, Any]:
        """All that is asked of the memories, as one filter of theirs."""
        parts: list[dict[str, Any]] = [self.names().given, self.filters or {}]
        if self.categories:
            parts.append({"categories": {"in": self.categories}})
        if self.metadata:
            parts.append({"metadata": self.metadata})
        bounds = {"gte": self.start_date, "lte": self.end_date}
        given = {op: each for op, each in bounds.items() if each is not None}
        return {"AND": [*filter(None, parts), *([{"created_at": given}] if given else [])]}


class Search(Wanted):
    """What is looked for, and among which memories."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"query": "What must Alex not eat?", "filters": _FILTERS, "top_k": 5}]}
    )

    query: str
    top_k: int | None = Field(None, ge=1, le=1000)
    limit: int | None = Field(None, ge=1, le=1000)
    threshold: float | None = Field(None, ge=0, le=1)


class Change(BaseModel):
    """What is to be different; an `expiration_date` of null takes it away."""

    model_config = ConfigDict(extra="ignore", json_schema_extra={"examples": [{"text": "Alex is allergic to nuts"}]})

    text: str | None = None
    data: str | None = None
    memory: str | None = None
    metadata: dict[str, Any] | None = None
    timestamp: int | float | str | None = None
    expiration_date: str | None = None

    @property
    def content(self) -> str | None:
        """The new words, by whichever name."""
        return next((each for each in (self.text, self.data, self.memory) if each is not None), None)


class BatchChange(Change):
    """A change, and of which memory."""

    memory_id: str = Field(examples=[_ID])


class BatchChanges(BaseModel):
    """Several changes."""

    memories: list[BatchChange] = Field(min_length=1, max_length=1000)


class One(BaseModel):
    """One memory of a batch."""

    memory_id: str = Field(examples=[_ID])


class Batch(BaseModel):
    """Several memories."""

    memories: list[One] = Field(min_length=1, max_length=1000)


class Memory(BaseModel):
    """A memory; `score` only where it was searched for."""

    model_config = ConfigDict(extra="allow")

    id: str = Field(examples=[_ID])
    memory: str = Field(examples=["User is allergic to peanuts"])
    user_id: str | None = Field(examples=["alex"])
    agent_id: str | None
    app_id: str | None
    run_id: str | None
    hash: str
    metadata: dict[str, Any] | None
    categories: list[str] = Field(examples=[["fact"]])
    created_at: str
    updated_at: str
    expiration_date: str | None


class Happened(BaseModel):
    """A line of a memory's history."""

    id: str
    memory_id: str
    old_memory: str | None
    new_memory: str | None
    event: str = Field(examples=["ADD", "UPDATE", "DELETE"])
    user_id: str | None
    created_at: str
    updated_at: str


class Told(BaseModel):
    """What was done."""

    message: str = Field(examples=["Memory deleted successfully!"])


class Added(BaseModel):
    """What was kept or learned; what takes longer is PENDING, and is learned behind the answer."""

    results: list[dict[str, Any]] = Field(
        examples=[[{"id": _ID, "memory": "User is allergic to peanuts", "event": "ADD"}]]
    )
    status: str = Field(examples=["SUCCEEDED"])
    event_id: str | None = None


class Paged(BaseModel):
    """A page of memories."""

    count: int
    next: str | None
    previous: str | None
    results: list[dict[str, Any]]


class Results(BaseModel):
    """Memories."""

    results: list[dict[str, Any]]


class Entity(BaseModel):
    """A user, agent, app or run that has memories."""

    id: str
    name: str
    type: str
    total_memories: int
    metadata: dict[str, Any] | None = None
    created_at: str | None = None
    updated_at: str | None = None


class Entities(BaseModel):
    """Those who have memories."""

    count: int
    next: str | None = None
    previous: str | None = None
    results: list[Entity]


class Pong(BaseModel):
    """This server answers; clients insist on an organisation and a project, so it has one of each."""

    status: str = "ok"
    org_id: str = "recollect"
    project_id: str = "recollect"
    user_email: str | None = None


def shaped(record: MemoryRecord, caller: Caller, *, score: float | None = None) -> dict[str, Any]:
    """A memory as their clients expect it."""
    kind, name = entity(record.scope.user)
    metadata = {each: value for each, value in record.metadata.items() if each not in FIELDS}
    told = {
        "id": shown_id(record, caller),
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
    return told if score is None else {**told, "score": round(score, 6)}


def cut(told: dict[str, Any], fields: Sequence[str] | None) -> dict[str, Any]:
    """Only the fields that were asked for, and the id."""
    return {name: told[name] for name in told if name == "id" or name in fields} if fields else told


def told_history(record: MemoryRecord, entries: Sequence[Entry], memory_id: str) -> list[Happened]:
    """The lines of a memory's history, oldest first; entries come newest first and tell what they changed."""
    kind, name = entity(record.scope.user)
    words, told = record.content, []
    for entry in entries:
        event = _EVENTS.get(entry.verb, "UPDATE")
        before = (entry.before or {}).get("content", words)
        told.append(
            Happened(
                id=str(entry.id),
                memory_id=memory_id,
                old_memory=None if event == "ADD" else before,
                new_memory=None if event == "DELETE" else words,
                event=event,
                user_id=name if kind == "user" else None,
                created_at=_iso(entry.at),
                updated_at=_iso(entry.at),
            )
        )
        words = before
    return told[::-1]


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()
