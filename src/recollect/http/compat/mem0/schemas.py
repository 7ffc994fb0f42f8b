"""Requests and responses of mem0's clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import Depends, Path, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from recollect.http.api.schemas import check_number_range
from recollect.http.auth.caller import Caller
from recollect.http.compat.context import public_id
from recollect.http.compat.mem0.filters import (
    FIELDS,
    KINDS,
    MAX_NAME_CHARS,
    parse_entity_ids,
    to_entity,
    user_from_filter,
)
from recollect.http.params import (
    CHECKED_NAME,
    OPTIONAL_NAME_PATTERN,
    Count,
    FreeText,
    Name,
    RequiredName,
    ResponseModel,
    Seconds,
    StrictModel,
    Text,
    Time,
    UnitFloat,
    example,
)
from recollect.model.change import ChangeKind, HistoryEntry
from recollect.model.memory import MemoryRecord, text_hash
from recollect.model.query import MAX_VALUES
from recollect.model.text import MAX_TEXT_BYTES

_MEMORY_ID = "0198c6f1-5d2a-7c31-9a44-8f5a2f6b1c90.YWxleA"
Event: TypeAlias = Literal["ADD", "UPDATE", "DELETE"]
_EVENTS: Mapping[ChangeKind, Event] = {ChangeKind.ADD: "ADD", ChangeKind.RESTORE: "ADD", ChangeKind.FORGET: "DELETE"}
EntityId = Annotated[str, Field(max_length=MAX_NAME_CHARS, pattern=OPTIONAL_NAME_PATTERN), CHECKED_NAME]
Timestamp = Annotated[Seconds | Time, Field(description="When it was said: ISO 8601, or seconds since 1970.")]
Day = Annotated[str, Field(max_length=10, json_schema_extra={"format": "date"}, description="The last valid day.")]
Filters = Annotated[
    dict[str, Any],
    Field(
        strict=True,
        description="All names must match. A value means eq, a list means in, an object has operators; AND, OR and "
        "NOT combine filters. A name that is no field of a memory is one in its metadata.",
    ),
    AfterValidator(check_number_range),
]


def _check_message(message: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(message.get("role"), str):
        raise ValueError("a message must be an object with a role and content")
    return message


_Message = Annotated[
    dict[str, Any],
    AfterValidator(_check_message),
    WithJsonSchema(
        {"type": "object", "properties": {"role": {"type": "string"}, "content": {}}, "required": ["role"]}
    ),
]


class EntityFields(StrictModel):
    """The owner of memories; other fields, which mem0's clients send as well, are ignored."""

    model_config = ConfigDict(extra="ignore")

    user_id: Name | None = Field(default=None, description="The user; at least one of the four is required.")
    agent_id: EntityId | None = Field(default=None, description="The agent.")
    app_id: EntityId | None = Field(default=None, description="The app.")
    run_id: EntityId | None = Field(default=None, description="The run, which is a session.")

    def entity_ids(self, *sources: Mapping[str, Any] | None) -> dict[str, str]:
        """Return the entities that the fields and the sources name."""
        return parse_entity_ids({name: getattr(self, name) for name in FIELDS}, *sources)


async def _entity_query(owner: Annotated[EntityFields, Query()]) -> EntityFields:
    return owner


EntityQuery = Annotated[EntityFields, Depends(_entity_query)]


def _check_entity_fields(filters: dict[str, Any]) -> dict[str, Any]:
    EntityFields.model_validate(filters)
    return filters


class Mem0Add(EntityFields):
    """Messages to learn from, or to store verbatim if `infer` is false."""

    model_config = example(messages=[{"role": "user", "content": "I'm allergic to peanuts"}], user_id="alex")

    messages: Annotated[str, Field(max_length=MAX_TEXT_BYTES)] | _Message | list[_Message]
    filters: Annotated[dict[str, Any], AfterValidator(_check_entity_fields)] | None = Field(
        default=None, description="The owner, where clients name it here."
    )
    metadata: dict[str, Any] | None = None
    infer: bool = True
    timestamp: Timestamp | None = None
    expiration_date: Day | None = None


class Mem0ListRequest(EntityFields):
    """A filter; the owner is named by a field, in the filter, by `X-Memory-User` or by the key."""

    model_config = example(filters={"user_id": "alex"})

    filters: Filters | None = None
    categories: list[FreeText] | None = Field(default=None, max_length=MAX_VALUES)
    start_date: Time | None = None
    end_date: Time | None = None
    metadata: Annotated[dict[str, Any], Field(strict=True), AfterValidator(check_number_range)] | None = None
    fields: list[str] | None = Field(default=None, description="Return only these fields of each memory.")

    @property
    def filter(self) -> dict[str, Any]:
        parts: list[dict[str, Any]] = [self.entity_ids(user_from_filter(self.filters)), self.filters or {}]
        if self.categories:
            parts.append({"categories": {"in": self.categories}})
        if self.metadata:
            parts.append({"metadata": self.metadata})
        bounds = {"gte": self.start_date, "lte": self.end_date}
        created_at = {op: each for op, each in bounds.items() if each is not None}
        return {"AND": [*filter(None, parts), *([{"created_at": created_at}] if created_at else [])]}


class Mem0Search(Mem0ListRequest):
    """A search."""

    model_config = example(query="What must Alex not eat?", filters={"user_id": "alex"}, top_k=5)

    query: Text
    top_k: Count | None = None
    limit: Count | None = Field(default=None, description="The same as top_k, which overrides it.")
    threshold: UnitFloat | None = None


class Mem0Change(StrictModel):
    """New values for some fields of a memory; an `expiration_date` of null removes it."""

    model_config = ConfigDict(extra="ignore", json_schema_extra={"examples": [{"text": "Alex is allergic to nuts"}]})

    text: Text | None = None
    data: Text | None = None
    memory: Text | None = None
    metadata: dict[str, Any] | None = None
    timestamp: Timestamp | None = None
    expiration_date: Day | None = None

    @property
    def content(self) -> str | None:
        """Return the new text, by whichever name."""
        return next((each for each in (self.text, self.data, self.memory) if each is not None), None)


class Mem0BatchItem(Mem0Change):
    """One memory of a batch, and its new values if it is to change."""

    model_config = example(memory_id=_MEMORY_ID, text="Alex is allergic to nuts")

    memory_id: str


class Mem0Batch(BaseModel):
    """Several memories."""

    model_config = example(memories=[{"memory_id": _MEMORY_ID, "text": "Alex is allergic to nuts"}])

    memories: list[Mem0BatchItem] = Field(min_length=1, max_length=1000)


MemoryId = Annotated[str, Path(description="The id of a memory, as these routes return it.")]
EntityKind = Annotated[Literal["user", "agent", "app", "run"], Path(description="The kind of the entity.")]
EntityName = Annotated[RequiredName, Path(description="The name of the entity; not `*`.")]


class Mem0Error(ResponseModel):
    """An error."""

    detail: str


class Mem0Memory(ResponseModel):
    """A memory."""

    model_config = ConfigDict(extra="allow")

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


class Mem0Updated(Mem0Memory):
    """The memory after a change."""

    message: str = "Memory updated successfully!"


class Mem0HistoryEntry(ResponseModel):
    """A change of a memory."""

    id: str
    memory_id: str
    old_memory: str | None
    new_memory: str | None
    event: Event
    user_id: str | None
    created_at: str
    updated_at: str


class Mem0Message(ResponseModel):
    """A message that says what was done."""

    message: str


class Mem0Added(ResponseModel):
    """The memories that were stored or learned; PENDING if learning continues in the background."""

    results: list[dict[str, Any]]
    status: Literal["SUCCEEDED", "PENDING"]
    event_id: str | None = None


MemoryRows: TypeAlias = Annotated[
    list[dict[str, Any]], Field(description="Memories, or the requested fields of each; with a score in a search.")
]


class Mem0Paged(ResponseModel):
    """A page of memories."""

    count: int = Field(ge=0)
    next: str | None = Field(description="The URL of the next page.")
    previous: str | None
    results: MemoryRows


class Mem0Results(ResponseModel):
    """Memories."""

    results: MemoryRows


class Mem0Entity(ResponseModel):
    """A user, agent, app or run that has memories."""

    id: str
    name: str
    type: str = Field(json_schema_extra={"enum": list(KINDS)})
    total_memories: int = Field(ge=0)
    metadata: dict[str, Any] | None = None
    created_at: str | None = None
    updated_at: str | None = None


class Mem0Entities(ResponseModel):
    """The entities that have memories."""

    count: int = Field(ge=0)
    next: str | None = None
    previous: str | None = None
    results: list[Mem0Entity]


class Mem0Pong(ResponseModel):
    """The server's status; clients require an organisation and a project."""

    status: str = "ok"
    org_id: str = "recollect"
    project_id: str = "recollect"
    user_email: str | None = None


def to_mem0_memory(
    record: MemoryRecord, caller: Caller, *, score: float | None = None, fields: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return a memory as mem0's clients expect it, or only its id and some fields."""
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
        **({} if score is None else {"score": round(score, 6)}),
    }
    return {name: memory[name] for name in memory if name == "id" or name in fields} if fields else memory


def to_mem0_history(record: MemoryRecord, entries: Sequence[HistoryEntry], memory_id: str) -> list[Mem0HistoryEntry]:
    """Return the changes of a memory, oldest first; `entries` come newest first and have only what they changed."""
    kind, name = to_entity(record.scope.user)
    content, changes = record.content, []
    for entry in entries:
        event: Event = _EVENTS.get(entry.verb, "UPDATE")
        before = (entry.before or {}).get("content", content)
        changes.append(
            Mem0HistoryEntry(
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
    return changes[::-1]


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()
