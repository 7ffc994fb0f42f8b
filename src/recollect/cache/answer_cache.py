"""Cache answers in Redis: one hash per user, for the current revision of the user's memories.

The query and the revision are part of a field's name, so that a write by any process makes all entries unreachable;
no invalidation is needed.
"""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from typing import Any

from recollect.cache.redis_client import RedisClient
from recollect.errors import CacheUnavailable
from recollect.frozen_dataclass import frozen_dataclass
from recollect.ledger.types import Revision
from recollect.model.erasure import StoreErasure
from recollect.observability.metrics import CACHE_LOOKUPS

STORE = "redis"
# More entries of one revision are rarely reused.
_MAX_FIELDS = 256
_MAX_IN_FLIGHT = 64

# Do not store an answer from before an erasure, or of an older revision.
_PUT_SCRIPT = """
local erased = redis.call('GET', KEYS[2])
if erased and tonumber(erased) > tonumber(ARGV[2]) then return 0 end
local stored = tonumber(redis.call('HGET', KEYS[1], 'revision') or '-1')
local number = tonumber(ARGV[1])
if stored > number and not erased then return 0 end
if stored ~= number then
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


@frozen_dataclass
class CacheKey:
    """The user, the revision and the field of an entry."""

    user: str
    revision: Revision
    field: str


class AnswerCache:
    """Caches answers to the same query at the same revision for `ttl_s` seconds."""

    def __init__(self, redis: RedisClient, *, ledger_id: str, prefix: str, ttl_s: int) -> None:
        self._redis = redis
        self._ledger_id = ledger_id
        self._prefix = prefix
        self._ttl_s = ttl_s
        self._put_script = redis.script(_PUT_SCRIPT)
        self._forget_script = redis.script(_FORGET_SCRIPT)
        # References, so that running tasks are not garbage-collected.
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def last_error(self) -> str:
        """Return the error of Redis; empty if there is none."""
        return self._redis.last_error

    @property
    def is_unavailable(self) -> bool:
        """Return whether Redis is known to be unavailable."""
        return self._redis.is_paused

    async def get(self, entry: CacheKey, *, cache: str = "recall") -> bytes | None:
        """Return an entry; None if there is none or Redis is unavailable. Lookups are counted by the cache's name."""
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
        """Store an answer, unless Redis is unavailable."""
        revision = entry.revision
        arguments = [revision.number, revision.epoch, entry.field, answer, self._ttl_s, _MAX_FIELDS]
        try:
            await self._redis.run(lambda redis: self._put_script(redis, list(self._keys(entry.user)), arguments))
        except CacheUnavailable:
            pass

    def put_in_background(self, entry: CacheKey, answer: bytes) -> None:
        """Store an answer in the background, unless too many are being stored."""
        if len(self._tasks) < _MAX_IN_FLIGHT:
            task = asyncio.get_running_loop().create_task(self.put(entry, answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def flush(self) -> None:
        """Wait until background stores are done."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def forget(self, user: str, epoch: int) -> StoreErasure:
        """Delete the entries of a user, and accept none from before this epoch."""
        keys = list(self._keys(user))
        try:
            # The mark outlives all requests that started before it.
            arguments = [epoch, self._ttl_s + 3600]
            count = int(await self._redis.run(lambda redis: self._forget_script(redis, keys, arguments)))
        except CacheUnavailable:
            note = f"Redis is unavailable; its entries can no longer be reached, and expire within {self._ttl_s} s"
            return StoreErasure(STORE, {}, reached=False, note=note)
        return StoreErasure(STORE, {"answers": max(count - 1, 0)})

    async def close(self) -> None:
        """Wait for background stores, and close Redis."""
        await self.flush()
        await self._redis.close()

    def _keys(self, user: str) -> tuple[str, str]:
        # The braces keep both keys on one node of a cluster; a digest contains no special characters.
        user_hash = blake2b(f"{self._ledger_id}\0{user}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        return f"{self._prefix}:{{{user_hash}}}:answers", f"{self._prefix}:{{{user_hash}}}:erased"
