"""The agent memory API under /api/react: facts, episodes and conversations for a reasoning agent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import Field

from recollect.errors import NotFound
from recollect.http.compat.context import Context, ContextDep, ExpiringModel
from recollect.http.errors import ErrorInfo
from recollect.http.params import (
    Count,
    Embedding,
    FreeText,
    Name,
    RequiredName,
    ResponseModel,
    StrictModel,
    Text,
    Time,
    example,
)
from recollect.http.routing import Router
from recollect.model.erasure import ErasureRequest, Target
from recollect.model.memory import Category, MemoryRecord, MemoryType
from recollect.model.query import Filter, Not, Op, Where
from recollect.model.result import SearchResult
from recollect.model.scope import Scope
from recollect.model.text import repair_text
from recollect.model.times import as_utc, now
from recollect.model.turn import Conversation
from recollect.remember import MemoryInput
from recollect.sessions.episodes import TaskSummary

_ONLY_EPISODES: Filter = Where("category", Op.EQ, str(Category.EPISODE))
_ONLY_FACTS: Filter = Not(Where("category", Op.IN, (str(Category.EPISODE), str(Category.SUMMARY))))
_INVOCATION = {
    "query": "Deploy the payment service",
    "summary": "The user asked for a deployment; the agent built and pushed the image",
    "result": "deployed",
}


class _Request(StrictModel):
    user: Name | None = Field(default=None, description="The user, unless the credentials name one.")
    collection: Name | None = Field(default=None, description="The collection, which is a project of the user.")


class ConversationRequest(_Request):
    """A conversation to return, to end or to delete; without a collection, that of any collection."""

    model_config = example(conversation_id="monday", user="alex", collection="payments")

    conversation_id: RequiredName


class _Retrieve(_Request):
    query: Text
    embedding: Embedding | None = None


class RetrieveFacts(_Retrieve):
    """A search for facts."""

    model_config = example(query="Which port?", user="alex")

    top_k: Count = 5


class RetrieveEpisodes(_Retrieve):
    """A search for episodes."""

    model_config = example(query="Deploy a service", user="alex")

    top_k: Count = 3


class _Store(_Request, ExpiringModel):
    metadata: dict[str, Any] = Field(default_factory=dict)
    embedding: Embedding | None = None


class StoreFact(_Store):
    """A fact, and the conversation it was learned in."""

    model_config = example(content="The payment service listens on port 8443", user="alex", collection="payments")

    content: Text
    source: Name = Field(default="", description="The conversation_id where it was learned.")


class StoreEpisode(_Store):
    """A task, its steps and its result."""

    model_config = example(
        goal="Deploy the payment service",
        steps=["npm build", "docker push"],
        outcome="deployed",
        lessons="Check the port first",
        user="alex",
        collection="payments",
    )

    goal: Text
    steps: list[FreeText] = Field(default_factory=list, max_length=256)
    outcome: FreeText = ""
    lessons: FreeText = ""


class DeleteFact(_Request):
    """A fact to delete."""

    model_config = example(fact_id="0198c6f1-5d2a-7c31-9a44-8f5a2f6b1c90", user="alex")

    fact_id: RequiredName


class InvocationSummary(StrictModel):
    """The query, steps and result of an invocation of the agent."""

    model_config = example(**_INVOCATION)

    query: str = Field(max_length=20_000)
    summary: str = Field(max_length=20_000)
    result: str = Field(max_length=20_000)
    timestamp: Time | None = Field(default=None, description="By default now.")


class UpdateConversation(ConversationRequest):
    """An invocation to add to its conversation."""

    model_config = example(conversation_id="monday", user="alex", invocation_summary=_INVOCATION)

    invocation_summary: InvocationSummary


class ReactError(ResponseModel):
    """The type and message of an error."""

    type: str
    message: str


class Fact(ResponseModel):
    """A fact, without its vector."""

    id: str
    content: str
    source: str = Field(description="The conversation_id where it was learned.")
    timestamp: datetime
    metadata: dict[str, Any]


class Episode(ResponseModel):
    """An episode, without its vector."""

    id: str
    goal: str
    steps: list[str]
    outcome: str
    lessons: str
    timestamp: datetime
    metadata: dict[str, Any]


class InvocationRecord(ResponseModel):
    """An invocation and its time."""

    query: str
    summary: str
    result: str
    timestamp: datetime | None


class ConversationMemory(ResponseModel):
    """A conversation with its invocations in order."""

    conversation_id: str
    invocations: list[InvocationRecord]
    metadata: dict[str, Any]


class _Answer(ResponseModel):
    error: ReactError | None = Field(default=None, description="Null, because the request succeeded.")


class Facts(_Answer):
    """The facts, nearest first."""

    facts: list[Fact]


class Episodes(_Answer):
    """The episodes, nearest first."""

    episodes: list[Episode]


class FactStored(_Answer):
    """The id of the fact."""

    fact_id: str


class EpisodeStored(_Answer):
    """The id of the episode."""

    episode_id: str


class ConversationResult(_Answer):
    """The conversation; one that has not begun has no invocations."""

    conversation: ConversationMemory


class Done(_Answer):
    """The request succeeded."""

    success: bool = True


class Failed(ResponseModel):
    """The request failed."""

    error: ReactError


def format_error(error: ErrorInfo) -> dict[str, Any]:
    return {"error": {"type": error.code, "message": error.message}}


def _to_fact(record: MemoryRecord) -> Fact:
    return Fact(
        id=record.id,
        content=record.content,
        source=record.scope.session or record.source,
        timestamp=record.created_at,
        metadata=dict(record.metadata),
    )


def _to_episode(record: MemoryRecord) -> Episode:
    """Return a memory as an episode; the episode of a conversation has no goal, so its text is the goal."""
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


def _to_conversation(id: str, sessions: Sequence[Conversation]) -> ConversationMemory:
    """Return a conversation; one that goes through several collections has the invocations of all."""
    invocations = [
        InvocationRecord(
            **{name: str(each.get(name, "")) for name in ("query", "summary", "result")},
            timestamp=as_utc(each["timestamp"]) if each.get("timestamp") else None,
        )
        for session in sessions
        for each in session.invocations
    ]
    if len(sessions) > 1:
        invocations.sort(key=lambda each: each.timestamp or datetime.min.replace(tzinfo=UTC))
    metadata = {
        "turn_count": sum(session.turn_count for session in sessions),
        "summary": "\n".join(session.summary for session in sessions if session.summary),
        "closed": bool(sessions) and all(session.closed_at is not None for session in sessions),
    }
    return ConversationMemory(conversation_id=id, invocations=invocations, metadata=metadata)


router = Router(
    "react",
    prefix="/api/react",
    operation_prefix="react_",
    error_format=format_error,
    error_model=Failed,
    read_only=["retrieve_facts", "retrieve_episodes", "get_conversation"],
    write_only=["store_fact", "store_episode", "update_conversation", "end_conversation"],
)


@router.post("/facts/store")
async def store_fact(ctx: ContextDep, body: StoreFact) -> FactStored:
    """Store a fact for all conversations of the collection; an existing one gets the metadata and the expiry."""
    scope = ctx.caller.scope(body.user, body.collection, body.source)
    return FactStored(fact_id=await _store(ctx, scope, body, body.content, {}))


@router.post("/episodes/store")
async def store_episode(ctx: ContextDep, body: StoreEpisode) -> EpisodeStored:
    """Store an episode for all conversations of the collection."""
    summary = TaskSummary(
        goal=body.goal, steps=tuple(body.steps), outcome=body.outcome, lessons=(body.lessons,) if body.lessons else ()
    )
    fields: dict[str, Any] = {
        "category": str(Category.EPISODE),
        "type": str(MemoryType.EPISODIC),
        "detail": {**summary.detail, "kind": "run", "made": "given"},
    }
    scope = ctx.caller.scope(body.user, body.collection)
    return EpisodeStored(episode_id=await _store(ctx, scope, body, summary.text, fields))


async def _store(ctx: Context, scope: Scope, body: _Store, content: str, fields: dict[str, Any]) -> str:
    expiry = body.expiry()
    new = MemoryInput(
        content=content,
        fields={**fields, **expiry, "metadata": body.metadata},
        vector=await ctx.service.check_embedding(body.embedding),
    )
    merged = expiry | ({"metadata": body.metadata} if body.metadata else {})
    return (await ctx.add(scope, new, merged))[1].id


@router.post("/facts/retrieve")
async def retrieve_facts(ctx: ContextDep, body: RetrieveFacts) -> Facts:
    """Return the facts of the user and the collection that are nearest to the query."""
    result = await _search(ctx, body, _ONLY_FACTS)
    return Facts(facts=[_to_fact(hit.record) for hit in result])


@router.post("/episodes/retrieve")
async def retrieve_episodes(ctx: ContextDep, body: RetrieveEpisodes) -> Episodes:
    """Return the episodes of the user and the collection that are nearest to the query."""
    result = await _search(ctx, body, _ONLY_EPISODES)
    return Episodes(episodes=[_to_episode(hit.record) for hit in result])


async def _search(ctx: Context, body: RetrieveFacts | RetrieveEpisodes, filter: Filter) -> SearchResult:
    # This API has no threshold.
    scope = ctx.caller.scope(body.user, body.collection)
    return await ctx.search(
        scope, body.query, limit=body.top_k, min_score=0.0, filter=filter, embedding=body.embedding
    )


@router.post("/facts/delete", responses=router.error_responses(404))
async def delete_fact(ctx: ContextDep, body: DeleteFact) -> Done:
    """Forget a fact and the turns it was learned from; this can be undone."""
    scope = ctx.caller.scope(body.user, body.collection)
    record = await ctx.fetch_editable(scope, body.fact_id)
    if record.category is Category.EPISODE:
        raise NotFound(f"no fact {body.fact_id}")
    await ctx.forget(scope, record.id)
    return Done()


@router.post("/conversations/get")
async def get_conversation(ctx: ContextDep, body: ConversationRequest) -> ConversationResult:
    """Return the invocations of a conversation in order; one that has not begun has none."""
    scopes = await _conversation_scopes(ctx, body)
    sessions = [await ctx.service.conversation(scope) for scope in scopes]
    return ConversationResult(conversation=_to_conversation(body.conversation_id, sessions))


async def _conversation_scopes(ctx: Context, body: ConversationRequest) -> list[Scope]:
    """Return the scopes of a conversation: its collections, if the request names none and there are any."""
    scope = ctx.caller.scope(body.user, body.collection, body.conversation_id)
    if scope.project:
        return [scope]
    sessions = await ctx.service.sessions.list(scope.user, session=scope.session)
    return [session.scope for session in sessions] or [scope]


@router.post("/conversations/update")
async def update_conversation(ctx: ContextDep, body: UpdateConversation) -> Done:
    """Add an invocation to its conversation, which begins with it if it does not exist.

    Without a collection it is added where the conversation was last continued.
    """
    scope = (await _conversation_scopes(ctx, body))[0]
    summary = body.invocation_summary
    texts = {name: repair_text(getattr(summary, name)) for name in ("query", "summary", "result")}
    timestamp = as_utc(summary.timestamp or now()).isoformat()
    await ctx.service.sessions.record_invocation(scope, {**texts, "timestamp": timestamp})
    return Done()


@router.post("/conversations/end", responses=router.error_responses(404))
async def end_conversation(ctx: ContextDep, body: ConversationRequest) -> Done:
    """End a conversation: in the background the rest of it is learned and what matters is promoted."""
    for scope in await _conversation_scopes(ctx, body):
        await ctx.service.sessions.end(scope)
    return Done()


@router.post("/conversations/delete", responses=router.error_responses(404))
async def delete_conversation(ctx: ContextDep, body: ConversationRequest) -> Done:
    """Erase a conversation for good, with its invocations and everything that was learned from it alone."""
    for scope in await _conversation_scopes(ctx, body):
        await ctx.service.erasure.erase(scope, ErasureRequest(Target.SESSION), by=ctx.caller.author())
    return Done()
