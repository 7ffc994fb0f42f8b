"""The metrics, each declared once, and their types. No label has a user, an id or content.

A recall updates a dozen of them. A library that locks each of them would cost a recall more than its own arithmetic,
so the values are plain lists in dictionaries: under the interpreter's lock an addition is not interrupted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import ClassVar, Literal, TypeAlias

from recollect.frozen_dataclass import frozen_dataclass

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Labels: TypeAlias = tuple[str, ...]

# The value of a counter or gauge; for a histogram the counts of each bucket, the count above the last, and the sum.
Cells: TypeAlias = dict[Labels, list[float]]

# Limits the memory of labels with many values.
_MAX_LABEL_SETS = 1000
_OTHER = "other"
_disabled: ContextVar[bool] = ContextVar("recollect_quiet", default=False)
SECONDS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


@contextmanager
def metrics_disabled() -> Iterator[None]:
    """Do not count what happens in this block, and in tasks that it starts."""
    before = _disabled.set(True)
    try:
        yield
    finally:
        _disabled.reset(before)


@frozen_dataclass
class Metric:
    """A metric with its name, help text, labels and values; metrics register themselves in `Metric.all`."""

    name: str
    help: str
    labels: Labels
    kind: Kind
    # How the values of several processes are combined.
    aggregation: Literal["sum", "max"] = "sum"
    bounds: tuple[float, ...] = ()
    cells: Cells = field(default_factory=dict)

    all: ClassVar[dict[str, Metric]] = {}

    def __post_init__(self) -> None:
        if self.name in Metric.all:
            raise ValueError(f"metric {self.name} is declared twice")
        Metric.all[self.name] = self

    def new_cell(self) -> list[float]:
        """Return the value of a metric that was never updated."""
        return [0.0] * (len(self.bounds) + 2 if self.bounds else 1)

    def _cell(self, labels: Labels) -> list[float]:
        cell = self.cells.get(labels)
        if cell is None:
            if len(labels) != len(self.labels):
                raise ValueError(f"{self.name} has the labels {self.labels}, got {len(labels)} values")
            if len(self.cells) >= _MAX_LABEL_SETS:
                labels = (_OTHER,) * len(labels)
            cell = self.cells.setdefault(labels, self.new_cell())
        return cell


class Counter(Metric):
    """A value that only grows while the process lives."""

    __slots__ = ()

    def add(self, *labels: str, by: float = 1.0) -> None:
        if not _disabled.get():
            cell = self.cells.get(labels) or self._cell(labels)
            cell[0] += by


class Gauge(Metric):
    """A value that goes up and down."""

    __slots__ = ()

    def set(self, value: float, *labels: str) -> None:
        if not _disabled.get():
            self._cell(labels)[0] = value


class Histogram(Metric):
    """The distribution of durations in seconds."""

    __slots__ = ()

    def observe(self, seconds: float, *labels: str) -> None:
        """Record a duration."""
        if not _disabled.get():
            cell = self.cells.get(labels) or self._cell(labels)
            cell[bisect_left(self.bounds, seconds)] += 1
            cell[-1] += seconds

    def observe_each(self, microseconds: Mapping[str, float]) -> None:
        """Record several durations, by the value of the one label."""
        for label, elapsed_us in microseconds.items():
            self.observe(elapsed_us * 1e-6, label)


def counter(name: str, help: str, *labels: str) -> Counter:
    """Declare a counter; its name ends with _total."""
    return Counter(name, help, labels, "counter")


def gauge(name: str, help: str, *labels: str, aggregation: Literal["sum", "max"] = "max") -> Gauge:
    return Gauge(name, help, labels, "gauge", aggregation)


def histogram(name: str, help: str, *labels: str, bounds: Sequence[float] = SECONDS) -> Histogram:
    """Declare a histogram; its name ends with _seconds."""
    return Histogram(name, help, labels, "histogram", bounds=tuple(bounds))


# Learning
EXTRACTIONS = counter("memory_extraction_count_total", "Extractions that were started.")
EXTRACTED = counter("memory_extraction_success_total", "Extractions that succeeded, with or without memories.")
EXTRACTION_ERRORS = counter("memory_extraction_errors_total", "Extractions that failed; most are retried.")
SAVED = counter("memory_saved_count_total", "Memories stored: extracted, or added.", "how")
REMEMBER_SECONDS = histogram("recollect_remember_seconds", "Time until a turn is on disk.")

# Recall
RETRIEVED = counter("memory_retrieved_count_total", "Memories put into prompts.")
RECALLS = counter("recollect_recalls_total", "Recalls, by outcome.", "outcome")
RECALL_SECONDS = histogram("recollect_recall_seconds", "Duration of a recall.")
RECALL_STEP_SECONDS = histogram("recollect_recall_step_seconds", "Duration of each step of a recall.", "step")
SEARCH_SECONDS = histogram("recollect_search_seconds", "Duration of a search.")
CACHE_LOOKUPS = counter("recollect_cache_lookups_total", "Cache lookups: hit, miss or away.", "cache", "result")

# Jobs
JOBS = gauge("recollect_jobs", "Jobs in the ledger, by state.", "state")
JOBS_OLDEST_SECONDS = gauge("recollect_jobs_oldest_due_seconds", "Age of the oldest due job.")
JOB_FAILURES = gauge("recollect_jobs_failures_in_a_row", "Consecutive failures of jobs.")
JOBS_DONE = counter("recollect_jobs_done_total", "Jobs that succeeded.", "kind")
JOBS_FAILED = counter("recollect_jobs_failed_total", "Tries of jobs that failed.", "kind")
JOBS_DEAD = counter("recollect_jobs_dead_total", "Jobs that failed all their tries.", "kind")
JOB_SECONDS = histogram("recollect_job_seconds", "Duration of a job.", "kind")

# Models
LLM_CALLS = counter("recollect_llm_calls_total", "LLM calls, by step and model.", "step", "model")
LLM_TOKENS = counter("recollect_llm_tokens_total", "LLM tokens, by step and model.", "step", "model", "direction")
MODEL_CHANGE = gauge(
    "recollect_model_change_memories", "During a change of the embedding model: memories done, and in total.", "count"
)

# Health
DEGRADED = gauge("recollect_degraded", "1 while a part is degraded, by part.", "part")
BREAKER_OPEN = gauge("recollect_breaker_open", "1 while the circuit breaker of a part is open.", "part")
JOURNAL_SESSIONS = gauge("recollect_journal_sessions", "Sessions with turns that wait on disk.", aggregation="sum")

# Requests
HTTP_REQUESTS = counter("recollect_http_requests_total", "Requests, by route.", "method", "route", "status")
HTTP_SECONDS = histogram("recollect_http_request_seconds", "Duration of a request, to its last byte.", "route")
MCP_CALLS = counter("recollect_mcp_calls_total", "Calls of MCP tools.", "tool", "outcome")
MCP_SECONDS = histogram("recollect_mcp_call_seconds", "Duration of a call of an MCP tool.", "tool")
LIMITED = counter("recollect_rate_limited_total", "Requests and writes rejected by a limit.", "limit")
