"""Synchronise the files with the ledger, by the last known state of each file.

A file that nobody changed follows the ledger; one that a person changed wins over it. What only the ledger has is
written; what only the folder has, or what the ledger lost, is ingested.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from recollect.errors import StoreUnavailable
from recollect.mirror.document import document_head
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
)
from recollect.mirror.state import FileRow, HistoryPosition, MirrorState, SyncResult
from recollect.mirror.to_files import FileWriter
from recollect.model.erasure import StoreErasure, Target, user_digest
from recollect.model.memory import MemoryRecord
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.service.service import Service

_log = logging.getLogger("recollect")
_PAGE_SIZE = 500
# Ends the stored version of a user whose `memory_index.json` is not written, because there is nothing in it.
_NO_SNAPSHOT = " none"
# Up to this many memories a snapshot is written after every change.
MAX_EAGER_MEMORIES = 2_000
_MAX_ROUNDS = 3
CountCallback = Callable[[int], None]


class LedgerReplaced(StoreUnavailable):
    """The ledger is not the one that the folder mirrors."""


class Synchronizer:
    """Synchronises one folder, which this process has locked, with a ledger."""

    def __init__(
        self,
        root: Path,
        state: MirrorState,
        *,
        service: Service,
        root_user: str,
        git: GitRepository | None,
    ) -> None:
        self.folder, self.state, self.git = MirrorFolder(root), state, git
        self._service = service
        # Number and epoch of the revisions of users whose files are up to date.
        self._written_revisions: dict[str, tuple[int, int]] = {}
        self._owners = FolderOwners(self.folder, root_user=root_user)
        self.writer = FileWriter(self.folder, state, self._owners)
        self._ingester = FileIngester(self.folder, state, self.writer, self._owners, service=service)

    # All files

    async def sync_all(self, progress: CountCallback, result: SyncResult) -> None:
        """Compare all files and memories, and synchronise them."""
        result.is_whole = True
        self._written_revisions.clear()
        ledger_id = await self._service.transfer.ledger_id()
        is_new = not await self._is_same_ledger(ledger_id)
        if is_new:
            await asyncio.to_thread(self.state.positions.clear)
        stamps_on_disk = await asyncio.to_thread(self._scan)
        await asyncio.to_thread(self._drop_lost_folders)
        stamps = await asyncio.to_thread(self.state.stamps)
        changed_paths = (path for path, stamp in stamps_on_disk.items() if is_new or stamps.get(path) != stamp)
        changed = {path for path in changed_paths if parse_location(path) is not None}
        for user in [] if is_new else await self._users():
            changed |= await self._check_rollback(user)
        missing = await asyncio.to_thread(self._missing_rows, stamps.keys() - stamps_on_disk.keys())
        retry_paths = await self._ingest(sorted(changed), missing, result, progress)
        if is_new and not retry_paths:
            # Only now: if it fails before, everything is compared again.
            await asyncio.to_thread(self.state.set_meta, "ledger", ledger_id)
        users = await self._users()
        await self.write_users(users, result, progress)
        for user in users:
            rows = await asyncio.to_thread(self.state.rows_of_user, user, unwritten=True)
            if rows:
                records = await self._service.get_many(user, [row.id for row in rows[:_PAGE_SIZE]])
                await asyncio.to_thread(self.writer.write_records, user, records, result)
        await asyncio.to_thread(self.state.set_meta, "synced_at", now().isoformat())

    async def _is_same_ledger(self, ledger_id: str) -> bool:
        """Return whether all files were ingested into this ledger before."""
        return await asyncio.to_thread(self.state.meta, "ledger") == ledger_id

    def _scan(self) -> dict[str, str]:
        """Return the stamp of every file by its path, whether it is a memory or not."""
        self.folder.sweep()
        return dict(file for start in (*MEMORY_FOLDERS, CONFLICTS) for file in self.folder.scan(start, sweep=True))

    def _drop_lost_folders(self) -> None:
        """Drop the state of folders that are gone as a whole: nobody deleted each file, so they are written again."""
        for user in [each.user for each in self.state.positions.all()]:
            for folder in (self._owners.folder_of(user) + name for name in (ENTRIES, MEMORIES)):
                if (self.folder.root / folder).is_dir():
                    continue
                rows = self.state.rows_below(folder)
                if any(row.stamp for row in rows):
                    _log.warning("mirror: %s is gone; its files are written again", folder)
                    self.state.drop(rows)
                    self.state.positions.drop(rows[0].user)
                    self._written_revisions.pop(rows[0].user, None)

    async def _check_rollback(self, user: str) -> set[str]:
        """Erase what the ledger erased; return the files to ingest if the ledger was rolled back."""
        position = await asyncio.to_thread(self.state.position, user)
        revision = await self._service.revision(user)
        if not _is_rolled_back(position, revision.number, revision.epoch):
            return set()
        newest = await self._service.history(Scope(user), limit=1)
        if newest and newest[0].id < position.position:
            await asyncio.to_thread(self.state.positions.drop, user)
            return {row.path for row in await asyncio.to_thread(self.state.rows_of_user, user) if row.stamp}
        await self.erase_user(user)
        return set()

    def _missing_rows(self, paths: Iterable[str]) -> list[FileRow]:
        for path in paths:
            self.state.rejected.drop(path)
        return [row for path in paths if (row := self.state.files.get(path)) is not None and row.stamp]

    async def _users(self) -> list[str]:
        return sorted(
            {*await self._service.users(), *(each.user for each in await asyncio.to_thread(self.state.positions.all))}
        )

    # From the files

    async def sync_paths(self, paths: Iterable[str], result: SyncResult) -> set[str]:
        """Ingest changed paths, where a folder stands for all files below it; return the paths to retry."""
        await asyncio.to_thread(self._drop_lost_folders)
        changed, missing = await asyncio.to_thread(self._classify_paths, set(paths))
        return await self._ingest(changed, missing, result)

    def missing_paths(self, paths: Iterable[str]) -> list[str]:
        """Return the paths of known files that do not exist."""
        return [row.path for row in self._classify_paths(set(paths))[1]]

    def _classify_paths(self, paths: set[str]) -> tuple[list[str], list[FileRow]]:
        candidates = {path for path in paths if parse_location(path) is not None}
        for folder in paths - candidates:
            candidates |= {path for path, _ in self.folder.scan(folder) if parse_location(path) is not None}
            candidates |= {row.path for row in self.state.rows_below(folder)}
        rejected = {each.path: each.stamp for each in self.state.rejected.all()}
        changed, missing = [], []
        for path in sorted(candidates):
            stamp, row = self.folder.stamp(path), self.state.files.get(path)
            if not stamp and row is not None:
                missing += [row] if row.stamp else []
            elif (row is None or row.stamp != stamp) and rejected.get(path) != stamp:
                changed.append(path)
            if not stamp and path in rejected:
                self.state.rejected.drop(path)
        return changed, missing

    async def _ingest(
        self,
        paths: Sequence[str],
        missing: Sequence[FileRow],
        result: SyncResult,
        progress: CountCallback = lambda count: None,
    ) -> set[str]:
        retry_paths: set[str] = set()
        for start in range(0, len(paths), _PAGE_SIZE):
            page = paths[start : start + _PAGE_SIZE]
            retry_paths |= await self._ingester.ingest(page, result)
            progress(start + len(page))
        if missing:
            retry_paths |= await self._ingester.ingest([], result, missing=missing)
        # If everything failed, retry later.
        if not retry_paths or retry_paths == set(paths):
            return retry_paths
        changed, still_missing = await asyncio.to_thread(self._classify_paths, retry_paths)
        return await self._ingester.ingest(changed, result, missing=still_missing)

    # From the ledger

    async def write_users(
        self, users: Iterable[str], result: SyncResult, progress: CountCallback = lambda count: None
    ) -> None:
        """Write the changed memories of users; files that somebody has just changed are ingested first."""
        for user in users:
            revision = await self._service.revision(user)
            if self._written_revisions.get(user) == (revision.number, revision.epoch):
                continue
            for _ in range(_MAX_ROUNDS):
                position = await asyncio.to_thread(self.state.position, user)
                if _is_rolled_back(position, revision.number, revision.epoch):
                    if not await self._is_same_ledger(await self._service.transfer.ledger_id()):
                        raise LedgerReplaced("the ledger was replaced by another: all files are compared")
                    await self.erase_user(user)
                    position = await asyncio.to_thread(self.state.position, user)
                if not revision.number:
                    # Nothing of the user is left, so not even the name is stored.
                    break
                changed_meanwhile = await self._write_user(user, position, result, progress)
                if not changed_meanwhile:
                    self._written_revisions[user] = revision.number, revision.epoch
                    break
                changed, missing = await asyncio.to_thread(self._classify_paths, changed_meanwhile)
                await self._ingest(changed, missing, result)

    async def _write_user(
        self, user: str, position: HistoryPosition, result: SyncResult, progress: CountCallback
    ) -> set[str]:
        """Write a user's memories, and return the paths that somebody changed in the meantime."""
        before = len(result.written) + len(result.removed)
        if position == HistoryPosition(user):
            changed = await self._write_everything(user, result, progress)
        else:
            changed = await self._write_changes(user, position, result)
        if len(result.written) + len(result.removed) > before:
            result.users.add(user)
        return changed

    async def _write_changes(self, user: str, position: HistoryPosition, result: SyncResult) -> set[str]:
        """Write the memories that changed since the position in history, page by page."""
        changed: set[str] = set()
        revision = await self._service.revision(user)
        while (position.revision, position.epoch) != (revision.number, revision.epoch):
            entries = await self._service.history(Scope(user), after=position.position, limit=_PAGE_SIZE)
            ids = list(dict.fromkeys(entry.memory_id for entry in entries))
            records = await self._service.get_many(user, ids)
            changed.update(await asyncio.to_thread(self.writer.write_records, user, records, result))
            last = entries[-1].id if entries else position.position
            is_last = len(entries) < _PAGE_SIZE
            position = (
                HistoryPosition(user, last, revision.number, revision.epoch)
                if is_last
                else HistoryPosition(user, last, position.revision, position.epoch)
            )
            if not changed:
                # Otherwise the same entries are read again after the changed files were ingested.
                await asyncio.to_thread(self.state.positions.put, position)
        return changed

    async def _write_everything(self, user: str, result: SyncResult, progress: CountCallback) -> set[str]:
        """Write all memories of a user whose files are not up to date."""
        changed: set[str] = set()
        count = 0
        revision = await self._service.revision(user)
        newest = await self._service.history(Scope(user), limit=1)
        async for records in self._service.transfer.records(user):
            changed.update(await asyncio.to_thread(self.writer.write_records, user, records, result))
            count += len(records)
            progress(count)
        if not changed:
            position = HistoryPosition(user, newest[0].id if newest else 0, revision.number, revision.epoch)
            await asyncio.to_thread(self.state.positions.put, position)
        return changed

    # Erasure

    async def erase_user(self, user: str) -> StoreErasure:
        """Remove what the ledger no longer has from the files, the snapshot and the git history."""
        revision = await self._service.revision(user)
        rows = await asyncio.to_thread(self.state.rows_of_user, user)
        existing_ids: set[str] = set()
        for start in range(0, len(rows), _PAGE_SIZE):
            ids = [row.id for row in rows[start : start + _PAGE_SIZE]]
            existing_ids |= {record.id for record in await self._service.get_many(user, ids)}
        gone = [row for row in rows if row.id not in existing_ids]
        everything = revision.number == 0 and not existing_ids and await self._was_erased(user)
        counts = await asyncio.to_thread(self._remove_erased, user, gone, everything=everything)
        if everything:
            await asyncio.to_thread(self.state.positions.drop, user)
        else:
            position = await asyncio.to_thread(self.state.position, user)
            number = min(position.revision, revision.number - 1)
            position = HistoryPosition(user, position.position, number, revision.epoch)
            await asyncio.to_thread(self.state.positions.put, position)
            if (await asyncio.to_thread(self.state.count, user))["memories"] <= MAX_EAGER_MEMORIES:
                await self.write_snapshots([user])
        await asyncio.to_thread(self.state.scrub)
        return StoreErasure("mirror", counts)

    async def _was_erased(self, user: str) -> bool:
        """Return whether the user was erased; a ledger that merely lost the memories gets them from the files."""
        digest = user_digest(user)
        erasures = await self._service.erasure.list()
        return any(each.target is Target.USER and each.user == digest for each in erasures)

    def _remove_erased(self, user: str, gone: Sequence[FileRow], *, everything: bool) -> dict[str, int]:
        base = self._owners.folder_of(user)
        ids = {row.id for row in gone}
        paths = set(self.writer.remove(gone))
        for conflict in self.state.conflicts.all():
            if conflict.user == user and (everything or conflict.id in ids):
                paths |= {conflict.path} if self.folder.remove(conflict.path) else set()
                self.state.conflicts.drop(conflict.path)
        for rejected in self.state.rejected.all():
            location = parse_location(rejected.path)
            if location is not None and location.base == base and (everything or self._mentions(rejected.path, ids)):
                paths |= {rejected.path} if self.folder.remove(rejected.path) else set()
                self.state.rejected.drop(rejected.path)
        if everything:
            for name in (ENTRIES, MEMORIES, CONFLICTS) if not base else ("",):
                shutil.rmtree(self.folder.root / base / name, ignore_errors=True)
            (self.folder.root / ENTRIES).mkdir(exist_ok=True)
        self.folder.remove(base + SNAPSHOT)
        self.folder.sync()
        counts = {"files": len(paths)}
        if self.git is not None and (gone or everything):
            folders = [base] if base else [f"{name}/" for name in (ENTRIES, MEMORIES, CONFLICTS)]
            below = folders if everything else []
            counts["commits"] = self.git.erase(ids, {*paths, *(row.path for row in gone)}, below=below)
        # Last, so that everything is repeated if it fails before.
        self.state.drop(gone)
        return counts

    def _mentions(self, path: str, ids: set[str]) -> bool:
        """Return whether a rejected file contains one of these ids."""
        try:
            text = self.folder.read(path)[0].decode(errors="replace")
        except Exception:
            # A file that cannot be read now is checked when it can.
            return False
        return any(id in text for id in ids)

    async def write_snapshots(self, users: Iterable[str]) -> None:
        """Write `memory_index.json` of users, with a line for each memory that has a file."""
        for user in users:
            position = await asyncio.to_thread(self.state.position, user)
            rows = await asyncio.to_thread(self.state.rows_of_user, user)
            paths = {row.id: row.path for row in rows if row.stamp and not row.is_gone}
            lines: list[str] = []
            if paths:
                async for records in self._service.transfer.records(user):
                    lines += [self._snapshot_line(each, paths[each.id]) for each in records if each.id in paths]
            data = ("[\n" + ",\n".join(lines) + "\n]\n").encode() if lines else b""
            await asyncio.to_thread(self._place_snapshot, user, data, _version_of(position))

    def _snapshot_line(self, record: MemoryRecord, path: str) -> str:
        head, file_path = document_head(record), str(self.folder.root / path)
        line = {"id": record.id, "path": file_path, "metadata": head, "content": record.content.strip()}
        return json.dumps(line, ensure_ascii=False)

    def _place_snapshot(self, user: str, data: bytes, version: str) -> None:
        path = self._owners.folder_of(user) + SNAPSHOT
        if data:
            self.folder.write(path, data, expected=self.folder.stamp(path))
        else:
            self.folder.remove(path)
        self.folder.sync()
        self.state.set_meta(f"{SNAPSHOT} {user_digest(user)}", version if data else f"{version}{_NO_SNAPSHOT}")

    def outdated_snapshots(self) -> set[str]:
        """Return the users whose `memory_index.json` is missing or older than their memories."""
        return {each.user for each in self.state.positions.all() if not self._is_snapshot_current(each)}

    def _is_snapshot_current(self, position: HistoryPosition) -> bool:
        written, version = self.state.meta(f"{SNAPSHOT} {user_digest(position.user)}"), _version_of(position)
        if written == f"{version}{_NO_SNAPSHOT}":
            return True
        return written == version and bool(self.folder.stamp(self._owners.folder_of(position.user) + SNAPSHOT))

    def close(self) -> None:
        self.state.close()


def _version_of(position: HistoryPosition) -> str:
    return f"{position.revision}:{position.epoch}"


def _is_rolled_back(position: HistoryPosition, revision: int, epoch: int) -> bool:
    """Return whether the ledger lost rows since the position, by an erasure or a rollback."""
    return position != HistoryPosition(position.user) and (epoch != position.epoch or revision < position.revision)
