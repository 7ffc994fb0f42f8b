"""What is said: remembering it, reading it again, and the sessions it was said in."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from recollect.conversation.run import read_run
from recollect.http.auth.caller import Asking
from recollect.http.doors.given import Text
from recollect.http.doors.own.answers import WRITING, a_page, answered, cursor_of, failing, read_cursor
from recollect.http.doors.own.asking import Acting, Place, User
from recollect.http.doors.own.jobs import JobTold
from recollect.http.doors.own.repeating import IdempotencyKey, named_turns, repeatable
from recollect.http.doors.own.routing import Serving, router
from recollect.http.doors.own.shapes import ChangedList, Cursor, Given, Id, Limit, NextCursor, Plain, example
from recollect.model.scope import Scope
from recollect.model.times import from_micros, to_micros
from recollect.model.turn import Conversation

talking = router("turns and sessions")


class Message(BaseModel):
    """A message as chats have them; what else it carries is passed over."""

    model_config = ConfigDict(extra="allow", strict=True)

    role: str = Field(examples=["user"])
    content: str | list[dict[str, Any]] | None = None
    name: str | None = Field(default=None, description="Who speaks, where several do.")
    timestamp: str | float | None = Field(default=None, description="When it was said, if not now.")


Messages = str | list[Message]
Seconds = Annotated[float, Field(ge=0, le=300)]


class Said(Given):
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


class TurnTold(BaseModel):
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


class Kept(BaseModel):
    """The turns that were kept, and the job that learns from them."""

    turns: list[TurnTold]
    job: JobTold | None
    redacted: list[str] = Field(description="The kinds of secrets that were kept out.", examples=[[]])


class TurnPage(BaseModel):
    """Some turns in order."""

    results: list[TurnTold]
    cursor: NextCursor


class Session(BaseModel):
    """The state of a session."""

    model_config = example(
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
    invocations: list[Plain]
    metadata: Plain


class SessionPage(BaseModel):
    """Some sessions, the latest first."""

    results: list[Session]
    cursor: NextCursor


class RunStep(Given):
    """A thought, an action or an observation of an agent."""

    kind: Literal["thought", "action", "observation"]
    content: str


class AgentRun(Given):
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
    steps: list[RunStep] = Field(default_factory=list, max_length=1000)
    answer: str = ""
    success: bool | None = None
    lessons: list[str] = Field(default_factory=list, max_length=256)
    run_id: Id | None = Field(default=None, description="The same one twice is once.")


def plain(messages: Messages) -> str | list[dict[str, Any]]:
    """The messages as they were sent."""
    return messages if isinstance(messages, str) else [each.model_dump(exclude_unset=True) for each in messages]


@talking.post("/remember", response_model=Kept, responses={**WRITING, **failing(409)})
@repeatable()
async def remember(
    said: Said, caller: Asking, place: Place, by: Acting, service: Serving, idempotency_key: IdempotencyKey = None
) -> JSONResponse:
    """Keep what was said: on disk, and found, when this answers; what it says is learned behind the answer."""
    messages = named_turns(idempotency_key, plain(said.messages))
    kept = await service.remember(place, messages, by=by, wait_s=said.wait_s, mode=said.mode)
    told = kept.to_dict()
    if kept.job is not None and not caller.reads:
        # It tells what became of memories that were there before.
        told["job"] = {**told["job"], "result": None}
    return answered(told)


@talking.get("/turns", response_model=TurnPage)
async def list_turns(place: Place, service: Serving, limit: Limit = 100, cursor: Cursor = None) -> JSONResponse:
    """What was said in a session, in order; without a session, what was said in none."""
    last = read_cursor(cursor, int)
    turns = await service.turns(place, after=last[0] if last else 0, limit=limit + 1)
    return a_page(turns, limit, lambda turn: cursor_of(turn.position))


@talking.get("/sessions", response_model=SessionPage)
async def list_sessions(user: User, service: Serving, limit: Limit = 100, cursor: Cursor = None) -> JSONResponse:
    """The user's sessions of all projects, the latest first."""
    last = read_cursor(cursor, int, str, str)
    after = _where(user, *last) if last else None
    return a_page(await service.care.sessions(user, limit=limit + 1, after=after), limit, _cursor)


def _where(user: str, micros: int, project: str, session: str) -> Conversation:
    """The session that a cursor stands for, as far as it takes to go on from it."""
    most = to_micros(from_micros(0).replace(year=9999))
    at = from_micros(micros) if 0 < micros < most else None
    return Conversation(scope=Scope(user, project, session), last_turn_at=at)


def _cursor(last: Conversation) -> str:
    at = 0 if last.last_turn_at is None else to_micros(last.last_turn_at)
    return cursor_of(at, last.scope.project, last.scope.session)


@talking.get("/session", response_model=Session, responses=failing(404))
async def get_session(place: Place, service: Serving) -> JSONResponse:
    """How long the session that is named is, what it amounts to, whether it goes on."""
    return answered((await service.care.session(place)).to_dict())


@talking.post("/session/end", response_model=JobTold, status_code=202, responses={**WRITING, **failing(404, 409)})
@repeatable()
async def end_session(
    place: Place,
    service: Serving,
    wait_s: Annotated[float, Query(ge=0, le=300, description="Waits so long for its end.")] = 0,
) -> JSONResponse:
    """End the session that is named: what is left of it is learned, its episode is kept, what matters is promoted."""
    job = await service.care.end_session(place)
    if wait_s:
        job = await service.care.all_finished(job, within_s=wait_s)
    return answered(job.to_dict(), 202)


@talking.post(
    "/session/runs",
    response_model=ChangedList,
    responses={**WRITING, **failing(409)},
)
@repeatable()
async def end_run(run: AgentRun, place: Place, service: Serving) -> JSONResponse:
    """Keep what an agent's run came to, as an episode with its lessons, if it was a task."""
    ended = read_run(
        run.run_id,
        run.goal,
        steps=[step.model_dump() for step in run.steps],
        answer=run.answer,
        success=run.success,
        lessons=run.lessons,
    )
    outcomes = await service.care.end_run(place, ended)
    return answered({"results": [outcome.to_dict() for outcome in outcomes]})
