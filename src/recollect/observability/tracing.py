"""OpenTelemetry spans of recall and remember, the request id of log lines, and errors without content."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import PurePath
from typing import Any, TypeAlias

from recollect.errors import MissingExtra

Attributes: TypeAlias = Mapping[str, str | int | float | bool]
# The Tracer of opentelemetry, which is imported only if traces are enabled.
_tracers: list[Any] = []


class Span:
    """The span of a running flow, or of none."""

    __slots__ = ("_begun_ns", "_span", "_tracer")

    def __init__(self, tracer: Any = None, span: Any = None) -> None:
        self._tracer = tracer
        self._span = span
        self._begun_ns = time.time_ns() if span is not None else 0

    @property
    def is_recording(self) -> bool:
        return self._span is not None

    def set_attributes(self, attributes: Attributes) -> None:
        """Set the counts of the flow."""
        if self._span is not None:
            self._span.set_attributes(dict(attributes))

    def add_steps(self, microseconds: Mapping[str, float]) -> None:
        """Add consecutive child spans with these durations."""
        if self._span is None:
            return
        at = self._begun_ns
        for step, took in microseconds.items():
            child = self._tracer.start_span(f"recollect.{step}", start_time=at)
            at += int(took * 1000)
            child.end(end_time=at)


_NONE = Span()


@contextmanager
def span(name: str) -> Iterator[Span]:
    """Open a span; an error sets its status to the class of the error."""
    if not _tracers:
        yield _NONE
        return
    tracer = _tracers[0]
    # The recorded exception would have its message, which may quote content.
    with tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False) as current:
        try:
            yield Span(tracer, current)
        except Exception as error:
            from opentelemetry.trace import StatusCode

            current.set_status(StatusCode.ERROR, type(error).__name__)
            raise


def start_tracing(url: str = "") -> None:
    """Create spans from now on: sent over OTLP to the address, or to the tracer provider of the program."""
    try:
        from opentelemetry import trace

        provider = _otlp_provider(url) if url else trace.get_tracer_provider()
    except ImportError:
        raise MissingExtra("tracing", "otel") from None
    _tracers[:] = [provider.get_tracer("recollect")]


def stop_tracing() -> None:
    """Stop creating spans."""
    _tracers.clear()


def _otlp_provider(url: str) -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # Flushed when the process ends.
    provider = TracerProvider(resource=Resource.create({"service.name": "recollect"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url)))
    return provider


request_id: ContextVar[str] = ContextVar("recollect_request_id", default="")


def describe_error(error: BaseException) -> str:
    """Return the class and place of an error, such as "KeyError in embed.py, line 28"."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {PurePath(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"


def format_traceback(error: BaseException) -> str:
    """Return the traceback of an error without its message, which may quote content."""
    return f"Traceback:\n{''.join(traceback.format_tb(error.__traceback__))}{type(error).__name__}"
