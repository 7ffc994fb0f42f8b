"""One step of a run: what was thought, what was called, what was observed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from recollect.errors import InvalidInput
from recollect.model.times import now
from recollect.sessions.agent_runs import StepKind
from recollect.text.tokens import count_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool that is to be called; `wrong` says why it cannot be, if the model made a mistake."""

    id: str
    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""

    @property
    def signature(self) -> str:
        """The call as a person writes it."""
        arguments = ", ".join(
            f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in self.arguments.items()
        )
        return f"{self.tool}({arguments})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What came of a call."""

    call_id: str
    tool: str
    text: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class StepItem:
    """One thing in working memory: what kind it is, what it says, when it came, and how long it is."""

    kind: StepKind
    content: str
    at: datetime
    tokens: int
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A thought, the calls it led to and what was observed, call by call."""

    thought: str = ""
    calls: tuple[Call, ...] = ()
    observations: tuple[Observation, ...] = ()
    at: datetime = field(default_factory=now)

    @property
    def tokens(self) -> int:
        """How many tokens it has in a prompt, on the safe side."""
        return sum(item.tokens for item in self.items)

    @property
    def items(self) -> tuple[StepItem, ...]:
        """What it consists of, in order."""
        return tuple(self._items())

    @property
    def decision(self) -> str:
        """What the thought came to: its last sentence."""
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
        return StepItem(kind, content, self.at, count_tokens(content) + _OVERHEAD_TOKENS, metadata)


# What stands around each of them in a prompt: a role, a name, an id.
_OVERHEAD_TOKENS = 8


# How a run ended: with an answer, because its steps, its time or its tokens were used up, or because it failed.
EndReason: TypeAlias = Literal["answered", "iterations", "time", "tokens", "failed"]


class EventKind(StrEnum):
    """What an event tells of."""

    THOUGHT = "thought"
    ACTION = "action"
    OBSERVATION = "observation"
    ANSWER = "answer"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a run came to. `text` is what it says to the user, also where it ended without having found out.

    `steps` are what it did, word for word; `notes` tell what went without memory, if anything did.
    """

    text: str
    ended: EndReason = "answered"
    steps: tuple[Step, ...] = ()
    tokens_in: int = 0
    tokens_out: int = 0
    # How often the model was asked.
    model_calls: int = 0
    run_id: str = ""
    conversation_id: str = ""
    facts: tuple[str, ...] = ()
    episodes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def success(self) -> bool:
        """Whether it ended with an answer, and not everything it tried failed."""
        observations = [each for step in self.steps for each in step.observations]
        return self.ended == "answered" and (not observations or not all(each.failed for each in observations))

    @property
    def actions(self) -> int:
        """How many tools it called."""
        return sum(len(step.calls) for step in self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened in a run; the last is an answer."""

    kind: EventKind
    text: str
    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    failed: bool = False
    answer: Answer | None = None


_FIELDS = frozenset({"thought", "action", "arguments", "observation"})


def parse_history(history: Sequence[Step | Mapping[str, Any]]) -> tuple[Step, ...]:
    """The steps, or an InvalidInput that says what is wrong with them."""
    return tuple(each if isinstance(each, Step) else _parse_step(at, each) for at, each in enumerate(history))


def _parse_step(at: int, raw: Mapping[str, Any]) -> Step:
    if not isinstance(raw, Mapping) or not raw.keys() <= _FIELDS:
        raise InvalidInput(f"a step of the history has {', '.join(sorted(_FIELDS))}, and nothing else")
    texts = {name: raw.get(name) or "" for name in ("thought", "action", "observation")}
    arguments = raw.get("arguments") or {}
    if not all(isinstance(text, str) for text in texts.values()) or not isinstance(arguments, Mapping):
        raise InvalidInput("thought, action and observation of a step are texts, and its arguments an object")
    id = f"before_{at}"
    calls = (Call(id=id, tool=texts["action"], arguments=dict(arguments)),) if texts["action"] else ()
    observation = Observation(call_id=id, tool=texts["action"], text=texts["observation"])
    return Step(
        thought=texts["thought"], calls=calls, observations=(observation,) if calls or texts["observation"] else ()
    )
