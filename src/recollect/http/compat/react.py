"""The shapes of the agent's memory services: requests, records and answers by the names of their design."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from recollect.config.settings import Settings
from recollect.errors import NotFound
from recollect.http.compat.routing import Caller, CallerDep, CompatRouter, ServiceDep, SettingsDep
from recollect.http.compat.search import build_search_request, fetch_memory, merge_into_existing
from recollect.http.errors import ErrorInfo
from recollect.http.params import Count, Embedding, FreeText, Name, RequiredName, StrictModel, Text, Time
from recollect.model.memory import Category, MemoryRecord, MemoryType
from recollect.model.query import Filter, Not, Op, Where
from recollect.model.result import SearchResult
from recollect.model.text import repair_text, validate_text
from recollect.model.times import as_utc, now
from recollect.model.turn import Conversation
from recollect.remember import MemoryInput
from recollect.service.service import Service
from recollect.sessions.episodes import TaskSummary

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


router = CompatRouter(
    operation_prefix="react",
    prefix="/api/react",
    tags=["react"],
    render_error=render_react_error,
    read_only=["retrieve_facts", "retrieve_episodes", "get_conversation"],
    write_only=["store_fact", "store_episode", "update_conversation", "end_conversation"],
    error_model=Failed,
)

_ONLY_EPISODES: Filter = Where("category", Op.EQ, str(Category.EPISODE))
_ONLY_FACTS: Filter = Not(Where("category", Op.IN, (str(Category.EPISODE), str(Category.SUMMARY))))
_MIN_SCORE = 0.0


@router.post("/facts/store")
async def store_fact(caller: CallerDep, service: ServiceDep, asked: StoreFact) -> FactStored:
    """Keep a fact for all conversations of the collection; said twice, it is kept once, with the metadata of both."""
    scope = caller.scope(asked.user, asked.collection, asked.source)
    new = MemoryInput(
        content=asked.content,
        fields={"metadata": asked.metadata},
        vector=await service.check_embedding(asked.embedding),
    )
    outcome = await service.add(scope, new, by=caller.author())
    changes = {"metadata": asked.metadata} if asked.metadata else {}
    return FactStored(fact_id=(await merge_into_existing(service, scope, outcome, changes, by=caller.author())).id)


@router.post("/facts/retrieve")
async def retrieve_facts(
    caller: CallerDep, service: ServiceDep, settings: SettingsDep, asked: RetrieveFacts
) -> Facts:
    """The facts of the user and the collection that are nearest to the query."""
    result = await _search(caller, service, settings, asked, _ONLY_FACTS)
    return Facts(facts=[to_fact(hit.record) for hit in result])


@router.post("/facts/delete", responses=router.error_responses(404))
async def delete_fact(caller: CallerDep, service: ServiceDep, asked: DeleteFact) -> Done:
    """Forget a fact, with the turns it was learned from; it can be undone."""
    scope = caller.scope(asked.user, asked.collection)
    record = caller.ensure_editable(await fetch_memory(service, scope, asked.fact_id))
    if record.category is Category.EPISODE:
        raise NotFound(f"no fact {asked.fact_id}")
    await service.forget(scope, record.id, by=caller.author())
    return Done()


@router.post("/episodes/store")
async def store_episode(caller: CallerDep, service: ServiceDep, asked: StoreEpisode) -> EpisodeStored:
    """Keep an episode for all conversations of the collection."""
    story = TaskSummary(
        goal=validate_text(asked.goal, name="goal"),
        steps=tuple(asked.steps),
        outcome=asked.outcome,
        lessons=(asked.lessons,) if asked.lessons else (),
    )
    fields: dict[str, Any] = {
        "category": str(Category.EPISODE),
        "type": str(MemoryType.EPISODIC),
        "metadata": asked.metadata,
        "detail": {**story.detail, "kind": "run", "made": "given"},
    }
    new = MemoryInput(content=story.text, fields=fields, vector=await service.check_embedding(asked.embedding))
    scope = caller.scope(asked.user, asked.collection)
    outcome = await service.add(scope, new, by=caller.author())
    changes = {"metadata": asked.metadata} if asked.metadata else {}
    return EpisodeStored(
        episode_id=(await merge_into_existing(service, scope, outcome, changes, by=caller.author())).id
    )


@router.post("/episodes/retrieve")
async def retrieve_episodes(
    caller: CallerDep, service: ServiceDep, settings: SettingsDep, asked: RetrieveEpisodes
) -> Episodes:
    """The episodes of the user and the collection that are most like the query."""
    result = await _search(caller, service, settings, asked, _ONLY_EPISODES)
    return Episodes(episodes=[to_episode(hit.record) for hit in result])


async def _search(
    caller: Caller,
    service: Service,
    settings: Settings,
    request: RetrieveFacts | RetrieveEpisodes,
    filter: Filter,
) -> SearchResult:
    # The nearest, however far: the design has no threshold.
    search = build_search_request(
        request.query,
        settings,
        limit=request.top_k,
        min_score=_MIN_SCORE,
        filter=filter,
        vector=await service.check_embedding(request.embedding),
    )
    return await service.search(caller.scope(request.user, request.collection), search)


@router.post("/conversations/get")
async def get_conversation(caller: CallerDep, service: ServiceDep, asked: GetConversation) -> ConversationGot:
    """What the invocations of a conversation came to, in order; one that has not begun has none."""
    scope = caller.scope(asked.user, asked.collection, asked.conversation_id)
    return ConversationGot(conversation=to_conversation(await service.conversation(scope)))


@router.post("/conversations/update")
async def update_conversation(caller: CallerDep, service: ServiceDep, asked: UpdateConversation) -> Done:
    """Add what an invocation came to to its conversation, which begins with it if need be."""
    scope = caller.scope(asked.user, asked.collection, asked.conversation_id)
    summary = asked.invocation_summary
    texts = {name: repair_text(getattr(summary, name)) for name in ("query", "summary", "result")}
    await service.sessions.record_invocation(
        scope, {**texts, "timestamp": as_utc(summary.timestamp or now()).isoformat()}
    )
    return Done()


@router.post("/conversations/end", responses=router.error_responses(404))
async def end_conversation(caller: CallerDep, service: ServiceDep, asked: EndConversation) -> Done:
    """End a conversation: behind the answer the rest of it is learned, and what matters is promoted."""
    await service.sessions.end(caller.scope(asked.user, asked.collection, asked.conversation_id))
    return Done()
