"""`python -m benchmarks.cache`: what Redis in front of recall saves, and what looking there for nothing costs.

A question asked for the first time is a miss, asked again a hit. With SQLite and PostgreSQL, and with an LLM that
takes a fifth of a second to imagine an answer.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.corpus import questions
from benchmarks.run import fill
from benchmarks.timing import Timing, timed
from recollect.config.settings import load
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.recall import RecallRequest
from recollect.service.service import Service
from recollect.testing.scripted_llm import ScriptedLLM
from recollect.wiring import open_embedder, open_service
from tests.support.llm_faults import delay
from tests.support.postgres_server import running_server
from tests.support.redis_server import running_redis

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


USER = "ann"


@asynccontextmanager
async def opened(**options: Any) -> AsyncIterator[Service]:
    service = await open_service(load(options, environ={}).settings)
    try:
        yield service
    finally:
        await service.close()


async def time_recalls(service: Service, dialogue: list[str]) -> Timing:
    """How long it takes to recall for each of these questions, one after the other."""
    at = now()

    async def call(number: int) -> None:
        messages = ({"role": "user", "content": dialogue[number]},)
        await service.recall(Scope(USER), RecallRequest(messages=messages, at=at, limit=10, min_score=0.0))

    return await timed(call, times=len(dialogue) - 5)


async def compare(name: str, count: int, memories: int, inputs: dict[str, Any]) -> None:
    """One store: without Redis, with it as it is set up, and looking always."""
    messages = [f"what about my {text}?" for text in islice(questions(7), count + 5)]
    rest = [f"{text} again" for text in messages]
    redis = {"redis_url": running_redis().url}
    async with opened(**inputs) as service:
        embedder = await open_embedder(load(inputs, environ={}).settings)
        await fill(service, embedder, USER, memories, seed=3)
        await time_recalls(service, messages[:10])
        print(f"{name}, {memories:,} memories")
        print(f"    no Redis                {await time_recalls(service, messages)}")
    async with opened(**inputs, **redis) as service:
        await time_recalls(service, rest[:20])
        print(f"    Redis, asked first      {await time_recalls(service, messages)}")
        print(f"    Redis, asked again      {await time_recalls(service, messages)}")
    async with opened(**inputs, **redis, cache_from_ms=0) as service:
        fresh = [f"{text} too" for text in messages]
        await time_recalls(service, rest[:20])
        print(f"    always looking: miss    {await time_recalls(service, fresh)}")
        print(f"    always looking: hit     {await time_recalls(service, fresh)}")


async def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--memories", type=int, default=10_000)
    parser.add_argument("--questions", type=int, default=100)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="recollect-bench-") as home:
        await compare("SQLite", args.questions, args.memories, {"home": Path(home) / "a"})
        async with running_server().database() as dsn:
            await compare("PostgreSQL", args.questions, args.memories, {"home": Path(home), "database": dsn})
        with ScriptedLLM() as llm:
            llm.default = "The trip to Hawaii in May costs $10,000"
            llm.fault(delay(0.2), times=None, on="chat")
            options = {"home": Path(home) / "b", "llm": "slow", "llm_url": llm.base_url, "rewrite": "hyde"}
            await compare("SQLite and an LLM of 200 ms", 40, args.memories, options)


if __name__ == "__main__":
    asyncio.run(main())
