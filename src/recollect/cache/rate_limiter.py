"""Rate limits by token buckets, in Redis or in this process."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from time import monotonic

from recollect.cache.redis_client import RedisClient
from recollect.errors import CacheUnavailable

_MAX_BUCKETS = 100_000

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
        return self._acquire_locally(name, cost)

    def _acquire_locally(self, name: str, cost: float) -> float:
        moment, rate = monotonic(), self._capacity / 60
        left, at = self._local_buckets.pop(name, (self._capacity, moment))
        left = min(self._capacity, left + (moment - at) * rate)
        wait_s = 0.0 if left >= cost else (cost - left) / rate
        self._local_buckets[name] = (left if wait_s else left - cost, moment)
        if len(self._local_buckets) > _MAX_BUCKETS:
            self._local_buckets.popitem(last=False)
        return wait_s
