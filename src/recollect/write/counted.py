"""Count how learning went, for whoever watches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from recollect.observe import metrics
from recollect.observe.traces import span


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
