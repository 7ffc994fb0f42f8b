"""The server for tests of the Responses API, with an ear at its memory, and what it is asked."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai

from recollect.http.proxy.chat_memory import ChatContext, ChatMemory
from recollect.http.proxy.routes import Proxy
from recollect.http.responses.context import Mode, ResponsesContext
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.llm_faults import http_error
from tests.support.proxy_server import ServedProxy

OFF = {"memory_config": {"enabled": False, "auto_store": False}}
CHAT_ONLY = http_error(404, "404 page not found")


class RecordingMemory:
    """Memory as chats have it; what is asked of it is noted."""

    def __init__(self, memory: ChatMemory) -> None:
        self._memory = memory
        self.started: list[ChatContext] = []
        self.answers: list[str] = []

    async def begin(self, options: Any, messages: Any) -> ChatContext:
        self.started.append(await self._memory.begin(options, messages))
        return self.started[-1]

    async def store_user_turns(self, chat: ChatContext) -> None:
        await self._memory.store_user_turns(chat)

    async def store_answer(self, chat: ChatContext, text: str) -> str:
        self.answers.append(text)
        return await self._memory.store_answer(chat, text)


class Running(ServedProxy):
    """The whole application in front of an upstream that speaks in one way or another."""

    def __init__(self, home: Path, base_url: str, mode: Mode) -> None:
        super().__init__(home, base_url, database="memory:", upstream_responses=mode)

    def start(self) -> Running:
        super().start()
        self.memory = RecordingMemory(self.parts.memory)
        self.with_parts(memory=self.memory)
        return self

    @property
    def _proxy(self) -> Proxy:
        proxy: Proxy = self.app.state.proxy
        return proxy

    @property
    def parts(self) -> ResponsesContext:
        return self._proxy.responses

    def with_parts(self, **changes: Any) -> None:
        self._proxy.responses = replace(self.parts, **changes)


@contextmanager
def running(base_url: str, mode: Mode = "auto") -> Iterator[Running]:
    """The server, in front of an upstream."""
    with tempfile.TemporaryDirectory() as home:
        server = Running(Path(home), base_url, mode).start()
        try:
            yield server
        finally:
            server.stop()


def client_of(server: Running, **headers: str) -> openai.OpenAI:
    """OpenAI's client of the server."""
    return openai.OpenAI(
        base_url=server.url, api_key="sk-test", max_retries=0, timeout=60, default_headers=headers or None
    )


def last(llm: ScriptedLLM) -> dict[str, Any]:
    """What the upstream was last asked, of what it answered."""
    request: dict[str, Any] = llm.answers[-1][0].json
    return request


def last_request_text(llm: ScriptedLLM) -> str:
    """The same, as text."""
    return llm.answers[-1][0].text


def start_stream(sdk: openai.OpenAI) -> tuple[openai.Stream[Any], str]:
    """A stream that has told its first words, and the id of its response."""
    stream, id = sdk.responses.create(model="m", input="Count", stream=True), ""
    for event in stream:
        if event.type == "response.created":
            id = event.response.id
        if event.type == "response.output_text.delta":
            break
    return stream, id
