"""Load what is loaded late, before anyone waits for it: rules, word lists and tables, once a process.

A library loads them when it first needs them, so that importing it costs nothing. A server has users who would feel
it: their first recall would be given up on, and the first thing learned would hold up every stream.
"""

from __future__ import annotations

import asyncio
import logging

from recollect.errors import RecollectError
from recollect.model.change import By
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.observe.numbers import quiet
from recollect.recall import Recall
from recollect.service import Service
from recollect.settings import Settings
from recollect.wiring import open_service

_log = logging.getLogger("recollect")
_NOBODY = Scope("nobody")
_SAID = "My name is Ann, I live in Oslo and my budget for the trip in May is $10,000."
_ASKED = "What did I say about the budget for my trip last week?"


async def warm_reading(service: Service, *, at_once: int = 1) -> None:
    """Do once what every recall does; nothing is written.

    Then `at_once` for several: as many connections to a database are made, and have their statements prepared.
    """
    messages = [{"role": "user", "content": _ASKED}]
    asked = Recall(messages=messages, at=now(), limit=1, min_score=0.0)
    with quiet():
        await service.recall(_NOBODY, asked)
        several = range(at_once if at_once > 1 else 0)
        await asyncio.gather(*(service.recall(Scope(f"nobody {number}"), asked) for number in several))


def warm_learning() -> None:
    """Do once what everything learned goes through, in a memory that goes away; to be called in a thread."""
    try:
        with quiet():
            asyncio.run(_learn_once())
    except RecollectError as error:
        _log.warning("the first thing learned will take longer: %s", error)


async def _learn_once() -> None:
    service = await open_service(Settings(database="memory:", learn="rules"))
    try:
        await service.remember(_NOBODY, _SAID, by=By("warm-up"))
        await service.care.work_off()
        await warm_reading(service)
    finally:
        await service.close()
