"""Servers with MCP, and the SDK's client in both eras of the protocol and over both transports."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from recollect.client import AsyncMemory
from recollect.config.settings import load
from recollect.http.server import run_embedded_server
from recollect.model.key import new_key
from tests.support.recollect_server import environment

# With a handshake, and without one by what the client finds out.
ERAS = ("legacy", "auto")
TIMEOUT_S = 300


@contextmanager
def serving(home: Path, **settings: Any) -> Iterator[str]:
    """Run a server in a thread, and yield its address."""
    with run_embedded_server(load({"home": home, "worker": False, **settings}, environ={}).settings) as url:
        yield url


def make_keys(home: Path, **options: Mapping[str, Any]) -> dict[str, str]:
    """Create keys with these options, by name, before a server opens the ledger."""

    async def make() -> dict[str, str]:
        async with AsyncMemory(home=home) as memory:
            keys = (await memory.service()).api_keys
            return {name: (await keys.add(new_key(name=name, **each))).text for name, each in options.items()}

    return asyncio.run(make())


@asynccontextmanager
async def http_client(url: str, era: str = "legacy", key: str = "", **headers: str) -> AsyncIterator[Client]:
    """Connect by HTTP."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if key:
        sent["Authorization"] = f"Bearer {key}"
    async with (
        httpx2.AsyncClient(headers=sent, timeout=TIMEOUT_S, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http), mode=era) as client,
    ):
        yield client


def stdio(home: Path, era: str, cwd: Path, *options: str, **variables: str) -> AbstractAsyncContextManager[Client]:
    """Start `recollect mcp` in a folder and connect by its pipes."""
    # No server of this machine is meant.
    environ = environment(home, **{"RECOLLECT_PORT": "1", "HOME": str(home.parent), **variables})
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "recollect", "mcp", *options], env=environ, cwd=cwd
    )
    return Client(stdio_client(parameters), mode=era)


async def call(client: Client, tool: str, **arguments: Any) -> CallToolResult:
    """Call a tool that must succeed."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    return result


async def call_failing(client: Client, tool: str, **arguments: Any) -> str:
    """Call a tool that must answer an error, and return its text."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, text_of(result)
    return text_of(result)


def text_of(result: CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


def values_of(result: CallToolResult) -> dict[str, Any]:
    assert result.structured_content is not None
    return dict(result.structured_content)


async def recalled(client: Client, query: str) -> list[str]:
    """Return the texts that recall finds."""
    return [each["text"] for each in values_of(await call(client, "recall", query=query))["memories"]]


async def read(client: Client, uri: str) -> str:
    """Return the text of a resource."""
    [content] = (await client.read_resource(uri)).contents
    return str(content.text)  # type: ignore[union-attr]


async def prompt(client: Client, name: str, **arguments: str) -> str:
    """Return the text of a prompt."""
    [message] = (await client.get_prompt(name, arguments)).messages
    assert isinstance(message.content, TextContent)
    return message.content.text
