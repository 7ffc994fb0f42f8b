"""The numbers as Prometheus reads them: its text format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from recollect.observe.numbers import Cells, Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render_metrics(values: Mapping[str, Cells]) -> str:
    """Every declared number with these values, one sample a line."""
    return "".join(line for metric in Metric.all.values() for line in _lines(metric, values.get(metric.name, {})))


def _lines(metric: Metric, cells: Cells) -> Iterator[str]:
    yield f"# HELP {metric.name} {_escaped(metric.help)}\n# TYPE {metric.name} {metric.kind}\n"
    # What never happened is 0, not unknown; where labels tell things apart nobody knows which there could be.
    samples = cells or ({} if metric.labels else {(): [0.0] * (len(metric.bounds) + 2 if metric.bounds else 1)})
    for values, cell in sorted(samples.items()):
        pairs = [f'{name}="{_quoted(value)}"' for name, value in zip(metric.labels, values, strict=True)]
        if metric.kind != "histogram":
            yield f"{metric.name}{_braced(pairs)} {_format_value(cell[0])}\n"
            continue
        count = 0.0
        for bound, bucket in zip((*map(repr, metric.bounds), "+Inf"), cell, strict=False):
            count += bucket
            within = f'le="{bound}"'
            yield f"{metric.name}_bucket{_braced([*pairs, within])} {_format_value(count)}\n"
        yield f"{metric.name}_sum{_braced(pairs)} {_format_value(cell[-1])}\n"
        yield f"{metric.name}_count{_braced(pairs)} {_format_value(count)}\n"


def _braced(pairs: list[str]) -> str:
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _format_value(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')
