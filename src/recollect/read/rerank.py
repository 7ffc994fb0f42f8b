"""Rerank the best candidates with a model that reads each of them together with the question."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

from recollect.errors import RecollectError
from recollect.frozen_dataclass import frozen_dataclass
from recollect.models.embedding import Reranker
from recollect.models.server_errors import describe_error
from recollect.observability.tracing import format_traceback
from recollect.read.fuse import logit
from recollect.read.rank import SearchCandidate

RerankMode: TypeAlias = Literal["blend", "replace"]
_log = logging.getLogger("recollect")

# Weight of the reranker's log-odds beside those of the relevance, and the value at which they change nothing.
_RERANK_WEIGHT, _NEUTRAL_ODDS = 0.25, -2.0


@frozen_dataclass
class RerankResult:
    """The scores of the first candidates, in their order; empty, with a note, if reranking failed."""

    scores: tuple[float, ...] = ()
    note: str = ""


async def rerank(
    query: str, texts: Sequence[str], *, reranker: Reranker | None, limit: int, timeout_s: float
) -> RerankResult:
    """Return a score from 0 to 1 for each of the first `limit` texts, or a note if the reranker failed.

    Failures are not raised: a search works without reranking.
    """
    first = list(texts[:limit])
    if reranker is None or not first:
        return RerankResult()
    try:
        async with asyncio.timeout(timeout_s):
            scores = tuple(map(float, await reranker.rerank(query, first)))
    except TimeoutError:
        return _not_reranked(f"{reranker.name} took more than {timeout_s:g} s")
    except RecollectError as error:
        return _not_reranked(str(error))
    except Exception as error:
        # A custom reranker may raise anything.
        _log.warning("the reranker %s failed. %s", reranker.name, format_traceback(error))
        return _not_reranked(f"{reranker.name} failed: {describe_error(error, [query, *first])}")
    # Comparisons with NaN are false, so NaN is rejected too.
    if len(scores) != len(first) or not all(0.0 <= score <= 1.0 for score in scores):
        return _not_reranked(f"{reranker.name} did not return {len(first)} scores from 0 to 1")
    return RerankResult(scores)


def _not_reranked(reason: str) -> RerankResult:
    return RerankResult(note=f"not reranked: {reason}")


def apply_rerank_scores(
    candidates: Sequence[SearchCandidate], scores: Sequence[float], mode: RerankMode = "blend"
) -> None:
    """Combine the scores with the relevance of the first candidates, or replace it; rank the others after them."""
    for each, score in zip(candidates, scores, strict=False):
        each.parts["rerank"] = score
        each.relevance = score if mode == "replace" else _blend(each.relevance, score)
    worst = min((each.relevance for each in candidates[: len(scores)]), default=1.0)
    for each in candidates[len(scores) :] if scores else ():
        each.relevance = min(each.relevance, worst)


def _blend(relevance: float, score: float) -> float:
    odds = logit(relevance) + _RERANK_WEIGHT * (logit(score) - _NEUTRAL_ODDS)
    return 1 / (1 + math.exp(-odds))
