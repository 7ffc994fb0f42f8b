"""Answers that were found before, in Redis: one hash a user, of the revision the user's memories are at.

What is asked for is part of the name of a field, and so is the revision: whoever wrote anything, in whatever process,
asks for another name from then on. Nothing has to be told to be forgotten, so nothing can be missed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from recollect.cache.redis_client import RedisClient
from recollect.errors import CacheUnavailable
from recollect.ledger.protocol import Revision
from recollect.model.erasure import StoreErasure
from recollect.observability.metrics import CACHE_LOOKUPS

STORE = "redis"
# More of one revision are hardly asked for again.
_MAX_FIELDS = 256
_MAX_IN_FLIGHT = 64

# An answer that was found before an erasure may come after it: it stays out. So does one of an older revision.
_PUT_SCRIPT = """
local erased = redis.call('GET', KEYS[2])
if erased and tonumber(erased) > tonumber(ARGV[2]) then return 0 end
local held = tonumber(redis.call('HGET', KEYS[1], 'revision') or '-1')
local number = tonumber(ARGV[1])
if held > number and not erased then return 0 end
if held ~= number then
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], 'revision', ARGV[1])
  redis.call('EXPIRE', KEYS[1], ARGV[5])
end
if redis.call('HLEN', KEYS[1]) > tonumber(ARGV[6]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[3], ARGV[4])
return 1
"""

_FORGET_SCRIPT = """
local count = redis.call('HLEN', KEYS[1])
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[2], ARGV[1], 'EX', ARGV[2])
return count
"""


@dataclass(frozen=True, slots=True)
class CacheKey:
    """Where the answer to one question lies: whose, of which revision, under which name."""

    user: str
    revision: Revision
    field: str


class AnswerCache:
    """Gives back what was found at the same revision for the same question, for a few minutes."""

    def __init__(self, redis: RedisClient, *, ledger_id: str, prefix: str, ttl_s: int) -> None:
        self._redis = redis
        self._ledger_id = ledger_id
        self._prefix = prefix
        self._ttl_s = ttl_s
        self._put_script = redis.script(_PUT_SCRIPT)
        self._forget_script = redis.script(_FORGET_SCRIPT)
        # Held here, or they could be collected before they are done.
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def last_error(self) -> str:
        """What is wrong with Redis; empty if nothing is."""
        return self._redis.last_error

    @property
    def is_unavailable(self) -> bool:
        """Whether looking now would be of no use."""
        return self._redis.is_paused

    async def get(self, entry: CacheKey, *, cache: str = "recall") -> bytes | None:
        """What is held there; None if nothing is, or if Redis is away. Looks are counted by the name of the cache."""
        key, _ = self._keys(entry.user)

        async def get(redis: Any) -> bytes | None:
            stored: bytes | None = await redis.hget(key, entry.field)
            return stored

        try:
            stored = await self._redis.run(get)
        except CacheUnavailable:
            CACHE_LOOKUPS.add(cache, "away")
            return None
        CACHE_LOOKUPS.add(cache, "miss" if stored is None else "hit")
        return stored

    async def put(self, entry: CacheKey, answer: bytes) -> None:
        """Hold an answer; while Redis is away it is not held."""
        revision = entry.revision
        arguments = [revision.number, revision.epoch, entry.field, answer, self._ttl_s, _MAX_FIELDS]
        try:
            await self._redis.run(lambda redis: self._put_script(redis, list(self._keys(entry.user)), arguments))
        except CacheUnavailable:
            pass

    def put_in_background(self, entry: CacheKey, answer: bytes) -> None:
        """Hold an answer without keeping anybody waiting; where many are on their way it is not held."""
        if len(self._tasks) < _MAX_IN_FLIGHT:
            task = asyncio.get_running_loop().create_task(self.put(entry, answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def flush(self) -> None:
        """Wait until everything that is on its way is held."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def forget(self, user: str, epoch: int) -> StoreErasure:
        """Let go of all that is held of a user, and take nothing that was found before this epoch."""
        keys = list(self._keys(user))
        try:
            # What was begun before is over long before that mark goes.
            arguments = [epoch, self._ttl_s + 3600]
            count = int(await self._redis.run(lambda redis: self._forget_script(redis, keys, arguments)))
        except CacheUnavailable:
            note = f"Redis is away; what it may hold cannot be asked for any more, and goes within {self._ttl_s} s"
            return StoreErasure(STORE, {}, reached=False, note=note)
        return StoreErasure(STORE, {"answers": max(count - 1, 0)})

    async def close(self) -> None:
        """Let what is on its way arrive, and let go of Redis."""
        await self.flush()
        await self._redis.close()

    def _keys(self, user: str) -> tuple[str, str]:
        # The braces keep both on one node of a cluster. A digest holds no glob and no separator.
        user_hash = blake2b(f"{self._ledger_id}\0{user}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        return f"{self._prefix}:{{{user_hash}}}:answers", f"{self._prefix}:{{{user_hash}}}:erased"
