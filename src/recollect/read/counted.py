"""Count what recalls and searches came to, for whoever watches: numbers and a span, never what was found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from recollect.model.result import Recalled, SearchResult
from recollect.observe import metrics
from recollect.observe.traces import Span, span


class Watched:
    """A recall or search under way, to be told what came of it."""

    __slots__ = ("_begun", "_span")

    def __init__(self, traced: Span) -> None:
        self._begun = perf_counter()
        self._span = traced

    def recalled(self, recalled: Recalled) -> None:
        """It was a recall, and this came of it."""
        used = len(recalled.context.used)
        metrics.RECALL_SECONDS.note(perf_counter() - self._begun)
        metrics.RECALLS.add(recalled.outcome.value)
        metrics.RETRIEVED.add(by=used)
        metrics.RECALL_STEP_SECONDS.note_each(recalled.steps_us)
        if self._span.is_kept:
            self._span.steps(recalled.steps_us)
            told = {"hits": len(recalled.hits), "used": used, "context_tokens": recalled.context.tokens}
            self._span.tell({"outcome": str(recalled.outcome), **told})

    def found(self, found: SearchResult) -> None:
        """It was a search, and this was found."""
        metrics.SEARCH_SECONDS.note(perf_counter() - self._begun)
        if self._span.is_kept:
            self._span.steps(found.steps_us)
            self._span.tell({"hits": len(found)})


@contextmanager
def watched(name: str) -> Iterator[Watched]:
    """A span around what is done in here, and a clock that begins now."""
    with span(name) as traced:
        yield Watched(traced)
