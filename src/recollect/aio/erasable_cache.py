"""What functions keep at hand of people's words, since to work it out again costs; an erasure lets go of it.

A plain `lru_cache` has no idea that what it holds was erased. Whatever is handed words or names of people's is kept
by `at_hand` instead, and an erasure empties all of it: of an entry only the words are known, not whose they are.
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
    """Keep what a function gave for the `most` arguments used last, until it is let go of."""

    def keep(function: Callable[..., T]) -> _lru_cache_wrapper[T]:
        cached = lru_cache(maxsize=max_entries)(function)
        _caches.append(cached)
        return cached

    return keep


def clear_all() -> int:
    """Forget all that is at hand in this process; gives how many entries that were."""
    count = sum(cached.cache_info().currsize for cached in _caches)
    for cached in _caches:
        cached.cache_clear()
    return count
