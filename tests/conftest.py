"""Parts that several test files use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import openai
import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from recollect.testing.postgres_server import running_server
from recollect.testing.scripted_llm import ScriptedLLM

# How long one example takes says more about the machine than about the code.
hypothesis_settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("unhurried")


@pytest.fixture
def llm() -> Iterator[ScriptedLLM]:
    with ScriptedLLM() as server:
        yield server


@pytest.fixture
def client(llm: ScriptedLLM) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=llm.base_url, api_key="sk-test", max_retries=0, timeout=60) as sdk:
        yield sdk


@pytest.fixture
async def dsn() -> AsyncIterator[str]:
    """The address of an empty PostgreSQL database."""
    async with running_server().database() as dsn:
        yield dsn
