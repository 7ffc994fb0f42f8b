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

_all: list[_lru_cache_wrapper[Any]] = []


def at_hand(most: int) -> Callable[[Callable[..., T]], _lru_cache_wrapper[T]]:
    """Keep what a function gave for the `most` arguments used last, until it is let go of."""

    def keep(function: Callable[..., T]) -> _lru_cache_wrapper[T]:
        kept = lru_cache(maxsize=most)(function)
        _all.append(kept)
        return kept

    return keep


def let_go() -> int:
    """Forget all that is at hand in this process; gives how many entries that were."""
    count = sum(kept.cache_info().currsize for kept in _all)
    for kept in _all:
        kept.cache_clear()
    return count
