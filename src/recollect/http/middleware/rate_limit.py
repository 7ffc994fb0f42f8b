"""How much anyone may ask in a minute: requests by a key or an address, and what a user has kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import ceil

from starlette.types import ASGIApp, Receive, Scope, Send

from recollect.cache.rate_limiter import RateLimiter
from recollect.config.settings import Settings
from recollect.http.errors import ErrorFormat, combined_error, error_format_for
from recollect.observability.metrics import LIMITED

# Whoever looks whether a server is well must always be answered.
_UNLIMITED_PATHS = frozenset(["/live", "/ready", "/health", "/version", "/metrics"])


class RateLimits:
    """The allowances of the settings; None where there is none. With Redis all processes share them."""

    def __init__(self, settings: Settings) -> None:
        self._redis = None
        if settings.redis_url:
            from recollect.cache.redis_client import RedisClient

            self._redis = RedisClient(settings.redis_url, timeout_s=settings.redis_timeout_s)
        self.requests = self._create_limiter(settings, settings.rate_limit_per_minute, "requests")
        self.writes = self._create_limiter(settings, settings.user_writes_per_minute, "writes")

    def _create_limiter(self, settings: Settings, per_minute: int, name: str) -> RateLimiter | None:
        return (
            RateLimiter(per_minute, resource=name, redis=self._redis, prefix=settings.redis_prefix)
            if per_minute
            else None
        )

    async def close(self) -> None:
        """Let go of Redis."""
        if self._redis is not None:
            await self._redis.close()


class RateLimitMiddleware:
    """Answers 429 and says when to come again, once a key or an address has used up its minute."""

    def __init__(
        self, app: ASGIApp, limits: RateLimits, error_formats: Mapping[str, ErrorFormat] | None = None
    ) -> None:
        self._app = app
        self._error_formats = error_formats or {}
        self._requests = limits.requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if self._requests is None or scope["type"] != "http" or scope["path"] in _UNLIMITED_PATHS:
            await self._app(scope, receive, send)
        elif wait_s := await self._requests.acquire(_client_key(scope)):
            LIMITED.add("requests")
            await _reject(send, wait_s, error_format_for(scope["path"], self._error_formats, combined_error))
        else:
            await self._app(scope, receive, send)


def _client_key(scope: Scope) -> str:
    """Whose minute it is: that of the key, or where there is none, of the address that asks."""
    caller = scope.get("state", {}).get("caller")
    if caller is not None and caller.kind != "local":
        # Keys of two users may have one name, and all users of a gateway have.
        return f"{caller.kind} {caller.name} {caller.user or ''}"
    client = scope.get("client")
    return f"address {client[0] if client else ''}"


async def _reject(send: Send, wait_s: float, error_format: ErrorFormat) -> None:
    text = f"more is asked for in a minute than may be: try again in {ceil(wait_s)} s"
    body = json.dumps(error_format(429, "RateLimitExceeded", text)).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"retry-after", str(ceil(wait_s)).encode()),
    ]
    await send({"type": "http.response.start", "status": 429, "headers": headers})
    await send({"type": "http.response.body", "body": body})
