"""OpenTelemetry spans: the steps of both flows with counts, without content."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from recollect.observability.tracing import span, start_tracing, stop_tracing
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.remember_samples import ALEX, BIKE_MESSAGE, opened, say


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    start_tracing()
    yield exporter
    stop_tracing()
    provider.shutdown()


def named(exporter: InMemorySpanExporter, name: str) -> ReadableSpan:
    [results] = [each for each in exporter.get_finished_spans() if each.name == f"recollect.{name}"]
    return results


def children(exporter: InMemorySpanExporter, parent: ReadableSpan) -> list[str]:
    """Return the steps of a flow in order."""
    assert parent.context is not None
    id = parent.context.span_id
    results = [
        each for each in exporter.get_finished_spans() if each.parent is not None and each.parent.span_id == id
    ]
    return [each.name.removeprefix("recollect.") for each in sorted(results, key=lambda each: each.start_time or 0)]


def test_the_steps_of_both_flows_are_spans_with_counts_and_no_content(
    tmp_path: Path, spans: InMemorySpanExporter, llm: ScriptedLLM
) -> None:
    with opened(tmp_path, llm) as memory:
        say(memory, BIKE_MESSAGE)
        memory.add("My bike is fast", user_id=ALEX)
        memory.recall("What bike do I have?", user_id=ALEX)
        memory.search("bike", user_id=ALEX)
    assert children(spans, named(spans, "remember")) == ["listen", "embed", "append"]
    assert children(spans, named(spans, "learn")) == ["extract", "reconcile", "apply"]
    recalled = named(spans, "recall")
    steps = children(spans, recalled)
    assert steps[:2] == ["decide", "rewrite"]
    assert {"embed", "gather", "fuse", "rerank", "rank", "select", "format", "inject"} <= set(steps)
    assert recalled.attributes is not None
    assert recalled.attributes["outcome"] == "used"
    assert recalled.attributes["hits"] == recalled.attributes["used"]
    assert named(spans, "search").attributes is not None
    text = " ".join(each.to_json() for each in spans.get_finished_spans())
    assert not any(word in text for word in ("bike", "Cargo", ALEX, "monday"))


def test_an_error_sets_the_status_of_its_span_without_its_message(spans: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match="heron"), span("recollect.remember"):
        raise ValueError("the locker is heron-77")
    failed = named(spans, "remember")
    assert failed.status.description == "ValueError"
    assert "heron" not in failed.to_json()


def test_opentelemetry_is_imported_only_if_enabled() -> None:
    code = (
        "import sys, tempfile; from recollect import Memory\n"
        "with Memory(home=tempfile.mkdtemp()) as memory:\n"
        "    memory.add('tea', user_id='a'); memory.recall('tea?', user_id='a')\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_traces_go_to_the_provider_of_the_program_or_to_an_address() -> None:
    try:
        for address in ("", "http://127.0.0.1:9/v1/traces"):
            start_tracing(address)
            with span("recollect.recall") as current:
                assert current.is_recording
    finally:
        stop_tracing()
    with span("recollect.recall") as none:
        assert not none.is_recording


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from recollect.errors import MissingExtra

    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingExtra, match=r"pip install 'recollect\[otel\]'"):
        start_tracing()
