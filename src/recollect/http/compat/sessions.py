"""The shapes of /api/sessions: memories of a session in camelCase, times without a zone."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from fastapi import Depends, Path, Query
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from recollect.errors import NotFound
from recollect.http.compat.routing import CallerDep, CompatRouter, ServiceDep, SettingsDep
from recollect.http.compat.search import (
    EXCLUDE_TURNS,
    build_search_request,
    fetch_memory,
    format_naive_utc,
    merge_into_existing,
)
from recollect.http.errors import ErrorInfo
from recollect.http.params import Name, RequiredName, StrictModel, Text, UnitFloat
from recollect.model.ids import new_id
from recollect.model.memory import Category, MemoryRecord
from recollect.model.query import Listing, Op, Where
from recollect.model.scope import Level, Scope
from recollect.model.times import now
from recollect.read.format import format_context
from recollect.remember import MemoryInput

SessionMemoryType: TypeAlias = Literal["fact", "preference", "insight"]
_EXAMPLE_MEMORY: dict[str, JsonValue] = {
    "id": "0198c6f1-5d2a-7c31-9a44-8f5a2f6b1c90",
    "sessionId": "7d0f3f5e-8f0a-4a53-9a83-3f1f0f6f8c11",
    "memoryContent": "The project deadline is March 15th",
    "memoryType": "fact",
    "importance": 0.9,
    "createdAt": "2026-02-11T10:00:00",
    "lastAccessedAt": "2026-02-11T12:30:00",
}
_EXAMPLE_NEW: dict[str, JsonValue] = {
    "content": "User prefers detailed explanations",
    "type": "preference",
    "importance": 0.7,
}
# The three types of this door and what else can be known; whatever is missing here is a fact.
_TYPE_BY_CATEGORY: dict[Category, SessionMemoryType] = {
    Category.PREFERENCE: "preference",
    Category.INSTRUCTION: "preference",
    Category.INSIGHT: "insight",
    Category.LESSON: "insight",
}


class SessionMemory(BaseModel):
    """A memory of a session; times are UTC."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE_MEMORY]})

    id: str
    sessionId: str
    memoryContent: str
    memoryType: SessionMemoryType
    importance: UnitFloat
    createdAt: str = Field(description="In UTC, to the second.")
    lastAccessedAt: str


class NewSessionMemory(StrictModel):
    """A memory that someone writes down by hand."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE_NEW]})

    content: Text
    type: SessionMemoryType = "fact"
    importance: UnitFloat = 0.5


class NewSession(StrictModel):
    """A session to begin; without an id it is given one."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"sessionId": _EXAMPLE_MEMORY["sessionId"]}]})

    sessionId: RequiredName | None = None


class SessionCreated(BaseModel):
    """A session."""

    sessionId: str = Field(examples=[_EXAMPLE_MEMORY["sessionId"]])


class Relevant(BaseModel):
    """The memories that fit a query, best first, and the text that tells them to a model; empty without any."""

    memories: list[SessionMemory]
    context: str = Field(
        examples=[
            "Relevant memories from this session:\n- [FACT] The project deadline is March 15th (importance: 0.9)\n\n"
            "Use these memories to provide contextually aware responses."
        ]
    )


class SessionRefused(BaseModel):
    """Why a request is not answered."""

    error: str = Field(examples=["SessionNotFoundException"])
    detail: str = Field(examples=["user default has no session 7d0f3f5e-8f0a-4a53-9a83-3f1f0f6f8c11"])


def render_session_error(error: ErrorInfo) -> tuple[int, dict[str, Any]]:
    """A refusal by the name of its exception: a missing session and a missing memory can be told apart."""
    names = {"NotFound": "MemoryNotFoundException", "SessionNotFound": "SessionNotFoundException"}
    return error.status, {"error": names.get(error.kind, error.kind), "detail": error.message}


def to_session_memory(record: MemoryRecord) -> SessionMemory:
    """A memory as this door shows it."""
    return SessionMemory(
        id=record.id,
        sessionId=record.scope.session,
        memoryContent=record.content,
        memoryType=_TYPE_BY_CATEGORY.get(record.category, "fact"),
        importance=record.importance,
        createdAt=format_naive_utc(record.created_at),
        lastAccessedAt=format_naive_utc(record.last_accessed_at or record.created_at),
    )


router = CompatRouter(
    operation_prefix="sessions",
    prefix="/api/sessions",
    tags=["sessions"],
    render_error=render_session_error,
    write_only=["begin_session", "create_memory"],
    error_model=SessionRefused,
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
        return (await service.sessions.get(named)).scope
    except NotFound as error:
        raise SessionNotFound(str(error)) from None


SessionScope = Annotated[Scope, Depends(_existing_session)]


@router.post("", status_code=201)
async def begin_session(
    caller: CallerDep,
    service: ServiceDep,
    settings: SettingsDep,
    new: NewSession | None = None,
    user_id: UserId = None,
    project_id: ProjectId = None,
) -> SessionCreated:
    """Begin a session before anything is said in it. A chat begins its own; one that there is stays as it is."""
    session = await _session_scope(caller, settings, (new and new.sessionId) or new_id(), user_id, project_id)
    await service.sessions.begin(session, by=caller.author())
    return SessionCreated(sessionId=session.session)


@router.get("/{sessionId}/memories")
async def list_memories(service: ServiceDep, session: SessionScope) -> list[SessionMemory]:
    """All memories of a session, newest first."""
    page = await service.find(session, Listing(filter=EXCLUDE_TURNS, limit=_MAX_LISTED))
    return [to_session_memory(record) for record in page]


@router.post("/{sessionId}/memories", status_code=201)
async def create_memory(
    caller: CallerDep, service: ServiceDep, session: SessionScope, new: NewSessionMemory
) -> SessionMemory:
    """Keep a memory in a session, word for word but for secrets; one that is there takes on the importance."""
    fields = {"category": new.type, "importance": new.importance, "level": str(Level.SESSION)}
    outcome = caller.check_outcome_visible(
        await service.add(session, MemoryInput(content=new.content, fields=fields), by=caller.author())
    )
    changes = new.model_dump(include={"importance"}, exclude_unset=True)
    return to_session_memory(
        (await merge_into_existing(service, session, outcome, changes, by=caller.author())).record
    )


@router.get("/{sessionId}/memories/relevant")
async def relevant_memories(
    service: ServiceDep, settings: SettingsDep, session: SessionScope, query: QueryText, limit: Limit = None
) -> Relevant:
    """The memories of a session that fit a query, best first, and the text of them for a prompt."""
    search = build_search_request(query, settings, limit=limit, filter=Where("session_id", Op.EQ, session.session))
    hits = (await service.search(session, search)).hits
    context = format_context(_CONTEXT_STYLE, hits, budget_tokens=settings.context_tokens, now=now())
    return Relevant(memories=[to_session_memory(hit.record) for hit in hits], context=context.text)


@router.get("/{sessionId}/memories/{memoryId}")
async def get_memory(service: ServiceDep, session: SessionScope, memoryId: MemoryId) -> SessionMemory:
    """One memory of a session. One of another session or user answers like one that there is not."""
    return to_session_memory(await fetch_memory(service, session, memoryId))


@router.delete("/{sessionId}/memories/{memoryId}", status_code=204)
async def delete_memory(caller: CallerDep, service: ServiceDep, session: SessionScope, memoryId: MemoryId) -> None:
    """Forget a memory of a session, with the turns it was learned from; it can be undone."""
    await service.forget(session, (await fetch_memory(service, session, memoryId)).id, by=caller.author())
