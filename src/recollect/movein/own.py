"""Our own export: lines as they are, with their ids, states and times."""

from __future__ import annotations

from collections.abc import Iterator

from recollect.movein.item import Item, Left, Line
from recollect.movein.source import Source


def recognise(source: Source) -> str:
    """By lines that have a memory with a user, or say that they are an export."""
    for name in source.names if len(source.names) == 1 else source.ending(".jsonl"):
        line = source.head(name).lstrip().partition(b"\n")[0]
        if line.startswith(b"{") and b'"memory"' in line:
            return f"{name} has lines with a memory each"
    return ""


def read(source: Source) -> Iterator[Item]:
    """Every line."""
    for name in source.names if len(source.names) == 1 else source.ending(".jsonl"):
        for number, told in source.json_lines(name):
            yield told if isinstance(told, Left) else Line(told, f"{name}, line {number}")
