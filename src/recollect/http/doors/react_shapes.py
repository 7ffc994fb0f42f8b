"""The shapes of the agent's memory services: requests, records and answers by the names of their design."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from recollect.http.doors.door import Refusal
from recollect.model.memory import MemoryRecord
from recollect.model.times import as_utc
from recollect.model.turn import Conversation

_FACT: dict[str, JsonValue] = {
    "content": "The payment service listens on port 8443",
    "user": "alex",
    "collection": "payments",
}
_EPISODE: dict[str, JsonValue] = {
    "goal": "Deploy the payment service",
    "steps": ["npm build", "docker push"],
    "outcome": "deployed",
    "lessons": "Check the port first",
    "user": "alex",
    "collection": "payments",
}
_INVOCATION: dict[str, JsonValue] = {
    "query": "Deploy the payment service",
    "summary": "The user asked for a deployment; the agent built and pushed the image",
    "result": "deployed",
}


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")

    user: str | None = Field(None, description="Whose memory it is, unless a gateway says so.")


class _InCollection(_Request):
    collection: str | None = Field(None, description="The collection, which is a project of the user's.")


class _InConversation(_InCollection):
    conversation_id: str = Field(min_length=1, examples=["monday"])


class _Retrieve(_InCollection):
    query: str
    embedding: list[float] | None = Field(None, description="The query's vector by the server's model, if known.")


class RetrieveFacts(_Retrieve):
    """Which facts are wanted."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"query": "Which port?", "user": "alex"}]})

    top_k: int = Field(5, ge=1, le=1000)


class RetrieveEpisodes(_Retrieve):
    """Which episodes are wanted."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"query": "Deploy a service", "user": "alex"}]})

    top_k: int = Field(3, ge=1, le=1000)


class _Store(_InCollection):
    metadata: dict[str, Any] = Field(default_factory=dict)
    embedding: list[float] | None = Field(
        None, description="The vector of its words by the server's model, if known."
    )


class StoreFact(_Store):
    """A fact, and the conversation it was learned in."""

    model_config = ConfigDict(json_schema_extra={"examples": [_FACT]})

    content: str
    source: str = Field("", description="The conversation_id where it was learned.", examples=["monday"])


class StoreEpisode(_Store):
    """What was attempted, how, and what came of it."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EPISODE]})

    goal: str = Field(min_length=1)
    steps: list[str] = Field(default_factory=list, max_length=256)
    outcome: str = ""
    lessons: str = ""


class DeleteFact(_InCollection):
    """Which fact is to go."""

    fact_id: str


class GetConversation(_InConversation):
    """Which conversation is wanted."""


class InvocationSummary(BaseModel):
    """What one invocation was asked, did and came to."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_INVOCATION]})

    query: str = Field(max_length=20_000)
    summary: str = Field(max_length=20_000)
    result: str = Field(max_length=20_000)
    timestamp: datetime | None = Field(None, description="When that was; without one, now.")


class UpdateConversation(_InConversation):
    """What an invocation came to, to be added to its conversation."""

    invocation_summary: InvocationSummary


class EndConversation(_InConversation):
    """Which conversation has ended."""


class Error(BaseModel):
    """What went wrong."""

    type: str = Field(examples=["NotFound"])
    message: str


class Fact(BaseModel):
    """A fact; its vector is not told."""

    id: str
    content: str = Field(examples=[_FACT["content"]])
    source: str = Field(examples=["monday"])
    timestamp: datetime
    metadata: dict[str, Any]


class Episode(BaseModel):
    """An episode; its vector is not told."""

    id: str
    goal: str = Field(examples=[_EPISODE["goal"]])
    steps: list[str]
    outcome: str
    lessons: str
    timestamp: datetime
    metadata: dict[str, Any]


class ConversationMemory(BaseModel):
    """A conversation and what its invocations came to, in order."""

    conversation_id: str
    invocations: list[InvocationSummary]
    metadata: dict[str, Any]


class Facts(BaseModel):
    """The facts, nearest first."""

    facts: list[Fact]
    error: Error | None = None


class Episodes(BaseModel):
    """The episodes, nearest first."""

    episodes: list[Episode]
    error: Error | None = None


class FactStored(BaseModel):
    """The fact's id."""

    fact_id: str
    error: Error | None = None


class EpisodeStored(BaseModel):
    """The episode's id."""

    episode_id: str
    error: Error | None = None


class ConversationGot(BaseModel):
    """The conversation; one that has not begun has no invocations."""

    conversation: ConversationMemory
    error: Error | None = None


class Done(BaseModel):
    """It is done."""

    success: bool = True
    error: Error | None = None


class Failed(BaseModel):
    """It is not done."""

    error: Error


def refused(refusal: Refusal) -> tuple[int, dict[str, Any]]:
    """A refusal in the field that every answer has for it."""
    return refusal.status, {"error": {"type": refusal.kind, "message": refusal.message}}


def fact(record: MemoryRecord) -> Fact:
    """A memory as a fact."""
    return Fact(
        id=record.id,
        content=record.content,
        source=record.scope.session or record.source,
        timestamp=record.created_at,
        metadata=dict(record.metadata),
    )


def episode(record: MemoryRecord) -> Episode:
    """A memory as an episode; one that tells of a talk, and not of a task, has its words for a goal."""
    told = record.detail
    return Episode(
        id=record.id,
        goal=str(told.get("goal") or record.content),
        steps=[str(step) for step in told.get("steps", ())],
        outcome=str(told.get("outcome", "")),
        lessons=str(told.get("lessons", "")),
        timestamp=record.created_at,
        metadata=dict(record.metadata),
    )


def conversation(held: Conversation) -> ConversationMemory:
    """A session as a conversation; what we note of it for ourselves is not told."""
    told = [
        InvocationSummary(
            query=str(each.get("query", "")),
            summary=str(each.get("summary", "")),
            result=str(each.get("result", "")),
            timestamp=as_utc(each["timestamp"]) if each.get("timestamp") else None,
        )
        for each in held.invocations
    ]
    metadata = {"turn_count": held.turn_count, "summary": held.summary, "closed": held.closed_at is not None}
    return ConversationMemory(conversation_id=held.scope.session, invocations=told, metadata=metadata)
