"""The server of the Responses API and its client, in front of upstreams that speak it or only chat completions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.responses_samples import CHAT_ONLY, Running, client_of, running


@pytest.fixture(params=["translate", "native", "auto", "auto-chat-only"])
def server(request: Any, llm: ScriptedLLM) -> Iterator[Running]:
    if request.param == "auto-chat-only":
        llm.fault(CHAT_ONLY, times=None, on="responses")
    with running(llm.base_url, request.param.partition("-")[0]) as server:
        yield server


@pytest.fixture
def translating(llm: ScriptedLLM) -> Iterator[Running]:
    with running(llm.base_url, "translate") as server:
        yield server


@pytest.fixture
def sdk(server: Running) -> Iterator[openai.OpenAI]:
    with client_of(server) as client:
        yield client
