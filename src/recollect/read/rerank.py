"""Look again at the best candidates, reading each together with the question."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from recollect.errors import RecollectError
from recollect.models.rerank import Reranker

_log = logging.getLogger("recollect")


@dataclass(frozen=True, slots=True)
class Reranked:
    """What the reranker thinks of the first candidates, in their order; empty when it has no opinion."""

    scores: tuple[float, ...] = ()
    note: str = ""


async def rerank(
    query: str, texts: Sequence[str], *, reranker: Reranker | None, limit: int, timeout_s: float
) -> Reranked:
    """A score from 0 to 1 for each of the first `limit` texts, or none and a note that says why.

    Never an error: recall is better with a second look, and works without.
    """
    first = list(texts[:limit])
    if reranker is None or not first:
        return Reranked()
    try:
        async with asyncio.timeout(timeout_s):
            scores = tuple(map(float, await reranker.rerank(query, first)))
    except TimeoutError:
        return _none(f"{reranker.name} took more than {timeout_s:g} s")
    except RecollectError as error:
        return _none(str(error))
    except Exception as error:
        # A reranker of the caller's own may raise anything.
        _log.warning("the reranker %s failed", reranker.name, exc_info=True)
        return _none(f"{reranker.name} failed: {error!r}")
    # A comparison with nan is false.
    if len(scores) != len(first) or not all(0.0 <= score <= 1.0 for score in scores):
        return _none(f"{reranker.name} did not answer {len(first)} scores from 0 to 1")
    return Reranked(scores)


def _none(why: str) -> Reranked:
    return Reranked(note=f"not reranked: {why}")
