"""The keys of a ledger: made, listed, revoked, and known again in microseconds when one is shown."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from recollect.errors import NotFound, RecollectError, StoreUnavailable, Unauthenticated, Unavailable
from recollect.ledger.protocol import Ledger
from recollect.model.key import KEY_PREFIX, ApiKey, NewKey, hash_of, new_key
from recollect.model.times import now
from recollect.read.behind import Behind

_log = logging.getLogger("recollect")
T = TypeVar("T")
# What another process revokes is refused here this much later at the latest.
_FRESH_S = 5.0
# While the ledger is away, keys it confirmed this lately go on being good: chats must not stop with it.
_TRUSTED_S = 300.0
# Longer than this nobody waits for a ledger that does not answer; whoever was known before, hardly at all.
_WAIT_S = 1.0
_WAIT_AGAIN_S = 0.1
_MOST = 10_000
_NOTE_EVERY_S = 60.0
# One that was never made cannot be longer.
_LONGEST = 100
_UNKNOWN = "the key is not known, was revoked or has expired"


@dataclass(slots=True)
class _Seen:
    """A key, or that there is none, when the ledger said so, and when it was last asked."""

    key: ApiKey | None
    at: float
    asked_at: float


class Keyring:
    """All keys of one ledger; what was looked up lately is kept at hand, by hash, and never more than so many."""

    def __init__(self, ledger: Ledger, *, clock: Callable[[], float] = time.monotonic, wait_s: float = 2.0) -> None:
        self._ledger = ledger
        self._clock = clock
        self._good: dict[bytes, _Seen] = {}
        # Apart, so that whoever guesses pushes out nobody who has a key.
        self._bad: dict[bytes, _Seen] = {}
        self._is_used = False
        self._looked_at = -_FRESH_S
        self._noted: dict[str, float] = {}
        self._waiting: dict[str, datetime] = {}
        self._behind = Behind(self._write, wait_s=wait_s)
        # Asks in nobody's time whether a ledger that was away is back.
        self._away: asyncio.Task[None] | None = None

    async def add(
        self,
        *,
        user: str | None = None,
        project: str | None = None,
        everyone: bool = False,
        admin: bool = False,
        reads: bool = True,
        writes: bool = True,
        name: str = "",
        expires_at: datetime | None = None,
    ) -> NewKey:
        """Make a key; its text is told this once."""
        new = new_key(
            user=user,
            project=project,
            everyone=everyone,
            admin=admin,
            reads=reads,
            writes=writes,
            name=name,
            expires_at=expires_at,
        )
        await self._ledger.add_key(new.key)
        self._is_used = True
        return new

    async def all(self, user: str | None = None) -> list[ApiKey]:
        """Every key ever made, or those of a user, the oldest first."""
        return await self._ledger.keys(user)

    async def revoke(self, id: str) -> ApiKey:
        """Have a key open nothing from now on; in this process at once, in others within seconds."""
        key = await self._ledger.revoke_key(id, at=now())
        self._good.pop(key.hash, None)
        return key

    async def is_used(self) -> bool:
        """Whether there are keys; once there were, that is not asked again. While the ledger is away, what was so."""
        moment = self._clock()
        if not self._is_used and moment - self._looked_at >= _FRESH_S:
            before, self._looked_at = self._looked_at, moment
            try:
                self._is_used = await self._asked(self._ledger.has_keys, is_known=before >= 0)
            except (Unavailable, TimeoutError) as error:
                if before < 0:
                    self._looked_at = before
                    raise StoreUnavailable("who may ask cannot be told while the ledger does not answer") from error
        return self._is_used

    async def find(self, text: str) -> ApiKey:
        """The key of this text, if it holds; Unauthenticated if it opens nothing."""
        if not text.startswith(KEY_PREFIX) or len(text) > _LONGEST:
            raise Unauthenticated(_UNKNOWN)
        hash = hash_of(text)
        seen = self._good.get(hash) or self._bad.get(hash)
        moment = self._clock()
        if seen is None or moment - seen.asked_at >= _FRESH_S:
            seen = await self._looked_up(hash, seen, moment)
        key = seen.key
        # Whatever the ledger compared, in a time that depends on it: here every byte counts alike.
        if key is None or not hmac.compare_digest(key.hash, hash) or not key.holds(now()):
            raise Unauthenticated(_UNKNOWN)
        if moment - self._noted.get(key.id, -_NOTE_EVERY_S) >= _NOTE_EVERY_S:
            self._note(key, moment)
        return key

    def is_known(self, text: str) -> bool:
        """Whether the key was good a moment ago, without asking anyone."""
        return len(text) <= _LONGEST and hash_of(text) in self._good

    async def _looked_up(self, hash: bytes, before: _Seen | None, moment: float) -> _Seen:
        try:
            is_known = before is not None and before.key is not None
            seen = _Seen(await self._asked(lambda: self._ledger.key_of(hash), is_known=is_known), moment, moment)
        except NotFound:
            seen = _Seen(None, moment, moment)
        except (Unavailable, TimeoutError) as error:
            if before is not None and before.key is not None and moment - before.at < _TRUSTED_S:
                before.asked_at = moment
                return before
            raise StoreUnavailable("who is asking cannot be told while the ledger does not answer") from error
        here, there = (self._bad, self._good) if seen.key is None else (self._good, self._bad)
        there.pop(hash, None)
        # Anew, so that those not seen for longest leave first.
        here.pop(hash, None)
        if len(here) >= _MOST:
            del here[next(iter(here))]
        here[hash] = seen
        return seen

    async def _asked(self, ask: Callable[[], Coroutine[Any, Any, T]], *, is_known: bool) -> T:
        """What the ledger says, in time. Of what is known nobody waits for it again before it is back."""
        if is_known and self._away is not None:
            raise TimeoutError
        try:
            async with asyncio.timeout(_WAIT_AGAIN_S if is_known else _WAIT_S):
                return await ask()
        except (Unavailable, TimeoutError):
            if self._away is None:
                self._away = asyncio.create_task(self._wait_for_ledger())
            raise

    async def _wait_for_ledger(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_WAIT_S):
                    self._is_used = await self._ledger.has_keys()
            except (RecollectError, TimeoutError):
                await asyncio.sleep(_WAIT_AGAIN_S)
            else:
                self._away = None
                return

    def _note(self, key: ApiKey, moment: float) -> None:
        if len(self._noted) >= _MOST:
            self._noted.clear()
        self._noted[key.id] = moment
        self._waiting[key.id] = now()
        self._behind.nudge()

    async def _write(self) -> bool:
        waiting, self._waiting = self._waiting, {}
        try:
            await self._ledger.use_keys(waiting)
        except RecollectError as error:
            _log.warning("could not note which keys were used: %s", error)
        return bool(self._waiting)

    async def close(self) -> None:
        """Write what waits."""
        if self._away is not None:
            self._away.cancel()
            await asyncio.wait([self._away])
        await self._behind.close()
