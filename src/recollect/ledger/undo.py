"""What takes back lines of history: worked out against the memories as they are now, before anything is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from recollect.errors import Conflict, NotFound
from recollect.ledger.fields import from_plain
from recollect.ledger.plan import Revert
from recollect.model.change import ChangeKind, HistoryEntry
from recollect.model.memory import MemoryRecord, Status


def undone_line_ids(lines: Sequence[HistoryEntry]) -> set[int]:
    """Which lines of history no longer stand, because a later line that stands took them back."""
    undone: set[int] = set()
    for line in sorted(lines, key=lambda line: -line.id):
        if line.undoes is not None and line.id not in undone:
            undone.add(line.undoes)
    return undone


def plan_reverts(
    entry: HistoryEntry, batch: Sequence[HistoryEntry], records: Mapping[str, MemoryRecord], *, whole: bool = False
) -> list[Revert]:
    """What takes back a line of history, or the `whole` batch it belongs to, as far as that still stands.

    A superseding is always taken back together with what it brought in, and an undo with all it took back.
    """
    lines = list(reversed(batch)) if whole or entry.verb is ChangeKind.UNDO else _related_lines(entry, batch)
    if entry.verb is not ChangeKind.UNDO:
        # What was brought in goes first, so that the old value finds its key free.
        lines.sort(key=lambda line: line.verb is not ChangeKind.ADD)
    current, result = dict(records), []
    for line in lines:
        revert = _revert(line, current)
        current[line.memory_id] = replace(current[line.memory_id], **from_plain(revert.fields))
        result.append(revert)
    return result


def _related_lines(entry: HistoryEntry, batch: Sequence[HistoryEntry]) -> list[HistoryEntry]:
    if entry.verb not in (ChangeKind.ADD, ChangeKind.SUPERSEDE):
        return [entry]
    replacement = entry.after.get("superseded_by") if entry.verb is ChangeKind.SUPERSEDE else entry.memory_id
    return [
        line
        for line in batch
        if line.id == entry.id
        or (line.verb is ChangeKind.ADD and line.memory_id == replacement)
        or (line.verb is ChangeKind.SUPERSEDE and line.after.get("superseded_by") == replacement)
    ]


def _revert(entry: HistoryEntry, records: Mapping[str, MemoryRecord]) -> Revert:
    record = records.get(entry.memory_id)
    if record is None:
        raise NotFound(f"no memory {entry.memory_id}")
    before = {"status": Status.FORGOTTEN} if entry.before is None else entry.before
    for name, value in from_plain(entry.after).items():
        if getattr(record, name) != value:
            raise Conflict(
                f"change {entry.id} cannot be undone: {name} of memory {record.id} was changed again since; "
                f"undo the later change first (see its history)"
            )
    if record.status is Status.REVIEW and before.get("status") == Status.ACTIVE and record.version != entry.version:
        # It was approved as it was then; what it says now nobody has seen.
        raise Conflict(f"memory {record.id} waits for review and was changed since: approve it, or reject it")
    return Revert(entry.memory_id, before, undoes=entry.id)
