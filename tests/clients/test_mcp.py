"""MCP with the SDK for TypeScript, the inspector's command line and the official conformance suite.

The SDK for Python is in tests/mcp.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clients.test_clients import HERE, INSTALLED, node_program, script_command
from tests.support.recollect_server import RecollectServer, environment

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]
PACKAGES = INSTALLED / "node" / "node_modules" / "@modelcontextprotocol"
MAX_LISTED_TOKENS = 600
FIVE = ["recall", "show", "remember", "forget", "undo"]

APPLICABLE = (
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "prompts-list",
    "dns-rebinding-protection",
)
_REFERENCE = "calls what only the reference server of the suite has"
_STATELESS = "needs a session, and HTTP is stateless here"
LEFT_OUT = {
    "logging-set-level": "logging is deprecated in the protocol, and not offered",
    "completion-complete": "completions are not offered",
    "tools-call-simple-text": _REFERENCE,
    "tools-call-image": _REFERENCE,
    "tools-call-audio": _REFERENCE,
    "tools-call-embedded-resource": _REFERENCE,
    "tools-call-mixed-content": _REFERENCE,
    "tools-call-with-logging": _REFERENCE,
    "tools-call-error": _REFERENCE,
    "tools-call-with-progress": _REFERENCE,
    "tools-call-sampling": _REFERENCE,
    "tools-call-elicitation": _REFERENCE,
    "json-schema-2020-12": _REFERENCE,
    "elicitation-sep1034-defaults": _REFERENCE,
    "elicitation-sep1330-enums": _REFERENCE,
    "server-sse-polling": _STATELESS,
    "server-sse-multiple-streams": _STATELESS,
    "resources-read-text": _REFERENCE,
    "resources-read-binary": _REFERENCE,
    "resources-templates-read": _REFERENCE,
    "resources-subscribe": _STATELESS,
    "resources-unsubscribe": _STATELESS,
    "prompts-get-simple": _REFERENCE,
    "prompts-get-with-args": _REFERENCE,
    "prompts-get-embedded-resource": _REFERENCE,
    "prompts-get-with-image": _REFERENCE,
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("mcp-clients")
    with RecollectServer(home) as server:
        yield f"{server.url}/mcp"


def run(command: Sequence[str], *, input: str | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, input=input, timeout=280, cwd=INSTALLED)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


def package_command(package: str, name: str) -> list[str]:
    """Return the command of a program in a package."""
    folder = PACKAGES / package
    assert folder.exists(), "not run: `make clients` installs what is tested here"
    return [node_program(), str(folder / json.loads((folder / "package.json").read_text())["bin"][name])]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_sdk_for_typescript(url: str, mode: str) -> None:
    printed = run([*script_command(HERE / "with_mcp.mjs"), f"{url}/typescript-{mode}", mode])
    assert json.loads(printed.splitlines()[-1]) == {
        "tools": FIVE,
        "found": ["The bundler is Rolldown"],
        "failed": [True, "Not done: no such memory: unknown; recall returns ids."],
        "resource": True,
        "prompt": True,
        "undone": 1,
    }


def inspect(target: Sequence[str], method: str, *options: str) -> Any:
    """Return what the inspector prints for a method."""
    command = [*package_command("inspector", "mcp-inspector"), "--cli", *target, "--method", method, *options]
    return json.loads(run(command))


@pytest.mark.parametrize("transport", ["http", "stdio", "stdio by the server"])
def test_the_command_line_of_the_inspector(url: str, tmp_path: Path, transport: str) -> None:
    target = [url, "--transport", "http"]
    if transport != "http":
        variables = {"RECOLLECT_PORT": "1"} if transport == "stdio" else {"RECOLLECT_URL": url}
        environ = environment(tmp_path, **variables)
        names = ("PATH", "PYTHONPATH", "RECOLLECT_HOME", *variables)
        passed = [part for name in names if name in environ for part in ("-e", f"{name}={environ[name]}")]
        target = [*passed, sys.executable, "-m", "recollect", "mcp"]
    assert [tool["name"] for tool in inspect(target, "tools/list")["tools"]] == FIVE
    text = f"The shell is Fish {transport}"
    stored = inspect(target, "tools/call", "--tool-name", "remember", "--tool-arg", f"text={text}")
    assert stored["structuredContent"]["id"]
    found = inspect(target, "tools/call", "--tool-name", "recall", "--tool-arg", "query=Which shell?")
    assert text in [each["text"] for each in found["structuredContent"]["memories"]]
    assert len(inspect(target, "resources/list")["resources"]) == 2
    recent = inspect(target, "resources/read", "--uri", "memory://recent")
    assert "The shell is Fish" in recent["contents"][0]["text"]
    brief = inspect(target, "prompts/get", "--prompt-name", "brief")
    assert "The shell is Fish" in brief["messages"][0]["content"]["text"]


def test_every_scenario_of_the_conformance_suite_is_run_or_has_a_reason() -> None:
    printed = run([*package_command("conformance", "conformance"), "list"])
    listed = printed.partition("Server scenarios")[2].partition("Client scenarios")[0]
    names = [line.split()[1] for line in listed.splitlines() if line.startswith("  - ")]
    assert set(names) == {*APPLICABLE, *LEFT_OUT}


@pytest.mark.parametrize("scenario", APPLICABLE)
def test_the_conformance_suite(url: str, tmp_path: Path, scenario: str) -> None:
    command = [*package_command("conformance", "conformance"), "server", "--url", url, "--scenario", scenario]
    printed = run(command)
    passed, _, total = printed.partition("Passed: ")[2].partition(",")[0].partition("/")
    assert passed == total != "0", printed
    assert "0 failed, 0 warnings" in printed


def test_the_list_of_tools_is_within_its_tokens(url: str) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    answer = httpx.post(url, json=body, headers={"Accept": "application/json, text/event-stream"})
    listed = json.dumps(answer.json()["result"], separators=(",", ":"))
    counts = json.loads(run(script_command(HERE / "count_tokens.mjs"), input=listed))
    print(f"tools/list: {len(listed)} characters, {counts}")
    assert max(counts.values()) <= MAX_LISTED_TOKENS
