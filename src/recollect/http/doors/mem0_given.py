"""The shapes that mem0's clients send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, WithJsonSchema

from recollect.http.doors.given import (
    CHECKED_NAME,
    NAME_OR_NONE,
    Count,
    Name,
    Seconds,
    Share,
    Text,
    Time,
    Words,
    one_of,
)
from recollect.http.doors.mem0_filter_schema import MOST_CHARS, Filters, MetadataFilter
from recollect.http.doors.mem0_names import FIELDS, Names, read_names, user_in
from recollect.http.doors.mem0_shapes import MEMORY_ID
from recollect.model.query import MAX_VALUES
from recollect.model.text import MAX_TEXT_BYTES

_SAID: list[JsonValue] = [{"role": "user", "content": "I'm allergic to peanuts"}]
_FILTERS: dict[str, JsonValue] = {"AND": [{"user_id": "alex"}, {"created_at": {"gte": "2026-01-01"}}]}
_NAMED: list[JsonValue] = [*one_of(*FIELDS, minLength=1)]
_CHANGES: list[JsonValue] = [
    *one_of("text", "data", "memory"),
    *one_of("metadata", kind="object"),
    {"required": ["timestamp"], "properties": {"timestamp": {"type": ["string", "number"]}}},
    {"required": ["expiration_date"]},
]
AgentId = Annotated[str, Field(max_length=MOST_CHARS["agent_id"], pattern=NAME_OR_NONE), CHECKED_NAME]
AppId = Annotated[str, Field(max_length=MOST_CHARS["app_id"], pattern=NAME_OR_NONE), CHECKED_NAME]
RunId = Annotated[str, Field(max_length=MOST_CHARS["run_id"], pattern=NAME_OR_NONE), CHECKED_NAME]
When = Annotated[Seconds | Time, Field(description="When it was said: ISO 8601, or seconds since 1970.")]
Day = Annotated[
    str,
    Field(max_length=10, json_schema_extra={"format": "date"}, description="The last day.", examples=["2027-01-01"]),
]


def _spoken(message: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(message.get("role"), str):
        raise ValueError("a message is an object with a role and content")
    return message


_Message = Annotated[
    dict[str, Any],
    AfterValidator(_spoken),
    WithJsonSchema(
        {"type": "object", "properties": {"role": {"type": "string"}, "content": {}}, "required": ["role"]}
    ),
]


class Naming(BaseModel):
    """What names whose memory it is; names this server does not know are passed over."""

    # Their clients send more than is needed.
    model_config = ConfigDict(extra="ignore", strict=True)

    user_id: Name | None = Field(default=None, examples=["alex"])
    agent_id: AgentId | None = None
    app_id: AppId | None = None
    run_id: RunId | None = None

    def names(self, *others: Mapping[str, Any] | None) -> Names:
        """The names, here or else in the others."""
        return read_names({name: getattr(self, name) for name in FIELDS}, *others)


def _named(filters: dict[str, Any]) -> dict[str, Any]:
    Naming.model_validate(filters)
    return filters


_NamesInFilter = Annotated[
    dict[str, Any],
    AfterValidator(_named),
    WithJsonSchema({"type": "object", "properties": Naming.model_json_schema()["properties"]}),
]


class Mem0Add(Naming):
    """What was said, to be learned from; with `infer` false, to be kept word for word.

    Whose it is, is said by a name, by `X-Memory-User` or by the key.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"messages": _SAID, "user_id": "alex"}]})

    messages: Annotated[str, Field(max_length=MAX_TEXT_BYTES)] | _Message | list[_Message]
    filters: _NamesInFilter | None = Field(default=None, description="Names, where clients put them there.")
    metadata: dict[str, Any] | None = None
    infer: bool = True
    timestamp: When | None = None
    expiration_date: Day | None = None


class Mem0Wanted(Naming):
    """Which memories are wanted; whose, is said by a name, in the filter, by `X-Memory-User` or by the key."""

    # Where a header or the key says whose, the rest may be left out.
    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [*_NAMED, {"properties": {"filters": {"type": ["object", "null"]}}}],
            "examples": [{"filters": {"user_id": "alex"}}],
        }
    )

    filters: Filters | None = None
    categories: list[Words] | None = Field(default=None, max_length=MAX_VALUES)
    start_date: Time | None = None
    end_date: Time | None = None
    metadata: MetadataFilter | None = None
    fields: list[str] | None = Field(default=None, description="Only these fields of each memory.")

    @property
    def filter(self) -> dict[str, Any]:
        """All that is asked of the memories, as one filter of theirs."""
        parts: list[dict[str, Any]] = [self.names(user_in(self.filters)).given, self.filters or {}]
        if self.categories:
            parts.append({"categories": {"in": self.categories}})
        if self.metadata:
            parts.append({"metadata": self.metadata})
        bounds = {"gte": self.start_date, "lte": self.end_date}
        given = {op: each for op, each in bounds.items() if each is not None}
        return {"AND": [*filter(None, parts), *([{"created_at": given}] if given else [])]}


class Mem0Search(Mem0Wanted):
    """What is looked for, and among which memories; whose, is said as for a list."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"query": "What must Alex not eat?", "filters": _FILTERS, "top_k": 5}]}
    )

    query: Text
    top_k: Count | None = None
    limit: Count | None = Field(default=None, description="The same as top_k, which counts if there is both.")
    threshold: Share | None = None


class Mem0Change(BaseModel):
    """What is to be different; an `expiration_date` of null takes it away."""

    model_config = ConfigDict(
        extra="ignore",
        strict=True,
        json_schema_extra={"anyOf": _CHANGES, "examples": [{"text": "Alex is allergic to nuts"}]},
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
            "anyOf": _CHANGES,
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
