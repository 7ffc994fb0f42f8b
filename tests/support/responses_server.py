"""The server for tests of the Responses API, whose memory records its calls, and OpenAI's client of it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai

from recollect.config.server_fields import ResponsesMode
from recollect.http.proxy.chat_memory import ChatContext, ChatMemory
from recollect.http.proxy.routes import Proxy
from recollect.http.responses.request import ResponsesContext
from recollect.http.upstream.http_upstream import HttpUpstream
from recollect.model.ids import new_id
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.llm_faults import http_error
from tests.support.proxy_server import ServedProxy

OFF = {"memory_config": {"enabled": False, "auto_store": False}}
CHAT_ONLY = http_error(404, "404 page not found")


class RecordingMemory:
    """The memory of chats; its calls are recorded."""

    def __init__(self, memory: ChatMemory) -> None:
        self._memory = memory
        self.started: list[ChatContext] = []
        self.answers: list[str] = []

    async def begin(self, options: Any, messages: Any) -> ChatContext:
        self.started.append(await self._memory.begin(options, messages))
        return self.started[-1]

    async def store_user_turns(self, chat: ChatContext) -> None:
        await self._memory.store_user_turns(chat)

    async def store_answer(self, chat: ChatContext, text: str, *, quotes_memory: bool = False) -> str:
        self.answers.append(text)
        return await self._memory.store_answer(chat, text, quotes_memory=quotes_memory)


class ResponsesServer(ServedProxy):
    """The whole application; each test connects its own upstream, and has a default user of its own."""

    memory: RecordingMemory

    def __init__(self, home: Path) -> None:
        # No jobs: without a worker they would wait, and after five minutes the server would report a backlog.
        super().__init__(home, "http://127.0.0.1:9/v1", database="memory:", learn="off")

    @property
    def _proxy(self) -> Proxy:
        proxy: Proxy = self.app.state.proxy
        return proxy

    @property
    def context(self) -> ResponsesContext:
        return self._proxy.responses

    def change_context(self, **changes: Any) -> None:
        self._proxy.responses = replace(self.context, **changes)

    @contextmanager
    def connected(self, base_url: str, mode: ResponsesMode = "auto") -> Iterator[ResponsesServer]:
        """Answer by this upstream while the block lasts."""
        before, upstream = self.context, HttpUpstream(base_url, base_url, connect_s=60, idle_s=60)
        self.memory = RecordingMemory(before.memory)
        self.change_context(
            memory=self.memory,
            upstream_of=lambda model: upstream,
            modes={base_url: mode},
            settings=before.settings.model_copy(update={"chat_user": new_id()}),
        )
        try:
            yield self
        finally:
            self.run(before.tasks.close())
            self.run(upstream.close())
            self._proxy.responses = before


@contextmanager
def serve_responses() -> Iterator[ResponsesServer]:
    with tempfile.TemporaryDirectory() as home:
        server = ResponsesServer(Path(home))
        server.start()
        try:
            yield server
        finally:
            server.stop()


def client_of(server: ResponsesServer, **headers: str) -> openai.OpenAI:
    """Return OpenAI's client of the server."""
    return openai.OpenAI(
        base_url=server.url, api_key="sk-test", max_retries=0, timeout=60, default_headers=headers or None
    )


def last(llm: ScriptedLLM) -> dict[str, Any]:
    """Return the last request that the upstream answered."""
    request: dict[str, Any] = llm.answers[-1][0].json
    return request


def last_request_text(llm: ScriptedLLM) -> str:
    """Return the text of the last request that the upstream answered."""
    return llm.answers[-1][0].text


def start_stream(sdk: openai.OpenAI) -> tuple[openai.Stream[Any], str]:
    """Return a stream whose first words have arrived, and the id of its response."""
    stream, id = sdk.responses.create(model="m", input="Count", stream=True), ""
    for event in stream:
        if event.type == "response.created":
            id = event.response.id
        if event.type == "response.output_text.delta":
            break
    return stream, id
