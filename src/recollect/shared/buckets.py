"""How much anyone may do in a minute: a bucket of tokens that fills up again, in Redis or in this process."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from time import monotonic

from recollect.errors import CacheUnavailable
from recollect.shared.link import Link

_MOST_BUCKETS = 100_000

# The time is that of Redis, so that clocks which differ make no difference.
_TAKE = """
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local most, rate, wanted = tonumber(ARGV[1]), tonumber(ARGV[1]) / 60, tonumber(ARGV[2])
local held = redis.call('HMGET', KEYS[1], 'left', 'at')
local left = math.min(most, (tonumber(held[1]) or most) + math.max(0, now - (tonumber(held[2]) or now)) * rate)
local wait = 0
if left >= wanted then left = left - wanted else wait = (wanted - left) / rate end
redis.call('HSET', KEYS[1], 'left', tostring(left), 'at', tostring(now))
redis.call('EXPIRE', KEYS[1], 120)
return tostring(wait)
"""


class Buckets:
    """A minute's allowance for each name; with Redis all processes draw on the same."""

    def __init__(self, a_minute: int, *, what: str, link: Link | None = None, prefix: str = "recollect") -> None:
        self._most = float(a_minute)
        self._what = what
        self._prefix = prefix
        self._link = link
        self._take = link.script(_TAKE) if link is not None else None
        # What is left, and when that was so; the ones used last come last.
        self._here: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def take(self, name: str, count: int = 1) -> float:
        """Take so many for this name; gives 0, or how many seconds to wait, with nothing taken."""
        wanted = min(float(count), self._most)
        if self._link is not None and self._take is not None:
            take, whose = self._take, blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
            key = f"{self._prefix}:{self._what}:{whose}"
            try:
                return float(await self._link.ask(lambda redis: take(redis, [key], [self._most, wanted])))
            except CacheUnavailable:
                # Each process counts for itself meanwhile.
                pass
        return self._take_here(name, wanted)

    def _take_here(self, name: str, wanted: float) -> float:
        moment, rate = monotonic(), self._most / 60
        left, at = self._here.pop(name, (self._most, moment))
        left = min(self._most, left + (moment - at) * rate)
        wait_s = 0.0 if left >= wanted else (wanted - left) / rate
        self._here[name] = (left if wait_s else left - wanted, moment)
        if len(self._here) > _MOST_BUCKETS:
            self._here.popitem(last=False)
        return wait_s
