"""`recollect mcp`: MCP over pipes, with the ledger in its process and by a running server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp_types import ResourceUpdatedNotification

from recollect.errors import InvalidInput
from recollect.mcp.relay import ServerAddress
from tests.mcp.conftest import McpServerForTests
from tests.support.mcp_client import (
    TIMEOUT_S,
    call,
    call_failing,
    http_client,
    read,
    recalled,
    stdio,
    text_of,
    values_of,
)
from tests.support.recollect_server import environment

REMOTE = '[remote "origin"]\n\turl = git@github.com:Ann/Atlas.git\n'
BRANCH = "feature/stdio"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a folder inside of a clone."""
    folder = tmp_path / "clone" / "src"
    folder.mkdir(parents=True)
    git = folder.parent / ".git"
    git.mkdir()
    (git / "config").write_text(REMOTE)
    (git / "HEAD").write_text(f"ref: refs/heads/{BRANCH}\n")
    return folder


async def test_without_a_server_the_ledger_is_opened_here(tmp_path: Path, era: str, repository: Path) -> None:
    home = tmp_path / "home"
    async with stdio(home, era, repository) as client:
        stored = await call(client, "remember", text="The linter is Ruff")
        assert text_of(stored).startswith("Stored for project github.com/ann/atlas as ")
        assert await recalled(client, "Which linter?") == ["The linter is Ruff"]
        assert "The linter is Ruff" in await read(client, "memory://recent")
        assert "`limit`" in await call_failing(client, "recall", query="x", limit=0)
    if era == "legacy":
        # A start takes two seconds, and the project has nothing to do with the protocol.
        return
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    async with stdio(home, era, elsewhere) as client:
        assert await recalled(client, "Which linter?") == []
    async with stdio(home, era, elsewhere, RECOLLECT_PROJECT="github.com/ann/atlas") as client:
        assert await recalled(client, "Which linter?") == ["The linter is Ruff"]
        shown = await call(client, "show", ids=[values_of(stored)["id"]])
        [details] = values_of(shown)["memories"]
        assert (details["status"], details["branch"]) == ("active", BRANCH)
        assert f", from mcp, branch {BRANCH}\n> The linter is Ruff" in text_of(shown)
    # As Cursor starts it, with a folder open and without one.
    async with stdio(home, era, elsewhere, "--folder", str(repository)) as client:
        assert await recalled(client, "Which linter?") == ["The linter is Ruff"]
    async with stdio(home, era, elsewhere, "--folder", "${workspaceFolder}") as client:
        assert await recalled(client, "Which linter?") == []


# The SDK's client says that there is a newer way.
@pytest.mark.filterwarnings("ignore:resources/")
async def test_a_subscriber_of_the_earlier_protocol_is_notified(tmp_path: Path, repository: Path) -> None:
    updates: asyncio.Queue[str] = asyncio.Queue()

    async def note(message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            updates.put_nowait(str(message.params.uri))

    client = stdio(tmp_path / "home", "legacy", repository)
    client.message_handler = note  # type: ignore[attr-defined]
    async with client as connected:
        await connected.session.subscribe_resource("memory://recent")
        await call(connected, "remember", text="The formatter is Ruff too")
        async with asyncio.timeout(TIMEOUT_S):
            assert await updates.get() == "memory://recent"
        await connected.session.unsubscribe_resource("memory://recent")


async def test_a_running_server_is_used_with_key_project_and_branch(
    server: McpServerForTests, tmp_path: Path, era: str, repository: Path
) -> None:
    address = server.url.removesuffix("/mcp")
    variables = {"RECOLLECT_URL": address, "RECOLLECT_API_KEY": server.keys["bob"]}
    async with (
        stdio(tmp_path / "home", era, repository, **variables) as client,
        http_client(f"{server.url}/github.com%2Fann%2Fatlas", era, server.keys["bob"]) as other,
    ):
        text = f"The build tool is Hatch {era}"
        id = values_of(await call(client, "remember", text=text))["id"]
        assert text in await recalled(other, "Which build tool?")
        assert "> The build tool" in await read(client, f"memory://{id}")
        assert "no such memory" in await call_failing(client, "forget", id="unknown")
    # Nothing was opened in the process.
    assert not (tmp_path / "home" / "recollect.db").exists()


async def test_notices_pass_through_the_relay(server: McpServerForTests, tmp_path: Path, repository: Path) -> None:
    variables = {"RECOLLECT_URL": server.url, "RECOLLECT_API_KEY": server.keys["bob"]}
    async with stdio(tmp_path / "home", "auto", repository, "--project", "relayed", **variables) as client:
        async with client.listen(resource_subscriptions=["memory://recent"]) as changes:
            await call(client, "remember", text="The relay is transparent")
            async with asyncio.timeout(TIMEOUT_S):
                assert (await anext(changes)).uri == "memory://recent"  # type: ignore[union-attr]
        assert await recalled(client, "What is transparent?") == ["The relay is transparent"]


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": "first",
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


def relay(home: Path, *lines: bytes, **variables: str) -> list[dict[str, Any]]:
    """Return what `recollect mcp` prints for lines."""
    done = subprocess.run(
        [sys.executable, "-m", "recollect", "mcp"],
        input=b"\n".join(lines) + b"\n",
        capture_output=True,
        env=environment(home, **variables),
        timeout=TIMEOUT_S,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_server_that_is_away_is_an_answer_to_each_request(tmp_path: Path) -> None:
    notification = b'{"jsonrpc": "2.0", "method": "notifications/initialized"}'
    answers = relay(tmp_path, json.dumps(INITIALIZE).encode(), notification, b"{", RECOLLECT_URL="http://127.0.0.1:1")
    by_id = {answer["id"]: answer["error"] for answer in answers}
    assert by_id.keys() == {"first", None}
    assert "http://127.0.0.1:1 does not answer" in by_id["first"]["message"]
    assert by_id[None]["code"] == -32700


def test_a_wrong_key_is_an_answer_to_each_request(server: McpServerForTests, tmp_path: Path) -> None:
    [answer] = relay(
        tmp_path, json.dumps(INITIALIZE).encode(), RECOLLECT_URL=server.url, RECOLLECT_API_KEY=f"rk_{'x' * 43}"
    )
    assert answer["id"] == "first"
    assert "key" in answer["error"]["message"].lower()


def test_the_relay_loads_neither_the_sdk_nor_a_model(tmp_path: Path) -> None:
    code = "import sys, recollect.cli.commands.mcp; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not {"mcp", "numpy", "pydantic", "httpx", "apsw", "asyncio"} & loaded


@pytest.mark.parametrize("url", ["", "localhost:8100", "ftp://localhost", "http://", "http://[::1", "http://x:port"])
def test_an_address_that_is_none_is_rejected(url: str) -> None:
    with pytest.raises(InvalidInput, match="`url` must be an address such as"):
        ServerAddress(url)
