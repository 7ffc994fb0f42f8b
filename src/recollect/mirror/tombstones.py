"""Files among the tombstones that are none any more: their memories are back, and lie elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from recollect.mirror.adding import Desk, Taken
from recollect.mirror.decide import Seen
from recollect.mirror.folder import Stamp
from recollect.mirror.layout import is_gone
from recollect.model.memory import MemoryRecord
from recollect.model.scope import Scope

_MOST_LINES = 1000


async def clear(user: str, found: Iterable[Seen], taken: Taken, *, desk: Desk) -> None:
    """Remove the tombstones of memories that have a file elsewhere, if all they say is known to history.

    We leave one behind if we are stopped between writing it and removing the file that a person edits just then, and
    a person does who puts a copy back.
    """
    by_id = {seen.page.id: seen for seen in found if seen.page.id is not None}
    records = await desk.ledger.get(Scope(user), list(by_id)) if by_id else []
    for record in records:
        seen = by_id[record.id]
        if not is_gone(record) and await _was_said(record, seen.page.line["memory"], desk=desk):
            await asyncio.to_thread(_clear, seen, taken, desk=desk)


async def _was_said(record: MemoryRecord, words: str, *, desk: Desk) -> bool:
    lines = await desk.ledger.history(Scope(record.scope.user), memory_id=record.id, limit=_MOST_LINES)
    said = [record.content, *((line.before or {}).get("content", "") for line in lines)]
    return any(words == each.strip() for each in said)


def _clear(seen: Seen, taken: Taken, *, desk: Desk) -> None:
    row = desk.state.row(seen.user, seen.page.id or "")
    if row is None or row.path == seen.path or desk.folder.stamp(row.path) is None:
        return
    if desk.folder.remove(seen.path, seen=Stamp(seen.stamp)):
        desk.folder.remove_empty(seen.path)
        desk.folder.sync()
        taken.put.removed.append(seen.path)
