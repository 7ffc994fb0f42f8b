"""A bar on the last line of the terminal while something long is under way."""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType
from typing import Self

_REDRAW_INTERVAL_S = 0.1

# Sooner than this the rest is anyone's guess.
_MIN_ESTIMATE_S = 1.0

_MAX_BAR_WIDTH, _MIN_BAR_WIDTH = 30, 8


class Progress:
    """Tells on stderr how far it is, if that is a terminal; leaves no trace when it is done.

    With a `total` as a bar, with the share, the time it took and an estimate of the rest; without one as a count.
    """

    def __init__(self, label: str, *, total: int | None = None) -> None:
        self._label = label
        self._total = total
        self._started_at = time.monotonic()
        self._drawn_at = 0.0
        self._is_terminal = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __call__(self, done: int) -> None:
        """So many are done."""
        now = time.monotonic()
        if not self._is_terminal or now - self._drawn_at < _REDRAW_INTERVAL_S:
            return
        self._drawn_at = now
        text = format_progress(
            self._label, done, total=self._total, elapsed_s=now - self._started_at, columns=_terminal_columns()
        )
        sys.stderr.write(f"\r{text}\x1b[K")
        sys.stderr.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn_at:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def format_progress(label: str, done: int, *, total: int | None, elapsed_s: float, columns: int) -> str:
    """What there is to tell, in fewer than `columns`: a line that wraps could not be wiped away."""
    elapsed = format_duration(elapsed_s)
    if not total or done > total:
        # More than was thought there would be: how much more nobody knows.
        return f"{label} {done:,}  {elapsed}"[: columns - 1]
    remaining = (
        f", about {format_duration(elapsed_s * (total - done) / done)} left"
        if done and elapsed_s >= _MIN_ESTIMATE_S
        else ""
    )
    before, after = f"{label} ", f"{done:,} of {total:,}  {100 * done // total} %  {elapsed}{remaining}"
    # Room for the longest that may follow is kept from the start, so that the bar does not shrink while it fills.
    longest = f"[] {total:,} of {total:,}  100 %  {elapsed}, about 00:00 left"
    bar_width = min(_MAX_BAR_WIDTH, columns - 1 - len(before) - len(longest))
    if bar_width >= _MIN_BAR_WIDTH:
        filled = bar_width * done // total
        before += f"[{'#' * filled}{'.' * (bar_width - filled)}] "
    return (before + after)[: columns - 1]


def format_duration(seconds: float) -> str:
    """Minutes and seconds, and hours where there are any: 0:07, 12:30, 1:02:03."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def _terminal_columns() -> int:
    try:
        # A terminal that does not know its width says 0.
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
