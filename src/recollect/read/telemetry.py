"""What happened on the way: how long each step took, and what became of every candidate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter

from recollect.model.result import RecallResult, SearchResult, TracedCandidate
from recollect.observability import metrics
from recollect.observability.tracing import Span, span
from recollect.read.rank import SearchCandidate


@dataclass(slots=True)
class StepTimer:
    """How long each step took, in microseconds."""

    steps_us: dict[str, float] = field(default_factory=dict)
    _last: float = field(default_factory=perf_counter)

    def skip(self) -> None:
        """What passed since the last step was counted elsewhere."""
        self._last = perf_counter()

    def mark(self, step: str) -> None:
        """The step that began when the last one ended is done."""
        now = perf_counter()
        self.steps_us[step] = self.steps_us.get(step, 0.0) + (now - self._last) * 1e6
        self._last = now


def trace_candidates(
    candidates: Sequence[SearchCandidate], features: Mapping[int, Mapping[str, float]]
) -> tuple[TracedCandidate, ...]:
    """Every candidate, best first, with all its scores and what it fell to."""
    return tuple(
        TracedCandidate(
            id=each.record.id,
            memory=each.record.content,
            score=each.score,
            relevance=each.relevance,
            fate=each.decision or "kept",
            scores=each.parts,
            signals=features.get(each.pool_index, {}),
        )
        for each in candidates
    )


class ReadTelemetry:
    """A recall or search under way, to be told what came of it."""

    __slots__ = ("_begun", "_span")

    def __init__(self, traced: Span) -> None:
        self._begun = perf_counter()
        self._span = traced

    def record_recall(self, result: RecallResult) -> None:
        """It was a recall, and this came of it."""
        used_count = len(result.context.used)
        metrics.RECALL_SECONDS.observe(perf_counter() - self._begun)
        metrics.RECALLS.add(result.outcome.value)
        metrics.RETRIEVED.add(by=used_count)
        metrics.RECALL_STEP_SECONDS.observe_each(result.steps_us)
        if self._span.is_recording:
            self._span.add_steps(result.steps_us)
            attributes = {"hits": len(result.hits), "used": used_count, "context_tokens": result.context.tokens}
            self._span.set_attributes({"outcome": str(result.outcome), **attributes})

    def record_search(self, result: SearchResult) -> None:
        """It was a search, and this was found."""
        metrics.SEARCH_SECONDS.observe(perf_counter() - self._begun)
        if self._span.is_recording:
            self._span.add_steps(result.steps_us)
            self._span.set_attributes({"hits": len(result)})


@contextmanager
def observe_read(name: str) -> Iterator[ReadTelemetry]:
    """A span around what is done in here, and a clock that begins now."""
    with span(name) as traced:
        yield ReadTelemetry(traced)
