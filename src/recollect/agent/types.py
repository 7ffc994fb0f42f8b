"""Values of a run: steps, events and the answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from recollect.errors import BrokenAnswer, InvalidInput
from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.times import now
from recollect.models.chat import ChatReply
from recollect.sessions.agent_runs import StepKind
from recollect.text.tokens import count_tokens

# The role, name and id around each item in a prompt.
OVERHEAD_TOKENS = 8


@frozen_dataclass(kw_only=True)
class Call:
    """A call of a tool; `error` says why it cannot be called, if the model made a mistake."""

    id: str
    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""

    @property
    def signature(self) -> str:
        """Return the call as `tool(name=value)`."""
        arguments = ", ".join(
            f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in self.arguments.items()
        )
        return f"{self.tool}({arguments})"


@frozen_dataclass(kw_only=True)
class Observation:
    """The result of a call."""

    call_id: str
    tool: str
    text: str
    failed: bool = False


@frozen_dataclass
class StepItem:
    """One thought, action or observation in working memory."""

    kind: StepKind
    content: str
    at: datetime
    tokens: int
    metadata: Mapping[str, Any] = field(default_factory=dict)


@frozen_dataclass(kw_only=True)
class Step:
    """A thought, its calls and their observations."""

    thought: str = ""
    calls: tuple[Call, ...] = ()
    observations: tuple[Observation, ...] = ()
    at: datetime = field(default_factory=now)

    @property
    def tokens(self) -> int:
        """Return an upper estimate of its tokens in a prompt."""
        return sum(item.tokens for item in self.items)

    @property
    def items(self) -> tuple[StepItem, ...]:
        """Return its thought, actions and observations in order."""
        return tuple(self._items())

    @property
    def decision(self) -> str:
        """Return the last sentence of the thought."""
        lines = [line.strip() for line in self.thought.splitlines() if line.strip()]
        if not lines:
            return ""
        sentences = [each for each in lines[-1].replace("! ", ". ").replace("? ", ". ").split(". ") if each]
        return sentences[-1] if sentences else lines[-1]

    def _items(self) -> Iterator[StepItem]:
        if self.thought:
            yield self._item(StepKind.THOUGHT, self.thought)
        for call in self.calls:
            yield self._item(StepKind.ACTION, call.signature, tool=call.tool, call_id=call.id)
        for observation in self.observations:
            metadata = {"tool": observation.tool, "call_id": observation.call_id, "failed": observation.failed}
            yield self._item(StepKind.OBSERVATION, observation.text, **metadata)

    def _item(self, kind: StepKind, content: str, **metadata: Any) -> StepItem:
        return StepItem(kind, content, self.at, count_tokens(content) + OVERHEAD_TOKENS, metadata)


@dataclass(slots=True)
class TokenUsage:
    """The calls of a model and their tokens so far."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    @property
    def total(self) -> int:
        return self.tokens_in + self.tokens_out

    def add(self, reply: ChatReply | BrokenAnswer, messages: Sequence[Mapping[str, Any]]) -> None:
        """Count a call; estimate tokens that the server does not count."""
        text = reply.text if isinstance(reply, ChatReply) else ""
        self.calls += 1
        self.tokens_in += reply.tokens_in or sum(count_tokens(str(each.get("content"))) for each in messages)
        self.tokens_out += reply.tokens_out or count_tokens(text)


# How a run ended: with an answer, at a limit of iterations, time or tokens, or with an error.
EndReason: TypeAlias = Literal["answered", "iterations", "time", "tokens", "failed"]


class EventKind(StrEnum):
    """The kind of an event."""

    THOUGHT = "thought"
    ACTION = "action"
    OBSERVATION = "observation"
    ANSWER = "answer"
    ERROR = "error"


@frozen_dataclass(kw_only=True)
class Answer:
    """The result of a run. `text` is for the user, also if the run ended without an answer.

    `notes` say which parts of memory were missing.
    """

    text: str
    ended: EndReason = "answered"
    steps: tuple[Step, ...] = ()
    tokens_in: int = 0
    tokens_out: int = 0
    model_calls: int = 0
    run_id: str = ""
    conversation_id: str = ""
    facts: tuple[str, ...] = ()
    episodes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def success(self) -> bool:
        """Return whether it ended with an answer, and not all calls failed."""
        observations = [each for step in self.steps for each in step.observations]
        return self.ended == "answered" and (not observations or not all(each.failed for each in observations))

    @property
    def actions(self) -> int:
        """Return the number of calls."""
        return sum(len(step.calls) for step in self.steps)


@frozen_dataclass(kw_only=True)
class Event:
    """An event of a run; the last one has the answer."""

    kind: EventKind
    text: str
    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    failed: bool = False
    answer: Answer | None = None


_FIELDS = frozenset({"thought", "action", "arguments", "observation"})


def parse_history(history: Sequence[Step | Mapping[str, Any]]) -> tuple[Step, ...]:
    """Return the steps, or raise InvalidInput."""
    return tuple(each if isinstance(each, Step) else _parse_step(at, each) for at, each in enumerate(history))


def _parse_step(at: int, raw: Mapping[str, Any]) -> Step:
    if not isinstance(raw, Mapping) or not raw.keys() <= _FIELDS:
        raise InvalidInput(f"a step of `history` may have only {', '.join(sorted(_FIELDS))}")
    texts = {name: raw.get(name) or "" for name in ("thought", "action", "observation")}
    arguments = raw.get("arguments") or {}
    if not all(isinstance(text, str) for text in texts.values()) or not isinstance(arguments, Mapping):
        raise InvalidInput("`thought`, `action` and `observation` of a step must be texts, and `arguments` an object")
    id = f"before_{at}"
    calls = (Call(id=id, tool=texts["action"], arguments=dict(arguments)),) if texts["action"] else ()
    observation = Observation(call_id=id, tool=texts["action"], text=texts["observation"])
    return Step(
        thought=texts["thought"], calls=calls, observations=(observation,) if calls or texts["observation"] else ()
    )
