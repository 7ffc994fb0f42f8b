"""The session API under /api/sessions: memories of a session, with camelCase names and times without a zone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import Depends, Path, Query
from pydantic import Field

from recollect.errors import NotFound
from recollect.http.compat.context import EXCLUDE_TURNS, ContextDep
from recollect.http.errors import ErrorInfo
from recollect.http.params import Name, RequiredName, ResponseModel, StrictModel, Text, UnitFloat, example
from recollect.http.routing import Router
from recollect.model.ids import new_id
from recollect.model.memory import Category, MemoryRecord
from recollect.model.query import Listing, Op, Where
from recollect.model.scope import Level, Scope
from recollect.remember import MemoryInput

SessionMemoryType: TypeAlias = Literal["fact", "preference", "insight"]
# All other categories are facts in this API.
_TYPE_BY_CATEGORY: dict[Category, SessionMemoryType] = {
    Category.PREFERENCE: "preference",
    Category.INSTRUCTION: "preference",
    Category.INSIGHT: "insight",
    Category.LESSON: "insight",
}
_CONTEXT_STYLE = "session-service"
_MAX_LISTED = 1000


class SessionMemory(ResponseModel):
    """A memory of a session; times are UTC, to the second."""

    id: str
    sessionId: str
    memoryContent: str
    memoryType: SessionMemoryType
    importance: UnitFloat
    createdAt: str
    lastAccessedAt: str


class NewSessionMemory(StrictModel):
    """A memory to store verbatim."""

    model_config = example(content="User prefers detailed explanations", type="preference", importance=0.7)

    content: Text
    type: SessionMemoryType = "fact"
    importance: UnitFloat = 0.5


class NewSession(StrictModel):
    """A session to begin; without an id it gets one."""

    model_config = example(sessionId="7d0f3f5e-8f0a-4a53-9a83-3f1f0f6f8c11")

    sessionId: RequiredName | None = None


class SessionCreated(ResponseModel):
    """A session."""

    sessionId: str


class RelevantMemories(ResponseModel):
    """The memories that match a query, best first, and a text block with them for a prompt."""

    memories: list[SessionMemory]
    context: str = Field(description="Empty without memories.")


class SessionError(ResponseModel):
    """An error."""

    error: str = Field(description="Such as SessionNotFoundException.")
    detail: str


class SessionNotFound(NotFound):
    """The user has no such session."""


def _format_error(error: ErrorInfo) -> dict[str, Any]:
    names = {"NotFound": "MemoryNotFoundException", "SessionNotFound": "SessionNotFoundException"}
    return {"error": names.get(error.code, error.code), "detail": error.message}


def _to_session_memory(record: MemoryRecord) -> SessionMemory:
    return SessionMemory(
        id=record.id,
        sessionId=record.scope.session,
        memoryContent=record.content,
        memoryType=_TYPE_BY_CATEGORY.get(record.category, "fact"),
        importance=record.importance,
        createdAt=_format_time(record.created_at),
        lastAccessedAt=_format_time(record.last_accessed_at or record.created_at),
    )


def _format_time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")


router = Router(
    "sessions",
    prefix="/api/sessions",
    operation_prefix="sessions_",
    error_format=_format_error,
    error_model=SessionError,
    write_only=["begin_session", "create_memory"],
)
SessionId = Annotated[RequiredName, Path(description="The session.")]
MemoryId = Annotated[str, Path(description="The memory.")]
UserId = Annotated[Name | None, Query(description="The user; by default the user of chats that name none.")]
ProjectId = Annotated[Name | None, Query(description="The project of the session, if it has one.")]
QueryText = Annotated[Text, Query(description="The question.", examples=["When is the deadline?"])]
Limit = Annotated[int | None, Query(ge=1, le=_MAX_LISTED, description="By default `search_limit`.")]


async def _session_scope(
    ctx: ContextDep, sessionId: SessionId, user_id: UserId = None, project_id: ProjectId = None
) -> Scope:
    # Clients of this API name no user: a local server has one.
    default_user = ctx.settings.chat_user if ctx.caller.kind == "local" else None
    return ctx.caller.scope(user_id or ctx.caller.user or default_user, project_id, sessionId)


async def _existing_session(ctx: ContextDep, scope: Annotated[Scope, Depends(_session_scope)]) -> Scope:
    try:
        return (await ctx.service.sessions.get(scope)).scope
    except NotFound as error:
        raise SessionNotFound(str(error)) from None


SessionScope = Annotated[Scope, Depends(_existing_session)]


@router.post("", status_code=201)
async def begin_session(
    ctx: ContextDep, new: NewSession | None = None, user_id: UserId = None, project_id: ProjectId = None
) -> SessionCreated:
    """Begin a session before its first message; an existing session stays as it is. A chat begins its own session."""
    session = await _session_scope(ctx, (new and new.sessionId) or new_id(), user_id, project_id)
    await ctx.service.sessions.begin(session, by=ctx.caller.author())
    return SessionCreated(sessionId=session.session)


@router.get("/{sessionId}/memories")
async def list_memories(ctx: ContextDep, session: SessionScope) -> list[SessionMemory]:
    """List all memories of a session, newest first."""
    page = await ctx.service.find(session, Listing(filter=EXCLUDE_TURNS, limit=_MAX_LISTED))
    return [_to_session_memory(record) for record in page]


@router.post("/{sessionId}/memories", status_code=201)
async def create_memory(ctx: ContextDep, session: SessionScope, new: NewSessionMemory) -> SessionMemory:
    """Store a memory in a session verbatim, without secrets; one that says the same may become more important."""
    fields = {"category": new.type, "importance": new.importance, "level": str(Level.SESSION)}
    draft = MemoryInput(content=new.content, fields=fields)
    added, result = await ctx.add(session, draft, {}, is_shown=True)
    if not added.changed and new.importance > result.record.importance:
        return _to_session_memory(await ctx.update(session, result.id, {"importance": new.importance}))
    return _to_session_memory(result.record)


@router.get("/{sessionId}/memories/relevant")
async def relevant_memories(
    ctx: ContextDep, session: SessionScope, query: QueryText, limit: Limit = None
) -> RelevantMemories:
    """Return the memories of a session that match a query, best first, and a text block with them for a prompt."""
    in_session = Where("session_id", Op.EQ, session.session)
    hits = (await ctx.search(session, query, limit=limit, filter=in_session)).hits
    context = ctx.service.format_context(_CONTEXT_STYLE, hits, budget_tokens=ctx.settings.context_tokens)
    return RelevantMemories(memories=[_to_session_memory(hit.record) for hit in hits], context=context.text)


@router.get("/{sessionId}/memories/{memoryId}")
async def get_memory(ctx: ContextDep, session: SessionScope, memoryId: MemoryId) -> SessionMemory:
    """Return a memory of a session. One of another session or user answers as if it did not exist."""
    return _to_session_memory(await ctx.fetch(session, memoryId))


@router.delete("/{sessionId}/memories/{memoryId}", status_code=204)
async def delete_memory(ctx: ContextDep, session: SessionScope, memoryId: MemoryId) -> None:
    """Forget a memory of a session and the turns it was learned from; this can be undone."""
    await ctx.forget(session, (await ctx.fetch(session, memoryId)).id)
