"""Files among the tombstones that are none any more: their memories are back, and lie elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from recollect.mirror.adding import IngestContext, IngestReport
from recollect.mirror.decide import ScannedFile
from recollect.mirror.folder import FileStamp
from recollect.mirror.layout import is_gone
from recollect.model.memory import MemoryRecord
from recollect.model.scope import Scope

_MAX_HISTORY = 1000


async def clear_tombstones(
    user: str, files: Iterable[ScannedFile], report: IngestReport, *, context: IngestContext
) -> None:
    """Remove the tombstones of memories that have a file elsewhere, if all they say is known to history.

    We leave one behind if we are stopped between writing it and removing the file that a person edits just then, and
    a person does who puts a copy back.
    """
    by_id = {file.document.id: file for file in files if file.document.id is not None}
    records = await context.ledger.get(Scope(user), list(by_id)) if by_id else []
    for record in records:
        file = by_id[record.id]
        if not is_gone(record) and await _is_in_history(record, file.document.line["memory"], context=context):
            await asyncio.to_thread(_remove_tombstone, file, report, context=context)


async def _is_in_history(record: MemoryRecord, content: str, *, context: IngestContext) -> bool:
    lines = await context.ledger.history(Scope(record.scope.user), memory_id=record.id, limit=_MAX_HISTORY)
    contents = [record.content, *((line.before or {}).get("content", "") for line in lines)]
    return any(content == each.strip() for each in contents)


def _remove_tombstone(file: ScannedFile, report: IngestReport, *, context: IngestContext) -> None:
    row = context.state.row(file.user, file.document.id or "")
    if row is None or row.path == file.path or context.folder.stamp(row.path) is None:
        return
    if context.folder.remove(file.path, expected=FileStamp(file.stamp)):
        context.folder.remove_empty(file.path)
        context.folder.sync()
        report.writes.removed.append(file.path)
