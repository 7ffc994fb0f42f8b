"""API keys: create, list, revoke, and authenticate in microseconds from a cache."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from recollect.aio.background import DeferredWriter
from recollect.errors import NotFound, RecollectError, StoreUnavailable, Unauthenticated, Unavailable
from recollect.ledger.ledger import Ledger
from recollect.model.key import KEY_PREFIX, ApiKey, NewKey, hash_key
from recollect.model.times import now

_log = logging.getLogger("recollect")
T = TypeVar("T")
# A key revoked by another process is refused here at most this much later.
CACHE_TTL_S = 5.0
# While the ledger is unavailable, keys confirmed this recently stay valid, so that chats continue.
OFFLINE_TTL_S = 300.0
# How long to wait for a ledger that does not answer; hardly at all for a cached key.
WAIT_S = 1.0
_CACHED_WAIT_S = 0.1
MAX_ENTRIES = 10_000
_USE_INTERVAL_S = 60.0
# No generated key is longer.
_MAX_KEY_CHARS = 100
_INVALID_KEY = "the API key is unknown, revoked or expired"


@dataclass(slots=True)
class _CachedKey:
    """A key, or None for an unknown one, with the times of the last confirmation and the last check."""

    key: ApiKey | None
    confirmed_at: float
    checked_at: float


class ApiKeys:
    """The keys of one ledger, with a bounded cache of recent lookups by hash."""

    def __init__(self, ledger: Ledger, *, clock: Callable[[], float] = time.monotonic, wait_s: float = 2.0) -> None:
        self._ledger = ledger
        self._clock = clock
        self._valid: dict[bytes, _CachedKey] = {}
        # Separate, so that guesses do not evict valid keys.
        self._invalid: dict[bytes, _CachedKey] = {}
        self._is_used = False
        self._checked_at = -CACHE_TTL_S
        self._use_recorded_at: dict[str, float] = {}
        self._pending_uses: dict[str, datetime] = {}
        self._writer = DeferredWriter(self._write, wait_s=wait_s)
        # Checks in the background whether an unavailable ledger answers.
        self._ledger_probe: asyncio.Task[None] | None = None

    async def add(self, new: NewKey) -> NewKey:
        """Store a new key, without its text."""
        await self._ledger.add_key(new.key)
        self._is_used = True
        return new

    async def list_keys(self, user: str | None = None) -> list[ApiKey]:
        """Return all keys or those of a user, oldest first."""
        return await self._ledger.keys(user)

    async def revoke(self, id: str) -> ApiKey:
        """Revoke a key: in this process at once, in others within seconds."""
        key = await self._ledger.revoke_key(id, at=now())
        self._valid.pop(key.hash, None)
        return key

    async def is_used(self) -> bool:
        """Return whether any key exists; the last known answer while the ledger is unavailable."""
        moment = self._clock()
        if not self._is_used and moment - self._checked_at >= CACHE_TTL_S:
            before, self._checked_at = self._checked_at, moment
            try:
                self._is_used = await self._query_ledger(self._ledger.has_keys, was_valid=before >= 0)
            except (Unavailable, TimeoutError) as error:
                if before < 0:
                    self._checked_at = before
                    raise StoreUnavailable("API keys cannot be checked while the ledger does not answer") from error
        return self._is_used

    async def authenticate(self, text: str) -> ApiKey:
        """Return the key of this text, or raise `Unauthenticated`."""
        if not text.startswith(KEY_PREFIX) or len(text) > _MAX_KEY_CHARS:
            raise Unauthenticated(_INVALID_KEY)
        hash = hash_key(text)
        cached = self._valid.get(hash) or self._invalid.get(hash)
        moment = self._clock()
        if cached is None or moment - cached.checked_at >= CACHE_TTL_S:
            cached = await self._look_up(hash, cached, moment)
        key = cached.key
        # In constant time, unlike the comparison in the ledger.
        if key is None or not hmac.compare_digest(key.hash, hash) or not key.is_active(now()):
            raise Unauthenticated(_INVALID_KEY)
        if moment - self._use_recorded_at.get(key.id, -_USE_INTERVAL_S) >= _USE_INTERVAL_S:
            self._record_use(key, moment)
        return key

    def is_cached(self, text: str) -> bool:
        return len(text) <= _MAX_KEY_CHARS and hash_key(text) in self._valid

    async def _look_up(self, hash: bytes, before: _CachedKey | None, moment: float) -> _CachedKey:
        try:
            was_valid = before is not None and before.key is not None
            cached = _CachedKey(
                await self._query_ledger(lambda: self._ledger.find_key(hash), was_valid=was_valid), moment, moment
            )
        except NotFound:
            cached = _CachedKey(None, moment, moment)
        except (Unavailable, TimeoutError) as error:
            if before is not None and before.key is not None and moment - before.confirmed_at < OFFLINE_TTL_S:
                before.checked_at = moment
                return before
            raise StoreUnavailable("the API key cannot be checked while the ledger does not answer") from error
        here, there = (self._invalid, self._valid) if cached.key is None else (self._valid, self._invalid)
        there.pop(hash, None)
        # Reinserted, so that the least recently checked key is evicted first.
        here.pop(hash, None)
        if len(here) >= MAX_ENTRIES:
            del here[next(iter(here))]
        here[hash] = cached
        return cached

    async def _query_ledger(self, query: Callable[[], Coroutine[Any, Any, T]], *, was_valid: bool) -> T:
        """Query the ledger with a timeout; for cached keys, fail at once until it answers."""
        if was_valid and self._ledger_probe is not None:
            raise TimeoutError
        try:
            async with asyncio.timeout(_CACHED_WAIT_S if was_valid else WAIT_S):
                return await query()
        except (Unavailable, TimeoutError):
            if self._ledger_probe is None:
                self._ledger_probe = asyncio.create_task(self._wait_for_ledger())
            raise

    async def _wait_for_ledger(self) -> None:
        while True:
            try:
                async with asyncio.timeout(WAIT_S):
                    self._is_used = await self._ledger.has_keys()
            except (RecollectError, TimeoutError):
                await asyncio.sleep(_CACHED_WAIT_S)
            else:
                self._ledger_probe = None
                return

    def _record_use(self, key: ApiKey, moment: float) -> None:
        if len(self._use_recorded_at) >= MAX_ENTRIES:
            self._use_recorded_at.clear()
        self._use_recorded_at[key.id] = moment
        self._pending_uses[key.id] = now()
        self._writer.schedule()

    async def _write(self) -> bool:
        pending, self._pending_uses = self._pending_uses, {}
        try:
            await self._ledger.record_key_use(pending)
        except RecollectError as error:
            _log.warning("the last use of API keys could not be recorded: %s", error)
        return bool(self._pending_uses)

    async def close(self) -> None:
        """Write pending uses."""
        if self._ledger_probe is not None:
            self._ledger_probe.cancel()
            await asyncio.wait([self._ledger_probe])
        await self._writer.close()
