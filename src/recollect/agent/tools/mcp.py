"""An MCP server as a source of tools, started as a process or reached by URL. The only file that imports `mcp`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from recollect.agent.tools.tool import Tool
from recollect.errors import InvalidSettings, MissingExtra, ToolFailed, Unavailable

if TYPE_CHECKING:
    from mcp import Client


_START_S = 30.0
_PING_S = 5.0
_RETRY_S = 30.0
_MAX_PAGES = 100


class McpSource:
    """The tools of one server, which is started or connected on first use, and again if it stops."""

    def __init__(
        self,
        name: str,
        *,
        command: str = "",
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        url: str = "",
    ) -> None:
        if bool(command) == bool(url):
            raise InvalidSettings(f"the MCP server {name} needs either a command or a url")
        self.name = name
        self._command, self._args, self._env, self._url = command, list(args), dict(env or {}), url
        self._owner: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[Client] | None = None
        self._closing = asyncio.Event()
        self._tools: tuple[Tool, ...] | None = None
        # The time of the next attempt, and the last error.
        self._failed: tuple[float, str] | None = None

    async def tools(self) -> tuple[Tool, ...]:
        """Return its tools, named after the server and the tool; raise Unavailable if it cannot be reached."""
        if self._tools is None:
            clock = asyncio.get_running_loop().time
            if self._failed is not None and clock() < self._failed[0]:
                raise Unavailable(self._failed[1])
            try:
                self._tools = await self._list_tools(await self._client())
            except Unavailable as error:
                # So that not every run waits for it.
                self._failed = clock() + _RETRY_S, str(error)
                raise
        return self._tools

    async def close(self) -> None:
        """Disconnect; a started process ends."""
        self._closing.set()
        if self._owner is not None:
            await asyncio.wait([self._owner])

    async def _client(self) -> Client:
        if self._owner is None or self._owner.done():
            self._closing = asyncio.Event()
            self._ready = asyncio.get_running_loop().create_future()
            # Its streams belong to the task that opened them.
            self._owner = asyncio.create_task(self._run_client(self._ready))
        assert self._ready is not None
        try:
            async with asyncio.timeout(_START_S):
                return await asyncio.shield(self._ready)
        except TimeoutError:
            raise Unavailable(f"the MCP server {self.name} did not answer in {_START_S:g} s") from None

    async def _run_client(self, ready: asyncio.Future[Client]) -> None:
        try:
            from mcp import Client, StdioServerParameters
        except ImportError:
            ready.set_exception(MissingExtra("an MCP server", "mcp"))
            return
        server: Any = self._url or StdioServerParameters(command=self._command, args=self._args, env=self._env)
        try:
            async with Client(server) as client:
                ready.set_result(client)
                await self._closing.wait()
        except Exception as error:
            if not ready.done():
                ready.set_exception(
                    Unavailable(f"the MCP server {self.name} cannot be reached: {_describe_error(error)}")
                )
        finally:
            if not ready.done():
                ready.cancel()

    async def _list_tools(self, client: Client) -> tuple[Tool, ...]:
        tools: list[Tool] = []
        cursor: str | None = None
        try:
            for _ in range(_MAX_PAGES):
                page = await client.list_tools(cursor=cursor)
                tools += [
                    self._tool(each.name, each.description or each.name, each.input_schema) for each in page.tools
                ]
                cursor = page.next_cursor
                if not cursor:
                    break
        except Exception as error:
            raise Unavailable(
                f"the MCP server {self.name} does not list its tools: {_describe_error(error)}"
            ) from None
        return tuple(tools)

    def _tool(self, name: str, description: str, schema: Mapping[str, Any]) -> Tool:
        async def run(arguments: Mapping[str, Any]) -> str:
            return await self._call(name, arguments)

        tool_name = re.sub("[^A-Za-z0-9_-]", "_", f"{self.name}_{name}")[:64]
        return Tool(tool_name, description, {"properties": {}, **schema, "type": "object"}, run=run)

    async def _call(self, name: str, arguments: Mapping[str, Any]) -> str:
        client = await self._client()
        try:
            result = await client.call_tool(name, dict(arguments))
        except Exception as error:
            await self._close_if_unreachable(client)
            raise ToolFailed(f"{name} failed: {_describe_error(error)}") from None
        blocks = [getattr(block, "text", None) or f"[{block.type}]" for block in result.content]
        text = "\n".join(blocks)
        if result.is_error:
            raise ToolFailed(text or f"{name} failed")
        return text or "done"

    async def _close_if_unreachable(self, client: Client) -> None:
        """Close the connection if the server does not answer a ping; the next call connects again."""
        owner = self._owner
        try:
            async with asyncio.timeout(_PING_S):
                await client.send_ping()
        except Exception:
            self._closing.set()
            if owner is not None:
                await asyncio.wait([owner])


def _describe_error(error: BaseException) -> str:
    """Return the message of the first error in nested groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
