"""Parts that several test files use."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import openai
import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from recollect.models import http_client
from recollect.models.openai_chat import OpenAIChat
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.postgres_server import running_server

# What Milvus is spoken to with would else start its threads again in every process that a test forks, before that has
# become another program.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# How long one example takes says more about the machine than about the code.
hypothesis_settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("unhurried")


IN_MEMORY = Path("/dev/shm")
_MIN_FREE_BYTES = 4 << 30


def pytest_configure(config: pytest.Config) -> None:
    """Put the files of tests in memory where there is room, but for drills: syncs are most of what they wait for.

    What is tested is that we sync, not how long that takes.
    """
    chosen = os.environ.get("TMPDIR") or config.option.basetemp
    drills = "drill" in config.option.markexpr.replace("not drill", "")
    if not chosen and not drills and IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > _MIN_FREE_BYTES:
        # For the processes that tests start, too.
        os.environ["TMPDIR"] = tempfile.tempdir = str(IN_MEMORY)


def pytest_collection_finish() -> None:
    """Have what was collected looked through for garbage no more: thousands of tests, again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def llm() -> Iterator[ScriptedLLM]:
    with ScriptedLLM() as server:
        yield server


@pytest.fixture
def client(llm: ScriptedLLM) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=llm.base_url, api_key="sk-test", max_retries=0, timeout=60) as sdk:
        yield sdk


@pytest.fixture
async def chat(llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OpenAIChat]:
    """The client of a small model, which tries again at once."""
    monkeypatch.setattr(http_client, "FIRST_PAUSE_S", 0.01)
    chat = OpenAIChat(llm.base_url, "sk-test", model="small", timeout_s=60)
    yield chat
    await chat.close()


@pytest.fixture
async def dsn() -> AsyncIterator[str]:
    """The address of an empty PostgreSQL database."""
    async with running_server().database() as dsn:
        yield dsn
