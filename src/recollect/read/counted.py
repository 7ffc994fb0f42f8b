"""Count what recalls and searches came to, for whoever watches: numbers and a span, never what was found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from recollect.model.result import RecallResult, SearchResult
from recollect.observe import metrics
from recollect.observe.traces import Span, span


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
