"""Rate limits per minute: requests by key or address, and writes by user."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from starlette.types import ASGIApp, Receive, Scope, Send

from recollect.cache.redis_client import RateLimiter
from recollect.config.settings import Settings
from recollect.http.errors import ErrorFormat, ErrorInfo, send_error
from recollect.observability.metrics import LIMITED

# Health checks are always answered.
_UNLIMITED_PATHS = frozenset(["/live", "/ready", "/health", "/version", "/metrics"])


class RateLimits:
    """The rate limiters of the settings, or None where there is no limit. Processes share them through Redis."""

    def __init__(self, settings: Settings) -> None:
        self._redis = None
        if settings.redis_url:
            from recollect.cache.redis_client import RedisClient

            self._redis = RedisClient(settings.redis_url, timeout_s=settings.redis_timeout_s)
        self.requests = self._create_limiter(settings, settings.rate_limit_per_minute, "requests")
        self.writes = self._create_limiter(settings, settings.user_writes_per_minute, "writes")

    def _create_limiter(self, settings: Settings, per_minute: int, resource: str) -> RateLimiter | None:
        if not per_minute:
            return None
        return RateLimiter(per_minute, resource=resource, redis=self._redis, prefix=settings.redis_prefix)

    async def close(self) -> None:
        """Close the connection to Redis."""
        if self._redis is not None:
            await self._redis.close()


class RateLimitMiddleware:
    """Answers 429 with Retry-After once a key or an address exceeds its limit."""

    def __init__(self, app: ASGIApp, limits: RateLimits, error_formats: Mapping[str, ErrorFormat]) -> None:
        self._app, self._error_formats, self._requests = app, error_formats, limits.requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or reject it."""
        if self._requests is None or scope["type"] != "http" or scope["path"] in _UNLIMITED_PATHS:
            await self._app(scope, receive, send)
        elif wait_s := await self._requests.acquire(_client_key(scope)):
            LIMITED.add("requests")
            message = f"Request rate limit exceeded; retry in {ceil(wait_s)} s"
            error = ErrorInfo(429, "RateLimitExceeded", message, retry_after_s=wait_s)
            await send_error(scope, send, error, self._error_formats)
        else:
            await self._app(scope, receive, send)


def _client_key(scope: Scope) -> str:
    """Return what the limit is counted by: the credentials, or else the address."""
    caller = scope.get("state", {}).get("caller")
    if caller is not None and caller.kind != "local":
        # Keys of two users may have the same name, and all users of a gateway have.
        return f"{caller.kind} {caller.name} {caller.user or ''}"
    client = scope.get("client")
    return f"address {client[0] if client else ''}"
