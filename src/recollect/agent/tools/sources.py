"""The tools of the settings: HTTP requests and MCP servers, opened on first use and closed together."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import httpx

from recollect.agent.tools.mcp import McpSource
from recollect.agent.tools.tool import Tool, Toolbox
from recollect.config.settings import Settings
from recollect.errors import InvalidSettings, RecollectError, ToolFailed

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
