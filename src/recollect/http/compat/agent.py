"""The agent API under /v1/agent: an agent that reasons, uses tools and remembers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal

from fastapi import Request
from fastapi.responses import StreamingResponse
from pydantic import Field

from recollect.agent.types import Answer, Event, EventKind
from recollect.config.settings import Settings
from recollect.errors import InvalidSettings, ModelUnavailable, RecollectError
from recollect.http.auth.caller import Caller
from recollect.http.compat.context import ContextDep
from recollect.http.compat.react import Failed, ReactError, format_error
from recollect.http.params import FreeText, Name, ResponseModel, StrictModel, Text, example
from recollect.http.proxy.sse import EVENT_STREAM, EVENT_STREAM_HEADERS, encode_event, event_schema
from recollect.http.routing import Router
from recollect.models.chat import ConversingChat
from recollect.service.service import Service

if TYPE_CHECKING:
    from recollect.agent.agent import Agent
    from recollect.agent.tool_sources import ToolSources


class AgentStep(StrictModel):
    """A step of the agent."""

    thought: FreeText = ""
    action: FreeText = Field(default="", description="The name of the tool.")
    arguments: dict[str, Any] = Field(default_factory=dict)
    observation: FreeText = ""


class AgentRequest(StrictModel):
    """A question for the agent; without `enable_memory` it is a plain ReAct agent and stores nothing."""

    model_config = example(
        question="Which port does the payment service use?",
        user="alex",
        collection="payments",
        conversation_id="monday",
        enable_memory=True,
    )

    question: Text
    history: list[AgentStep] = Field(
        default_factory=list, max_length=200, description="Previous steps to continue from, in order."
    )
    user: Name | None = Field(default=None, description="The user, unless the credentials name one.")
    collection: Name | None = Field(default=None, description="The collection, which is a project of the user.")
    conversation_id: Name = Field(default="", description="The conversation; by default a new one.")
    streaming: bool = Field(False, description="Answer with Server-Sent Events.")
    state: FreeText = Field(default="", description="The state of the work, in words.")
    group: list[Name] = Field(default_factory=list, max_length=50, description="The groups of tools to use.")
    enable_memory: bool = Field(False, description="Begin with memories, and store the result of the run.")


class AgentResponse(ResponseModel):
    """The result of a run; in a stream it is the data of the last event."""

    answer: str
    thought: str = Field(description="The last thought.")
    observation: str = Field(description="The last observation.")
    steps: list[AgentStep]
    ended: Literal["answered", "iterations", "time", "tokens", "failed"] = Field(description="Why the run ended.")
    conversation_id: str = Field(description="The conversation to continue; empty without memory.")
    facts: list[str] = Field(description="The ids of the facts it began with.")
    episodes: list[str] = Field(description="The ids of the episodes it began with.")
    notes: list[str] = Field(description="What memory could not do, if anything.")
    tokens_in: int
    tokens_out: int
    error: ReactError | None = None


def to_agent_response(answer: Answer, error: str = "") -> AgentResponse:
    steps = [
        AgentStep(
            thought=step.thought if not number else "",
            action=call.tool,
            arguments=dict(call.arguments),
            observation=next((each.text for each in step.observations if each.call_id == call.id), ""),
        )
        for step in answer.steps
        for number, call in enumerate(step.calls)
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


def _event_data(event: Event) -> dict[str, Any]:
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
    """Opens the agent on first use; the tools of a server that was unavailable are added once it answers."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._chat: ConversingChat | None = None
        self._sources: ToolSources | None = None
        self._agent: Agent | None = None
        self._lock = asyncio.Lock()

    async def get(self, service: Service) -> Agent:
        """Return the agent of a service; ModelUnavailable, because the client cannot help it, without an LLM."""
        from recollect.agent.agent import Agent, load_agent_config, open_agent_chat
        from recollect.agent.tool_sources import ToolSources

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
            # A change of the embedding model replaces the service.
            self._agent.memory = service
            return self._agent

    async def close(self) -> None:
        """Wait until the results of all runs are stored, then close everything."""
        for each in (self._agent, self._sources, self._chat):
            if each is not None:
                await each.close()


router = Router("agent", prefix="/v1", operation_prefix="agent_", error_format=format_error, error_model=Failed)
_EVENT_SCHEMA = event_schema(map(str, EventKind))


@router.post(
    "/agent", response_model=AgentResponse, responses={200: {"content": {EVENT_STREAM: {"schema": _EVENT_SCHEMA}}}}
)
async def ask_agent(ctx: ContextDep, request: Request, body: AgentRequest) -> Any:
    """Ask the agent, which reasons and uses tools until it has an answer; with memory it learns from the run."""
    from recollect.agent.agent import BY

    agents: AgentProvider = request.app.state.agents
    agent = await agents.get(ctx.service)
    # An unknown group is rejected before a stream begins.
    agent.toolbox.allowed(body.group)
    # The history names the key and that the agent acted for it.
    caller = ctx.caller
    author = {} if caller.kind == "local" else {"by": f"{caller.name} {BY}"}
    events = agent.stream(
        body.question,
        **_scope_arguments(caller, body),
        history=[step.model_dump() for step in body.history],
        state=body.state,
        group=body.group,
        enable_memory=body.enable_memory,
        **author,
    )
    if not body.streaming:
        return await _collect_answer(events)
    return StreamingResponse(_stream_events(events), media_type=EVENT_STREAM, headers=EVENT_STREAM_HEADERS)


def _scope_arguments(caller: Caller, body: AgentRequest) -> dict[str, Any]:
    # The user and project of the request are checked without memory as well.
    caller.resolve_project(body.collection)
    if not body.enable_memory:
        caller.resolve_user(body.user)
        return {}
    scope = caller.scope(body.user, body.collection, body.conversation_id)
    return {"user_id": scope.user, "project_id": scope.project, "session_id": scope.session}


async def _collect_answer(events: AsyncGenerator[Event, None]) -> AgentResponse:
    error = ""
    async with aclosing(events):
        async for event in events:
            error = event.text if event.kind is EventKind.ERROR else error
            if event.answer is not None:
                return to_agent_response(event.answer, error)
    raise AssertionError("a run ends with an answer")


async def _stream_events(events: AsyncGenerator[Event, None]) -> AsyncIterator[bytes]:
    """Yield the events of a run; a client that disconnects stops it."""
    async with aclosing(events):
        try:
            async for event in events:
                yield encode_event(str(event.kind), _event_data(event))
        except RecollectError as error:
            # The status is already sent.
            yield encode_event("error", {"error": {"type": type(error).__name__, "message": str(error)}})
