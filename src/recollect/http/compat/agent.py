"""The shapes of the agent: its request and its responses by the names of their design."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any, Literal

from fastapi import Depends, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from recollect.agent.agent import Agent, open_agent_chat
from recollect.agent.config import load_agent_config
from recollect.agent.finish import BY
from recollect.agent.tools.sources import ToolSources
from recollect.agent.types import Answer, Event, EventKind
from recollect.config.settings import Settings
from recollect.errors import InvalidSettings, ModelUnavailable, RecollectError
from recollect.http.compat import react
from recollect.http.compat.react import ReactError
from recollect.http.compat.routing import Caller, CallerDep, CompatRouter, ServiceDep
from recollect.http.params import FreeText, Name, StrictModel, Text
from recollect.model.text import validate_text
from recollect.models.chat import ConversingChat
from recollect.service.service import Service

_EXAMPLE_STEP: dict[str, JsonValue] = {
    "thought": "I look it up.",
    "action": "port_of",
    "arguments": {"service": "payments"},
    "observation": "8443",
}
_EXAMPLE_REQUEST: dict[str, JsonValue] = {
    "question": "Which port does the payment service use?",
    "user": "alex",
    "collection": "payments",
    "conversation_id": "monday",
    "enable_memory": True,
}


_EXAMPLE_RESPONSE: dict[str, JsonValue] = {
    "answer": "It uses port 8443.",
    "thought": "I look it up.",
    "observation": "8443",
    "steps": [_EXAMPLE_STEP],
    "ended": "answered",
    "conversation_id": "monday",
    "facts": ["0198c6f1-5d2a-7c31-9a44-8f5a2f6b1c90"],
    "episodes": [],
    "notes": [],
    "tokens_in": 412,
    "tokens_out": 38,
    "error": None,
}


class AgentStep(StrictModel):
    """A step that was taken before."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE_STEP]})

    thought: FreeText = ""
    action: FreeText = Field(default="", description="The name of the tool that was used.")
    arguments: dict[str, Any] = Field(default_factory=dict)
    observation: FreeText = ""


class AgentRequest(StrictModel):
    """A question to the agent; without `enable_memory` it is a plain ReAct agent, and nothing is kept."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE_REQUEST]})

    question: Text
    history: list[AgentStep] = Field(
        default_factory=list, max_length=200, description="Steps to go on from, in order."
    )
    user: Name | None = Field(default=None, description="Whose memory it is, unless a key or a gateway says so.")
    collection: Name | None = Field(default=None, description="The collection, which is a project of the user's.")
    conversation_id: Name = Field(
        default="", description="The conversation; without one, each question begins its own."
    )
    streaming: bool = Field(False, description="Answer with Server-Sent Events, as it happens.")
    state: FreeText = Field(default="", description="Where the work stands, in words.")
    group: list[Name] = Field(default_factory=list, max_length=50, description="Whose tools may be used.")
    enable_memory: bool = Field(False, description="Begin with what memory has, and keep what the run came to.")


class AgentResponse(BaseModel):
    """What the agent came to; in a stream the last event has it, and those before what they tell of."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE_RESPONSE]})

    answer: str
    thought: str = Field(description="The last thought.")
    observation: str = Field(description="The last observation.")
    steps: list[AgentStep]
    ended: Literal["answered", "iterations", "time", "tokens", "failed"] = Field(
        description="Why it ended: with an answer, or because something was used up or failed."
    )
    conversation_id: str = Field(description="The conversation to go on with; empty without memory.")
    facts: list[str] = Field(description="Ids of the facts it began with.")
    episodes: list[str] = Field(description="Ids of the episodes it began with.")
    notes: list[str] = Field(description="What memory could not do, if anything.")
    tokens_in: int
    tokens_out: int
    error: ReactError | None = None


def to_agent_response(answer: Answer, error: str = "") -> AgentResponse:
    """An answer as a response."""
    steps = [
        AgentStep(
            thought=step.thought if not at else "",
            action=call.tool,
            arguments=dict(call.arguments),
            observation=next(
                (observations.text for observations in step.observations if observations.call_id == call.id), ""
            ),
        )
        for step in answer.steps
        for at, call in enumerate(step.calls)
    ]
    thoughts = [step.thought for step in answer.steps if step.thought]
    observations = [each.text for step in answer.steps for each in step.observations]
    return AgentResponse(
        answer=answer.text,
        thought=thoughts[-1] if thoughts else "",
        observation=observations[-1] if observations else "",
        steps=steps,
        ended=answer.ended,
        conversation_id=answer.conversation_id,
        facts=list(answer.facts),
        episodes=list(answer.episodes),
        notes=list(answer.notes),
        tokens_in=answer.tokens_in,
        tokens_out=answer.tokens_out,
        error=ReactError(type="ModelUnavailable", message=error) if error else None,
    )


def to_event_data(event: Event) -> dict[str, Any]:
    """An event as one of a stream."""
    match event.kind:
        case EventKind.ANSWER:
            assert event.answer is not None
            return to_agent_response(event.answer).model_dump(mode="json")
        case EventKind.ACTION:
            return {"action": event.tool, "arguments": dict(event.arguments)}
        case EventKind.ERROR:
            return {"error": {"type": "ModelUnavailable", "message": event.text}}
        case EventKind.OBSERVATION:
            return {"observation": event.text, "action": event.tool, "failed": event.failed}
        case EventKind.THOUGHT:
            return {"thought": event.text}


class AgentProvider:
    """Gives the agent; the tools of a server that was away are there once it is back."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._chat: ConversingChat | None = None
        self._sources: ToolSources | None = None
        self._agent: Agent | None = None
        self._lock = asyncio.Lock()

    async def get(self, service: Service) -> Agent:
        """The agent over a service; a ModelUnavailable where none is set: who asks has done nothing wrong."""
        async with self._lock:
            if self._chat is None or self._sources is None:
                try:
                    self._chat = open_agent_chat(self._settings)
                except InvalidSettings as error:
                    raise ModelUnavailable(str(error)) from error
                self._sources = ToolSources(self._settings)
            toolbox = await self._sources.toolbox()
            if self._agent is None:
                self._agent = Agent(service, self._chat, toolbox, config=load_agent_config(self._settings))
            self._agent.toolbox = toolbox
            # Another embedding model comes with another service.
            self._agent.memory = service
            return self._agent

    async def close(self) -> None:
        """Wait until what runs came to is kept, then let go of everything."""
        if self._agent is not None:
            await self._agent.close()
        if self._sources is not None:
            await self._sources.close()
        if self._chat is not None:
            await self._chat.close()


async def get_agent_provider(request: Request) -> AgentProvider:
    """The agents of the application that is asked."""
    provider: AgentProvider = request.app.state.agents
    return provider


EVENTS = "text/event-stream"

router = CompatRouter(
    operation_prefix="agent",
    prefix="/v1",
    tags=["agent"],
    render_error=react.render_react_error,
    error_model=react.Failed,
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
