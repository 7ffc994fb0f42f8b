"""Bring the files, what was last seen of them, and the ledger together.

A file that nobody touched follows the ledger; one that somebody touched wins over it. What the ledger has and the
folder has not is written out; what the folder has and the ledger never had, or lost, is read in.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from recollect.errors import StoreUnavailable
from recollect.ledger.protocol import Ledger, Revision
from recollect.mirror.folder import MirrorFolder
from recollect.mirror.from_files import FileIngester
from recollect.mirror.git import GitRepository
from recollect.mirror.layout import (
    CONFLICTS,
    ENTRIES,
    MEMORIES,
    MEMORY_FOLDERS,
    SNAPSHOT,
    FolderOwners,
    parse_location,
    user_folder,
)
from recollect.mirror.new_files import IngestContext, IngestReport
from recollect.mirror.snapshot import MAX_EAGER_MEMORIES, is_outdated, write_snapshot
from recollect.mirror.state import FileRow, HistoryPosition, MirrorState
from recollect.mirror.to_files import FileWriter, WriteReport, write_changes, write_everything
from recollect.model.erasure import StoreErasure, Target, user_digest
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.service.service import Service

_log = logging.getLogger("recollect")
# The moment by which a ledger is known again.
_LEDGER_MARK = "mirrored"
_PAGE_SIZE = 500
_MAX_ROUNDS = 3
CountCallback = Callable[[int], None]


class LedgerReplaced(StoreUnavailable):
    """The ledger is not the one whose mirror this is."""


@dataclass(slots=True)
class SyncResult:
    """What was done on both sides."""

    ingested: IngestReport = field(default_factory=IngestReport)
    writes: WriteReport = field(default_factory=WriteReport)
    # Whose files were written out.
    written_users: set[str] = field(default_factory=set)
    # Whether all files were compared.
    is_whole: bool = False

    def add(self, other: SyncResult) -> None:
        """Take in what was done besides."""
        self.ingested.add(other.ingested)
        self.writes.add(other.writes)
        self.written_users |= other.written_users
        self.is_whole |= other.is_whole

    @property
    def users(self) -> set[str]:
        """Whose files are otherwise now."""
        return self.written_users | self.ingested.users

    @property
    def written(self) -> list[str]:
        """The paths that we wrote or removed."""
        return [*self.writes.changed, *self.ingested.writes.changed]

    @property
    def changed(self) -> list[str]:
        """The paths at which something is otherwise now, whoever did it."""
        return [*self.ingested.paths, *self.written]


class Synchronizer:
    """The folder that this process mirrors, and the ledger it is a mirror of."""

    def __init__(
        self,
        root: Path,
        state: MirrorState,
        *,
        service: Service,
        ledger: Ledger,
        root_user: str,
        git: GitRepository | None,
    ) -> None:
        self.folder, self.state, self.git = MirrorFolder(root), state, git
        self._ledger, self._root_user = ledger, root_user
        # Where nothing changed since, there is nothing to do.
        self._written_revisions: dict[str, Revision] = {}
        self.writer = FileWriter(self.folder, state, root_user=root_user)
        self._context = IngestContext(self.folder, state, self.writer, service, ledger)
        self._owners = FolderOwners(self.folder, root_user=root_user)
        self._ingester = FileIngester(self._context, self._owners)

    # Start

    async def sync_all(self, progress: CountCallback) -> SyncResult:
        """Compare all of it, and bring it together."""
        done = SyncResult(is_whole=True)
        self._written_revisions.clear()
        mark = await self._ledger_mark()
        is_new = not await self._is_same_ledger(mark)
        if is_new:
            await asyncio.to_thread(self.state.clear_positions)
        stamps_on_disk = await asyncio.to_thread(self._scan)
        await asyncio.to_thread(self._drop_lost_folders)
        stamps = await asyncio.to_thread(self.state.stamps)
        changed_paths = (path for path, stamp in stamps_on_disk.items() if is_new or stamps.get(path) != stamp)
        changed = {path for path in changed_paths if parse_location(path) is not None}
        for user in [] if is_new else await self._users():
            changed |= await self._check_rollback(user, done)
        await self._ingest(
            sorted(changed), await self._missing_rows(stamps.keys() - stamps_on_disk.keys()), done, progress
        )
        if is_new and not done.ingested.retry_paths:
            # Only now: whatever breaks off before is done again.
            await asyncio.to_thread(self.state.set_meta, "ledger", mark)
        users = await self._users()
        await self.write_users(users, done, progress)
        for user in users:
            done.writes.add(await self._write_unwritten(user))
        await asyncio.to_thread(self.state.set_meta, "synced_at", now().isoformat())
        return done

    async def _write_unwritten(self, user: str) -> WriteReport:
        """Try again what could not be written the last time."""
        rows = await asyncio.to_thread(self.state.rows_of_user, user, unwritten=True)
        records = await self._ledger.get(Scope(user), [row.id for row in rows[:_PAGE_SIZE]]) if rows else []
        return await asyncio.to_thread(self.writer.write_records, user, records)

    async def _ledger_mark(self) -> str:
        """What this ledger is known by."""
        moments = await self._ledger.maintenance_times()
        if _LEDGER_MARK not in moments:
            await self._ledger.record_maintenance_times({_LEDGER_MARK: now()})
            moments = await self._ledger.maintenance_times()
        return moments[_LEDGER_MARK].isoformat()

    async def _is_same_ledger(self, mark: str) -> bool:
        """Whether all files were read into this ledger; another one, or one that is new, knows nothing of them."""
        return await asyncio.to_thread(self.state.meta, "ledger") == mark

    def _scan(self) -> dict[str, str]:
        """The stamp of every file by its path, whether a memory or not."""
        stamps = {}
        self.folder.sweep()
        for start in (*MEMORY_FOLDERS, CONFLICTS):
            for path, stamp in self.folder.scan(start, sweep=True):
                stamps[path] = stamp.text if stamp else ""
        return stamps

    def _drop_lost_folders(self) -> None:
        """Where a whole folder of entries is gone, nobody deleted each of them: it is written anew."""
        folders = [
            user_folder(user, self._root_user) + name for user in self.state.users() for name in (ENTRIES, MEMORIES)
        ]
        for folder in folders:
            if (self.folder.root / folder).is_dir():
                continue
            rows = self.state.rows_below(folder)
            if any(row.stamp for row in rows):
                _log.warning("mirror: %s is gone; its files are written anew", folder)
                self.state.drop(rows)
                self.state.clear_position(rows[0].user)
                self._written_revisions.pop(rows[0].user, None)

    async def _check_rollback(self, user: str, done: SyncResult) -> set[str]:
        """Let go of what was erased since; of a ledger that was put back to an earlier state, the files to read."""
        position = await asyncio.to_thread(self.state.position, user)
        revision = await self._ledger.revision(user)
        if not _is_rolled_back(position, revision):
            return set()
        newest = await self._ledger.history(Scope(user), limit=1)
        if newest and newest[0].id < position.position:
            await asyncio.to_thread(self.state.clear_position, user)
            return {row.path for row in await asyncio.to_thread(self.state.rows_of_user, user) if row.stamp}
        await self.erase_user(user)
        return set()

    async def _missing_rows(self, paths: Iterable[str]) -> list[FileRow]:
        def rows() -> list[FileRow]:
            for path in paths:
                self.state.clear_rejected(path)
            return [row for path in paths if (row := self.state.row_at(path)) is not None and row.stamp]

        return await asyncio.to_thread(rows)

    async def _users(self) -> list[str]:
        return sorted({*await self._ledger.users(), *await asyncio.to_thread(self.state.users)})

    # From the files

    async def sync_paths(self, paths: Iterable[str]) -> SyncResult:
        """Take in what was done to files; paths of folders stand for all that is or was below them."""
        done = SyncResult()
        await asyncio.to_thread(self._drop_lost_folders)
        changed, missing = await asyncio.to_thread(self._classify_paths, set(paths))
        await self._ingest(changed, missing, done, lambda count: None)
        return done

    def missing_paths(self, paths: Iterable[str]) -> list[str]:
        """Those of the paths whose files are known and are not there."""
        return [row.path for row in self._classify_paths(set(paths))[1]]

    def _classify_paths(self, paths: set[str]) -> tuple[list[str], list[FileRow]]:
        candidates = {path for path in paths if parse_location(path) is not None}
        for folder in paths - candidates:
            candidates |= {path for path, _ in self.folder.scan(folder) if parse_location(path) is not None}
            candidates |= {row.path for row in self.state.rows_below(folder)}
        rejected = {each.path: each.stamp for each in self.state.rejected_files()}
        changed, missing = [], []
        for path in sorted(candidates):
            stamp, row = self.folder.stamp(path), self.state.row_at(path)
            text = stamp.text if stamp else ""
            if stamp is None and row is not None:
                missing += [row] if row.stamp else []
            elif (row is None or row.stamp != text) and rejected.get(path) != text:
                changed.append(path)
            if stamp is None and path in rejected:
                self.state.clear_rejected(path)
        return changed, missing

    async def _ingest(
        self, paths: Sequence[str], missing: Sequence[FileRow], done: SyncResult, progress: CountCallback
    ) -> None:
        read = 0
        for start in range(0, len(paths), _PAGE_SIZE):
            page = paths[start : start + _PAGE_SIZE]
            done.ingested.add(await self._ingester.ingest(page))
            read += len(page)
            progress(read)
        if missing:
            done.ingested.add(await self._ingester.ingest([], missing=missing))
        retry_paths = set(done.ingested.retry_paths)
        # What failed as a whole is left for later.
        if retry_paths and retry_paths != set(paths):
            done.ingested.retry_paths = []
            changed, still_missing = await asyncio.to_thread(self._classify_paths, retry_paths)
            done.ingested.add(await self._ingester.ingest(changed, missing=still_missing))

    # From the ledger

    async def write_users(
        self, users: Iterable[str], done: SyncResult, progress: CountCallback = lambda count: None
    ) -> None:
        """Write out what changed of users; what someone had just touched is looked at first."""
        for user in users:
            revision = await self._ledger.revision(user)
            if self._written_revisions.get(user) == revision:
                continue
            for _ in range(_MAX_ROUNDS):
                position = await asyncio.to_thread(self.state.position, user)
                if _is_rolled_back(position, revision):
                    if not await self._is_same_ledger(await self._ledger_mark()):
                        raise LedgerReplaced("the ledger is another one than before: all files are compared anew")
                    await self.erase_user(user)
                    position = await asyncio.to_thread(self.state.position, user)
                if not revision.number:
                    # Nothing is left of them, and nothing is kept, not even the name.
                    break
                report = await self._write_user(user, position, progress)
                done.writes.add(report)
                if report.changed:
                    done.written_users.add(user)
                if not report.changed_meanwhile:
                    self._written_revisions[user] = revision
                    break
                changed, missing = await asyncio.to_thread(self._classify_paths, set(report.changed_meanwhile))
                await self._ingest(changed, missing, done, lambda count: None)

    async def _write_user(self, user: str, position: HistoryPosition, progress: CountCallback) -> WriteReport:
        if position == HistoryPosition():
            return await write_everything(
                user, ledger=self._ledger, writer=self.writer, state=self.state, progress=progress
            )
        return await write_changes(user, ledger=self._ledger, writer=self.writer, state=self.state)

    # Erasing

    async def erase_user(self, user: str) -> StoreErasure:
        """Remove what the ledger has no more, from the files, the snapshot and the history of versions."""
        revision = await self._ledger.revision(user)
        rows = await asyncio.to_thread(self.state.rows_of_user, user)
        existing_ids: set[str] = set()
        for start in range(0, len(rows), _PAGE_SIZE):
            ids = [row.id for row in rows[start : start + _PAGE_SIZE]]
            existing_ids |= {record.id for record in await self._ledger.get(Scope(user), ids)}
        gone = [row for row in rows if row.id not in existing_ids]
        everything = revision.number == 0 and not existing_ids and await self._was_erased(user)
        counts = await asyncio.to_thread(self._remove_erased, user, gone, everything=everything)
        position = await asyncio.to_thread(self.state.position, user)
        if everything:
            await asyncio.to_thread(self.state.clear_position, user)
        else:
            new_position = HistoryPosition(
                position.position, min(position.revision, revision.number - 1), revision.epoch
            )
            await asyncio.to_thread(self.state.set_position, user, new_position)
        await asyncio.to_thread(self.state.scrub)
        return StoreErasure("mirror", counts)

    async def _was_erased(self, user: str) -> bool:
        """Whether all of a user was erased; a ledger that merely lost them gets them back from the files."""
        digest = user_digest(user)
        erasures = await self._ledger.erasures()
        return any(each.target is Target.USER and each.user == digest for each in erasures)

    def _remove_erased(self, user: str, gone: Sequence[FileRow], *, everything: bool) -> dict[str, int]:
        base = user_folder(user, self._root_user)
        ids = {row.id for row in gone}
        paths = set(self.writer.remove(gone).removed)
        for conflict in self.state.conflicts():
            if conflict.user == user and (everything or conflict.id in ids):
                paths |= {conflict.path} if self.folder.remove(conflict.path) else set()
                self.state.remove_conflict(conflict.path)
        for rejected in self.state.rejected_files():
            location = parse_location(rejected.path)
            if location is not None and location.base == base and (everything or self._mentions(rejected.path, ids)):
                paths |= {rejected.path} if self.folder.remove(rejected.path) else set()
                self.state.clear_rejected(rejected.path)
        if everything:
            for name in (ENTRIES, MEMORIES, CONFLICTS) if not base else ("",):
                shutil.rmtree(self.folder.root / base / name, ignore_errors=True)
            (self.folder.root / ENTRIES).mkdir(exist_ok=True)
            self.folder.remove(base + SNAPSHOT)
        elif self.state.count(user)["memories"] <= MAX_EAGER_MEMORIES:
            self.write_snapshots([user])
        else:
            # It may name what was erased, and takes long to write.
            self.folder.remove(base + SNAPSHOT)
        self.folder.sync()
        counts = {"files": len(paths)}
        if self.git is not None and (gone or everything):
            folders = [base] if base else [f"{name}/" for name in (ENTRIES, MEMORIES, CONFLICTS)]
            below = folders if everything else []
            counts["commits"] = self.git.erase(ids, {*paths, *(row.path for row in gone)}, below=below)
        # Last of all: whatever breaks off before is done again.
        self.state.drop(gone)
        return counts

    def _mentions(self, path: str, ids: set[str]) -> bool:
        """Whether a file that cannot be used speaks of one of these memories."""
        try:
            text = self.folder.read(path)[0].decode(errors="replace")
        except Exception:
            # What cannot be read now is looked at when it can.
            return False
        return any(id in text for id in ids)

    def write_snapshots(self, users: Iterable[str], changed: Collection[str] = ()) -> None:
        """Write `memory_index.json` of users anew; where only some paths changed, those."""
        for user in users:
            base = user_folder(user, self._root_user)
            write_snapshot(user, base, folder=self.folder, state=self.state, changed=changed)

    def outdated_snapshots(self) -> set[str]:
        """Whose `memory_index.json` is not what their files say by now."""
        bases = {user: user_folder(user, self._root_user) for user in self.state.users()}
        return {user for user, base in bases.items() if is_outdated(user, base, folder=self.folder, state=self.state)}

    def close(self) -> None:
        """Let go of what is open."""
        self.state.close()


def _is_rolled_back(position: HistoryPosition, revision: Revision) -> bool:
    """Whether rows went from the ledger since it was followed."""
    return position != HistoryPosition() and (revision.epoch != position.epoch or revision.number < position.revision)


_KINDS = {"user": "turn", "assistant": "turn", "memory": "fact", "summary": "summary"}


def commit_message(done: SyncResult) -> str:
    """One line: "Write 2 turns and 1 fact; remove 1 fact (1 edited by hand)"."""
    written = _count_kinds([*done.writes.written, *done.ingested.writes.written])
    removed = _count_kinds([*done.writes.removed, *done.ingested.writes.removed])
    ingested = done.ingested
    by_hand = {
        "added": ingested.added,
        "edited": ingested.edited,
        "deleted": ingested.forgotten,
        "restored": ingested.restored,
    }
    manual_changes = ", ".join(f"{count} {how}" for how, count in by_hand.items() if count)
    parts = [f"write {written}" if written else "", f"remove {removed}" if removed else ""]
    summary = "; ".join(filter(None, parts)) or "keep files"
    return summary[0].upper() + summary[1:] + (f" ({manual_changes} by hand)" if manual_changes else "")


def _count_kinds(paths: Iterable[str]) -> str:
    kinds = Counter(_kind(path) for path in paths)
    counts = [f"{count} {kind if count == 1 else _plural(kind)}" for kind, count in sorted(kinds.items())]
    return " and ".join([", ".join(counts[:-1]), counts[-1]] if len(counts) > 1 else counts)


def _kind(path: str) -> str:
    location = parse_location(path)
    if location is None:
        return "conflict" if CONFLICTS in path else "file"
    return "tombstone" if location.is_tombstone else _KINDS[location.role]


def _plural(kind: str) -> str:
    return "summaries" if kind == "summary" else f"{kind}s"
