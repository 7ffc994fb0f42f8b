"""Counters, gauges and histograms that cost next to nothing to move; whoever looks at them pays.

A recall moves a dozen of them. A library that locks each would cost a recall more than its own arithmetic, so these
are plain cells in dictionaries. Under the interpreter's lock an addition to a cell is not interrupted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, TypeVar

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Labels: TypeAlias = tuple[str, ...]
# A counter's or a gauge's value; a histogram's counts for each bound, the count beyond the last, and the sum.
Cells: TypeAlias = dict[Labels, list[float]]

# What is not bounded by its own nature must not fill the memory of whoever collects it.
_MAX_LABEL_SETS = 1000
_OTHER = "other"
_disabled: ContextVar[bool] = ContextVar("recollect_quiet", default=False)
SECONDS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


@contextmanager
def metrics_disabled() -> Iterator[None]:
    """What is done in here, and in tasks that begin in here, is not counted: it is done for nobody."""
    before = _disabled.set(True)
    try:
        yield
    finally:
        _disabled.reset(before)


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that is watched: what it is called, what it means, and what tells its cells apart."""

    name: str
    help: str
    labels: Labels
    kind: Kind
    # How the gauges of several processes become one.
    aggregation: Literal["sum", "max"]
    bounds: tuple[float, ...]
    cells: Cells

    all: ClassVar[dict[str, Metric]] = {}

    def _cell(self, labels: Labels) -> list[float]:
        cell = self.cells.get(labels)
        if cell is None:
            if len(labels) != len(self.labels):
                raise ValueError(f"{self.name} is told apart by {self.labels}, not by {len(labels)} values")
            if len(self.cells) >= _MAX_LABEL_SETS:
                labels = (_OTHER,) * len(labels)
            cell = self.cells.setdefault(labels, [0.0] * (len(self.bounds) + 2 if self.bounds else 1))
        return cell


class Counter(Metric):
    """Only ever grows while a process lives."""

    __slots__ = ()

    def add(self, *labels: str, by: float = 1.0) -> None:
        """So much more of it."""
        if not _disabled.get():
            cell = self.cells.get(labels) or self._cell(labels)
            cell[0] += by


class Gauge(Metric):
    """Goes up and down."""

    __slots__ = ()

    def set(self, value: float, *labels: str) -> None:
        """This is what it is now."""
        if not _disabled.get():
            self._cell(labels)[0] = value


class Histogram(Metric):
    """How often something took how long, in seconds."""

    __slots__ = ()

    def observe(self, seconds: float, *labels: str) -> None:
        """It took so long this time."""
        if not _disabled.get():
            cell = self.cells.get(labels) or self._cell(labels)
            at = bisect_left(self.bounds, seconds)
            cell[at] += 1
            cell[-1] += seconds

    def observe_each(self, microseconds: Mapping[str, float]) -> None:
        """Each of several things took so long; for one label."""
        if not _disabled.get():
            cells, bounds = self.cells, self.bounds
            for label, took in microseconds.items():
                cell = cells.get((label,)) or self._cell((label,))
                seconds = took * 1e-6
                at = bisect_left(bounds, seconds)
                cell[at] += 1
                cell[-1] += seconds


def counter(name: str, help: str, *labels: str) -> Counter:
    """Declare a counter; its name ends with _total."""
    return _register(Counter(name, help, labels, "counter", "sum", (), {}))


def gauge(name: str, help: str, *labels: str, aggregation: Literal["sum", "max"] = "max") -> Gauge:
    """Declare a gauge."""
    return _register(Gauge(name, help, labels, "gauge", aggregation, (), {}))


def histogram(name: str, help: str, *labels: str, bounds: Sequence[float] = SECONDS) -> Histogram:
    """Declare a histogram; its name ends with _seconds."""
    return _register(Histogram(name, help, labels, "histogram", "sum", tuple(bounds), {}))


_N = TypeVar("_N", bound=Metric)


def _register(metric: _N) -> _N:
    if metric.name in Metric.all:
        raise ValueError(f"{metric.name} is declared twice")
    Metric.all[metric.name] = metric
    return metric
