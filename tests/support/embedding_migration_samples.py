"""Settings and servers for embedding migrations, and functions that wait for the switch."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

from recollect import AsyncMemory
from recollect.config.settings import Settings
from recollect.testing.llm_replies import HttpAnswer
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.llm_faults import hang
from tests.support.recollect_server import RecollectServer

_WORD = re.compile(r"\w+")
# Longer than any machine needs, so that only what never happens fails.
SWITCH_TIMEOUT_S = 180.0


class ModelServer(ScriptedLLM):
    """A server whose models embed the same words differently.

    A model that has a number of `texts` left answers no more once those are embedded, but hangs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[str, int] = {}

    def embeddings(self, body: Mapping[str, Any]) -> HttpAnswer:
        model = body["model"]
        texts = [_WORD.sub(lambda word: f"{word[0]}_{model}", text) for text in body["input"]]
        answer = super().embeddings({**body, "input": texts})
        if model in self.texts:
            self.texts[model] -= len(texts)
            return hang().bend(answer) if self.texts[model] < 0 else answer
        return answer


def settings_of(home: Path, llm: ScriptedLLM, model: str, dimensions: int, *, database: str = "") -> Settings:
    """Return settings with a model of the server."""
    return Settings(
        home=home,
        database=database,
        embedder=f"openai:{model}",
        embedder_url=llm.base_url,
        embedder_dimensions=dimensions,
        learn="off",
    )


def variables_of(llm: ScriptedLLM, model: str, dimensions: int, *, database: str = "") -> dict[str, str]:
    """Return the same settings as environment variables."""
    return {
        "RECOLLECT_DATABASE": database,
        "RECOLLECT_EMBEDDER": f"openai:{model}",
        "RECOLLECT_EMBEDDER_URL": llm.base_url,
        "RECOLLECT_EMBEDDER_DIMENSIONS": str(dimensions),
        "RECOLLECT_LEARN": "off",
    }


async def fill(settings: Settings, count: int) -> None:
    """Store memories that differ in one word."""
    async with AsyncMemory(settings=settings) as memory:
        await memory.import_([{"memory": memory_text(n), "user_id": "a"} for n in range(count)])


def memory_text(number: int) -> str:
    """Return the text of a memory."""
    return f"likes tea from garden{number}"


async def by_meaning(memory: AsyncMemory, number: int) -> bool:
    """Return whether a memory is found by its vector."""
    hits = await memory.search(memory_text(number), user_id="a", limit=5)
    near = {hit.memory: hit.scores["dense"] for hit in hits}.get(memory_text(number), -1.0)
    # Vectors of two models that met would be as near as by chance.
    assert near == 0 or near > 0.99
    return near > 0


async def until(happened: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(SWITCH_TIMEOUT_S):
        while not await happened():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def until_served(memory: AsyncMemory, model: str) -> None:
    """Wait until a memory uses a model."""

    async def is_served() -> bool:
        return (await memory.service()).model.name == model

    await until(is_served)


def embedded_by(llm: ScriptedLLM, model: str) -> list[str]:
    """Return the memory texts that the server embedded with a model."""
    requests = [request.json for request in llm.calls("embeddings")]
    return [
        text for each in requests if each["model"] == model for text in each["input"] if text.startswith("likes tea")
    ]


def model_of(server: RecollectServer) -> str:
    """Return the model that a server uses."""
    return str(httpx.get(f"{server.url}/health", timeout=30).json()["embedding_model"])


def wait_for_model(server: RecollectServer, model: str) -> float:
    """Wait until a server uses a model; return the time."""
    deadline = time.monotonic() + SWITCH_TIMEOUT_S
    while time.monotonic() < deadline:
        if model_of(server) == model:
            return time.monotonic()
        time.sleep(0.02)
    raise AssertionError(f"{model} is not searched:\n{server.log}")
