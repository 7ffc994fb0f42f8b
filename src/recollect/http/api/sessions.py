"""Routes for turns and sessions: remember messages, list turns, read and end sessions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from fastapi.responses import JSONResponse
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from recollect.http.api.idempotency import IdempotencyKey, idempotent, with_turn_ids
from recollect.http.api.operations import JobResponse
from recollect.http.api.schemas import (
    Cursor,
    Limit,
    ListOf,
    MemoryChangeResponse,
    PageOf,
    decode_cursor,
    decode_position,
    encode_cursor,
    fields_of,
    json_response,
    list_response,
    page_response,
)
from recollect.http.auth.caller import CallerDep
from recollect.http.large_json import SlicedJSONResponse
from recollect.http.params import Id, ResponseModel, StrictModel, Text, example
from recollect.http.routing import AuthorDep, ScopeDep, ServiceDep, UserDep, create_api_router
from recollect.model.messages import describe_excess
from recollect.model.scope import Scope
from recollect.model.times import from_micros, to_micros
from recollect.model.turn import Conversation, Turn
from recollect.sessions.agent_runs import parse_run

sessions_router = create_api_router("turns and sessions")


class MessageBody(BaseModel):
    """A chat message; other fields are ignored."""

    model_config = ConfigDict(extra="allow", strict=True)

    role: str
    content: str | list[dict[str, Any]] | None = None
    name: str | None = Field(default=None, description="The speaker, where there are several.")
    timestamp: str | float | None = Field(default=None, description="When it was said; by default now.")
    metadata: dict[str, Any] | None = Field(
        default=None, description="Stored with the turn and with what is learned from it, for filters."
    )


def _check_volume(messages: str | list[MessageBody]) -> str | list[MessageBody]:
    sized = [messages] if isinstance(messages, str) else messages
    contents = [{"content": each if isinstance(each, str) else each.content} for each in sized]
    if excess := describe_excess(contents):
        raise PydanticCustomError("TooLarge", "{message}", {"message": f"must not have {excess}"})
    return messages


Messages = Annotated[str | list[MessageBody], AfterValidator(_check_volume)]


class RememberBody(StrictModel):
    """Messages to remember, in the format of OpenAI."""

    model_config = example(messages=[{"role": "user", "content": "I moved to Lisbon in May"}], wait_s=10)

    messages: Messages
    wait_s: Annotated[float, Field(ge=0, le=300)] = Field(
        default=0, description="How long to wait for learning; `job` reports its state."
    )
    mode: Literal["chat", "document", "task", "profile"] | None = Field(
        default=None, description="What is extracted."
    )


@fields_of(Turn, "trust", "exported_record", "user_id", "project_id")
class TurnResponse(ResponseModel):
    """A turn of a session."""

    position: int = Field(description="Its position in the session, from 1.")


class LearnedTurnResponse(TurnResponse):
    """A turn of a session, and what was learned from it."""

    learned: list[str] = Field(description="The ids of the active and superseded memories learned from it.")


class RememberResponse(ResponseModel):
    """The stored turns, and the job that learns from them."""

    turns: list[TurnResponse]
    job: JobResponse | None
    redacted: list[str] = Field(description="The kinds of secrets that were removed.")


@fields_of(Conversation, "version")
class SessionResponse(ResponseModel):
    """A session."""

    learned_to: int = Field(description="The position of the last turn that was learned from.")


class RunStepBody(StrictModel):
    """A step of an agent run."""

    kind: Literal["thought", "action", "observation"]
    content: str


class AgentRun(StrictModel):
    """The result of an agent run."""

    model_config = example(
        goal="Find a flight below $600",
        steps=[{"kind": "action", "content": "searched flights"}, {"kind": "action", "content": "compared offers"}],
        answer="UA 1175 for $540",
        success=True,
        run_id="run-7",
    )

    goal: Text
    steps: list[RunStepBody] = Field(default_factory=list, max_length=1000)
    answer: str = ""
    success: bool | None = None
    lessons: list[str] = Field(default_factory=list, max_length=256)
    run_id: Id | None = Field(default=None, description="A run with the same id is stored once.")


def dump_messages(messages: Messages) -> str | list[dict[str, Any]]:
    """Return the messages as they were sent."""
    return messages if isinstance(messages, str) else [each.model_dump(exclude_unset=True) for each in messages]


@sessions_router.post("/remember", response_model=RememberResponse)
@idempotent()
async def remember(
    body: RememberBody,
    caller: CallerDep,
    scope: ScopeDep,
    author: AuthorDep,
    service: ServiceDep,
    idempotency_key: IdempotencyKey = None,
) -> JSONResponse:
    """Store messages as turns, which are searchable when this returns, and learn from them in the background."""
    messages = with_turn_ids(idempotency_key, dump_messages(body.messages))
    result = await service.remember(scope, messages, by=author, wait_s=body.wait_s, mode=body.mode)
    response = result.to_dict()
    if result.job is not None and not caller.reads:
        # The result of the job quotes memories that existed before.
        response["job"] = {**response["job"], "result": None}
    return json_response(response)


@sessions_router.get("/turns", response_model=PageOf[LearnedTurnResponse])
async def list_turns(scope: ScopeDep, service: ServiceDep, limit: Limit = 100, cursor: Cursor = None) -> JSONResponse:
    """List the turns of a session in order; without a session, the turns outside of sessions."""
    turns = await service.turns(scope, after=decode_position(cursor, int) or 0, limit=limit + 1)
    learned = await service.learned_from(scope, [turn.id for turn in turns[:limit]])
    results = [{**turn.to_dict(), "learned": learned.get(turn.id, [])} for turn in turns[:limit]]
    more = encode_cursor(turns[limit - 1].position) if len(turns) > limit else None
    return SlicedJSONResponse({"results": results, "cursor": more})


@sessions_router.get("/sessions", response_model=PageOf[SessionResponse])
async def list_sessions(
    user: UserDep, service: ServiceDep, limit: Limit = 100, cursor: Cursor = None
) -> JSONResponse:
    """List the user's sessions of all projects, the latest first."""
    last = decode_cursor(cursor, int, str, str)
    after = _cursor_session(user, *last) if last else None
    sessions = await service.sessions.list(user, limit=limit + 1, after=after)
    return page_response(sessions, limit, _session_cursor)


def _cursor_session(user: str, micros: int, project: str, session: str) -> Conversation:
    max_micros = to_micros(from_micros(0).replace(year=9999))
    at = from_micros(micros) if 0 < micros < max_micros else None
    return Conversation(scope=Scope(user, project, session), last_turn_at=at)


def _session_cursor(last: Conversation) -> str:
    at = 0 if last.last_turn_at is None else to_micros(last.last_turn_at)
    return encode_cursor(at, last.scope.project, last.scope.session)


@sessions_router.get("/session", response_model=SessionResponse, responses=sessions_router.error_responses(404))
async def get_session(scope: ScopeDep, service: ServiceDep) -> JSONResponse:
    """Return the state of a session."""
    return json_response(await service.sessions.get(scope))


@sessions_router.post(
    "/session/end", response_model=JobResponse, status_code=202, responses=sessions_router.error_responses(404)
)
@idempotent()
async def end_session(
    scope: ScopeDep,
    service: ServiceDep,
    wait_s: Annotated[float, Query(ge=0, le=300, description="How long to wait for the job.")] = 0,
) -> JSONResponse:
    """End a session: learn from the rest of it, store its episode and promote what matters."""
    job = await service.sessions.end(scope)
    if wait_s:
        job = await service.jobs.wait_for_chain(job, within_s=wait_s)
    return json_response(job, 202)


@sessions_router.post("/session/runs", response_model=ListOf[MemoryChangeResponse])
@idempotent()
async def end_run(body: AgentRun, scope: ScopeDep, service: ServiceDep) -> JSONResponse:
    """Store the result of an agent run as an episode with its lessons, if it was a task."""
    options = body.model_dump(include={"steps", "answer", "success", "lessons"})
    return list_response(await service.sessions.end_run(scope, parse_run(body.run_id, body.goal, **options)))
