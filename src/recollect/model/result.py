"""The results of searching, recalling and remembering."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Any

from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.job import Job
from recollect.model.memory import MemoryRecord
from recollect.model.plain import PlainValue, plain_fields
from recollect.model.turn import Turn


class RecallOutcome(StrEnum):
    """Why memories were, or were not, inserted into a prompt."""

    USED = "used"  # Memories were found and inserted.
    MISSING = "missing"  # No memory reached the minimum score.
    IGNORED = "ignored"  # Not searched: it is small talk, general knowledge, or a request for a tool.
    DISABLED = "disabled"  # By the settings or for this request.
    POLICY_BLOCKED = "policy_blocked"  # All memories found have a tag that is withheld from prompts.
    UNAVAILABLE = "unavailable"  # A store or a model failed or timed out.


# The decision about a candidate that is a hit.
SELECTED = "selected"
# The id of the conversation's summary, which is shown like a memory but may not be one.
SUMMARY_ID = "summary"


@frozen_dataclass
class PromptBlock(PlainValue):
    """A block for a prompt; `text` is empty if there is nothing to show, or no space for it.

    `used` are the ids shown, best first. `cut`, `dropped` and `flagged` give the reason for each id that was
    shortened, left out, or shown with an instruction defused. Ids in `cut` and `flagged` are also in `used`.
    """

    text: str = ""
    tokens: int = 0
    used: tuple[str, ...] = ()
    cut: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)
    flagged: Mapping[str, str] = field(default_factory=dict)


@frozen_dataclass
class Hit:
    """A memory with its score from 0 to 1, the parts of the score, and the reason."""

    record: MemoryRecord
    score: float
    scores: Mapping[str, float] = field(default_factory=dict)
    why: str = ""

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def memory(self) -> str:
        """The text of the memory."""
        return self.record.content

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: those of the memory, its score, the parts and the reason."""
        return {
            **self.record.to_dict(),
            "score": round(self.score, 6),
            "scores": {name: round(value, 6) for name, value in self.scores.items()},
            "why": self.why,
        }


@frozen_dataclass
class FeatureContribution:
    """The log-odds that one feature of a candidate adds to its relevance: value times weight."""

    feature: str
    value: float
    weight: float
    log_odds: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        numbers = {name: round(getattr(self, name), 4) for name in ("value", "weight", "log_odds")}
        return {"feature": self.feature, **numbers}


@frozen_dataclass
class LogOdds:
    """The log-odds of a relevance before later steps changed it, and the contributions of the candidate's features.

    `base` and `question` are the same for all candidates. The strongest contributions come first.
    """

    base: float
    question: float
    total: float
    contributions: tuple[FeatureContribution, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        numbers = {name: round(getattr(self, name), 4) for name in ("base", "question", "total")}
        return {**numbers, "contributions": [each.to_dict() for each in self.contributions]}


@frozen_dataclass
class TracedCandidate:
    """A candidate in a trace: every score and feature, its rank after each step, and why it was selected or not.

    `ranks` count from 1; a candidate has none after the step that dropped it. `in_prompt` is None for a search.
    `forced` marks one that is a candidate only because the request named it.
    """

    id: str
    memory: str
    score: float
    relevance: float
    decision: str
    scores: Mapping[str, float] = field(default_factory=dict)
    features: Mapping[str, float] = field(default_factory=dict)
    category: str = ""
    created_at: datetime | None = None
    ranks: Mapping[str, int] = field(default_factory=dict)
    log_odds: LogOdds | None = None
    in_prompt: bool | None = None
    forced: bool = False

    @property
    def is_selected(self) -> bool:
        return self.decision == SELECTED

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "id": self.id,
            "memory": self.memory,
            "category": self.category,
            "created_at": self.created_at.isoformat() if self.created_at else None,
            "score": round(self.score, 6),
            "relevance": round(self.relevance, 6),
            "decision": self.decision,
            "selected": self.is_selected,
            "in_prompt": self.in_prompt,
            "forced": self.forced,
            "ranks": dict(self.ranks),
            "scores": {name: round(value, 6) for name, value in self.scores.items()},
            "features": {name: round(value, 4) for name, value in self.features.items()},
            "log_odds": self.log_odds.to_dict() if self.log_odds else None,
        }


@frozen_dataclass
class TracedPeriod(PlainValue):
    """A time expression of a question; None for an open side."""

    phrase: str
    start: datetime | None
    end: datetime | None


@frozen_dataclass(kw_only=True)
class ReadTrace(PlainValue):
    """How a question was read: whether it was searched for and why, the query, and the limits.

    `memory_id` is the memory that the request asked about. `pool` counts the candidates.
    """

    searched: bool
    decision: str
    question: str
    query: str = ""
    rewrite: str = "as-is"
    hypothetical: str = ""
    inferred_terms: tuple[str, ...] = ()
    periods: tuple[TracedPeriod, ...] = ()
    limit: int = 0
    min_score: float = 0.0
    budget_tokens: int | None = None
    pool: int = 0
    memory_id: str | None = None


@frozen_dataclass
class SearchResult:
    """The hits of a search, best first, the duration of each step, and, if traced, all candidates."""

    hits: tuple[Hit, ...]
    steps_us: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    candidates: tuple[TracedCandidate, ...] = ()
    # The embedder's error, if only words were searched.
    failure: Exception | None = field(default=None, compare=False)
    trace: ReadTrace | None = None

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, index: int) -> Hit:
        return self.hits[index]

    def to_dict(self) -> dict[str, Any]:
        """Return {"results": [{"id", "memory", "score", ...}]}, as other memory libraries do."""
        return {"results": [hit.to_dict() for hit in self.hits]}


@frozen_dataclass(kw_only=True)
class RecallResult:
    """The result of a recall: its outcome and reason, the hits, the prompt block, and the messages with it.

    `messages` are the input with the block inserted; without memories they are the input. `failure` is the error
    because of which no memories, or only words, were searched.
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
    trace: ReadTrace | None = None

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    def __bool__(self) -> bool:
        """Return whether memories went into the context."""
        return self.outcome is RecallOutcome.USED

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            **plain_fields(self, omit=("hits", "messages", "failure")),
            "results": [hit.to_dict() for hit in self.hits],
            "messages": list(self.messages),
            "steps_us": {step: round(took, 1) for step, took in self.steps_us.items()},
        }


@frozen_dataclass
class Page:
    """Some memories in order, and the cursor of the next page, if there is one."""

    records: tuple[MemoryRecord, ...]
    cursor: str | None = None

    def __iter__(self) -> Iterator[MemoryRecord]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> MemoryRecord:
        return self.records[index]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, in the shape of a search result."""
        return {"results": [record.to_dict() for record in self.records], "cursor": self.cursor}


# The fields that memories are counted by; `month` is that of the event, or else of the statement.
FACETS = (
    "category", "type", "level", "project_id", "session_id", "source", "trust", "status", "month", "tags",
)  # fmt: skip
_MAX_FACET_VALUES = 100


@frozen_dataclass
class Facets:
    """The number of memories of a listing, and by each value of some fields; an empty value is none."""

    total: int
    counts: Mapping[str, tuple[tuple[str, int], ...]]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: the most frequent values first, and the latest months."""
        facets = {}
        for name, counts in self.counts.items():
            order = sorted(counts, key=lambda each: each[0], reverse=True)
            if name != "month":
                order = sorted(counts, key=lambda each: (-each[1], each[0]))
            facets[name] = [{"value": value, "count": count} for value, count in order[:_MAX_FACET_VALUES]]
        return {"total": self.total, "facets": facets}


@frozen_dataclass
class RememberResult(PlainValue):
    """The stored turns, and the job that extracts facts from them, in its state at that time.

    `redacted` names the kinds of secrets that were removed from the turns.
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
