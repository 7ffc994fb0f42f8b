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
from tests.support.doc_code import CLIENT_SECTIONS, FRAMEWORKS_PAGE, section_code
from tests.support.hawaii_llm import PICTURE, RECALLED_ANSWER, UNKNOWN, model
from tests.support.proxy_server import BUDGET, QUESTION
from tests.support.recollect_server import RestartableServer, process

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]
HERE = Path(__file__).parent
INSTALLED = HERE.parent.parent / "build" / "clients"
PYTHON = INSTALLED / "venv" / "bin" / "python"
# Of frameworks with older requirements.
OTHER_PYTHON = INSTALLED / "frameworks" / "bin" / "python"
CLIENTS = [
    "with_langchain.py",
    "with_litellm.py",
    "with_pydantic_ai.py",
    "with_llm.py",
    "with_openai.mjs",
    "with_ai_sdk.mjs",
]
FRAMEWORKS = {"with_crewai.py": OTHER_PYTHON, "with_llama_index.py": OTHER_PYTHON, "with_google_adk.py": PYTHON}
# Sections of the page about frameworks, with the language of their code and what runs it.
SECTIONS = {
    "CrewAI": ("python", OTHER_PYTHON),
    "LlamaIndex": ("python", OTHER_PYTHON),
    "Google ADK": ("python", PYTHON),
    "Vercel AI SDK": ("js", None),
}
# Otherwise they would ask the network for prices, or report to their makers.
QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "OTEL_SDK_DISABLED": "true",
}
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


def script_command(script: Path) -> list[str]:
    """Return how a client is run; Node looks for packages beside the script, so that one is put there."""
    if script.suffix == ".py":
        return [str(PYTHON), str(script)]
    shutil.copy(script, INSTALLED / "node" / script.name)
    return [node_program(), str(INSTALLED / "node" / script.name)]


def run(command: list[str], **variables: str) -> str:
    """Run a client that must succeed; return its output."""
    assert Path(command[0]).exists(), "not run: `make clients` installs what is tested here"
    inherited = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "TMPDIR", "LANG")}
    environment = {**inherited, **QUIET, **variables}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("script", CLIENTS)
def test_a_client_does_all_it_does_and_is_remembered(
    upstream: ScriptedLLM, server: RestartableServer, script: str
) -> None:
    upstream.clear()
    words = [server.url, f"user of {script}", PICTURE, BUDGET, QUESTION]
    started = time.monotonic()
    printed = run([*script_command(HERE / script), *words])
    assert json.loads(printed.splitlines()[-1]) == EXPECTED
    seen = [request.json for request in upstream.calls("chat")]
    assert any(_pictures(each) == [PICTURE] for each in seen)
    assert any("response_format" in each for each in seen)
    assert any(each.get("stream") is True for each in seen)
    print(f"{script}: {len(seen)} requests in {time.monotonic() - started:.1f} s")


@pytest.mark.parametrize("script", FRAMEWORKS)
def test_a_framework_recalls_for_its_user_only_and_works_without_memory(
    upstream: ScriptedLLM, tmp_path: Path, script: str
) -> None:
    started = time.monotonic()
    variables = {"OPENAI_BASE_URL": upstream.base_url, "OPENAI_API_BASE": upstream.base_url, "OPENAI_API_KEY": "-"}
    printed = run([str(FRAMEWORKS[script]), str(HERE / script), str(tmp_path), BUDGET, QUESTION], **variables)
    assert json.loads(printed.splitlines()[-1]) == {
        "first": "Noted.",
        "next_session": RECALLED_ANSWER,
        "other_user": UNKNOWN,
        "stored": ["user", "assistant"],
        "after_restart": RECALLED_ANSWER,
        "invalid_user": "`user_id` is empty; every memory belongs to a user",
        "memory_closed": UNKNOWN,
    }
    print(f"{script}: {time.monotonic() - started:.1f} s")


@pytest.mark.parametrize("heading", SECTIONS)
def test_the_example_of_the_documentation_recalls(
    upstream: ScriptedLLM, server: RestartableServer, tmp_path: Path, heading: str
) -> None:
    started = time.monotonic()
    language, python = SECTIONS[heading]
    script = tmp_path / ("example.py" if python else "example.mjs")
    script.write_text(section_code(FRAMEWORKS_PAGE, language)[heading], encoding="utf-8")
    # Without an adapter, the memory is in the proxy.
    url = upstream.base_url if python else server.url
    variables = {"OPENAI_BASE_URL": url, "OPENAI_API_BASE": url, "OPENAI_API_KEY": "-"}
    program = [str(python), str(script)] if python else script_command(script)
    assert RECALLED_ANSWER in run(program, RECOLLECT_HOME=str(tmp_path / "home"), **variables)
    print(f"{heading}: {time.monotonic() - started:.1f} s")


def test_every_section_for_a_client_is_run() -> None:
    assert set(SECTIONS) == CLIENT_SECTIONS


def _pictures(request: dict[str, object]) -> list[str]:
    messages = request["messages"]
    assert isinstance(messages, list)
    listed = [each["content"] for each in messages if isinstance(each.get("content"), list)]
    parts = [part for content in listed for part in content]
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
