"""A cache of what is read of each user, within a budget of bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, Protocol, TypeVar

MAX_CACHE_BYTES = 64 << 20
# What a user costs besides the values; generous, so that many users with few memories are not counted as free.
USER_BYTES = 1024


class _Sized(Protocol):
    @property
    def size(self) -> int: ...


S = TypeVar("S", bound=_Sized)


class PerUserCache(Generic[S]):
    """A value for each of the users searched last, within a budget of bytes; shared by readers in several threads."""

    def __init__(self, max_bytes: int = MAX_CACHE_BYTES, *, min_users: int = 0) -> None:
        self._max_bytes, self._min_users = max_bytes, min_users
        self._bytes = 0
        self._users: OrderedDict[str, S] = OrderedDict()
        self._drops = 0
        self._lock = threading.Lock()

    def _pop(self, user: str) -> S | None:
        value = self._users.pop(user, None)
        self._bytes -= value.size if value is not None else 0
        return value

    def _put(self, user: str, value: S) -> None:
        """Store a value and evict those used longest ago; the caller holds the lock."""
        self._pop(user)
        self._users[user] = value
        self._bytes += value.size
        while self._bytes > self._max_bytes and len(self._users) > self._min_users:
            self._bytes -= self._users.popitem(last=False)[1].size

    def drop(self, user: str) -> S | None:
        """Remove and return the value of a user of whom something was erased."""
        with self._lock:
            self._drops += 1
            return self._pop(user)
