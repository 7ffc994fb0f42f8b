"""Recollect's own export: lines with their ids, states and times."""

from __future__ import annotations

from collections.abc import Iterator

from recollect.transfer.importers.items import ExportLine, SkippedItem, SourceItem
from recollect.transfer.importers.source import ImportSource


def recognise(source: ImportSource) -> str:
    """Recognise lines with a memory, and an empty export."""
    for name in _files(source):
        line = source.head(name).strip().partition(b"\n")[0]
        if line.startswith(b"{") and b'"memory"' in line:
            return f"{name} has lines with a memory each"
        if not line and name.endswith(".jsonl"):
            return f"{name} is empty"
    return ""


def read(source: ImportSource) -> Iterator[SourceItem]:
    """Yield every line."""
    for name in _files(source):
        for where, data in source.json_lines(name):
            yield data if isinstance(data, SkippedItem) else ExportLine(data, where)


def _files(source: ImportSource) -> list[str]:
    return source.names if len(source.names) == 1 else source.files_ending(".jsonl")
