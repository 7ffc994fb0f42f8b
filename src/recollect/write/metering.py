"""Record LLM cost even when a step fails, and count extractions."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

from recollect.errors import RecollectError
from recollect.ledger.ledger import Ledger
from recollect.model.change import Author, Effect
from recollect.model.scope import Scope
from recollect.observability import metrics
from recollect.observability.tracing import span

_log = logging.getLogger("recollect")


@asynccontextmanager
async def record_cost_on_error(
    ledger: Ledger, scope: Scope, list_costs: Callable[[], Sequence[Effect]], *, by: Author
) -> AsyncIterator[None]:
    """Record the costs on their own if the block fails, since the write that would include them fails with it."""
    try:
        yield
    except Exception:
        if costs := list_costs():
            try:
                await ledger.apply(scope, [], by=by, effects=costs)
            except RecollectError as error:
                _log.warning("LLM cost could not be recorded: %s", error)
        raise


@contextmanager
def count_extraction() -> Iterator[None]:
    """Count the block as one extraction, and its exceptions as errors."""
    metrics.EXTRACTIONS.add()
    try:
        with span("recollect.learn"):
            yield
    except Exception:
        metrics.EXTRACTION_ERRORS.add()
        raise
    metrics.EXTRACTED.add()
