"""Notify followers of a user's memories of changes, in other processes through Redis or else PostgreSQL.

A notification says that something changed, not what: followers read the ledger. A lost one only delays them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

from recollect.errors import Unavailable

if TYPE_CHECKING:
    from recollect.cache.redis_client import RedisClient


_log = logging.getLogger("recollect")
_RETRY_S = 1.0


class ChangeNotifier:
    """Wakes waiters for a user's next change."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._subscribers: list[Callable[[str], None]] = []

    def subscribe(self, callback: Callable[[str], None]) -> None:
        """Call back with the user of every change of this process."""
        self._subscribers.append(callback)

    @property
    def is_shared(self) -> bool:
        """Return whether changes of other processes are received."""
        return False

    def notify(self, user: str) -> None:
        """Notify that memories of a user have changed."""
        self._wake(_user_hash(user))
        for callback in self._subscribers:
            callback(user)

    async def wait(self, user: str, within_s: float) -> None:
        """Wait for a change of the user's memories, at most `within_s`."""
        event, name = asyncio.Event(), _user_hash(user)
        self._waiting.setdefault(name, set()).add(event)
        try:
            async with asyncio.timeout(within_s):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting[name].discard(event)
            if not self._waiting[name]:
                del self._waiting[name]

    def _wake(self, name: str) -> None:
        for event in self._waiting.get(name, ()):
            event.set()

    async def close(self) -> None:
        """Send pending notifications."""


class PubSub(Protocol):
    """A channel to other processes."""

    async def publish(self, text: str) -> None:
        """Send a text to all listeners, or raise Unavailable."""

    def listen(self) -> AsyncIterator[str]:
        """Yield an empty text once subscribed, then each text; raise Unavailable when the connection ends."""

    async def close(self) -> None: ...


class RedisPubSub:
    """A channel of Redis."""

    def __init__(self, redis: RedisClient, channel: str) -> None:
        self._redis = redis
        self._channel = channel

    async def publish(self, text: str) -> None:
        await self._redis.run(lambda redis: redis.publish(self._channel, text))

    def listen(self) -> AsyncIterator[str]:
        return self._redis.listen(self._channel)

    async def close(self) -> None:
        await self._redis.close()


class SharedChangeNotifier(ChangeNotifier):
    """A notifier for all processes on a channel; only for this one while the channel is down.

    Notifications within `min_interval_s` are sent together.
    """

    def __init__(self, pubsub: PubSub, *, min_interval_s: float = 0.0) -> None:
        super().__init__()
        self._pubsub = pubsub
        self._min_interval_s = min_interval_s
        self._is_shared = False
        self._unpublished: set[str] = set()
        self._publish_task: asyncio.Task[None] | None = None
        self._listen_task: asyncio.Task[None] | None = None

    @property
    def is_shared(self) -> bool:
        return self._is_shared

    def notify(self, user: str) -> None:
        super().notify(user)
        self._unpublished.add(_user_hash(user))
        if self._publish_task is None:
            self._publish_task = asyncio.get_running_loop().create_task(self._publish_changes())

    async def wait(self, user: str, within_s: float) -> None:
        if self._listen_task is None:
            # Processes without followers do not listen.
            self._listen_task = asyncio.get_running_loop().create_task(self._listen())
        await super().wait(user, within_s)

    async def _publish_changes(self) -> None:
        try:
            while self._unpublished:
                names, self._unpublished = self._unpublished, set()
                try:
                    await self._pubsub.publish(" ".join(names))
                except Unavailable:
                    # Followers also poll the ledger.
                    _log.debug("other processes were not notified of a change")
                if self._min_interval_s:
                    await asyncio.sleep(self._min_interval_s)
        finally:
            self._publish_task = None

    async def _listen(self) -> None:
        while True:
            try:
                async for message in self._pubsub.listen():
                    self._is_shared = True
                    for name in message.split():
                        self._wake(name)
            except Unavailable:
                self._is_shared = False
                await asyncio.sleep(_RETRY_S)

    async def close(self) -> None:
        if self._listen_task is not None:
            self._listen_task.cancel()
            await asyncio.wait([self._listen_task])
        if self._publish_task is not None:
            await asyncio.wait([self._publish_task])
        await self._pubsub.close()


def _user_hash(user: str) -> str:
    """Return a digest of a user, so that the channel does not carry names."""
    return blake2b(user.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
