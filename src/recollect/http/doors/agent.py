"""The agent over HTTP: one question, answered whole or as Server-Sent Events, under /v1/agent."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import Depends
from fastapi.responses import StreamingResponse

from recollect.agent.answer import Event, EventKind
from recollect.agent.end import BY
from recollect.errors import RecollectError
from recollect.http.agents import Agents, agents_of
from recollect.http.doors import react_shapes
from recollect.http.doors.agent_shapes import AgentRequest, AgentResponse, response, streamed
from recollect.http.doors.asking import Asking, Caller, Serving
from recollect.http.doors.door import Door
from recollect.model.text import checked_text

EVENTS = "text/event-stream"

router = Door(
    called="agent",
    prefix="/v1",
    tags=["agent"],
    shape=react_shapes.refused,
    refused=react_shapes.Failed,
)

_SCHEMA = {
    "type": "object",
    "description": "An event: thought, action, observation, error, and at last answer.",
    "properties": {
        "event": {"type": "string", "enum": [str(kind) for kind in EventKind]},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
    "required": ["event", "data"],
}
_EXAMPLE = 'event: thought\ndata: {"thought": "I look it up."}\n\n'


@router.post(
    "/agent",
    response_model=AgentResponse,
    responses={200: {"content": {EVENTS: {"schema": _SCHEMA, "example": _EXAMPLE}}}},
)
async def ask_agent(
    caller: Asking, service: Serving, agents: Annotated[Agents, Depends(agents_of)], asked: AgentRequest
) -> Any:
    """Put a question to the agent, which reasons and uses tools until it has an answer; with memory it learns."""
    agent = await agents.of(service)
    # What is wrong with a request is told before a stream begins.
    checked_text(asked.question, name="question")
    agent.toolbox.allowed(asked.group)
    events = agent.stream(
        asked.question,
        **_whose(caller, asked),
        history=[step.model_dump() for step in asked.history],
        state=asked.state,
        group=asked.group,
        enable_memory=asked.enable_memory,
        **_by(caller),
    )
    if not asked.streaming:
        return await _whole(events)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_written(events), media_type=EVENTS, headers=headers)


def _whose(caller: Caller, asked: AgentRequest) -> dict[str, Any]:
    """Whose memory it is. A caller who has one user may name no other, with memory or without."""
    caller.bound_project(asked.collection)
    if not asked.enable_memory:
        caller.bound_user(asked.user)
        return {}
    scope = caller.scope(asked.user, asked.collection, asked.conversation_id)
    return {"user_id": scope.user, "project_id": scope.project, "session_id": scope.session}


def _by(caller: Caller) -> dict[str, str]:
    """Who has something kept, as history tells it: whose key asked, and that it was the agent who did it."""
    return {} if caller.kind == "local" else {"by": f"{caller.name} {BY}"}


async def _whole(events: AsyncGenerator[Event, None]) -> AgentResponse:
    error = ""
    async with aclosing(events):
        async for event in events:
            error = event.text if event.kind is EventKind.ERROR else error
            if event.answer is not None:
                return response(event.answer, error)
    raise AssertionError("a run ends with an answer")


async def _written(events: AsyncGenerator[Event, None]) -> AsyncIterator[bytes]:
    """The events as bytes; who goes away stops the run."""
    async with aclosing(events):
        try:
            async for event in events:
                yield _event(str(event.kind), streamed(event))
        except RecollectError as error:
            # The status is out already.
            yield _event("error", {"error": {"type": type(error).__name__, "message": str(error)}})


def _event(kind: str, data: dict[str, Any]) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode("utf-8", "replace")
