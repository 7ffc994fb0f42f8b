"""Memory services for a reasoning agent: facts, episodes and conversations, a request a verb, under /api/react."""

from __future__ import annotations

from typing import Any

from recollect.conversation.story import Story
from recollect.errors import NotFound
from recollect.http.doors import react_shapes as shapes
from recollect.http.doors.asking import Asking, Caller, Serving, Set
from recollect.http.doors.door import Door
from recollect.http.doors.finding import held, looked_for, taken_on
from recollect.model.memory import Category, MemoryType
from recollect.model.query import Filter, Not, Op, Where
from recollect.model.result import SearchResult
from recollect.model.text import checked_text, mended_text
from recollect.model.times import as_utc, now
from recollect.remember import NewMemory
from recollect.service import Service
from recollect.settings import Settings

router = Door(
    called="react",
    prefix="/api/react",
    tags=["react"],
    shape=shapes.refused,
    reading=["retrieve_facts", "retrieve_episodes", "get_conversation"],
    adding=["store_fact", "store_episode", "update_conversation", "end_conversation"],
    refused=shapes.Failed,
)

_EPISODES: Filter = Where("category", Op.EQ, str(Category.EPISODE))
_FACTS: Filter = Not(Where("category", Op.IN, (str(Category.EPISODE), str(Category.SUMMARY))))
_LEAST = 0.0


@router.post("/facts/store")
async def store_fact(caller: Asking, service: Serving, asked: shapes.StoreFact) -> shapes.FactStored:
    """Keep a fact for all conversations of the collection; said twice, it is kept once, with the metadata of both."""
    scope = caller.scope(asked.user, asked.collection, asked.source)
    new = NewMemory(
        content=asked.content,
        fields={"metadata": asked.metadata},
        vector=await service.care.given_vector(asked.embedding),
    )
    outcome = await service.add(scope, new, by=caller.by())
    said = {"metadata": asked.metadata} if asked.metadata else {}
    return shapes.FactStored(fact_id=(await taken_on(service, scope, outcome, said, by=caller.by())).id)


@router.post("/facts/retrieve")
async def retrieve_facts(
    caller: Asking, service: Serving, settings: Set, asked: shapes.RetrieveFacts
) -> shapes.Facts:
    """The facts of the user and the collection that are nearest to the query."""
    found = await _nearest(caller, service, settings, asked, _FACTS)
    return shapes.Facts(facts=[shapes.fact(hit.record) for hit in found])


@router.post("/facts/delete", responses=router.failing(404))
async def delete_fact(caller: Asking, service: Serving, asked: shapes.DeleteFact) -> shapes.Done:
    """Forget a fact, with the turns it was learned from; it can be undone."""
    scope = caller.scope(asked.user, asked.collection)
    record = caller.to_change(await held(service, scope, asked.fact_id))
    if record.category is Category.EPISODE:
        raise NotFound(f"no fact {asked.fact_id}")
    await service.forget(scope, record.id, by=caller.by())
    return shapes.Done()


@router.post("/episodes/store")
async def store_episode(caller: Asking, service: Serving, asked: shapes.StoreEpisode) -> shapes.EpisodeStored:
    """Keep an episode for all conversations of the collection."""
    story = Story(
        goal=checked_text(asked.goal, name="goal"),
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
    new = NewMemory(content=story.plain, fields=fields, vector=await service.care.given_vector(asked.embedding))
    scope = caller.scope(asked.user, asked.collection)
    outcome = await service.add(scope, new, by=caller.by())
    said = {"metadata": asked.metadata} if asked.metadata else {}
    return shapes.EpisodeStored(episode_id=(await taken_on(service, scope, outcome, said, by=caller.by())).id)


@router.post("/episodes/retrieve")
async def retrieve_episodes(
    caller: Asking, service: Serving, settings: Set, asked: shapes.RetrieveEpisodes
) -> shapes.Episodes:
    """The episodes of the user and the collection that are most like the query."""
    found = await _nearest(caller, service, settings, asked, _EPISODES)
    return shapes.Episodes(episodes=[shapes.episode(hit.record) for hit in found])


async def _nearest(
    caller: Caller,
    service: Service,
    settings: Settings,
    asked: shapes.RetrieveFacts | shapes.RetrieveEpisodes,
    filter: Filter,
) -> SearchResult:
    # The nearest, however far: the design has no threshold.
    search = looked_for(
        asked.query,
        settings,
        limit=asked.top_k,
        min_score=_LEAST,
        filter=filter,
        vector=await service.care.given_vector(asked.embedding),
    )
    return await service.search(caller.scope(asked.user, asked.collection), search)


@router.post("/conversations/get")
async def get_conversation(caller: Asking, service: Serving, asked: shapes.GetConversation) -> shapes.ConversationGot:
    """What the invocations of a conversation came to, in order; one that has not begun has none."""
    scope = caller.scope(asked.user, asked.collection, asked.conversation_id)
    return shapes.ConversationGot(conversation=shapes.conversation(await service.conversation(scope)))


@router.post("/conversations/update")
async def update_conversation(caller: Asking, service: Serving, asked: shapes.UpdateConversation) -> shapes.Done:
    """Add what an invocation came to to its conversation, which begins with it if need be."""
    scope = caller.scope(asked.user, asked.collection, asked.conversation_id)
    told = asked.invocation_summary
    texts = {name: mended_text(getattr(told, name)) for name in ("query", "summary", "result")}
    await service.care.tell_invocation(scope, {**texts, "timestamp": as_utc(told.timestamp or now()).isoformat()})
    return shapes.Done()


@router.post("/conversations/end", responses=router.failing(404))
async def end_conversation(caller: Asking, service: Serving, asked: shapes.EndConversation) -> shapes.Done:
    """End a conversation: behind the answer the rest of it is learned, and what matters is promoted."""
    await service.care.end_session(caller.scope(asked.user, asked.collection, asked.conversation_id))
    return shapes.Done()
