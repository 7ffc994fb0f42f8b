"""A server of the Responses API and its client, with upstreams that have that API or only chat completions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.responses_server import CHAT_ONLY, ResponsesServer, client_of, serve_responses


@pytest.fixture(scope="session")
def responses_server() -> Iterator[ResponsesServer]:
    with serve_responses() as server:
        yield server


@pytest.fixture(params=["translate", "native", "auto", "auto-chat-only"])
def server(request: Any, responses_server: ResponsesServer, llm: ScriptedLLM) -> Iterator[ResponsesServer]:
    if request.param == "auto-chat-only":
        llm.fault(CHAT_ONLY, times=None, on="responses")
    with responses_server.connected(llm.base_url, request.param.partition("-")[0]) as connected:
        yield connected


@pytest.fixture
def translating(responses_server: ResponsesServer, llm: ScriptedLLM) -> Iterator[ResponsesServer]:
    with responses_server.connected(llm.base_url, "translate") as connected:
        yield connected


@pytest.fixture
def sdk(server: ResponsesServer) -> Iterator[openai.OpenAI]:
    with client_of(server) as client:
        yield client
