"""Put down what models were asked though nothing came of it: it has to be paid for all the same."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

from recollect.errors import RecollectError
from recollect.ledger.protocol import Ledger
from recollect.model.change import Author, Effect
from recollect.model.scope import Scope
from recollect.observability import metrics
from recollect.observability.tracing import span

_log = logging.getLogger("recollect")


@asynccontextmanager
async def record_cost_on_error(
    ledger: Ledger, scope: Scope, list_costs: Callable[[], Sequence[Effect]], *, by: Author
) -> AsyncIterator[None]:
    """If what is done inside fails, and with it the write that would have said so, record what was spent by then."""
    try:
        yield
    except Exception:
        if costs := list_costs():
            try:
                await ledger.apply(scope, [], by=by, effects=costs)
            except RecollectError as error:
                _log.warning("could not record what the LLM cost: %s", error)
        raise


@contextmanager
def count_extraction() -> Iterator[None]:
    """What is done in here is one try to learn from what was said."""
    metrics.EXTRACTIONS.add()
    try:
        with span("recollect.learn"):
            yield
    except Exception:
        metrics.EXTRACTION_ERRORS.add()
        raise
    metrics.EXTRACTED.add()
