"""The tools of the settings: HTTP requests and MCP servers, opened on first use and closed together."""

from __future__ import annotations

import asyncio
import logging

import httpx

from recollect.agent.tools.http import http_tool
from recollect.agent.tools.mcp import McpSource
from recollect.agent.tools.tool import Tool, Toolbox
from recollect.config.settings import Settings
from recollect.errors import RecollectError

_log = logging.getLogger("recollect")


class ToolSources:
    """The tools and groups of the settings."""

    def __init__(self, settings: Settings) -> None:
        self._groups = settings.agent_groups
        # The agent enforces the timeout.
        self._http = httpx.AsyncClient(timeout=None, follow_redirects=False)  # noqa: S113
        self._tools = tuple(
            http_tool(
                name,
                each.description,
                each.url,
                client=self._http,
                method=each.method,
                parameters=each.parameters,
                optional=each.optional,
                headers={header: value.get_secret_value() for header, value in each.headers.items()},
            )
            for name, each in settings.agent_tools.items()
        )
        self._servers = tuple(
            McpSource(
                name,
                command=each.command,
                args=each.args,
                env={variable: value.get_secret_value() for variable, value in each.env.items()},
                url=each.url,
            )
            for name, each in settings.agent_mcp.items()
        )

    async def toolbox(self) -> Toolbox:
        """Return all available tools; an unavailable server is logged, and tried again the next time."""
        server_tools = await asyncio.gather(*(_tools_of(server) for server in self._servers))
        return Toolbox((*self._tools, *(tool for tools in server_tools for tool in tools)), self._groups)

    async def close(self) -> None:
        """Stop the servers, and close all connections."""
        await asyncio.gather(*(server.close() for server in self._servers))
        await self._http.aclose()


async def _tools_of(server: McpSource) -> tuple[Tool, ...]:
    try:
        return await server.tools()
    except RecollectError as error:
        _log.warning("some tools are unavailable: %s", error)
        return ()
