"""Tools of the settings: HTTP requests, a real MCP server over stdio, and groups."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from recollect.agent import Agent
from recollect.agent.tool_sources import McpSource, ToolSources, http_tool
from recollect.agent.tools import Tool
from recollect.config.settings import load
from recollect.errors import InvalidInput, InvalidSettings, ToolFailed, Unavailable
from recollect.models.openai_chat import OpenAIChat
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.agent_samples import call, calls, script

# An MCP server that runs in its own process.
SERVER = '''
import os
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("sums")

@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)

@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("as it should")

@server.tool()
def die() -> str:
    """End the server."""
    os._exit(1)

@server.tool()
def variable(name: str) -> str:
    """Tell a variable of the environment."""
    return os.environ.get(name, "none")

server.run()
'''


@pytest.fixture
def program(tmp_path: Path) -> list[str]:
    file = tmp_path / "sums.py"
    file.write_text(SERVER)
    return [str(file)]


@asynccontextmanager
async def listening(status: int = 200, body: str = "fine") -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """Run a server with one fixed answer; yield its URL and the recorded requests."""
    seen: list[dict[str, Any]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
        method, path, _ = first.split(" ")
        content = await reader.readexactly(int(headers.get("content-length", 0)))
        seen.append({"method": method, "path": path, "headers": headers, "body": content.decode()})
        reply = body.encode()
        writer.write(
            f"HTTP/1.1 {status} X\r\nContent-Length: {len(reply)}\r\nConnection: close\r\n\r\n".encode() + reply
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        yield f"http://127.0.0.1:{port}", seen


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient() as client:
        yield client


async def test_an_http_tool_puts_arguments_into_path_and_query(client: httpx.AsyncClient) -> None:
    async with listening(body='{"status": "shipped"}') as (url, seen):
        tool = http_tool(
            "order",
            "Tell an order.",
            f"{url}/orders/{{id}}?lang=en",
            client=client,
            parameters={"id": {"type": "string"}, "full": {"type": "boolean"}},
            optional=["full"],
            headers={"X-Key": "secret"},
        )
        assert tool.parameters["required"] == ["id"]
        assert await tool.run({"id": "../admin?x=1#y", "full": True}) == '{"status": "shipped"}'
    # An argument cannot change other parts of the path.
    assert seen[0]["path"].startswith("/orders/..%2Fadmin%3Fx%3D1%23y?")
    assert "full=true" in seen[0]["path"]
    assert seen[0]["headers"]["x-key"] == "secret"


async def test_an_http_tool_posts_json(client: httpx.AsyncClient) -> None:
    async with listening(status=201, body="") as (url, seen):
        takes = {"title": {"type": "string"}, "days": {"type": "integer"}}
        tool = http_tool("note", "Note.", f"{url}/notes", client=client, method="POST", parameters=takes)
        assert await tool.run({"title": "Ring Pat", "days": 3}) == "done (201)"
    assert json.loads(seen[0]["body"]) == {"title": "Ring Pat", "days": 3}


async def test_an_http_tool_reports_refusals_and_invalid_arguments(client: httpx.AsyncClient) -> None:
    async with listening(status=404, body="no such order") as (url, seen):
        tool = http_tool("order", "Tell an order.", f"{url}/orders/{{id}}", client=client)
        with pytest.raises(ToolFailed, match="404: no such order"):
            await tool.run({"id": "7"})
        for wrong in ({}, {"id": 7}, {"id": "7", "more": 1}, {"id": ".."}, {"id": ""}):
            with pytest.raises(ToolFailed, match="do not fit"):
                await tool.run(wrong)
        assert len(seen) == 1
    with pytest.raises(ToolFailed, match="cannot be reached"):
        await tool.run({"id": "7"})


@pytest.mark.parametrize(
    "url", ["http://{host}/x", "http://a{b}/x", "ftp://a/x", "/x", "http:///x", "https://a.b@{c}"]
)
def test_a_model_cannot_choose_the_host_of_an_http_tool(url: str) -> None:
    with pytest.raises(InvalidSettings, match="a fixed host"):
        http_tool("x", "X.", url, client=httpx.AsyncClient())


@asynccontextmanager
async def sums(program: list[str], **more: Any) -> AsyncIterator[dict[str, Tool]]:
    source = McpSource("sums", command=sys.executable, args=program, **more)
    try:
        yield {tool.name: tool for tool in await source.tools()}
    finally:
        await source.close()


async def test_mcp_tools_are_called_and_a_dead_server_is_restarted(program: list[str]) -> None:
    async with sums(program, env={"SUMS_KEY": "seven"}) as tools:
        assert list(tools) == ["sums_add", "sums_fail", "sums_die", "sums_variable"]
        assert tools["sums_add"].description == "Add two numbers."
        assert set(tools["sums_add"].parameters["properties"]) == {"a", "b"}
        both = await asyncio.gather(tools["sums_add"].run({"a": 2, "b": 3}), tools["sums_add"].run({"a": 5, "b": 6}))
        assert both == ["5", "11"]
        assert await tools["sums_variable"].run({"name": "SUMS_KEY"}) == "seven"
        with pytest.raises(ToolFailed, match="as it should"):
            await tools["sums_fail"].run({})
        with pytest.raises(ToolFailed):
            await tools["sums_add"].run({"a": "two"})
        with pytest.raises(ToolFailed):
            await tools["sums_die"].run({})
        assert await tools["sums_add"].run({"a": 2, "b": 3}) == "5"


async def test_an_mcp_server_that_cannot_start_is_reported() -> None:
    source = McpSource("gone", command="/nowhere/at-all")
    for _ in range(2):
        # The second error is immediate: a start is retried only after a while.
        with pytest.raises(Unavailable, match="gone cannot be reached"):
            await source.tools()
    await source.close()
    with pytest.raises(InvalidSettings, match="either"):
        McpSource("both", command="x", url="http://127.0.0.1/mcp")


async def test_settings_define_tools_servers_and_groups(program: list[str], tmp_path: Path, llm: ScriptedLLM) -> None:
    async with listening(body="42 boxes") as (url, _):
        options = {
            "home": tmp_path,
            "agent_tools": {"stock": {"description": "Tell the stock.", "url": f"{url}/stock/{{item}}"}},
            "agent_mcp": {
                "sums": {"command": sys.executable, "args": program},
                "gone": {"command": "/nowhere/at-all"},
            },
            "agent_groups": {"default": ["stock"], "clerk": ["stock", "sums_a*"]},
        }
        sources = ToolSources(load(options, environ={}).settings)
        box = await sources.toolbox()
        assert list(box.allowed()) == ["stock"]
        assert list(box.allowed(["clerk"])) == ["stock", "sums_add"]
        with pytest.raises(InvalidInput):
            box.allowed(["boss"])
        chat = OpenAIChat(llm.base_url, model="m")
        script(llm, calls(call("stock", item="pens"), call("sums_add", a=40, b=2), call("sums_die")), "42.")
        answer = await Agent(None, chat, box).run("How many?", group=["clerk"])
        assert [seen.text for seen in answer.steps[0].observations] == [
            "42 boxes",
            "42",
            "there is no tool 'sums_die'; there are stock, sums_add",
        ]
        await chat.close()
        await sources.close()
