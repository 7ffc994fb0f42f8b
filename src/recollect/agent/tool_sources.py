"""The tools of the settings: HTTP requests and MCP servers, opened on first use and closed together.

No other file of the agent imports `mcp`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx

from recollect.agent.tools import Tool, Toolbox
from recollect.config.settings import Settings
from recollect.errors import InvalidSettings, MissingExtra, RecollectError, ToolFailed, Unavailable

if TYPE_CHECKING:
    from mcp import Client

_log = logging.getLogger("recollect")


class ToolSources:
    """The tools and groups of the settings."""

    def __init__(self, settings: Settings) -> None:
        self._groups = settings.agent_groups
        self._http = httpx.AsyncClient(timeout=None, follow_redirects=False)  # noqa: S113 - the agent has a timeout
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
        tools = {tool.name: tool for tool in self._tools}
        for tool in (tool for tools in server_tools for tool in tools):
            if tools.setdefault(tool.name, tool) is not tool:
                _log.warning("the tool %s of an MCP server is not offered: another one has this name", tool.name)
        return Toolbox(tuple(tools.values()), self._groups)

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


_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]{0,63})\}")
# The scheme and host must be fixed: a model must not choose the server.
_ORIGIN = re.compile(r"https?://[^/?#{}\s]+(?=[/?]|$)")
_MAX_BYTES = 1 << 18
_MAX_ERROR_CHARS = 500
_JSON_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


def http_tool(
    name: str,
    description: str,
    url: str,
    *,
    client: httpx.AsyncClient,
    method: str = "GET",
    parameters: Mapping[str, Any] | None = None,
    optional: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
) -> Tool:
    """Return a tool that makes one request; `{name}` in the path or query of the URL is an argument.

    Other arguments go into the query of a GET or DELETE, and into a JSON body otherwise. Redirects are not followed.
    """
    if not _ORIGIN.match(url):
        raise InvalidSettings(f"the tool {name} needs an http:// or https:// URL with a fixed host")
    properties = dict(parameters or {})
    placeholders = set(_PLACEHOLDER.findall(url))
    for place in sorted(placeholders - properties.keys()):
        properties[place] = {"type": "string"}
    required = [each for each in properties if each not in optional or each in placeholders]
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    async def run(arguments: Mapping[str, Any]) -> str:
        _check(properties, required, arguments)
        address = _PLACEHOLDER.sub(lambda place: _quote_argument(place[1], arguments[place[1]]), url)
        rest = {each: value for each, value in arguments.items() if each not in placeholders}
        body: dict[str, Any] = {}
        if rest:
            in_query = method in ("GET", "DELETE")
            body = {"params": {each: _text(value) for each, value in rest.items()}} if in_query else {"json": rest}
        try:
            async with client.stream(method, address, headers=dict(headers or {}), **body) as reply:
                text = await _read(reply)
        except httpx.HTTPError as error:
            raise ToolFailed(f"{name} cannot be reached: {error or type(error).__name__}") from None
        if reply.status_code >= 400:
            raise ToolFailed(f"{name} answered {reply.status_code}: {text[:_MAX_ERROR_CHARS]}")
        return text or f"done ({reply.status_code})"

    return Tool(name, description, schema, run=run)


def _check(properties: Mapping[str, Any], required: Sequence[str], arguments: Mapping[str, Any]) -> None:
    problems = [f"{each} is missing" for each in required if each not in arguments]
    problems += [f"there is no argument {each}" for each in arguments if each not in properties]
    for each, value in arguments.items():
        kind = properties.get(each, {}).get("type")
        expected = _JSON_TYPES.get(kind) if isinstance(kind, str) else None
        is_number = isinstance(value, bool) and kind in ("integer", "number")
        if expected is not None and (is_number or not isinstance(value, expected)):
            problems.append(f"{each} must be of type {kind}")
    if problems:
        raise ToolFailed(f"the arguments do not fit: {'; '.join(problems)}")


def _quote_argument(name: str, value: Any) -> str:
    """Return a value quoted for a URL, so that it cannot change the path."""
    text = _text(value)
    if text in ("", ".", ".."):
        raise ToolFailed(f"the arguments do not fit: {name} must not be {text!r}")
    return quote(text, safe="")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


async def _read(reply: httpx.Response) -> str:
    """Return the text of a response, at most the first `_MAX_BYTES`."""
    content = bytearray()
    async for chunk in reply.aiter_bytes():
        content += chunk
        if len(content) > _MAX_BYTES:
            break
    return bytes(content[:_MAX_BYTES]).decode(reply.encoding or "utf-8", "replace")


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
