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
from recollect.http.agents import AgentProvider, get_agent_provider
from recollect.http.doors import react_shapes
from recollect.http.doors.agent_shapes import AgentRequest, AgentResponse, to_agent_response, to_event_data
from recollect.http.doors.asking import Caller, CallerDep, ServiceDep
from recollect.http.doors.door import CompatRouter
from recollect.model.text import validate_text

EVENTS = "text/event-stream"

router = CompatRouter(
    operation_prefix="agent",
    prefix="/v1",
    tags=["agent"],
    render_error=react_shapes.render_react_error,
    error_model=react_shapes.Failed,
)

_EVENT_SCHEMA = {
    "type": "object",
    "description": "An event: thought, action, observation, error, and at last answer.",
    "properties": {
        "event": {"type": "string", "enum": [str(kind) for kind in EventKind]},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
    "required": ["event", "data"],
}
_EVENT_EXAMPLE = 'event: thought\ndata: {"thought": "I look it up."}\n\n'


@router.post(
    "/agent",
    response_model=AgentResponse,
    responses={200: {"content": {EVENTS: {"schema": _EVENT_SCHEMA, "example": _EVENT_EXAMPLE}}}},
)
async def ask_agent(
    caller: CallerDep,
    service: ServiceDep,
    agents: Annotated[AgentProvider, Depends(get_agent_provider)],
    asked: AgentRequest,
) -> Any:
    """Put a question to the agent, which reasons and uses tools until it has an answer; with memory it learns."""
    agent = await agents.get(service)
    # What is wrong with a request is told before a stream begins.
    validate_text(asked.question, name="question")
    agent.toolbox.allowed(asked.group)
    events = agent.stream(
        asked.question,
        **_scope_arguments(caller, asked),
        history=[step.model_dump() for step in asked.history],
        state=asked.state,
        group=asked.group,
        enable_memory=asked.enable_memory,
        **_author_argument(caller),
    )
    if not asked.streaming:
        return await _collect_answer(events)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_stream_events(events), media_type=EVENTS, headers=headers)


def _scope_arguments(caller: Caller, request: AgentRequest) -> dict[str, Any]:
    """Whose memory it is. A caller who has one user may name no other, with memory or without."""
    caller.resolve_project(request.collection)
    if not request.enable_memory:
        caller.resolve_user(request.user)
        return {}
    scope = caller.scope(request.user, request.collection, request.conversation_id)
    return {"user_id": scope.user, "project_id": scope.project, "session_id": scope.session}


def _author_argument(caller: Caller) -> dict[str, str]:
    """Who has something kept, as history tells it: whose key asked, and that it was the agent who did it."""
    return {} if caller.kind == "local" else {"by": f"{caller.name} {BY}"}


async def _collect_answer(events: AsyncGenerator[Event, None]) -> AgentResponse:
    error = ""
    async with aclosing(events):
        async for event in events:
            error = event.text if event.kind is EventKind.ERROR else error
            if event.answer is not None:
                return to_agent_response(event.answer, error)
    raise AssertionError("a run ends with an answer")


async def _stream_events(events: AsyncGenerator[Event, None]) -> AsyncIterator[bytes]:
    """The events as bytes; who goes away stops the run."""
    async with aclosing(events):
        try:
            async for event in events:
                yield _format_event(str(event.kind), to_event_data(event))
        except RecollectError as error:
            # The status is out already.
            yield _format_event("error", {"error": {"type": type(error).__name__, "message": str(error)}})


def _format_event(kind: str, data: dict[str, Any]) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode("utf-8", "replace")
