"""A hundred streams at once, each with its memory: none of them keeps the event loop, and so the others, for long."""

from __future__ import annotations

import asyncio
import gc
import time
from pathlib import Path

import httpx
from served_proxy import BUDGET, QUESTION, ServedProxy, chat, served

from recollect.model.change import Author
from recollect.model.scope import Scope
from recollect.remember import MemoryInput
from recollect.testing.llm_faults import trickle
from recollect.testing.scripted_llm import ScriptedLLM

STREAM_COUNT = 100
MOST_BUSY_S = 0.05
BY = Author("test")


class Beat:
    """Comes round as often as the loop lets it, and notes how much the loop worked in between at most.

    Work is counted in time of the processor: how long others made this machine wait says nothing about us.
    """

    def __init__(self) -> None:
        self.most_s = 0.0

    async def go_on(self) -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.most_s, before = max(self.most_s, now - before), now


async def run_streams(port: int) -> list[tuple[int, str, str]]:
    """What becomes of as many streams, all at once: status, what memory did, and the text that came."""
    limits = httpx.Limits(max_connections=STREAM_COUNT)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120, limits=limits) as client:

        async def ask(number: int) -> tuple[int, str, str]:
            body = chat(QUESTION, stream=True)
            headers = {"X-Memory-User": f"user-{number}"}
            async with client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
                text = (await answer.aread()).decode()
                return answer.status_code, answer.headers["x-memory-status"], text

        return list(await asyncio.gather(*(ask(number) for number in range(STREAM_COUNT))))


async def store_budget(proxy: ServedProxy, number: int) -> None:
    await proxy.service.add(Scope(f"user-{number}"), MemoryInput(content=f"{BUDGET}, says user {number}."), by=BY)


def test_a_hundred_streams_at_once_do_not_make_each_other_wait(tmp_path: Path, llm: ScriptedLLM) -> None:
    llm.fault(trickle(0.01, size=200), times=None)
    with served(tmp_path, llm.base_url) as proxy:
        for number in range(STREAM_COUNT):
            proxy.run(store_budget(proxy, number))
        # What is loaded by its first use is loaded.
        assert proxy.post(chat(QUESTION), X_Memory_User="user-0").status == 200
        # As a server does once it has started: what is there by now is not looked through again and again.
        gc.collect()
        gc.freeze()
        beat = Beat()

        async def begin() -> asyncio.Task[None]:
            return asyncio.create_task(beat.go_on())

        beating = proxy.run(begin())
        answers = asyncio.run(run_streams(proxy.port))
        proxy._server.loop.call_soon_threadsafe(beating.cancel)
    assert [(status, memory) for status, memory, _ in answers] == [(200, "ok")] * STREAM_COUNT
    assert all(text.rstrip().endswith("data: [DONE]") for _, _, text in answers)
    # What upstream was sent has each user's own memory, and nobody else's.
    for request in llm.requests[-STREAM_COUNT:]:
        assert sum(f"says user {number}." in request.text for number in range(STREAM_COUNT)) == 1
    assert beat.most_s < MOST_BUSY_S, f"the loop was busy for {beat.most_s * 1e3:.0f} ms at a time"
