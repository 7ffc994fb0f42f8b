"""One step of a run: what was thought, what was called, what was observed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from recollect.conversation.run import StepKind
from recollect.model.times import now
from recollect.read.budget import count_tokens


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
