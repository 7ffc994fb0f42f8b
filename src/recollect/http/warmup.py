"""Warm-up of a server: loads models, word lists and tables before the first request needs them.

The library loads them lazily, so that an import is cheap. In a server the first recall would time out, and the first
learning would delay every stream.
"""

from __future__ import annotations

import asyncio
import logging
from functools import cache

from recollect.config.settings import Settings
from recollect.errors import RecollectError
from recollect.model.change import Author
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.observability.metric_types import metrics_disabled
from recollect.recall import RecallRequest
from recollect.service.service import Service
from recollect.wiring import open_service

_log = logging.getLogger("recollect")
_NOBODY = Scope("nobody")
_SAMPLE_MESSAGE = "My name is Ann, I live in Oslo and my budget for the trip in May is $10,000."
_SAMPLE_QUESTION = "What did I say about the budget for my trip last week?"


async def warm_up_recall(service: Service, *, connections: int = 1) -> None:
    """Recall once without writing; then concurrently, so that each database connection prepares its statements."""
    messages = [{"role": "user", "content": _SAMPLE_QUESTION}]
    request = RecallRequest(messages=messages, at=now(), limit=1, min_score=0.0)
    with metrics_disabled():
        await service.recall(_NOBODY, request)
        await service.warm_up_reranker(_SAMPLE_QUESTION, _SAMPLE_MESSAGE)
        several = range(connections if connections > 1 else 0)
        await asyncio.gather(*(service.recall(Scope(f"nobody {number}"), request) for number in several))


@cache
def warm_up_learning() -> None:
    """Learn once in a temporary memory, at most once in a process; call it in a thread."""
    try:
        with metrics_disabled():
            asyncio.run(_learn_once())
    except RecollectError as error:
        _log.warning("warm-up failed, so that the first learning takes longer: %s", error)


async def _learn_once() -> None:
    service = await open_service(Settings(database="memory:", learn="rules"))
    try:
        await service.remember(_NOBODY, _SAMPLE_MESSAGE, by=Author("warm-up"))
        await service.jobs.run_pending()
        await warm_up_recall(service)
    finally:
        await service.close()
