"""The Redis client, which fails at once while Redis is unavailable, and the rate limiter that counts in it."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from hashlib import blake2b
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from recollect.errors import CacheUnavailable, InvalidSettings, MissingExtra
from recollect.observability.metrics import BREAKER_OPEN

if TYPE_CHECKING:
    from redis.asyncio import Redis


_log = logging.getLogger("recollect")
_T = TypeVar("_T")
_MAX_CONNECTIONS = 64
# After this many failures in a row calls pause, then one call tries again.
_MAX_FAILURES = 3
_POLL_S = 30.0
FIRST_PAUSE_S, MAX_PAUSE_S = 1.0, 15.0


class RedisClient:
    """A Redis connection pool with a circuit breaker."""

    def __init__(self, url: str, *, timeout_s: float) -> None:
        try:
            from redis.asyncio import BlockingConnectionPool, Redis
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
        except ImportError:
            raise MissingExtra("redis_url", "redis") from None
        try:
            pool = BlockingConnectionPool.from_url(
                url,
                max_connections=_MAX_CONNECTIONS,
                timeout=timeout_s,
                socket_timeout=timeout_s,
                socket_connect_timeout=timeout_s,
                # No retries in the library: callers must not wait several timeouts.
                retry=Retry(NoBackoff(), 0),
            )
        except ValueError as error:
            raise InvalidSettings(f"redis_url: {error}") from None
        self._redis: Redis = Redis(connection_pool=pool)
        self._timeout_s = timeout_s
        self._failures = 0
        self._pause_s = 0.0
        self._paused_until = 0.0
        self.last_error = ""

    @property
    def is_paused(self) -> bool:
        """Return whether calls fail at once."""
        return monotonic() < self._paused_until

    async def run(self, call: Callable[[Redis], Awaitable[_T]]) -> _T:
        """Return the result of a call, or raise CacheUnavailable after the timeout or, while paused, at once."""
        from redis.exceptions import RedisError

        if self.is_paused:
            raise CacheUnavailable(self.last_error)
        if self._pause_s:
            # This call probes; others fail at once in the meantime.
            self._paused_until = monotonic() + self._timeout_s
        try:
            # For connecting, waiting for a connection and the call together.
            async with asyncio.timeout(self._timeout_s):
                result = await call(self._redis)
        except (RedisError, OSError, TimeoutError) as error:
            self._record_failure(error)
            raise CacheUnavailable(self.last_error) from None
        self._failures = 0
        if self._pause_s:
            self._pause_s = self._paused_until = 0.0
            self.last_error = ""
            BREAKER_OPEN.set(0, "redis")
            _log.info("Redis is available again")
        return result

    def _record_failure(self, error: Exception) -> None:
        self._failures += 1
        if self._failures < _MAX_FAILURES and not self._pause_s:
            # A busy machine may be late once.
            return
        if not self._pause_s:
            # The message may contain the address, so log only the type.
            self.last_error = f"Redis does not answer ({type(error).__name__}); continuing without it"
            BREAKER_OPEN.set(1, "redis")
            _log.warning("%s", self.last_error)
        self._pause_s = min(max(self._pause_s * 2, FIRST_PAUSE_S), MAX_PAUSE_S)
        self._paused_until = monotonic() + self._pause_s

    async def listen(self, channel: str) -> AsyncIterator[str]:
        """Yield an empty text once subscribed, then each message; raise CacheUnavailable when the connection ends."""
        from redis.exceptions import RedisError

        try:
            async with self._redis.pubsub(ignore_subscribe_messages=True) as subscription:
                async with asyncio.timeout(self._timeout_s):
                    await subscription.subscribe(channel)
                yield ""
                while True:
                    message = await subscription.get_message(timeout=_POLL_S)
                    if message is not None:
                        yield message["data"].decode()
        except (RedisError, OSError, TimeoutError) as error:
            raise CacheUnavailable(f"Redis does not answer ({type(error).__name__})") from None

    def script(self, text: str) -> Callable[[Redis, list[str], list[Any]], Awaitable[Any]]:
        """Return a function that runs a Lua script in Redis."""
        registered = self._redis.register_script(text)

        async def run_script(redis: Redis, keys: list[str], arguments: list[Any]) -> Any:
            return await registered(keys=keys, args=arguments, client=redis)

        return run_script

    async def close(self) -> None:
        """Close the connections."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._redis.aclose(close_connection_pool=True)
        except (OSError, TimeoutError):
            pass


MAX_BUCKETS = 100_000

# Uses the time of Redis, since the clocks of processes may differ.
_ACQUIRE_SCRIPT = """
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local capacity, rate, cost = tonumber(ARGV[1]), tonumber(ARGV[1]) / 60, tonumber(ARGV[2])
local stored = redis.call('HMGET', KEYS[1], 'left', 'at')
local refill = math.max(0, now - (tonumber(stored[2]) or now)) * rate
local left = math.min(capacity, (tonumber(stored[1]) or capacity) + refill)
local wait = 0
if left >= cost then left = left - cost else wait = (cost - left) / rate end
redis.call('HSET', KEYS[1], 'left', tostring(left), 'at', tostring(now))
redis.call('EXPIRE', KEYS[1], 120)
return tostring(wait)
"""


class RateLimiter:
    """Allows `per_minute` for each name; with Redis all processes share the limit."""

    def __init__(
        self, per_minute: int, *, resource: str, redis: RedisClient | None = None, prefix: str = "recollect"
    ) -> None:
        self._capacity = float(per_minute)
        self._resource = resource
        self._prefix = prefix
        self._redis = redis
        self._acquire_script = redis.script(_ACQUIRE_SCRIPT) if redis is not None else None
        # The tokens left and when, least recently used first.
        self._local_buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def acquire(self, name: str, count: int = 1) -> float:
        """Take `count` tokens and return 0, or take none and return the seconds to wait."""
        cost = min(float(count), self._capacity)
        if self._redis is not None and self._acquire_script is not None:
            acquire = self._acquire_script
            name_hash = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
            key = f"{self._prefix}:{self._resource}:{name_hash}"
            try:
                return float(await self._redis.run(lambda redis: acquire(redis, [key], [self._capacity, cost])))
            except CacheUnavailable:
                # Each process counts by itself while Redis is unavailable.
                pass
        moment, rate = monotonic(), self._capacity / 60
        left, at = self._local_buckets.pop(name, (self._capacity, moment))
        left = min(self._capacity, left + (moment - at) * rate)
        wait_s = 0.0 if left >= cost else (cost - left) / rate
        self._local_buckets[name] = (left if wait_s else left - cost, moment)
        if len(self._local_buckets) > MAX_BUCKETS:
            self._local_buckets.popitem(last=False)
        return wait_s
