"""A counter on the last line of the terminal while something long is under way."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

_EVERY_S = 0.1


class Progress:
    """Tells on stderr how far it is, if that is a terminal; leaves no trace when it is done."""

    def __init__(self, doing: str, *, total: int | None = None) -> None:
        self._doing = doing
        self._total = total
        self._shown_at = 0.0
        self._on_terminal = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __call__(self, done: int) -> None:
        """So many are done."""
        now = time.monotonic()
        if not self._on_terminal or now - self._shown_at < _EVERY_S:
            return
        self._shown_at = now
        of = f" of {self._total:,}" if self._total and self._total >= done else ""
        sys.stderr.write(f"\r{self._doing} {done:,}{of}\x1b[K")
        sys.stderr.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown_at:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
