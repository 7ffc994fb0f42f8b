"""The numbers of several processes as one: each puts its own into a file beside the others' every second.

A counter may not fall when a process ends, so what it had counted stays in the sum; its gauges end with it.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from recollect.observability.metric_types import Cells, Labels, Metric

_WRITE_INTERVAL_S = 1.0


class MetricsFolder:
    """A folder where the processes of one server put their numbers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own = folder / f"{os.getpid()}.json"
        self._last_text = ""

    def start(self) -> None:
        """Put this process's numbers there from now on, until it ends."""
        threading.Thread(target=self._write_periodically, name="recollect-numbers", daemon=True).start()

    def _write_periodically(self) -> None:
        pause = threading.Event()
        while True:
            try:
                self.write()
            except OSError:
                # The folder is gone, and with it whoever looked: the server is being stopped.
                return
            pause.wait(_WRITE_INTERVAL_S)

    def write(self) -> None:
        """Put them there now, if they have changed."""
        text = json.dumps({name: _flat(metric.cells) for name, metric in Metric.all.items() if metric.cells})
        if text != self._last_text:
            draft = self._own.with_suffix(".new")
            draft.write_text(text, encoding="utf-8")
            draft.replace(self._own)
            self._last_text = text

    def read_peers(self) -> Iterator[tuple[bool, Mapping[str, Cells]]]:
        """What each other process put there, and whether it lives."""
        for path in self._folder.glob("*.json"):
            if path != self._own:
                values = json.loads(path.read_text(encoding="utf-8"))
                yield _is_alive(int(path.stem)), {name: _cells(flat) for name, flat in values.items()}


_folders: list[MetricsFolder] = []


def share_metrics(folder: Path) -> None:
    """Have this process's numbers be part of those of a server, which has several."""
    metrics_folder = MetricsFolder(folder)
    _folders[:] = [metrics_folder]
    metrics_folder.start()


def collect_metrics() -> dict[str, Cells]:
    """The values of every number, of all processes of this server."""
    totals = {name: {labels: list(cell) for labels, cell in list(metric.cells.items())}
                for name, metric in Metric.all.items()}  # fmt: skip
    for metrics_folder in _folders:
        for is_alive, values in metrics_folder.read_peers():
            for name, cells in values.items():
                metric = Metric.all.get(name)
                if metric is not None and (is_alive or metric.kind != "gauge"):
                    _add_cells(metric, totals[name], cells)
    return totals


def _add_cells(metric: Metric, into: Cells, cells: Cells) -> None:
    for labels, cell in cells.items():
        total = into.get(labels)
        if total is None:
            into[labels] = cell
        elif metric.aggregation == "max":
            total[0] = max(total[0], cell[0])
        else:
            total[:] = [one + other for one, other in zip(total, cell, strict=True)]


def _flat(cells: Cells) -> list[tuple[Labels, list[float]]]:
    return list(cells.items())


def _cells(flat: list[tuple[list[str], list[float]]]) -> Cells:
    return {tuple(labels): cell for labels, cell in flat}


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


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
