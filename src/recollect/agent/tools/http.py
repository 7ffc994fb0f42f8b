"""An HTTP request as a tool: an address with places for arguments, and what it takes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import httpx

from recollect.agent.tools.tool import Tool
from recollect.errors import InvalidSettings, ToolFailed

_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]{0,63})\}")
# Everything before the path: a model must not choose whom it talks to.
_ORIGIN = re.compile(r"https?://[^/?#{}\s]+(?=[/?]|$)")
_MOST_BYTES = 1 << 18
_TOLD_CHARS = 500
_KINDS: Mapping[str, type | tuple[type, ...]] = {
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
    """A tool that makes one request; `{name}` in the path or query of the address stands for an argument.

    Other arguments go into the query of a GET or DELETE, and into a JSON body otherwise. Redirects are not followed.
    """
    if not _ORIGIN.match(url):
        raise InvalidSettings(f"the tool {name} needs an http:// or https:// address whose host is fixed")
    takes = dict(parameters or {})
    places = set(_PLACE.findall(url))
    for place in sorted(places - takes.keys()):
        takes[place] = {"type": "string"}
    needed = [each for each in takes if each not in optional or each in places]
    schema = {"type": "object", "properties": takes, "required": needed, "additionalProperties": False}

    async def run(arguments: Mapping[str, Any]) -> str:
        _check(takes, needed, arguments)
        address = _PLACE.sub(lambda place: _part(place[1], arguments[place[1]]), url)
        rest = {each: value for each, value in arguments.items() if each not in places}
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
            raise ToolFailed(f"{name} answered {reply.status_code}: {text[:_TOLD_CHARS]}")
        return text or f"done ({reply.status_code})"

    return Tool(name, description, schema, run=run)


def _check(takes: Mapping[str, Any], needed: Sequence[str], arguments: Mapping[str, Any]) -> None:
    wrong = [f"{each} is missing" for each in needed if each not in arguments]
    wrong += [f"there is no argument {each}" for each in arguments if each not in takes]
    for each, value in arguments.items():
        kind = takes.get(each, {}).get("type")
        expected = _KINDS.get(kind) if isinstance(kind, str) else None
        is_number = isinstance(value, bool) and kind in ("integer", "number")
        if expected is not None and (is_number or not isinstance(value, expected)):
            wrong.append(f"{each} must be of type {kind}")
    if wrong:
        raise ToolFailed(f"the arguments do not fit: {'; '.join(wrong)}")


def _part(name: str, value: Any) -> str:
    """A value as a part of an address that stays where it is put."""
    text = _text(value)
    if text in ("", ".", ".."):
        raise ToolFailed(f"the arguments do not fit: {name} must not be {text!r}")
    return quote(text, safe="")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


async def _read(reply: httpx.Response) -> str:
    """The text of an answer, of a very long one the beginning."""
    read = bytearray()
    async for chunk in reply.aiter_bytes():
        read += chunk
        if len(read) > _MOST_BYTES:
            break
    return bytes(read[:_MOST_BYTES]).decode(reply.encoding or "utf-8", "replace")
