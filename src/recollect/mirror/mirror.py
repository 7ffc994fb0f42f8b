"""The mirror: a folder of Markdown files and the ledger, brought together and kept so.

`sync` compares the files, what was last seen of them and the ledger, once. `start` goes on from there: what a person
does to a file becomes a write, and what is written becomes a file.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic

from recollect.errors import InvalidSettings, RecollectError, StoreBusy, StoreUnavailable, Unsupported
from recollect.ledger.protocol import Ledger
from recollect.mirror.git import GitRepository
from recollect.mirror.snapshot import MAX_EAGER_MEMORIES
from recollect.mirror.state import HistoryPosition, MirrorState
from recollect.mirror.status import STATE_FILE, MirrorLock, make_state_folder
from recollect.mirror.sync import CountCallback, LedgerReplaced, Synchronizer, SyncResult, commit_message
from recollect.mirror.watch import FolderWatcher
from recollect.model.erasure import StoreErasure
from recollect.service.service import Service

_log = logging.getLogger("recollect")
_POLL_INTERVAL_S = 0.5
_TAKE_OVER_S = 2.0
_RESCAN_INTERVAL_S = 60.0
# Looking at all files again takes at most this share of the time.
_RESCAN_SHARE = 0.01
_MAX_POLLED_USERS = 100
# An editor may remove a file a moment before it writes it anew.
_DELETE_GRACE_S = 0.4
_OWNER_TIMEOUT_S = 50.0
_ERROR_PAUSE_S = 2.0
# The snapshots of larger folders are left to `recollect mirror sync`.
_MAX_MEMORIES_AT_STOP = 20_000


class _Stopped(Exception):
    """It is told to stop in the middle of a long comparison; the next start goes on from there."""


class Mirror:
    """The folder of a service; closed with it."""

    def __init__(self, service: Service, ledger: Ledger, *, root: Path, root_user: str, git: bool) -> None:
        self._service, self._ledger = service, ledger
        self._root, self._root_user, self._has_git = root, root_user, git
        self._lock = MirrorLock(root)
        self._synchronizer: Synchronizer | None = None
        self._busy = asyncio.Lock()
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._changed_users: set[str] = set()
        self._touched_paths: set[str] = set()
        # Files that were there and are not, and since when.
        self._missing_since: dict[str, float] = {}
        self._uncommitted: SyncResult | None = None
        self._snapshot_users: set[str] = set()
        # Whether there are too many files to write a snapshot with each change.
        self._is_large = False
        self._poll_queue: list[str] = []

    @property
    def root(self) -> Path:
        """The folder."""
        return self._root

    def start(self) -> None:
        """Mirror the folder until this is closed, or as soon as the process that does it now ends."""
        if self._running is None:
            self._service.change_notifier.subscribe(self._on_user_changed)
            self._running = asyncio.create_task(self._run())

    def _on_user_changed(self, user: str) -> None:
        self._changed_users.add(user)
        self._wake.set()

    async def close(self) -> None:
        """Write out what is left, and let go of the folder."""
        self._stop.set()
        self._wake.set()
        if self._running is not None:
            await asyncio.wait([self._running])
            self._running = None
        await asyncio.to_thread(self._release)

    async def sync(self, progress: CountCallback = lambda count: None) -> SyncResult:
        """Bring files and ledger together once; a StoreBusy if another process mirrors the folder."""
        async with self._locked() as synchronizer:
            done = await synchronizer.sync_all(progress)
            outdated = await asyncio.to_thread(synchronizer.outdated_snapshots)
            await asyncio.to_thread(synchronizer.write_snapshots, done.users | outdated, set(done.changed))
            await self._commit(synchronizer, done)
            return done

    async def forget(self, user: str) -> StoreErasure:
        """Remove what was erased of a user from files, snapshot and versions; tells if that is not done yet."""
        try:
            async with self._locked() as synchronizer:
                return await synchronizer.erase_user(user)
        except StoreBusy:
            return await self._wait_for_owner(user)
        except (RecollectError, OSError) as error:
            _log.error("mirror: what was erased is still in %s: %s", self._root, error)
            return StoreErasure("mirror", reached=False, note=f"it is removed when the mirror next starts: {error}")

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[Synchronizer]:
        """The folder, for as long as it is needed."""
        async with self._busy:
            already_open = self._synchronizer
            synchronizer = already_open if already_open is not None else await asyncio.to_thread(self._acquire)
            try:
                yield synchronizer
            finally:
                if already_open is None and self._running is None:
                    await asyncio.to_thread(self._release)

    def _acquire(self) -> Synchronizer:
        if not self._lock.acquire():
            raise StoreBusy(f"another process mirrors {self._root}")
        try:
            state = MirrorState(make_state_folder(self._root) / STATE_FILE)
            git = self._open_git() if self._has_git else None
            synchronizer = Synchronizer(
                self._root,
                state,
                service=self._service,
                ledger=self._ledger,
                root_user=self._root_user,
                git=git,
            )
            owner = state.meta("root user")
            if owner not in (None, self._root_user):
                raise InvalidSettings(f"{self._root} is the folder of user {owner}: chat_user names another")
            state.set_meta("root user", self._root_user)
            if git is not None:
                git.initialize()
        except BaseException:
            self._lock.release()
            raise
        self._synchronizer = synchronizer
        return synchronizer

    def _open_git(self) -> GitRepository | None:
        try:
            return GitRepository(self._root)
        except Unsupported as error:
            _log.warning("mirror: files are kept without versions: %s", error)
            return None

    def _release(self) -> None:
        if self._synchronizer is not None:
            self._synchronizer.close()
            self._synchronizer = None
        self._lock.release()

    async def _wait_for_owner(self, user: str) -> StoreErasure:
        """Wait until the process that mirrors the folder has seen to it."""
        revision = await self._ledger.revision(user)
        deadline = monotonic() + _OWNER_TIMEOUT_S
        while monotonic() < deadline:
            position = await asyncio.to_thread(self._owner_position, user)
            if position.epoch == revision.epoch or (position.revision == -1 and not revision.number):
                return StoreErasure("mirror", note="by the process that mirrors the folder")
            await asyncio.sleep(0.1)
        return StoreErasure("mirror", reached=False, note="the process that mirrors the folder has not done it yet")

    def _owner_position(self, user: str) -> HistoryPosition:
        try:
            state = MirrorState(make_state_folder(self._root) / STATE_FILE, read_only=True)
        except StoreUnavailable:
            # It is only just being made.
            return HistoryPosition()
        try:
            return state.position(user)
        finally:
            state.close()

    # Running

    async def _run(self) -> None:
        last_error = ""
        while not self._stop.is_set():
            try:
                await self._run_locked()
                return
            except _Stopped:
                return
            except (RecollectError, OSError) as error:
                if last_error != (last_error := str(error)):
                    level = logging.INFO if isinstance(error, StoreBusy) else logging.ERROR
                    _log.log(level, "mirror: %s is not mirrored by this process now: %s", self._root, error)
            await asyncio.to_thread(self._release)
            with suppress(TimeoutError):
                async with asyncio.timeout(_TAKE_OVER_S):
                    await self._stop.wait()

    async def _run_locked(self) -> None:
        async with self._busy:
            synchronizer = (
                self._synchronizer if self._synchronizer is not None else await asyncio.to_thread(self._acquire)
            )
        # Watched from before it is compared, so that nothing done meanwhile is missed.
        watcher = FolderWatcher(self._root, self._on_paths_changed)
        try:
            async with self._busy:
                self._note_result(await synchronizer.sync_all(self._raise_if_stopped))
            _log.info("mirror: %s is up to date", self._root)
            await self._run_rounds(synchronizer)
        finally:
            await watcher.close()

    def _raise_if_stopped(self, _count: int) -> None:
        if self._stop.is_set():
            raise _Stopped

    def _on_paths_changed(self, paths: set[str]) -> None:
        self._touched_paths |= paths
        self._wake.set()

    async def _run_rounds(self, synchronizer: Synchronizer) -> None:
        scanned_at, took_s = monotonic(), 0.0
        while True:
            is_last = self._stop.is_set()
            try:
                async with self._busy:
                    if monotonic() - scanned_at > max(_RESCAN_INTERVAL_S, took_s / _RESCAN_SHARE):
                        started = monotonic()
                        self._note_result(await synchronizer.sync_all(self._raise_if_stopped))
                        scanned_at, took_s = monotonic(), monotonic() - started
                    await self._run_round(synchronizer, is_last=is_last)
            except LedgerReplaced as error:
                _log.warning("mirror: %s", error)
                scanned_at, took_s = float("-inf"), 0.0
            except (RecollectError, OSError) as error:
                _log.error("mirror: %s", error)
                await asyncio.sleep(0 if is_last else _ERROR_PAUSE_S)
            if is_last:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_INTERVAL_S):
                    await self._wake.wait()
            self._wake.clear()

    async def _run_round(self, synchronizer: Synchronizer, *, is_last: bool) -> None:
        touched, self._touched_paths = self._touched_paths, set()
        changed_users, self._changed_users = self._changed_users, set()
        try:
            if paths := await asyncio.to_thread(self._due_paths, synchronizer, touched):
                done = await synchronizer.sync_paths(paths)
                self._touched_paths |= set(done.ingested.retry_paths)
                self._note_result(done)
            done = SyncResult()
            await synchronizer.write_users(
                [*changed_users, *await self._next_polled_users(synchronizer, changed_users)], done
            )
            self._note_result(done)
        except BaseException:
            self._touched_paths |= touched
            self._changed_users |= changed_users
            raise
        if self._uncommitted is not None:
            await self._commit(synchronizer, self._uncommitted)
            self._uncommitted = None
        await self._write_snapshots(synchronizer, is_last=is_last)

    def _due_paths(self, synchronizer: Synchronizer, touched: Iterable[str]) -> set[str]:
        """The touched paths to look at now: those whose files are gone wait a moment."""
        touched, now = {*touched, *self._missing_since}, monotonic()
        missing = set(synchronizer.missing_paths(touched))
        self._missing_since = {path: self._missing_since.get(path, now) for path in missing}
        early = {path for path, since in self._missing_since.items() if now - since < _DELETE_GRACE_S}
        for path in missing - early:
            del self._missing_since[path]
        # A folder stands for the files below it that wait, so it waits as well.
        folders = {path for path in touched - missing if any(each.startswith(f"{path}/") for each in early)}
        self._touched_paths |= folders
        return (touched | missing) - early - folders

    async def _next_polled_users(self, synchronizer: Synchronizer, changed_users: Iterable[str]) -> list[str]:
        """Some users whose memories another process may have changed: a few each time, everyone in turn."""
        if not self._poll_queue:
            self._poll_queue = await self._ledger.users()
        batch, self._poll_queue = self._poll_queue[:_MAX_POLLED_USERS], self._poll_queue[_MAX_POLLED_USERS:]
        return [user for user in batch if user not in changed_users]

    def _note_result(self, done: SyncResult) -> None:
        if done.changed or done.is_whole:
            self._uncommitted = self._uncommitted or SyncResult()
            self._uncommitted.add(done)
        self._snapshot_users |= done.users

    async def _commit(self, synchronizer: Synchronizer, done: SyncResult) -> None:
        if synchronizer.git is None:
            return
        if done.is_whole:
            # Nobody has committed what was done while nobody mirrored. What is left aside may hold anything.
            rejected = [file.path for file in await asyncio.to_thread(synchronizer.state.rejected_files)]
            await asyncio.to_thread(synchronizer.git.commit_all, commit_message(done), excluding=rejected)
        else:
            await asyncio.to_thread(synchronizer.git.commit, done.changed, commit_message(done))

    async def _write_snapshots(self, synchronizer: Synchronizer, *, is_last: bool) -> None:
        if not self._snapshot_users or (self._is_large and not is_last):
            return
        size = (await asyncio.to_thread(synchronizer.state.count))["memories"]
        self._is_large = size > MAX_EAGER_MEMORIES
        if size <= (_MAX_MEMORIES_AT_STOP if is_last else MAX_EAGER_MEMORIES):
            users, self._snapshot_users = self._snapshot_users, set()
            await asyncio.to_thread(synchronizer.write_snapshots, users)
