"""An LRU cache that erasure can clear.

Functions of people's texts or names use it instead of `lru_cache`. An erasure clears all entries, since an entry does
not tell which user its text came from.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper


T = TypeVar("T")

_caches: list[_lru_cache_wrapper[Any]] = []


def erasable_cache(max_entries: int) -> Callable[[Callable[..., T]], _lru_cache_wrapper[T]]:
    """Return a decorator like `lru_cache(max_entries)` whose cache `clear_all` clears."""

    def decorate(function: Callable[..., T]) -> _lru_cache_wrapper[T]:
        cached = lru_cache(maxsize=max_entries)(function)
        _caches.append(cached)
        return cached

    return decorate


def clear_all() -> int:
    """Clear all caches of this process, and return how many entries they had."""
    count = sum(cached.cache_info().currsize for cached in _caches)
    for cached in _caches:
        cached.cache_clear()
    return count
