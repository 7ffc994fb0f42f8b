"""Telemetry of reads: durations of steps, traces of candidates, metrics and spans."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter

from recollect.model.memory import MemoryRecord
from recollect.model.result import (
    SELECTED,
    FeatureContribution,
    LogOdds,
    RecallResult,
    SearchResult,
    TracedCandidate,
)
from recollect.observability import metrics
from recollect.observability.tracing import Span, span
from recollect.read.explain import break_down_score
from recollect.read.rank import SearchCandidate


@dataclass(slots=True)
class StepTimer:
    """Durations of named steps in microseconds."""

    steps_us: dict[str, float] = field(default_factory=dict)
    _last: float = field(default_factory=perf_counter)

    def skip(self) -> None:
        """Restart the clock without counting the time since the last step."""
        self._last = perf_counter()

    def mark(self, step: str) -> None:
        """End a step that began when the last one ended."""
        now = perf_counter()
        self.steps_us[step] = self.steps_us.get(step, 0.0) + (now - self._last) * 1e6
        self._last = now


def trace_candidates(
    candidates: Sequence[SearchCandidate],
    features: Mapping[int, Mapping[str, float]],
    ranks: Mapping[str, Mapping[int, int]],
    *,
    forced: Collection[int] = (),
    is_learned: bool = True,
) -> tuple[TracedCandidate, ...]:
    """Return the trace of each candidate: its scores, features and ranks, and why it was dropped or selected.

    `features` and the `ranks` after each step are by the index in the pool, `forced` are rows.
    """
    return tuple(
        TracedCandidate(
            id=each.record.id,
            memory=each.record.content,
            score=each.score,
            relevance=each.relevance,
            decision=each.decision or SELECTED,
            scores=each.parts,
            features=features.get(each.pool_index, {}),
            category=str(each.record.category),
            created_at=each.record.created_at,
            ranks={
                step: by_index[each.pool_index] for step, by_index in ranks.items() if each.pool_index in by_index
            },
            log_odds=trace_log_odds(features[each.pool_index]) if is_learned else None,
            forced=each.row in forced,
        )
        for each in candidates
    )


def trace_absent(record: MemoryRecord, reason: str) -> TracedCandidate:
    """Return the trace of a memory that is no candidate."""
    return TracedCandidate(
        id=record.id,
        memory=record.content,
        score=0.0,
        relevance=0.0,
        decision=reason,
        category=str(record.category),
        created_at=record.created_at,
        forced=True,
    )


def trace_log_odds(features: Mapping[str, float]) -> LogOdds:
    """Return the contributions of a candidate's features to its relevance, the strongest first."""
    breakdown = break_down_score(features)
    contributions = tuple(
        FeatureContribution(each.feature, each.value, each.weight, each.odds)
        for each in breakdown.strongest(len(breakdown.own))
    )
    return LogOdds(breakdown.base, breakdown.question, breakdown.odds, contributions)


class ReadTelemetry:
    """Records the metrics and the span of one recall or search."""

    __slots__ = ("_span", "_started")

    def __init__(self, traced: Span) -> None:
        self._started = perf_counter()
        self._span = traced

    def record_recall(self, result: RecallResult) -> None:
        """Record the result of a recall."""
        used_count = len(result.context.used)
        metrics.RECALL_SECONDS.observe(perf_counter() - self._started)
        metrics.RECALLS.add(result.outcome.value)
        metrics.RETRIEVED.add(by=used_count)
        metrics.RECALL_STEP_SECONDS.observe_each(result.steps_us)
        if self._span.is_recording:
            self._span.add_steps(result.steps_us)
            attributes = {"hits": len(result.hits), "used": used_count, "context_tokens": result.context.tokens}
            self._span.set_attributes({"outcome": str(result.outcome), **attributes})

    def record_search(self, result: SearchResult) -> None:
        """Record the result of a search."""
        metrics.SEARCH_SECONDS.observe(perf_counter() - self._started)
        if self._span.is_recording:
            self._span.add_steps(result.steps_us)
            self._span.set_attributes({"hits": len(result)})


@contextmanager
def observe_read(name: str) -> Iterator[ReadTelemetry]:
    """Open a span, and time the read until its result is recorded."""
    with span(name) as traced:
        yield ReadTelemetry(traced)
