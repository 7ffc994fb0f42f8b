"""What is remembered of a session by REST: /api/sessions/{sessionId}/memories.

There is a session once something was said or kept in it, or once it was begun by POST /api/sessions.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Query

from recollect.errors import NotFound
from recollect.http.doors import sessions_shapes as shapes
from recollect.http.doors.asking import CallerDep, ServiceDep, SettingsDep
from recollect.http.doors.door import CompatRouter
from recollect.http.doors.finding import EXCLUDE_TURNS, build_search_request, fetch_memory, merge_into_existing
from recollect.http.doors.given import Name, RequiredName, Text
from recollect.model.ids import new_id
from recollect.model.query import Listing, Op, Where
from recollect.model.scope import Level, Scope
from recollect.model.times import now
from recollect.read.format import format_context
from recollect.remember import MemoryInput

router = CompatRouter(
    operation_prefix="sessions",
    prefix="/api/sessions",
    tags=["sessions"],
    render_error=shapes.render_session_error,
    write_only=["begin_session", "create_memory"],
    error_model=shapes.SessionRefused,
)

_CONTEXT_STYLE = "session-service"
_MAX_LISTED = 1000
SessionId = Annotated[
    RequiredName, Path(description="The session.", examples=["7d0f3f5e-8f0a-4a53-9a83-3f1f0f6f8c11"])
]
MemoryId = Annotated[str, Path(description="The memory.", examples=["0198c6f1-5d2a-7c31-9a44-8f5a2f6b1c90"])]
UserId = Annotated[Name | None, Query(description="Whose session; without one, the user of chats that name none.")]
ProjectId = Annotated[Name | None, Query(description="The project that the session is in, if any.")]
QueryText = Annotated[Text, Query(description="What is being asked.", examples=["When is the deadline?"])]
Limit = Annotated[int | None, Query(ge=1, le=_MAX_LISTED, description="How many; without one, what is set up.")]


class SessionNotFound(NotFound):
    """There is no such session for this user."""


async def _session_scope(
    caller: CallerDep,
    settings: SettingsDep,
    sessionId: SessionId,
    user_id: UserId = None,
    project_id: ProjectId = None,
) -> Scope:
    # The requests of this design name no user: a service of one's own has one.
    default_user = settings.chat_user if caller.kind == "local" else None
    return caller.scope(user_id or caller.user or default_user, project_id, sessionId)


async def _existing_session(service: ServiceDep, named: Annotated[Scope, Depends(_session_scope)]) -> Scope:
    try:
        return (await service.operations.session(named)).scope
    except NotFound as error:
        raise SessionNotFound(str(error)) from None


SessionScope = Annotated[Scope, Depends(_existing_session)]


@router.post("", status_code=201)
async def begin_session(
    caller: CallerDep,
    service: ServiceDep,
    settings: SettingsDep,
    new: shapes.NewSession | None = None,
    user_id: UserId = None,
    project_id: ProjectId = None,
) -> shapes.SessionCreated:
    """Begin a session before anything is said in it. A chat begins its own; one that there is stays as it is."""
    session = await _session_scope(caller, settings, (new and new.sessionId) or new_id(), user_id, project_id)
    await service.operations.begin_session(session, by=caller.author())
    return shapes.SessionCreated(sessionId=session.session)


@router.get("/{sessionId}/memories")
async def list_memories(service: ServiceDep, session: SessionScope) -> list[shapes.SessionMemory]:
    """All memories of a session, newest first."""
    page = await service.find(session, Listing(filter=EXCLUDE_TURNS, limit=_MAX_LISTED))
    return [shapes.to_session_memory(record) for record in page]


@router.post("/{sessionId}/memories", status_code=201)
async def create_memory(
    caller: CallerDep, service: ServiceDep, session: SessionScope, new: shapes.NewSessionMemory
) -> shapes.SessionMemory:
    """Keep a memory in a session, word for word but for secrets; one that is there takes on the importance."""
    fields = {"category": new.type, "importance": new.importance, "level": str(Level.SESSION)}
    outcome = caller.check_outcome_visible(
        await service.add(session, MemoryInput(content=new.content, fields=fields), by=caller.author())
    )
    changes = new.model_dump(include={"importance"}, exclude_unset=True)
    return shapes.to_session_memory(
        (await merge_into_existing(service, session, outcome, changes, by=caller.author())).record
    )


@router.get("/{sessionId}/memories/relevant")
async def relevant_memories(
    service: ServiceDep, settings: SettingsDep, session: SessionScope, query: QueryText, limit: Limit = None
) -> shapes.Relevant:
    """The memories of a session that fit a query, best first, and the text of them for a prompt."""
    search = build_search_request(query, settings, limit=limit, filter=Where("session_id", Op.EQ, session.session))
    hits = (await service.search(session, search)).hits
    context = format_context(_CONTEXT_STYLE, hits, budget_tokens=settings.context_tokens, now=now())
    return shapes.Relevant(memories=[shapes.to_session_memory(hit.record) for hit in hits], context=context.text)


@router.get("/{sessionId}/memories/{memoryId}")
async def get_memory(service: ServiceDep, session: SessionScope, memoryId: MemoryId) -> shapes.SessionMemory:
    """One memory of a session. One of another session or user answers like one that there is not."""
    return shapes.to_session_memory(await fetch_memory(service, session, memoryId))


@router.delete("/{sessionId}/memories/{memoryId}", status_code=204)
async def delete_memory(caller: CallerDep, service: ServiceDep, session: SessionScope, memoryId: MemoryId) -> None:
    """Forget a memory of a session, with the turns it was learned from; it can be undone."""
    await service.forget(session, (await fetch_memory(service, session, memoryId)).id, by=caller.author())
