"""What is said: remembering it, reading it again, and the sessions it was said in."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from recollect.http.api.idempotency import IdempotencyKey, idempotent, with_turn_ids
from recollect.http.api.jobs import JobResponse
from recollect.http.api.responses import (
    WRITE_ERRORS,
    decode_cursor,
    encode_cursor,
    error_responses,
    json_response,
    page_response,
)
from recollect.http.api.routing import AuthorDep, ScopeDep, ServiceDep, UserDep, create_router
from recollect.http.api.schemas import (
    ChangedList,
    Cursor,
    Id,
    JsonObject,
    Limit,
    NextCursor,
    StrictBody,
    example_config,
)
from recollect.http.auth.caller import CallerDep
from recollect.http.params import Text
from recollect.model.scope import Scope
from recollect.model.times import from_micros, to_micros
from recollect.model.turn import Conversation
from recollect.sessions.agent_runs import parse_run

sessions_router = create_router("turns and sessions")


class MessageBody(BaseModel):
    """A message as chats have them; what else it carries is passed over."""

    model_config = ConfigDict(extra="allow", strict=True)

    role: str = Field(examples=["user"])
    content: str | list[dict[str, Any]] | None = None
    name: str | None = Field(default=None, description="Who speaks, where several do.")
    timestamp: str | float | None = Field(default=None, description="When it was said, if not now.")


Messages = str | list[MessageBody]
Seconds = Annotated[float, Field(ge=0, le=300)]


class RememberBody(StrictBody):
    """What was said, as OpenAI-style messages."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"messages": [{"role": "user", "content": "I moved to Lisbon in May"}], "wait_s": 10}
        }
    )

    messages: Messages
    wait_s: Seconds = Field(default=0, description="Waits so long for what is learned from it; the job tells.")
    mode: Literal["chat", "document", "task", "profile"] | None = Field(
        default=None, description="What the LLM listens for."
    )


class TurnResponse(BaseModel):
    """One thing that was said."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "id": "0199c3a1-7b5e-7c1d-9e1f-2a8d6f0c4b12",
                "session_id": "monday",
                "position": 1,
                "role": "user",
                "name": None,
                "content": "I moved to Lisbon in May",
                "said_at": "2026-06-01T09:30:00+00:00",
            }
        }
    )

    id: str
    session_id: str | None
    position: int = Field(description="Its place in the session, from 1.")
    role: Literal["user", "assistant"]
    name: str | None
    content: str
    said_at: str = Field(json_schema_extra={"format": "date-time"})


class RememberResponse(BaseModel):
    """The turns that were kept, and the job that learns from them."""

    turns: list[TurnResponse]
    job: JobResponse | None
    redacted: list[str] = Field(description="The kinds of secrets that were kept out.", examples=[[]])


class TurnPage(BaseModel):
    """Some turns in order."""

    results: list[TurnResponse]
    cursor: NextCursor


class SessionResponse(BaseModel):
    """The state of a session."""

    model_config = example_config(
        user_id="alex",
        project_id="hawaii",
        session_id="monday",
        turn_count=12,
        learned_to=12,
        started_at="2026-06-01T09:30:00+00:00",
        last_turn_at="2026-06-01T09:42:00+00:00",
        closed_at=None,
        summary="",
        invocations=[],
        metadata={},
    )

    user_id: str
    project_id: str | None
    session_id: str | None
    turn_count: int
    learned_to: int = Field(description="What was said up to this position has been learned from.")
    started_at: str | None
    last_turn_at: str | None
    closed_at: str | None
    summary: str
    invocations: list[JsonObject]
    metadata: JsonObject


class SessionPage(BaseModel):
    """Some sessions, the latest first."""

    results: list[SessionResponse]
    cursor: NextCursor


class RunStepBody(StrictBody):
    """A thought, an action or an observation of an agent."""

    kind: Literal["thought", "action", "observation"]
    content: str


class AgentRun(StrictBody):
    """What an agent's run came to."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "goal": "Find a flight below $600",
                "steps": [
                    {"kind": "action", "content": "searched flights to HNL"},
                    {"kind": "action", "content": "compared three offers"},
                ],
                "answer": "UA 1175 for $540",
                "success": True,
                "run_id": "run-7",
            }
        }
    )

    goal: Text
    steps: list[RunStepBody] = Field(default_factory=list, max_length=1000)
    answer: str = ""
    success: bool | None = None
    lessons: list[str] = Field(default_factory=list, max_length=256)
    run_id: Id | None = Field(default=None, description="The same one twice is once.")


def dump_messages(messages: Messages) -> str | list[dict[str, Any]]:
    """The messages as they were sent."""
    return messages if isinstance(messages, str) else [each.model_dump(exclude_unset=True) for each in messages]


@sessions_router.post(
    "/remember", response_model=RememberResponse, responses={**WRITE_ERRORS, **error_responses(409)}
)
@idempotent()
async def remember(
    said: RememberBody,
    caller: CallerDep,
    place: ScopeDep,
    by: AuthorDep,
    service: ServiceDep,
    idempotency_key: IdempotencyKey = None,
) -> JSONResponse:
    """Keep what was said: on disk, and found, when this answers; what it says is learned behind the answer."""
    messages = with_turn_ids(idempotency_key, dump_messages(said.messages))
    result = await service.remember(place, messages, by=by, wait_s=said.wait_s, mode=said.mode)
    body = result.to_dict()
    if result.job is not None and not caller.reads:
        # It tells what became of memories that were there before.
        body["job"] = {**body["job"], "result": None}
    return json_response(body)


@sessions_router.get("/turns", response_model=TurnPage)
async def list_turns(place: ScopeDep, service: ServiceDep, limit: Limit = 100, cursor: Cursor = None) -> JSONResponse:
    """What was said in a session, in order; without a session, what was said in none."""
    last = decode_cursor(cursor, int)
    turns = await service.turns(place, after=last[0] if last else 0, limit=limit + 1)
    return page_response(turns, limit, lambda turn: encode_cursor(turn.position))


@sessions_router.get("/sessions", response_model=SessionPage)
async def list_sessions(
    user: UserDep, service: ServiceDep, limit: Limit = 100, cursor: Cursor = None
) -> JSONResponse:
    """The user's sessions of all projects, the latest first."""
    last = decode_cursor(cursor, int, str, str)
    after = _cursor_position(user, *last) if last else None
    return page_response(await service.sessions.list(user, limit=limit + 1, after=after), limit, _session_cursor)


def _cursor_position(user: str, micros: int, project: str, session: str) -> Conversation:
    """The session that a cursor stands for, as far as it takes to go on from it."""
    max_micros = to_micros(from_micros(0).replace(year=9999))
    at = from_micros(micros) if 0 < micros < max_micros else None
    return Conversation(scope=Scope(user, project, session), last_turn_at=at)


def _session_cursor(last: Conversation) -> str:
    at = 0 if last.last_turn_at is None else to_micros(last.last_turn_at)
    return encode_cursor(at, last.scope.project, last.scope.session)


@sessions_router.get("/session", response_model=SessionResponse, responses=error_responses(404))
async def get_session(place: ScopeDep, service: ServiceDep) -> JSONResponse:
    """How long the session that is named is, what it amounts to, whether it goes on."""
    return json_response((await service.sessions.get(place)).to_dict())


@sessions_router.post(
    "/session/end",
    response_model=JobResponse,
    status_code=202,
    responses={**WRITE_ERRORS, **error_responses(404, 409)},
)
@idempotent()
async def end_session(
    place: ScopeDep,
    service: ServiceDep,
    wait_s: Annotated[float, Query(ge=0, le=300, description="Waits so long for its end.")] = 0,
) -> JSONResponse:
    """End the session that is named: what is left of it is learned, its episode is kept, what matters is promoted."""
    job = await service.sessions.end(place)
    if wait_s:
        job = await service.jobs.wait_for_chain(job, within_s=wait_s)
    return json_response(job.to_dict(), 202)


@sessions_router.post(
    "/session/runs",
    response_model=ChangedList,
    responses={**WRITE_ERRORS, **error_responses(409)},
)
@idempotent()
async def end_run(run: AgentRun, place: ScopeDep, service: ServiceDep) -> JSONResponse:
    """Keep what an agent's run came to, as an episode with its lessons, if it was a task."""
    parsed = parse_run(
        run.run_id,
        run.goal,
        steps=[step.model_dump() for step in run.steps],
        answer=run.answer,
        success=run.success,
        lessons=run.lessons,
    )
    outcomes = await service.sessions.end_run(place, parsed)
    return json_response({"results": [outcome.to_dict() for outcome in outcomes]})
