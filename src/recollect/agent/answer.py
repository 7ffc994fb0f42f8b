"""What a run tells while it goes on, and what it comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from recollect.agent.step import Step

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
