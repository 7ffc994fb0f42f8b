"""Real coding agents with a scripted model, in a network namespace without any network.

Each runs in a fresh home after `recollect install`; what reaches the model is what the hooks and the tools gave.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from recollect.coding.clients import plugin_folder
from tests.clients.test_clients import HERE, INSTALLED, node_program
from tests.clients.with_coding_agent import FACT, LATER
from tests.support.agent_llm import ANSWER

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]
PACKAGES = INSTALLED / "agents" / "node_modules"
CODEX = "@openai/codex@0.169.0"
TOOLS = ["forget", "recall", "remember", "show", "undo"]
NO_CONTEXT = {"contexts": 0, "other_contexts": 0}


def agent_command(client: str) -> list[str]:
    """Return the command of an agent."""
    if client == "gemini":
        return [node_program(), str(PACKAGES / "@google" / "gemini-cli" / "bundle" / "gemini.js")]
    name = client.partition("-")[0]
    program = PACKAGES / ".bin" / name
    if client == "codex" and not program.exists():
        install = f"npm install --prefix {PACKAGES.parent} {CODEX}"
        pytest.skip(f"Codex is not installed, because it has 400 MB; to run it: {install}")
    return [*([node_program()] if client == "codex" else []), str(program)]


def run_agent(client: str, folder: Path) -> dict[str, Any]:
    """Run the sessions of an agent in a namespace of its own; return what reached the model."""
    command = agent_command(client)
    assert Path(command[-1]).exists(), "not run: `make clients` installs what is tested here"
    root = HERE.parent.parent
    environ = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'src'}"}
    script = [sys.executable, str(HERE / "with_coding_agent.py"), client, str(folder), *command]
    done = subprocess.run(
        ["unshare", "--net", "--map-root-user", *script], capture_output=True, text=True, env=environ, timeout=290
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def test_claude_code_accepts_the_plugin(tmp_path: Path) -> None:
    command = ["unshare", "--net", "--map-root-user", *agent_command("claude-code"), "plugin", "validate"]
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run([*command, str(plugin_folder())], capture_output=True, text=True, env=environ, timeout=100)
    assert done.returncode == 0, done.stdout
    assert 'hooks: UserPromptSubmit command "recollect hook recall --client claude-code"' in done.stdout


@pytest.mark.parametrize("client", ["claude-code", "codex", "gemini"])
def test_a_fact_of_one_session_reaches_the_model_in_the_next(tmp_path: Path, client: str) -> None:
    started = time.monotonic()
    report = run_agent(client, tmp_path)
    following = report["next_session"]
    assert following.items() >= {"tools": TOOLS, "tool_result": True}.items()
    # One context at the start of the session, and one before the prompt. If the agent did not wait for the tools and
    # the session was repeated, one of them may have the question of the attempt before instead.
    assert following["contexts"] >= 1
    assert following["contexts"] + following["other_contexts"] == 2
    for session in ("first", "other_repository", "without_server"):
        assert report[session].items() >= NO_CONTEXT.items()
    # What was said while the server was down was kept, and sent by the next session.
    assert report["unsent"]
    assert report["stored"][:2] == [FACT, ANSWER]
    assert set(report["stored"][-2:]) == {LATER, ANSWER}
    # The transcripts of the agent have the same turns, and nothing that was injected.
    assert report["imported"] == {"added": 0}
    print(f"{client}: {time.monotonic() - started:.1f} s")
