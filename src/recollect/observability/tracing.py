"""Spans of OpenTelemetry for both flows, where they are wanted: their steps and counts, never what was said."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from recollect.errors import MissingExtra

Attributes: TypeAlias = Mapping[str, str | int | float | bool]

# opentelemetry's Tracer, which is imported only where traces are wanted.
_tracers: list[Any] = []


class Span:
    """One flow under way; told of its steps and counts when they are known."""

    __slots__ = ("_begun_ns", "_span", "_tracer")

    def __init__(self, tracer: Any = None, span: Any = None) -> None:
        self._tracer = tracer
        self._span = span
        self._begun_ns = time.time_ns() if span is not None else 0

    @property
    def is_recording(self) -> bool:
        """Whether anyone will look at it."""
        return self._span is not None

    def set_attributes(self, attributes: Attributes) -> None:
        """These are its counts."""
        if self._span is not None:
            self._span.set_attributes(dict(attributes))

    def add_steps(self, microseconds: Mapping[str, float]) -> None:
        """These were its steps, one after the other, and so long each took."""
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
    """A span around what is done in here; an error marks it, by its kind alone."""
    if not _tracers:
        yield _NONE
        return
    tracer = _tracers[0]
    # Its own way of recording an error would tell the message, which may quote what was said.
    with tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False) as current:
        try:
            yield Span(tracer, current)
        except Exception as error:
            from opentelemetry.trace import StatusCode

            current.set_status(StatusCode.ERROR, type(error).__name__)
            raise


def start_tracing(url: str = "") -> None:
    """Make spans from now on: sent over OTLP to that address, or to whatever this program has set up for them."""
    try:
        from opentelemetry import trace

        provider = _otlp_provider(url) if url else trace.get_tracer_provider()
    except ImportError:
        raise MissingExtra("tracing", "otel") from None
    _tracers[:] = [provider.get_tracer("recollect")]


def stop_tracing() -> None:
    """Make no more spans."""
    _tracers.clear()


def _otlp_provider(url: str) -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # What is left is sent when the process ends.
    provider = TracerProvider(resource=Resource.create({"service.name": "recollect"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url)))
    return provider
