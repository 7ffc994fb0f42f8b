"""From the ledger to the files: each change of a memory is one small file written, moved or removed.

The files are made from the ledger here, and how far its history was followed is kept for each user, so that a crash
costs nothing but the last step done again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from recollect.errors import InvalidInput
from recollect.ledger.protocol import Ledger
from recollect.mirror.folder import Disturbed, Folder, Staged, Stamp
from recollect.mirror.layout import (
    ENDING,
    USER_FILE,
    base_of,
    is_gone,
    is_shown,
    path_of,
    spot_of,
    tombstone_of,
)
from recollect.mirror.names import safe_name
from recollect.mirror.notebook import checked_key, lies_under_its_path, place_apart
from recollect.mirror.page import write_page
from recollect.mirror.state import Bad, Followed, Row, State
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.model.times import now

_log = logging.getLogger("recollect")
_PAGE = 500
_MANY = 20


@dataclass(slots=True)
class Put:
    """What became of files: which were written or removed, and which someone else had just changed."""

    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    disturbed: list[str] = field(default_factory=list)

    @property
    def changed(self) -> list[str]:
        """The paths at which something is otherwise now."""
        return [*self.written, *self.removed]

    def add(self, other: Put) -> None:
        """Take in what became of more."""
        self.written += other.written
        self.removed += other.removed
        self.disturbed += other.disturbed


@dataclass(frozen=True, slots=True)
class _Step:
    """A file to write, and what it takes the place of."""

    record: MemoryRecord
    path: str
    data: bytes
    row: Row | None

    @property
    def moves(self) -> bool:
        return self.row is not None and self.row.path != self.path and bool(self.row.stamp)


def digest_of(data: bytes) -> str:
    """What tells two texts apart."""
    return blake2b(data, digest_size=16).hexdigest()


class Writer:
    """Writes memories to their files."""

    def __init__(self, folder: Folder, state: State, *, root_user: str) -> None:
        self._folder, self._state, self._root_user = folder, state, root_user

    def put(self, user: str, records: Iterable[MemoryRecord], *, again: bool = False) -> Put:
        """Bring the files of a user's memories to what the ledger says; with `again`, also where nothing changed."""
        records = list(records)
        done = Put()
        # What goes makes room first: a new file may have the path of one that was deleted.
        for group in ([each for each in records if is_gone(each)], [each for each in records if not is_gone(each)]):
            done.add(self._put(user, group, again=again) if group else Put())
        return done

    def _put(self, user: str, records: Iterable[MemoryRecord], *, again: bool) -> Put:
        done = Put()
        steps = [step for record in records if (step := self._step(user, record, done, again=again)) is not None]
        self._intend(user, steps)
        staged = self._stage(steps)
        rows = []
        for step in steps:
            try:
                rows.append(self._write(user, step, staged.get(step.path)))
            except Disturbed:
                path = step.row.path if step.row is not None and step.row.stamp else step.path
                # What a person wrote there and nobody can use stays until they mend it.
                done.disturbed += [] if self._is_aside(path) else [path]
                continue
            except InvalidInput as error:
                # It is tried again when the mirror next starts.
                _log.warning("mirror: %s is not written: %s", step.path, error)
                self._state.set_bad(Bad(step.path, "", "", f"it cannot be written: {error}", now().isoformat()))
                continue
            done.written.append(step.path)
            if step.moves and step.row is not None:
                done.removed.append(step.row.path)
        for left in staged.values():
            self._folder.unstage(left)
        self._folder.sync()
        self._state.put(rows)
        return done

    def remove(self, rows: Iterable[Row]) -> Put:
        """Remove the files of memories that are not to be shown; what was last seen of them is not forgotten yet."""
        done = Put()
        for row in rows:
            if self._folder.remove(row.path):
                done.removed.append(row.path)
            self._folder.remove_empty(row.path)
        self._folder.sync()
        return done

    def _step(self, user: str, record: MemoryRecord, done: Put, *, again: bool) -> _Step | None:
        row = self._state.row(user, record.id)
        if not is_shown(record):
            if row is not None:
                done.add(self.remove([row]))
                self._state.drop([row])
            return None
        gone = is_gone(record)
        if (
            row is not None
            and row.pending is None
            and not again
            and (row.version, row.is_gone) == (record.version, gone)
        ):
            return None
        path = self._path(user, record, row)
        return _Step(record, path, write_page(record).encode(), row)

    def _path(self, user: str, record: MemoryRecord, row: Row | None) -> str:
        base, gone = base_of(user, self._root_user), is_gone(record)
        if row is not None and row.is_gone == gone and not _is_renamed(record, row):
            return row.path
        is_file = record.category is Category.FILE
        path = tombstone_of(row.path) if row is not None and gone and not is_file else path_of(record, base)
        holder = self._state.at(path)
        if holder is None or (holder.user, holder.id) == (user, record.id):
            return path
        if lies_under_its_path(record):
            return place_apart(path, digest_of(record.id.encode()))
        return f"{path.removesuffix(ENDING)}~{digest_of(record.id.encode())[:16]}{ENDING}"

    def _intend(self, user: str, steps: Sequence[_Step]) -> None:
        new = [
            replace(unwritten(step.path, user, step.record.id), pending=digest_of(step.data))
            for step in steps
            if step.row is None
        ]
        with self._state.together():
            self._state.put(new)
            known = ((user, step.record.id, digest_of(step.data)) for step in steps if step.row is not None)
            self._state.intend(known)

    def _stage(self, steps: Sequence[_Step]) -> dict[str, Staged]:
        """Write many files beside their places, and have all of them on disk by one sync."""
        if len(steps) < _MANY:
            return {}
        staged = {}
        for step in steps:
            # What cannot be staged is told of when it is written by itself.
            with suppress(InvalidInput):
                staged[step.path] = self._folder.stage(step.path, step.data, sync=False)
        self._folder.settle()
        return staged

    def _write(self, user: str, step: _Step, staged: Staged | None) -> Row:
        self._name_folder(user)
        row, digest, gone = step.row, digest_of(step.data), is_gone(step.record)
        if step.moves and row is not None and self._folder.stamp(row.path) not in (row.seen, None):
            raise Disturbed(f"{row.path} was just changed")
        seen = row.seen if row is not None and row.path == step.path else None
        if gone and seen is None:
            # A tombstone is ours alone.
            seen = self._folder.stamp(step.path)
        if seen is None and (found := self._same(step.path, step.data)) is not None:
            stamp = found
        else:
            staged = staged or self._folder.stage(step.path, step.data)
            stamp = self._folder.place(staged, seen=seen).text
        if step.moves and row is not None:
            self._leave(row, step.path, Stamp(stamp))
        return Row(
            path=step.path,
            user=user,
            id=step.record.id,
            version=step.record.version,
            digest=digest,
            stamp=stamp,
            is_gone=gone,
        )

    def _leave(self, row: Row, path: str, stamp: Stamp) -> None:
        """Remove a file that lies at another path now, or what was put there if someone has just changed the old."""
        try:
            self._folder.remove(row.path, seen=row.seen)
        except Disturbed:
            self._folder.remove(path, seen=stamp)
            raise
        self._folder.remove_empty(row.path)

    def _is_aside(self, path: str) -> bool:
        bad, stamp = self._state.bad_at(path), self._folder.stamp(path)
        return bad is not None and bad.stamp == (stamp.text if stamp else "")

    def _same(self, path: str, data: bytes) -> str | None:
        """The stamp of a file that says just that already: it was written before a crash."""
        try:
            held, stamp, _ = self._folder.read(path)
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            return None
        return stamp.text if held == data else None

    def _name_folder(self, user: str) -> None:
        base = base_of(user, self._root_user)
        if base and safe_name(user) != user and self._folder.stamp(base + USER_FILE) is None:
            self._folder.write(base + USER_FILE, user.encode(), seen=None)


async def follow(user: str, *, ledger: Ledger, writer: Writer, state: State) -> Put:
    """Write out what changed of a user since the last time."""
    done = Put()
    revision = await ledger.revision(user)
    followed = await asyncio.to_thread(state.followed, user)
    while (followed.revision, followed.epoch) != (revision.number, revision.epoch):
        lines = await ledger.history(Scope(user), after=followed.position, limit=_PAGE)
        ids = list(dict.fromkeys(line.memory_id for line in lines))
        records = await ledger.get(Scope(user), ids) if ids else []
        done.add(await asyncio.to_thread(writer.put, user, records))
        position = lines[-1].id if lines else followed.position
        at = (revision.number, revision.epoch) if len(lines) < _PAGE else (followed.revision, followed.epoch)
        followed = Followed(position, *at)
        if not done.disturbed:
            # What was disturbed is looked at first, and comes again.
            await asyncio.to_thread(state.follow, user, followed)
    return done


async def follow_anew(
    user: str, *, ledger: Ledger, writer: Writer, state: State, progress: Callable[[int], None]
) -> Put:
    """Write out all of a user's memories that have no file as they are."""
    done, count, cursor = Put(), 0, None
    revision = await ledger.revision(user)
    newest = await ledger.history(Scope(user), limit=1)
    while True:
        listing = Listing(statuses=tuple(Status), order="oldest", limit=_PAGE, cursor=cursor)
        page = await ledger.find(Scope(user), listing)
        done.add(await asyncio.to_thread(writer.put, user, page.records))
        count += len(page.records)
        progress(count)
        cursor = page.cursor
        if cursor is None:
            break
    if not done.disturbed:
        position = newest[0].id if newest else 0
        await asyncio.to_thread(state.follow, user, Followed(position, revision.number, revision.epoch))
    return done


def _is_renamed(record: MemoryRecord, row: Row) -> bool:
    """Whether a model gave its file another path than the one it lies at."""
    spot = spot_of(row.path)
    if spot is None or not spot.key:
        return False
    return not lies_under_its_path(record) or checked_key(spot.key) != record.key


def unwritten(path: str, user: str, id: str) -> Row:
    """The place of a file that is not there."""
    return Row(path=path, user=user, id=id, version=0, digest="", stamp="")
