"""A real small model on this machine, from what is said to what is recalled; `make local-llm` runs it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import openai
import pytest

from recollect import Memory
from recollect.config.settings import load
from recollect.errors import InvalidInput, ModelUnavailable
from recollect.models.local_chat import LocalChat
from recollect.models.structured import ask_json
from recollect.write.extract import SCHEMA
from recollect.write.operations import OperationParser
from tests.support.local_model import local_model
from tests.support.paths import ROOT
from tests.support.proxy_server import served
from tests.support.remember_samples import contents, facts, say

pytestmark = [pytest.mark.local_llm, pytest.mark.timeout(600)]

CACHE = ROOT / ".cache"
# Plain statements that no rule has a pattern for.
BEYOND_RULES = [
    "Our team uses PostgreSQL 16 and deploys every Thursday.",
    "I sold the old Volvo and bought a used electric Fiat.",
    "The wifi at our cabin in Vermont is terrible so I always download films before we go.",
]
# Whatever the model writes of them, these are what can be kept.
STATED = [
    "Our team uses PostgreSQL 16 and deploys every Thursday",
    "I sold the old Volvo",
    "I bought a used electric Fiat",
    "The wifi at our cabin in Vermont is terrible",
    "I always download films before we go",
    "I'm allergic to peanuts",
    "My name is Priya Raman",
]


@pytest.fixture(scope="session")
def model() -> str:
    try:
        return str(local_model(CACHE))
    except LookupError as error:
        pytest.skip(f"no model to test with: {error}")


@pytest.fixture
async def chat(model: str) -> AsyncIterator[LocalChat]:
    chat = LocalChat(model, timeout_s=300)
    yield chat
    await chat.close()


def opened(home: Path, llm: str) -> Memory:
    options = {"home": home, "llm": llm, "llm_timeout_s": 300, "learn_wait_s": 0, "job_lease_s": 600}
    return Memory(settings=load(options, environ={}).settings)


def learned(memory: Memory) -> list[str]:
    """What is learned from the statements, with what is said of oneself in the middle."""
    for text in (*BEYOND_RULES, "My name is Priya Raman and I'm allergic to peanuts."):
        say(memory, text)
    return contents(facts(memory))


def test_what_is_said_to_a_real_small_model_is_recalled(model: str, tmp_path: Path) -> None:
    with opened(tmp_path / "rules", "") as memory:
        by_rules = learned(memory)
    with opened(tmp_path / "local", f"local:{model}") as memory:
        by_both = learned(memory)
        recalled = memory.recall("What am I allergic to, and when does our team deploy?", user_id="alex")
        used = memory.admin.usage(user_id="alex")
    assert by_rules == ["User is allergic to peanuts", "User's name is Priya Raman"]
    assert set(by_rules) < set(by_both)
    assert set(by_both) <= {*by_rules, *STATED}
    assert "peanuts" in recalled.context.text
    assert sum(each.calls for each in used) == 4
    assert 0 < sum(each.tokens_in for each in used) < 4 * 300


async def test_it_answers_within_a_schema(chat: LocalChat) -> None:
    messages = [{"role": "user", "content": "Write ten sentences about rain."}]
    answer = await ask_json(
        chat, messages, schema=SCHEMA, max_tokens=400, timeout_s=300, check=OperationParser(0, 0).parse
    )
    assert answer.how == "schema"
    assert answer.calls == 1
    assert 0 < answer.tokens_in < 100


async def test_its_endpoint_streams_to_those_who_have_the_key_and_to_nobody_else(chat: LocalChat) -> None:
    endpoint = await chat.endpoint()
    assert endpoint.base_url.startswith("http://127.0.0.1:")
    async with openai.AsyncOpenAI(base_url=endpoint.base_url, api_key=endpoint.api_key, max_retries=0) as client:
        stream = await client.chat.completions.create(
            model=chat.model, messages=[{"role": "user", "content": "Count to five."}], max_tokens=12, stream=True
        )
        pieces = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
    assert len(pieces) > 3
    async with httpx.AsyncClient() as stranger:
        for path in ("/chat/completions", "/completions", "/models"):
            answer = await stranger.post(endpoint.base_url + path, json={"messages": []})
            assert answer.status_code == 401


async def test_a_question_too_long_for_it_is_refused_and_the_next_is_answered(model: str) -> None:
    chat = LocalChat(model, context_tokens=1024, timeout_s=300)
    with pytest.raises(InvalidInput, match="context"):
        await chat.complete([{"role": "user", "content": "word " * 5_000}], max_tokens=5)
    assert await chat.complete([{"role": "user", "content": "Say yes."}], max_tokens=5)
    await chat.close()


async def test_loading_and_closing_hold_nobody_up(chat: LocalChat) -> None:
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.01)
            longest = max(longest, time.perf_counter() - before)

    ticking = asyncio.create_task(tick())
    endpoint = await chat.endpoint()
    writing = asyncio.create_task(chat.complete([{"role": "user", "content": "Tell a long story."}], max_tokens=4000))
    await asyncio.sleep(0.5)
    began = time.perf_counter()
    await chat.close()
    took = time.perf_counter() - began
    ticking.cancel()
    with pytest.raises(ModelUnavailable):
        await writing
    assert took < 10
    assert longest < 5
    async with httpx.AsyncClient() as client:
        with pytest.raises(httpx.ConnectError):
            await client.get(endpoint.base_url)


async def test_a_model_whose_process_died_is_started_again(chat: LocalChat) -> None:
    messages = [{"role": "user", "content": "Say yes."}]
    await chat.complete(messages, max_tokens=5)
    first = chat.process_id
    assert first is not None
    os.kill(first, signal.SIGKILL)
    async with asyncio.timeout(60):
        while chat.process_id is not None:  # noqa: ASYNC110 - the event is the system's
            await asyncio.sleep(0.01)
    assert await chat.complete(messages, max_tokens=5)
    assert chat.process_id not in (None, first)


def test_it_ends_with_the_process_that_started_it_however_that_ends(model: str) -> None:
    script = (
        "import asyncio, sys\n"
        "from recollect.models.local_chat import LocalChat\n"
        "async def main():\n"
        "    print((await LocalChat(sys.argv[1]).endpoint()).base_url, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, model], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        url = starter.stdout.readline().strip()
        assert httpx.get(url.removesuffix("/v1") + "/health", timeout=60).status_code == 200
        starter.kill()
    deadline = time.monotonic() + 60
    while True:
        try:
            httpx.get(url.removesuffix("/v1") + "/health", timeout=5)
        except httpx.TransportError:
            break
        assert time.monotonic() < deadline, "the model outlived its starter"


def test_chats_are_answered_by_a_model_on_this_machine_and_remembered(model: str, tmp_path: Path) -> None:
    with served(tmp_path, f"local:{model}") as server:
        with openai.OpenAI(base_url=server.url, api_key="x", timeout=300, max_retries=0) as sdk:
            messages = [{"role": "user", "content": "My dog is called Rex. Say hello."}]
            stream = sdk.chat.completions.create(model="m", messages=messages, max_tokens=20, stream=True)  # type: ignore[call-overload]
            assert "".join(part.choices[0].delta.content or "" for part in stream if part.choices).strip()
            answer = sdk.responses.create(model="m", input="What is my dog called?", max_output_tokens=20)
            assert answer.status in ("completed", "incomplete")
        turns = server.run(server.service.sessions.list("default"))
        assert sum(each.turn_count for each in turns) >= 3
