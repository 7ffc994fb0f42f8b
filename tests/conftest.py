"""Parts that several test files use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import openai
import pytest

from recollect.testing.postgres_server import running_server
from recollect.testing.scripted_llm import ScriptedLLM


@pytest.fixture
def llm() -> Iterator[ScriptedLLM]:
    with ScriptedLLM() as server:
        yield server


@pytest.fixture
def client(llm: ScriptedLLM) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=llm.base_url, api_key="sk-test", max_retries=0, timeout=10) as sdk:
        yield sdk


@pytest.fixture
async def dsn() -> AsyncIterator[str]:
    """The address of an empty PostgreSQL database."""
    async with running_server().database() as dsn:
        yield dsn
