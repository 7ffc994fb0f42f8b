"""The shapes that mem0's clients send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Depends, Path, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, WithJsonSchema

from recollect.http.compat.mem0.filters import MAX_NAME_CHARS, Filters, MetadataFilter
from recollect.http.compat.mem0.responses import MEMORY_ID
from recollect.http.compat.mem0.scope import FIELDS, EntityIds, parse_entity_ids, user_from_filter
from recollect.http.params import (
    CHECKED_NAME,
    OPTIONAL_NAME_PATTERN,
    Count,
    FreeText,
    Name,
    RequiredName,
    Seconds,
    Text,
    Time,
    UnitFloat,
    require_one_of,
)
from recollect.model.query import MAX_VALUES
from recollect.model.text import MAX_TEXT_BYTES

_EXAMPLE_MESSAGES: list[JsonValue] = [{"role": "user", "content": "I'm allergic to peanuts"}]
_EXAMPLE_FILTERS: dict[str, JsonValue] = {"AND": [{"user_id": "alex"}, {"created_at": {"gte": "2026-01-01"}}]}
_ENTITY_REQUIRED: list[JsonValue] = [*require_one_of(*FIELDS, minLength=1)]
_CHANGE_REQUIRED: list[JsonValue] = [
    *require_one_of("text", "data", "memory"),
    *require_one_of("metadata", kind="object"),
    {"required": ["timestamp"], "properties": {"timestamp": {"type": ["string", "number"]}}},
    {"required": ["expiration_date"]},
]
AgentId = Annotated[str, Field(max_length=MAX_NAME_CHARS["agent_id"], pattern=OPTIONAL_NAME_PATTERN), CHECKED_NAME]
AppId = Annotated[str, Field(max_length=MAX_NAME_CHARS["app_id"], pattern=OPTIONAL_NAME_PATTERN), CHECKED_NAME]
RunId = Annotated[str, Field(max_length=MAX_NAME_CHARS["run_id"], pattern=OPTIONAL_NAME_PATTERN), CHECKED_NAME]
When = Annotated[Seconds | Time, Field(description="When it was said: ISO 8601, or seconds since 1970.")]
Day = Annotated[
    str,
    Field(max_length=10, json_schema_extra={"format": "date"}, description="The last day.", examples=["2027-01-01"]),
]


def _check_message(message: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(message.get("role"), str):
        raise ValueError("a message is an object with a role and content")
    return message


_Message = Annotated[
    dict[str, Any],
    AfterValidator(_check_message),
    WithJsonSchema(
        {"type": "object", "properties": {"role": {"type": "string"}, "content": {}}, "required": ["role"]}
    ),
]


class EntityFields(BaseModel):
    """What names whose memory it is; names this server does not know are passed over."""

    # Their clients send more than is needed.
    model_config = ConfigDict(extra="ignore", strict=True)

    user_id: Name | None = Field(default=None, examples=["alex"])
    agent_id: AgentId | None = None
    app_id: AppId | None = None
    run_id: RunId | None = None

    def entity_ids(self, *sources: Mapping[str, Any] | None) -> EntityIds:
        """The names, here or else in the others."""
        return parse_entity_ids({name: getattr(self, name) for name in FIELDS}, *sources)


def _check_entity_fields(filters: dict[str, Any]) -> dict[str, Any]:
    EntityFields.model_validate(filters)
    return filters


_NamesInFilter = Annotated[
    dict[str, Any],
    AfterValidator(_check_entity_fields),
    WithJsonSchema({"type": "object", "properties": EntityFields.model_json_schema()["properties"]}),
]


class Mem0Add(EntityFields):
    """What was said, to be learned from; with `infer` false, to be kept word for word.

    Whose it is, is said by a name, by `X-Memory-User` or by the key.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"messages": _EXAMPLE_MESSAGES, "user_id": "alex"}]})

    messages: Annotated[str, Field(max_length=MAX_TEXT_BYTES)] | _Message | list[_Message]
    filters: _NamesInFilter | None = Field(default=None, description="Names, where clients put them there.")
    metadata: dict[str, Any] | None = None
    infer: bool = True
    timestamp: When | None = None
    expiration_date: Day | None = None


class Mem0ListRequest(EntityFields):
    """Which memories are wanted; whose, is said by a name, in the filter, by `X-Memory-User` or by the key."""

    # Where a header or the key says whose, the rest may be left out.
    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [*_ENTITY_REQUIRED, {"properties": {"filters": {"type": ["object", "null"]}}}],
            "examples": [{"filters": {"user_id": "alex"}}],
        }
    )

    filters: Filters | None = None
    categories: list[FreeText] | None = Field(default=None, max_length=MAX_VALUES)
    start_date: Time | None = None
    end_date: Time | None = None
    metadata: MetadataFilter | None = None
    fields: list[str] | None = Field(default=None, description="Only these fields of each memory.")

    @property
    def filter(self) -> dict[str, Any]:
        """All that is asked of the memories, as one filter of theirs."""
        parts: list[dict[str, Any]] = [self.entity_ids(user_from_filter(self.filters)).present, self.filters or {}]
        if self.categories:
            parts.append({"categories": {"in": self.categories}})
        if self.metadata:
            parts.append({"metadata": self.metadata})
        bounds = {"gte": self.start_date, "lte": self.end_date}
        created_at = {op: each for op, each in bounds.items() if each is not None}
        return {"AND": [*filter(None, parts), *([{"created_at": created_at}] if created_at else [])]}


class Mem0Search(Mem0ListRequest):
    """What is looked for, and among which memories; whose, is said as for a list."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"query": "What must Alex not eat?", "filters": _EXAMPLE_FILTERS, "top_k": 5}]
        }
    )

    query: Text
    top_k: Count | None = None
    limit: Count | None = Field(default=None, description="The same as top_k, which counts if there is both.")
    threshold: UnitFloat | None = None


class Mem0Change(BaseModel):
    """What is to be different; an `expiration_date` of null takes it away."""

    model_config = ConfigDict(
        extra="ignore",
        strict=True,
        json_schema_extra={"anyOf": _CHANGE_REQUIRED, "examples": [{"text": "Alex is allergic to nuts"}]},
    )

    text: Text | None = None
    data: Text | None = None
    memory: Text | None = None
    metadata: dict[str, Any] | None = None
    timestamp: When | None = None
    expiration_date: Day | None = None

    @property
    def content(self) -> str | None:
        """The new words, by whichever name."""
        return next((each for each in (self.text, self.data, self.memory) if each is not None), None)


class Mem0BatchChange(Mem0Change):
    """A change, and of which memory."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": _CHANGE_REQUIRED,
            "examples": [{"memory_id": MEMORY_ID, "text": "Alex is allergic to nuts"}],
        }
    )

    memory_id: str


class Mem0BatchChanges(BaseModel):
    """Several changes."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"memories": [{"memory_id": MEMORY_ID, "text": "Alex is allergic to nuts"}]}]}
    )

    memories: list[Mem0BatchChange] = Field(min_length=1, max_length=1000)


class Mem0One(BaseModel):
    """One memory of a batch."""

    memory_id: str = Field(examples=[MEMORY_ID])


class Mem0Batch(BaseModel):
    """Several memories."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"memories": [{"memory_id": MEMORY_ID}]}]})

    memories: list[Mem0One] = Field(min_length=1, max_length=1000)


_UserQuery = Annotated[Name | None, Query(description="The user; one of the four is named.", examples=["alex"])]
_AgentQuery = Annotated[AgentId | None, Query(description="The agent.", examples=["cook"])]
_AppQuery = Annotated[AppId | None, Query(description="The app.", examples=["kitchen"])]
_RunQuery = Annotated[RunId | None, Query(description="The run, which is a session.", examples=["monday"])]
MemoryId = Annotated[str, Path(description="The id of a memory, as these routes tell it.", examples=[MEMORY_ID])]
EntityName = Annotated[RequiredName, Path(description="What it is called; not `*`.", examples=["alex"])]


async def _entity_query(
    user_id: _UserQuery = None, agent_id: _AgentQuery = None, app_id: _AppQuery = None, run_id: _RunQuery = None
) -> dict[str, str | None]:
    return {"user_id": user_id, "agent_id": agent_id, "app_id": app_id, "run_id": run_id}


# The names in the query, by their fields.
EntityQuery = Annotated[dict[str, str | None], Depends(_entity_query)]
