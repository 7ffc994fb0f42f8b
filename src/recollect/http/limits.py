"""How much anyone may ask in a minute: requests by a key or an address, and what a user has kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import ceil

from starlette.types import ASGIApp, Receive, Scope, Send

from recollect.http.auth.shapes import Shape, as_both, shape_of
from recollect.observe.metrics import LIMITED
from recollect.settings import Settings
from recollect.shared.buckets import Buckets

# Whoever looks whether a server is well must always be answered.
_FREE = frozenset(["/live", "/ready", "/health", "/version", "/metrics"])


class Limits:
    """The allowances of the settings; None where there is none. With Redis all processes share them."""

    def __init__(self, settings: Settings) -> None:
        self._link = None
        if settings.redis_url:
            from recollect.shared.link import Link

            self._link = Link(settings.redis_url, timeout_s=settings.redis_timeout_s)
        self.requests = self._buckets(settings, settings.rate_limit_per_minute, "requests")
        self.writes = self._buckets(settings, settings.user_writes_per_minute, "writes")

    def _buckets(self, settings: Settings, a_minute: int, what: str) -> Buckets | None:
        return Buckets(a_minute, what=what, link=self._link, prefix=settings.redis_prefix) if a_minute else None

    async def close(self) -> None:
        """Let go of Redis."""
        if self._link is not None:
            await self._link.close()


class RateLimit:
    """Answers 429 and says when to come again, once a key or an address has used up its minute."""

    def __init__(self, app: ASGIApp, limits: Limits, shapes: Mapping[str, Shape] | None = None) -> None:
        self._app = app
        self._shapes = shapes or {}
        self._requests = limits.requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if self._requests is None or scope["type"] != "http" or scope["path"] in _FREE:
            await self._app(scope, receive, send)
        elif wait_s := await self._requests.take(_who(scope)):
            LIMITED.add("requests")
            await _refuse(send, wait_s, shape_of(scope["path"], self._shapes, as_both))
        else:
            await self._app(scope, receive, send)


def _who(scope: Scope) -> str:
    """Whose minute it is: that of the key, or where there is none, of the address that asks."""
    caller = scope.get("state", {}).get("caller")
    if caller is not None and caller.kind != "local":
        # Keys of two users may have one name, and all users of a gateway have.
        return f"{caller.kind} {caller.name} {caller.user or ''}"
    client = scope.get("client")
    return f"address {client[0] if client else ''}"


async def _refuse(send: Send, wait_s: float, shape: Shape) -> None:
    text = f"more is asked for in a minute than may be: try again in {ceil(wait_s)} s"
    body = json.dumps(shape(429, "RateLimitExceeded", text)).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"retry-after", str(ceil(wait_s)).encode()),
    ]
    await send({"type": "http.response.start", "status": 429, "headers": headers})
    await send({"type": "http.response.body", "body": body})
