"""JSON answers of any size, encoded in small steps and sent in pieces, so that others are answered meanwhile."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from recollect.aio.slices import run_in_slices

_LONG_CHARS = 1 << 15


class SlicedJSONResponse(JSONResponse):
    """A JSON object whose lists or texts may be long; it is encoded when it is sent."""

    def render(self, content: Any) -> bytes:
        self._content = content
        return b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parts: list[bytes] = []
        await run_in_slices(_encode(self._content, parts, levels=3))
        self.headers["content-length"] = str(sum(map(len, parts)))
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for part in _pieces(parts):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _encode(value: Any, parts: list[bytes], *, levels: int) -> Generator[None, None, None]:
    """Append the JSON of a value, the items of large containers one by one down to so many levels."""
    if isinstance(value, str) and len(value) > _LONG_CHARS:
        parts.append(b'"')
        for start in range(0, len(value), _LONG_CHARS):
            parts.append(_dump(value[start : start + _LONG_CHARS])[1:-1])
            yield
        parts.append(b'"')
    elif levels and isinstance(value, Mapping) and (levels == 3 or any(map(_is_long, value.values()))):
        for number, (name, item) in enumerate(value.items()):
            parts.append((b"," if number else b"{") + _dump(name) + b":")
            yield from _encode(item, parts, levels=levels - 1)
        parts.append(b"}" if value else b"{}")
    elif levels and isinstance(value, list | tuple):
        for number, item in enumerate(value):
            parts.append(b"," if number else b"[")
            yield from _encode(item, parts, levels=levels - 1)
        parts.append(b"]" if value else b"[]")
    else:
        parts.append(_dump(value))
        yield


def _is_long(value: object) -> bool:
    return isinstance(value, str) and len(value) > _LONG_CHARS


def _dump(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Half a character of the client's, which has no UTF-8, is escaped as the client may send it.
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def _pieces(parts: list[bytes]) -> Generator[bytes, None, None]:
    """Yield the parts joined to pieces of a size that is worth a message."""
    start, size = 0, 0
    for at, part in enumerate(parts, 1):
        size += len(part)
        if size >= _LONG_CHARS:
            yield b"".join(parts[start:at])
            start, size = at, 0
    yield b"".join(parts[start:])
