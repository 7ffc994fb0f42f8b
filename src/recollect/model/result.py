"""What came of a recall, in the words an operator counts by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from recollect.model.job import Job
from recollect.model.memory import MemoryRecord
from recollect.model.turn import Turn


class RecallOutcome(StrEnum):
    """Why memories were, or were not, part of an answer; one for each recall."""

    USED = "used"
    """Memory was searched, and what was found went into the answer's context."""

    MISSING = "missing"
    """Memory was searched and held nothing near enough: the user never said it, or the threshold is too high."""

    IGNORED = "ignored"
    """Nothing was searched, since the message did not call for it: manners, a tool's work, general knowledge."""

    DISABLED = "disabled"
    """Recall is switched off, by the settings or for this request."""

    POLICY_BLOCKED = "policy_blocked"
    """A rule forbids it: all that was found carries a tag that is withheld from prompts."""

    UNAVAILABLE = "unavailable"
    """Memory should have been searched and could not be: a store or a model failed or took too long."""


# Stands for the conversation's summary, which is shown like a memory but may not be one.
SUMMARY_ID = "summary"


@dataclass(frozen=True, slots=True)
class PromptBlock:
    """A block for a prompt; `text` is empty if there is nothing to say or no room to say it.

    `used` are the ids shown, best first. `cut`, `dropped` and `flagged` say why for each id they name: shortened,
    left out, and shown with something made harmless. Whatever is cut or flagged is also in `used`.
    """

    text: str = ""
    tokens: int = 0
    used: tuple[str, ...] = ()
    cut: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)
    flagged: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a trace, in JSON."""
        return {
            "text": self.text,
            "tokens": self.tokens,
            "used": list(self.used),
            "cut": dict(self.cut),
            "dropped": dict(self.dropped),
            "flagged": dict(self.flagged),
        }


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory that was found: how well it fits, from 0 to 1, and what that is made of."""

    record: MemoryRecord
    score: float
    scores: Mapping[str, float] = field(default_factory=dict)
    why: str = ""

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def memory(self) -> str:
        """What the memory says."""
        return self.record.content

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: the memory's own, its score, the parts and the reason."""
        return {
            **self.record.to_dict(),
            "score": round(self.score, 6),
            "scores": {name: round(value, 6) for name, value in self.scores.items()},
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class TracedCandidate:
    """A candidate as a trace shows it: every score, every signal it had, and why it was kept or left out."""

    id: str
    memory: str
    score: float
    relevance: float
    fate: str
    scores: Mapping[str, float] = field(default_factory=dict)
    signals: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "id": self.id,
            "memory": self.memory,
            "score": round(self.score, 6),
            "relevance": round(self.relevance, 6),
            "fate": self.fate,
            "scores": {name: round(value, 6) for name, value in self.scores.items()},
            "signals": {name: round(value, 4) for name, value in self.signals.items()},
        }


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The hits of one search, best first, how long each step took, and, if traced, what became of every candidate."""

    hits: tuple[Hit, ...]
    steps_us: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    candidates: tuple[TracedCandidate, ...] = ()
    # What it had to do without: the embedder's error, where words alone were searched.
    failure: Exception | None = field(default=None, compare=False)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, index: int) -> Hit:
        return self.hits[index]

    def to_dict(self) -> dict[str, Any]:
        """The shape users of other memory libraries know: {"results": [{"id", "memory", "score", ...}]}."""
        return {"results": [hit.to_dict() for hit in self.hits]}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallResult:
    """What a recall came to: its outcome and why, the hits, the block for the prompt, and the messages with it.

    `messages` are those given, with the block in its place; without memories they are exactly those given. `failure`
    is the error that left it without memories, or without an embedder to find them by more than their words.
    """

    outcome: RecallOutcome
    reason: str
    query: str = ""
    hits: tuple[Hit, ...] = ()
    context: PromptBlock = field(default_factory=PromptBlock)
    messages: tuple[Mapping[str, Any], ...] = ()
    steps_us: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    candidates: tuple[TracedCandidate, ...] = ()
    failure: Exception | None = field(default=None, compare=False)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    def __bool__(self) -> bool:
        """Whether memories went into the context; a recall without any is falsy."""
        return self.outcome is RecallOutcome.USED

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "outcome": str(self.outcome),
            "reason": self.reason,
            "query": self.query,
            "results": [hit.to_dict() for hit in self.hits],
            "context": self.context.to_dict(),
            "messages": list(self.messages),
            "steps_us": {step: round(took, 1) for step, took in self.steps_us.items()},
            "notes": list(self.notes),
            "candidates": [each.to_dict() for each in self.candidates],
        }


@dataclass(frozen=True, slots=True)
class Page:
    """Some memories in order, and the cursor to go on from, if there are more."""

    records: tuple[MemoryRecord, ...]
    cursor: str | None = None

    def __iter__(self) -> Iterator[MemoryRecord]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> MemoryRecord:
        return self.records[index]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, in the shape of a search's."""
        return {"results": [record.to_dict() for record in self.records], "cursor": self.cursor}


@dataclass(frozen=True, slots=True)
class RememberResult:
    """The turns that were kept, and the job that learns from them, as it stood when this was made.

    `redacted` names the kinds of secrets that were kept out of the turns.
    """

    turns: tuple[Turn, ...] = ()
    job: Job | None = None
    redacted: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Turn]:
        return iter(self.turns)

    def __len__(self) -> int:
        return len(self.turns)

    def __getitem__(self, at: int) -> Turn:
        return self.turns[at]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "turns": [turn.to_dict() for turn in self.turns],
            "job": None if self.job is None else self.job.to_dict(),
            "redacted": list(self.redacted),
        }
