"""Clients that people use, each in its own way, through a real server: what they get is what the model said."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.hawaii_llm import PICTURE, RECALLED_ANSWER, model
from tests.support.proxy_server import BUDGET, QUESTION
from tests.support.recollect_server import RestartableServer, process

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]
HERE = Path(__file__).parent
INSTALLED = HERE.parent.parent / "build" / "clients"
PYTHON = INSTALLED / "venv" / "bin" / "python"
CLIENTS = [
    "with_langchain.py",
    "with_litellm.py",
    "with_pydantic_ai.py",
    "with_llm.py",
    "with_openai.mjs",
    "with_ai_sdk.mjs",
]
EXPECTED = {
    "chat": "Aloha!",
    "stream": "one two three",
    "tools": "Hilo is sunny",
    "image": "A beach",
    "structured": {"name": "Ann", "age": 30},
    "error": [429, "rate_limit_exceeded"],
    "recalled": RECALLED_ANSWER,
    "recalled_streamed": RECALLED_ANSWER,
}


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedLLM]:
    with ScriptedLLM() as llm:
        llm.default = model
        yield llm


@pytest.fixture(scope="module")
def server(upstream: ScriptedLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestartableServer]:
    with process(tmp_path_factory.mktemp("clients"), upstream.base_url) as running:
        yield running


def node_program() -> str:
    """Return Node: the machine's, or the one that was installed because there is none or it is too old."""
    installed = INSTALLED / "venv" / "bin" / "node"
    node = str(installed) if installed.exists() else shutil.which("node")
    assert node, "not run: there is no node; `make clients` brings it"
    return node


def script_command(script: str) -> list[str]:
    """Return how a client is run; Node looks for packages beside the script, so that one is put there."""
    if script.endswith(".py"):
        return [str(PYTHON), str(HERE / script)]
    shutil.copy(HERE / script, INSTALLED / "node" / script)
    return [node_program(), str(INSTALLED / "node" / script)]


@pytest.mark.parametrize("script", CLIENTS)
def test_a_client_does_all_it_does_and_is_remembered(
    upstream: ScriptedLLM, server: RestartableServer, script: str
) -> None:
    assert PYTHON.exists(), "not run: `make clients` installs what is tested here"
    upstream.clear()
    words = [server.url, f"user of {script}", PICTURE, BUDGET, QUESTION]
    environment = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "TMPDIR", "LANG")}
    # It would ask the network for prices.
    environment["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    started = time.monotonic()
    done = subprocess.run(
        [*script_command(script), *words], capture_output=True, text=True, env=environment, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == EXPECTED
    seen = [request.json for request in upstream.calls("chat")]
    assert any(_pictures(each) == [PICTURE] for each in seen)
    assert any("response_format" in each for each in seen)
    assert any(each.get("stream") is True for each in seen)
    print(f"{script}: {len(seen)} requests in {time.monotonic() - started:.1f} s")


def _pictures(request: dict[str, object]) -> list[str]:
    messages = request["messages"]
    assert isinstance(messages, list)
    listed = [each["content"] for each in messages if isinstance(each.get("content"), list)]
    parts = [part for content in listed for part in content]
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
