"""How many are at work with something, so that it is not closed under their hands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class UseCount:
    """Counts those who are at work; it belongs to one event loop."""

    def __init__(self) -> None:
        self._count = 0

    def __bool__(self) -> bool:
        return self._count > 0

    @contextmanager
    def track(self) -> Iterator[None]:
        """One more is at work until this ends."""
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
