"""Metrics of several processes in the Prometheus text format; each process writes its own to a file every second.

A counter must not fall when a process ends, so its counts stay in the sum; its gauges are dropped.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from recollect.observability.metrics import Cells, Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_WRITE_INTERVAL_S = 1.0


class MetricsFolder:
    """A folder in which the processes of a server share their metrics."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own = folder / f"{os.getpid()}.json"
        self._last_text = ""

    def start(self) -> None:
        """Write this process's metrics every second until it ends."""
        threading.Thread(target=self._write_periodically, name="recollect-numbers", daemon=True).start()

    def _write_periodically(self) -> None:
        pause = threading.Event()
        while True:
            try:
                self.write()
            except OSError:
                # The supervisor removed the folder: the server is stopping.
                return
            pause.wait(_WRITE_INTERVAL_S)

    def write(self) -> None:
        """Write this process's metrics now, if they have changed."""
        text = json.dumps({name: list(metric.cells.items()) for name, metric in Metric.all.items() if metric.cells})
        if text != self._last_text:
            draft = self._own.with_suffix(".new")
            draft.write_text(text, encoding="utf-8")
            draft.replace(self._own)
            self._last_text = text

    def read_peers(self) -> Iterator[tuple[bool, Mapping[str, Cells]]]:
        """Yield whether each other process is alive, and its metrics."""
        for path in self._folder.glob("*.json"):
            if path != self._own:
                values = json.loads(path.read_text(encoding="utf-8"))
                cells = {name: {tuple(labels): cell for labels, cell in pairs} for name, pairs in values.items()}
                yield _is_alive(int(path.stem)), cells


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


_folders: list[MetricsFolder] = []


def share_metrics(folder: Path) -> None:
    """Share the metrics of this process with the others of the server."""
    metrics_folder = MetricsFolder(folder)
    _folders[:] = [metrics_folder]
    metrics_folder.start()


def collect_metrics(folders: Sequence[MetricsFolder] = _folders) -> dict[str, Cells]:
    """Return the values of all metrics, combined over the processes of this server."""
    totals = {
        name: {labels: list(cell) for labels, cell in list(metric.cells.items())}
        for name, metric in Metric.all.items()
    }
    for metrics_folder in folders:
        for is_alive, values in metrics_folder.read_peers():
            for name, cells in values.items():
                metric = Metric.all.get(name)
                if metric is not None and (is_alive or metric.kind != "gauge"):
                    _add_cells(metric, totals[name], cells)
    return totals


def _add_cells(metric: Metric, into: Cells, cells: Cells) -> None:
    for labels, cell in cells.items():
        total = into.setdefault(labels, metric.new_cell())
        if metric.aggregation == "max":
            total[0] = max(total[0], cell[0])
        else:
            total[:] = [one + other for one, other in zip(total, cell, strict=True)]


def render_metrics(values: Mapping[str, Cells]) -> str:
    return "".join(line for metric in Metric.all.values() for line in _lines(metric, values.get(metric.name, {})))


def _lines(metric: Metric, cells: Cells) -> Iterator[str]:
    yield f"# HELP {metric.name} {_escape(metric.help)}\n# TYPE {metric.name} {metric.kind}\n"
    # A metric without labels that was never updated is 0; the values of labels are not known in advance.
    samples = cells or ({} if metric.labels else {(): metric.new_cell()})
    for values, cell in sorted(samples.items()):
        pairs = [f'{name}="{_escape(value, quotes=True)}"' for name, value in zip(metric.labels, values, strict=True)]
        if metric.kind != "histogram":
            yield _sample(metric.name, pairs, cell[0])
            continue
        count = 0.0
        for bound, bucket in zip((*map(repr, metric.bounds), "+Inf"), cell, strict=False):
            count += bucket
            within = f'le="{bound}"'
            yield _sample(f"{metric.name}_bucket", [*pairs, within], count)
        yield _sample(f"{metric.name}_sum", pairs, cell[-1])
        yield _sample(f"{metric.name}_count", pairs, count)


def _sample(name: str, pairs: list[str], value: float) -> str:
    labels = "{" + ",".join(pairs) + "}" if pairs else ""
    return f"{name}{labels} {int(value) if value == int(value) else value!r}\n"


def _escape(text: str, *, quotes: bool = False) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return escaped.replace('"', '\\"') if quotes else escaped
