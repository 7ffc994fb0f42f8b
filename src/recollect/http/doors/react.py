"""Memory services for a reasoning agent: facts, episodes and conversations, a request a verb, under /api/react."""

from __future__ import annotations

from typing import Any

from recollect.conversation.story import TaskSummary
from recollect.errors import NotFound
from recollect.http.doors import react_shapes as shapes
from recollect.http.doors.asking import Caller, CallerDep, ServiceDep, SettingsDep
from recollect.http.doors.door import CompatRouter
from recollect.http.doors.finding import build_search_request, fetch_memory, merge_into_existing
from recollect.model.memory import Category, MemoryType
from recollect.model.query import Filter, Not, Op, Where
from recollect.model.result import SearchResult
from recollect.model.text import repair_text, validate_text
from recollect.model.times import as_utc, now
from recollect.remember import MemoryInput
from recollect.service import Service
from recollect.settings import Settings

router = CompatRouter(
    operation_prefix="react",
    prefix="/api/react",
    tags=["react"],
    render_error=shapes.render_react_error,
    read_only=["retrieve_facts", "retrieve_episodes", "get_conversation"],
    write_only=["store_fact", "store_episode", "update_conversation", "end_conversation"],
    error_model=shapes.Failed,
)

_ONLY_EPISODES: Filter = Where("category", Op.EQ, str(Category.EPISODE))
_ONLY_FACTS: Filter = Not(Where("category", Op.IN, (str(Category.EPISODE), str(Category.SUMMARY))))
_MIN_SCORE = 0.0


@router.post("/facts/store")
async def store_fact(caller: CallerDep, service: ServiceDep, asked: shapes.StoreFact) -> shapes.FactStored:
    """Keep a fact for all conversations of the collection; said twice, it is kept once, with the metadata of both."""
    scope = caller.scope(asked.user, asked.collection, asked.source)
    new = MemoryInput(
        content=asked.content,
        fields={"metadata": asked.metadata},
        vector=await service.operations.check_embedding(asked.embedding),
    )
    outcome = await service.add(scope, new, by=caller.author())
    changes = {"metadata": asked.metadata} if asked.metadata else {}
    return shapes.FactStored(
        fact_id=(await merge_into_existing(service, scope, outcome, changes, by=caller.author())).id
    )


@router.post("/facts/retrieve")
async def retrieve_facts(
    caller: CallerDep, service: ServiceDep, settings: SettingsDep, asked: shapes.RetrieveFacts
) -> shapes.Facts:
    """The facts of the user and the collection that are nearest to the query."""
    result = await _search(caller, service, settings, asked, _ONLY_FACTS)
    return shapes.Facts(facts=[shapes.to_fact(hit.record) for hit in result])


@router.post("/facts/delete", responses=router.error_responses(404))
async def delete_fact(caller: CallerDep, service: ServiceDep, asked: shapes.DeleteFact) -> shapes.Done:
    """Forget a fact, with the turns it was learned from; it can be undone."""
    scope = caller.scope(asked.user, asked.collection)
    record = caller.ensure_editable(await fetch_memory(service, scope, asked.fact_id))
    if record.category is Category.EPISODE:
        raise NotFound(f"no fact {asked.fact_id}")
    await service.forget(scope, record.id, by=caller.author())
    return shapes.Done()


@router.post("/episodes/store")
async def store_episode(caller: CallerDep, service: ServiceDep, asked: shapes.StoreEpisode) -> shapes.EpisodeStored:
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
    new = MemoryInput(
        content=story.text, fields=fields, vector=await service.operations.check_embedding(asked.embedding)
    )
    scope = caller.scope(asked.user, asked.collection)
    outcome = await service.add(scope, new, by=caller.author())
    changes = {"metadata": asked.metadata} if asked.metadata else {}
    return shapes.EpisodeStored(
        episode_id=(await merge_into_existing(service, scope, outcome, changes, by=caller.author())).id
    )


@router.post("/episodes/retrieve")
async def retrieve_episodes(
    caller: CallerDep, service: ServiceDep, settings: SettingsDep, asked: shapes.RetrieveEpisodes
) -> shapes.Episodes:
    """The episodes of the user and the collection that are most like the query."""
    result = await _search(caller, service, settings, asked, _ONLY_EPISODES)
    return shapes.Episodes(episodes=[shapes.to_episode(hit.record) for hit in result])


async def _search(
    caller: Caller,
    service: Service,
    settings: Settings,
    request: shapes.RetrieveFacts | shapes.RetrieveEpisodes,
    filter: Filter,
) -> SearchResult:
    # The nearest, however far: the design has no threshold.
    search = build_search_request(
        request.query,
        settings,
        limit=request.top_k,
        min_score=_MIN_SCORE,
        filter=filter,
        vector=await service.operations.check_embedding(request.embedding),
    )
    return await service.search(caller.scope(request.user, request.collection), search)


@router.post("/conversations/get")
async def get_conversation(
    caller: CallerDep, service: ServiceDep, asked: shapes.GetConversation
) -> shapes.ConversationGot:
    """What the invocations of a conversation came to, in order; one that has not begun has none."""
    scope = caller.scope(asked.user, asked.collection, asked.conversation_id)
    return shapes.ConversationGot(conversation=shapes.to_conversation(await service.conversation(scope)))


@router.post("/conversations/update")
async def update_conversation(
    caller: CallerDep, service: ServiceDep, asked: shapes.UpdateConversation
) -> shapes.Done:
    """Add what an invocation came to to its conversation, which begins with it if need be."""
    scope = caller.scope(asked.user, asked.collection, asked.conversation_id)
    summary = asked.invocation_summary
    texts = {name: repair_text(getattr(summary, name)) for name in ("query", "summary", "result")}
    await service.operations.record_invocation(
        scope, {**texts, "timestamp": as_utc(summary.timestamp or now()).isoformat()}
    )
    return shapes.Done()


@router.post("/conversations/end", responses=router.error_responses(404))
async def end_conversation(caller: CallerDep, service: ServiceDep, asked: shapes.EndConversation) -> shapes.Done:
    """End a conversation: behind the answer the rest of it is learned, and what matters is promoted."""
    await service.operations.end_session(caller.scope(asked.user, asked.collection, asked.conversation_id))
    return shapes.Done()
