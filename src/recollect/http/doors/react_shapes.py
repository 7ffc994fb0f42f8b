"""The shapes of the agent's memory services: requests, records and answers by the names of their design."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from recollect.http.doors.given import Count, Embedding, FreeText, Name, RequiredName, StrictModel, Text, Time
from recollect.http.doors.refusals import ErrorInfo
from recollect.model.memory import MemoryRecord
from recollect.model.times import as_utc
from recollect.model.turn import Conversation

_ID = "0198c6f1-5d2a-7c31-9a44-8f5a2f6b1c90"
_AT = "2026-03-15T10:00:00Z"
_EXAMPLE_CONVERSATION: dict[str, JsonValue] = {"conversation_id": "monday", "user": "alex", "collection": "payments"}
_EXAMPLE_FACT: dict[str, JsonValue] = {
    "content": "The payment service listens on port 8443",
    "user": "alex",
    "collection": "payments",
}
_EXAMPLE_EPISODE: dict[str, JsonValue] = {
    "goal": "Deploy the payment service",
    "steps": ["npm build", "docker push"],
    "outcome": "deployed",
    "lessons": "Check the port first",
    "user": "alex",
    "collection": "payments",
}
_EXAMPLE_INVOCATION: dict[str, JsonValue] = {
    "query": "Deploy the payment service",
    "summary": "The user asked for a deployment; the agent built and pushed the image",
    "result": "deployed",
}


class _Request(StrictModel):
    user: Name | None = Field(default=None, description="Whose memory it is, unless a gateway says so.")


class _InCollection(_Request):
    collection: Name | None = Field(default=None, description="The collection, which is a project of the user's.")


class _InConversation(_InCollection):
    conversation_id: RequiredName = Field(examples=["monday"])


class _Retrieve(_InCollection):
    query: Text
    embedding: Embedding | None = Field(
        default=None, description="The query's vector by the server's model, if known."
    )


class RetrieveFacts(_Retrieve):
    """Which facts are wanted."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"query": "Which port?", "user": "alex"}]})

    top_k: Count = 5


class RetrieveEpisodes(_Retrieve):
    """Which episodes are wanted."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"query": "Deploy a service", "user": "alex"}]})

    top_k: Count = 3


class _Store(_InCollection):
    metadata: dict[str, Any] = Field(default_factory=dict)
    embedding: Embedding | None = Field(
        default=None, description="The vector of its words by the server's model, if known."
    )


class StoreFact(_Store):
    """A fact, and the conversation it was learned in."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE_FACT]})

    content: Text
    source: Name = Field(default="", description="The conversation_id where it was learned.", examples=["monday"])


class StoreEpisode(_Store):
    """What was attempted, how, and what came of it."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE_EPISODE]})

    goal: Text
    steps: list[FreeText] = Field(default_factory=list, max_length=256)
    outcome: FreeText = ""
    lessons: FreeText = ""


class DeleteFact(_InCollection):
    """Which fact is to go."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"fact_id": _ID, "user": "alex"}]})

    fact_id: RequiredName


class GetConversation(_InConversation):
    """Which conversation is wanted."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE_CONVERSATION]})


class InvocationSummary(StrictModel):
    """What one invocation was asked, did and came to."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE_INVOCATION]})

    query: str = Field(max_length=20_000)
    summary: str = Field(max_length=20_000)
    result: str = Field(max_length=20_000)
    timestamp: Time | None = Field(default=None, description="When that was; without one, now.")


class UpdateConversation(_InConversation):
    """What an invocation came to, to be added to its conversation."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{**_EXAMPLE_CONVERSATION, "invocation_summary": _EXAMPLE_INVOCATION}]}
    )

    invocation_summary: InvocationSummary


class EndConversation(_InConversation):
    """Which conversation has ended."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE_CONVERSATION]})


class ReactError(BaseModel):
    """What went wrong."""

    type: str = Field(examples=["NotFound"])
    message: str = Field(examples=[f"no memory {_ID}"])


class Fact(BaseModel):
    """A fact; its vector is not told."""

    id: str = Field(examples=[_ID])
    content: str = Field(examples=[_EXAMPLE_FACT["content"]])
    source: str = Field(description="The conversation_id where it was learned.", examples=["monday"])
    timestamp: datetime = Field(examples=[_AT])
    metadata: dict[str, Any] = Field(examples=[{}])


class Episode(BaseModel):
    """An episode; its vector is not told."""

    id: str = Field(examples=[_ID])
    goal: str = Field(examples=[_EXAMPLE_EPISODE["goal"]])
    steps: list[str] = Field(examples=[_EXAMPLE_EPISODE["steps"]])
    outcome: str = Field(examples=[_EXAMPLE_EPISODE["outcome"]])
    lessons: str = Field(examples=[_EXAMPLE_EPISODE["lessons"]])
    timestamp: datetime = Field(examples=[_AT])
    metadata: dict[str, Any] = Field(examples=[{}])


class InvocationRecord(BaseModel):
    """What one invocation was asked, did and came to, and when."""

    model_config = ConfigDict(json_schema_extra={"examples": [{**_EXAMPLE_INVOCATION, "timestamp": _AT}]})

    query: str
    summary: str
    result: str
    timestamp: datetime | None


class ConversationMemory(BaseModel):
    """A conversation and what its invocations came to, in order."""

    conversation_id: str = Field(examples=["monday"])
    invocations: list[InvocationRecord]
    metadata: dict[str, Any] = Field(examples=[{"turn_count": 2, "summary": "", "closed": False}])


class _Answer(BaseModel):
    error: ReactError | None = Field(default=None, description="Null, for this is an answer.", examples=[None])


class Facts(_Answer):
    """The facts, nearest first."""

    facts: list[Fact]


class Episodes(_Answer):
    """The episodes, nearest first."""

    episodes: list[Episode]


class FactStored(_Answer):
    """The fact's id."""

    fact_id: str = Field(examples=[_ID])


class EpisodeStored(_Answer):
    """The episode's id."""

    episode_id: str = Field(examples=[_ID])


class ConversationGot(_Answer):
    """The conversation; one that has not begun has no invocations."""

    conversation: ConversationMemory


class Done(_Answer):
    """It is done."""

    success: bool = Field(default=True, examples=[True])


class Failed(BaseModel):
    """It is not done."""

    error: ReactError


def render_react_error(error: ErrorInfo) -> tuple[int, dict[str, Any]]:
    """A refusal in the field that every answer has for it."""
    return error.status, {"error": {"type": error.kind, "message": error.message}}


def to_fact(record: MemoryRecord) -> Fact:
    """A memory as a fact."""
    return Fact(
        id=record.id,
        content=record.content,
        source=record.scope.session or record.source,
        timestamp=record.created_at,
        metadata=dict(record.metadata),
    )


def to_episode(record: MemoryRecord) -> Episode:
    """A memory as an episode; one that tells of a talk, and not of a task, has its words for a goal."""
    detail = record.detail
    return Episode(
        id=record.id,
        goal=str(detail.get("goal") or record.content),
        steps=[str(step) for step in detail.get("steps", ())],
        outcome=str(detail.get("outcome", "")),
        lessons=str(detail.get("lessons", "")),
        timestamp=record.created_at,
        metadata=dict(record.metadata),
    )


def to_conversation(session: Conversation) -> ConversationMemory:
    """A session as a conversation; what we note of it for ourselves is not told."""
    invocations = [
        InvocationRecord(
            query=str(each.get("query", "")),
            summary=str(each.get("summary", "")),
            result=str(each.get("result", "")),
            timestamp=as_utc(each["timestamp"]) if each.get("timestamp") else None,
        )
        for each in session.invocations
    ]
    metadata = {"turn_count": session.turn_count, "summary": session.summary, "closed": session.closed_at is not None}
    return ConversationMemory(conversation_id=session.scope.session, invocations=invocations, metadata=metadata)
