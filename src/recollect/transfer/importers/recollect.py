"""Our own export: lines as they are, with their ids, states and times."""

from __future__ import annotations

from collections.abc import Iterator

from recollect.transfer.importers.items import ExportLine, SkippedItem, SourceItem
from recollect.transfer.importers.source import ImportSource


def recognise(source: ImportSource) -> str:
    """By lines that have a memory with a user, or say that they are an export."""
    for name in source.names if len(source.names) == 1 else source.files_ending(".jsonl"):
        line = source.head(name).lstrip().partition(b"\n")[0]
        if line.startswith(b"{") and b'"memory"' in line:
            return f"{name} has lines with a memory each"
    return ""


def read(source: ImportSource) -> Iterator[SourceItem]:
    """Every line."""
    for name in source.names if len(source.names) == 1 else source.files_ending(".jsonl"):
        for number, data in source.json_lines(name):
            yield data if isinstance(data, SkippedItem) else ExportLine(data, f"{name}, line {number}")
