"""The shapes of the agent: its request and its responses by the names of their design."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from recollect.agent.answer import Answer, Event, EventKind
from recollect.http.doors.given import FreeText, Name, StrictModel, Text
from recollect.http.doors.react_shapes import ReactError

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
