"""The numbers as Prometheus reads them: its text format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from recollect.observe.numbers import Cells, Number

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(values: Mapping[str, Cells]) -> str:
    """Every declared number with these values, one sample a line."""
    return "".join(line for number in Number.all.values() for line in _lines(number, values.get(number.name, {})))


def _lines(number: Number, cells: Cells) -> Iterator[str]:
    yield f"# HELP {number.name} {_escaped(number.help)}\n# TYPE {number.name} {number.kind}\n"
    # What never happened is 0, not unknown; where labels tell things apart nobody knows which there could be.
    held = cells or ({} if number.labels else {(): [0.0] * (len(number.bounds) + 2 if number.bounds else 1)})
    for values, cell in sorted(held.items()):
        pairs = [f'{name}="{_quoted(value)}"' for name, value in zip(number.labels, values, strict=True)]
        if number.kind != "histogram":
            yield f"{number.name}{_braced(pairs)} {_told(cell[0])}\n"
            continue
        count = 0.0
        for bound, found in zip((*map(repr, number.bounds), "+Inf"), cell, strict=False):
            count += found
            within = f'le="{bound}"'
            yield f"{number.name}_bucket{_braced([*pairs, within])} {_told(count)}\n"
        yield f"{number.name}_sum{_braced(pairs)} {_told(cell[-1])}\n"
        yield f"{number.name}_count{_braced(pairs)} {_told(count)}\n"


def _braced(pairs: list[str]) -> str:
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _told(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')
