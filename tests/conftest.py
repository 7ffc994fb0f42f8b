"""Settings and fixtures for all tests."""

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
from tests.support.patient_search import encode_all_rows
from tests.support.postgres_server import running_server

# Otherwise gRPC, the protocol of Milvus, restarts its threads in every process that a test forks.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# Read when mem0 is imported.
os.environ["MEM0_TELEMETRY"] = "False"
# The time of one example depends on the machine more than on the code.
hypothesis_settings.register_profile("no-deadline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("no-deadline")


IN_MEMORY = Path("/dev/shm")
ONE_AUTHORITY = Path(__file__).parent / "support" / "authority.pem"
_MIN_FREE_BYTES = 4 << 30


def pytest_configure(config: pytest.Config) -> None:
    """Prepare the process: no garbage collection while collecting, one certificate, temporary files in memory.

    Tests check that files are synced, not how long that takes; only long drills use the disk.
    """
    gc.disable()
    encode_all_rows()
    selected = config.option.markexpr.replace("not drill", "").replace("not local_llm", "")
    if "local_llm" not in selected:
        # Nothing outside is reached, so HTTP clients need not load the certificates of all public authorities.
        os.environ["SSL_CERT_FILE"] = str(ONE_AUTHORITY)
    chosen = os.environ.get("TMPDIR") or config.option.basetemp
    drills = "drill" in selected
    if not chosen and not drills and IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > _MIN_FREE_BYTES:
        # Also for the processes that tests start.
        os.environ["TMPDIR"] = tempfile.tempdir = str(IN_MEMORY)


def pytest_collection_finish() -> None:
    """Exempt the thousands of collected tests from garbage collection."""
    gc.collect()
    gc.freeze()
    # Full collections took a twentieth of all time.
    gc.set_threshold(2_000, 15, 30)
    gc.enable()


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
    """Yield a client of a small model that retries at once."""
    monkeypatch.setattr(http_client, "FIRST_PAUSE_S", 0.01)
    chat = OpenAIChat(llm.base_url, "sk-test", model="small", timeout_s=60)
    yield chat
    await chat.close()


@pytest.fixture
async def dsn() -> AsyncIterator[str]:
    """Yield the address of an empty PostgreSQL database."""
    async with running_server().database() as dsn:
        yield dsn
