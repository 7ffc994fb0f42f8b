"""News of changes: whoever follows a user's memories is woken, in this process at once, in others through a wire:
Redis or, where there is none, the PostgreSQL that all of them keep the ledger in.

News says that something changed, never what: that is read from the ledger. So news that is lost costs time, no truth.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

from recollect.errors import Unavailable

if TYPE_CHECKING:
    from recollect.cache.redis_client import RedisClient


_log = logging.getLogger("recollect")
_RETRY_S = 1.0


class ChangeNotifier:
    """Wakes who waits for a user's next change."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._subscribers: list[Callable[[str], None]] = []

    def subscribe(self, callback: Callable[[str], None]) -> None:
        """Have every change of this process told, with its user, from now on."""
        self._subscribers.append(callback)

    @property
    def is_shared(self) -> bool:
        """Whether what other processes change is heard of, too."""
        return False

    def notify(self, user: str) -> None:
        """Something of this user's has changed."""
        self._wake(_user_hash(user))
        for callback in self._subscribers:
            callback(user)

    async def wait(self, user: str, within_s: float) -> None:
        """Return as soon as something changes, or after so long."""
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
        """Tell what is left to tell."""


class PubSub(Protocol):
    """What leads to the other processes."""

    async def publish(self, text: str) -> None:
        """Tell all who listen; an Unavailable if that cannot be done now."""
        ...

    def listen(self) -> AsyncIterator[str]:
        """What is told, and a first empty text once it is heard; an Unavailable when it ends."""
        ...

    async def close(self) -> None: ...


class RedisPubSub:
    """A channel of a Redis."""

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
    """The same for all processes at the ends of a wire; while that is cut, for this one alone.

    With a pace, what comes within as many seconds is told together.
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
            # Only who follows something hears the others' news.
            self._listen_task = asyncio.get_running_loop().create_task(self._listen())
        await super().wait(user, within_s)

    async def _publish_changes(self) -> None:
        try:
            while self._unpublished:
                names, self._unpublished = self._unpublished, set()
                await self._publish(names)
                if self._min_interval_s:
                    await asyncio.sleep(self._min_interval_s)
        finally:
            self._publish_task = None

    async def _publish(self, names: Iterable[str]) -> None:
        try:
            await self._pubsub.publish(" ".join(names))
        except Unavailable:
            # They look into the ledger now and then by themselves.
            _log.debug("a change was not told to other processes")

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
    """A user as others may hear of them."""
    return blake2b(user.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
