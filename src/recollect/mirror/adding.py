"""Files that no memory stands behind yet: they are imported, many at a time, and keep their ids where they can."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recollect.errors import InvalidInput, RecollectError, Unavailable
from recollect.ledger.protocol import Ledger
from recollect.mirror.aside import leave_aside
from recollect.mirror.decide import Seen
from recollect.mirror.folder import Folder
from recollect.mirror.layout import SUMMARY, role_of
from recollect.mirror.outgoing import Put, Writer
from recollect.mirror.page import page_of
from recollect.mirror.state import Row, State
from recollect.model.change import By
from recollect.model.effect import Note
from recollect.model.ids import new_id
from recollect.model.memory import MemoryRecord
from recollect.model.scope import Scope
from recollect.service import Service
from recollect.upkeep.transfer import read_line

_log = logging.getLogger("recollect")


@dataclass(slots=True)
class Taken:
    """What files came to: how many memories are otherwise now, what was written, and which paths to try again."""

    added: int = 0
    edited: int = 0
    forgotten: int = 0
    restored: int = 0
    conflicts: int = 0
    bad: int = 0
    put: Put = field(default_factory=Put)
    # Files that were taken in, wherever a person put them.
    paths: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    users: set[str] = field(default_factory=set)

    def add(self, other: Taken) -> None:
        """Take in what more files came to."""
        for name in ("added", "edited", "forgotten", "restored", "conflicts", "bad"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.put.add(other.put)
        self.paths += other.paths
        self.again += other.again
        self.users |= other.users


@dataclass(frozen=True, slots=True)
class Desk:
    """What is used to take files in: the folder and what was seen of it, and where they go."""

    folder: Folder
    state: State
    writer: Writer
    service: Service
    ledger: Ledger

    async def leave_aside(self, seen: Seen, reason: str, taken: Taken) -> None:
        """Note that a file cannot be used."""
        await asyncio.to_thread(leave_aside, seen.path, reason, stamp=seen.stamp, state=self.state)
        taken.bad += 1

    async def write(self, user: str, records: Sequence[MemoryRecord], taken: Taken, *, again: bool = False) -> None:
        """Bring files to what the ledger says."""
        put = await asyncio.to_thread(self.writer.put, user, records, again=again)
        taken.put.add(put)
        taken.again += put.disturbed

    async def sum_up(self, record: MemoryRecord, *, by: By) -> None:
        """Have a conversation itself go on from the summary that a person wrote."""
        note = Note(record.scope, {"summary": record.content})
        await self.ledger.apply(record.scope, [], by=by, effects=[note])


async def add(user: str, new: Sequence[tuple[Seen, bool]], taken: Taken, *, desk: Desk, by: By) -> None:
    """Add the memories that files stand for; with True, under another id than the one a file names."""
    files: dict[str, Seen] = {}
    records: list[MemoryRecord] = []
    for seen, another in new:
        line: dict[str, Any] = dict(seen.page.line)
        if another or "id" not in line:
            line |= {"id": new_id(), "version": 1}
        try:
            record = read_line(line, user=user)
        except InvalidInput as error:
            await desk.leave_aside(seen, str(error), taken)
            continue
        files[record.id] = seen
        records.append(record)
    try:
        await _import(user, sorted(records, key=_said_first), files, taken, desk=desk, by=by)
    except Unavailable as error:
        _log.warning("mirror: %d files are taken in later: %s", len(files), error)
        taken.again += [seen.path for seen in files.values()]


async def _import(
    user: str, records: Sequence[MemoryRecord], files: Mapping[str, Seen], taken: Taken, *, desk: Desk, by: By
) -> None:
    try:
        await desk.service.moving.import_records(records, by=by)
    except Unavailable:
        raise
    except RecollectError as error:
        if len(records) == 1:
            await desk.leave_aside(files[records[0].id], str(error), taken)
            return
        # One of them keeps the others out: each for itself.
        for record in records:
            await _import(user, [record], files, taken, desk=desk, by=by)
        return
    kept = {record.id: record for record in await desk.ledger.get(Scope(user), [record.id for record in records])}
    for record in records:
        if record.id not in kept:
            reason = "another memory says the same there, or holds its key"
            await desk.leave_aside(files[record.id], reason, taken)
    await _know([(files[id], record) for id, record in kept.items()], taken, desk=desk, by=by)
    for scope in {record.scope for record in kept.values()}:
        await desk.service.care.keep_within_quotas(scope)


async def _know(added: Sequence[tuple[Seen, MemoryRecord]], taken: Taken, *, desk: Desk, by: By) -> None:
    rows = [
        Row(
            path=seen.path,
            user=seen.user,
            id=record.id,
            version=record.version,
            digest=seen.digest,
            stamp=seen.stamp,
            is_gone=seen.spot.is_tombstone,
        )
        for seen, record in added
    ]
    await asyncio.to_thread(desk.state.put, rows)
    taken.added += len(added)
    taken.paths += [row.path for row in rows]
    for seen, record in added:
        if role_of(record) == SUMMARY and not seen.spot.is_tombstone:
            await desk.sum_up(record, by=by)
        if not seen.has_all_of(page_of(record)):
            await desk.write(seen.user, [record], taken, again=True)


def _said_first(record: MemoryRecord) -> tuple[Any, ...]:
    """Turns in the order they were said, whatever else there is among them."""
    # A question and its answer may have been written down in the same moment.
    is_answer = record.detail.get("role") == "assistant"
    return record.created_at, record.detail.get("position") or 0, is_answer, record.id
