"""The mirror: keep a folder of Markdown files and the ledger synchronised.

`sync` synchronises them once. `start` watches both: an edit of a file becomes a write, and a write becomes a file.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic

from recollect.errors import InvalidSettings, RecollectError, StoreBusy, StoreUnavailable, Unsupported
from recollect.mirror.document import Difference, verify_files
from recollect.mirror.git import GitRepository
from recollect.mirror.layout import CONFLICTS, MEMORY_FOLDERS, is_memory_file, parse_location
from recollect.mirror.state import STATE_FILE, HistoryPosition, MirrorLock, MirrorState, SyncResult, make_state_folder
from recollect.mirror.sync import MAX_EAGER_MEMORIES, CountCallback, LedgerReplaced, Synchronizer
from recollect.model.erasure import StoreErasure
from recollect.service.service import Service

# A batch ends after this time at the latest, or after a pause of one step.
_DEBOUNCE_MS = 400
_STEP_MS = 50
_POLL_MS = 1000
_STOP_MS = 200
_WATCHED_FOLDERS = (*MEMORY_FOLDERS, CONFLICTS)


class FolderWatcher:
    """Reports paths below a folder that were added, changed or removed; a folder's own path if it was.

    It runs in a thread, since starting to watch many folders takes time. Folders are polled if the system cannot
    watch them.
    """

    def __init__(self, root: Path, on_change: Callable[[set[str]], None]) -> None:
        # Changes are reported by real paths, and the path to the folder may contain links.
        self._root = root.resolve()
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recollect-mirror", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        self._stop.set()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        for polls in (False, True):
            try:
                self._watch(polls=polls)
                return
            except Exception as error:
                if polls:
                    _log.error("mirror: files are not watched, only compared now and then: %s", error)
                else:
                    _log.warning("mirror: files are polled, since the system cannot watch them: %s", error)

    def _watch(self, *, polls: bool) -> None:
        from watchfiles import watch

        for changes in watch(
            self._root,
            watch_filter=lambda _, path: _is_watched(self._relative_path(path)),
            debounce=_DEBOUNCE_MS,
            step=_STEP_MS,
            rust_timeout=_STOP_MS,
            stop_event=self._stop,
            force_polling=polls,
            poll_delay_ms=_POLL_MS,
            ignore_permission_denied=True,
        ):
            paths = {self._relative_path(path) for _, path in changes}
            if not self._stop.is_set():
                self._loop.call_soon_threadsafe(self._on_change, paths)

    def _relative_path(self, path: str) -> str:
        return os.path.relpath(path, self._root).replace(os.sep, "/")


def _is_watched(path: str) -> bool:
    parts = path.split("/")
    if parts[0] not in _WATCHED_FOLDERS or any(part.startswith(".") for part in parts):
        return False
    # A name without a suffix may be a folder.
    return is_memory_file(parts[-1]) or "." not in parts[-1] or parse_location(path) is not None


_log = logging.getLogger("recollect")
_POLL_INTERVAL_S = 0.5
_TAKE_OVER_S = 2.0
_RESCAN_INTERVAL_S = 60.0
# Comparing all files takes at most this share of the time.
_RESCAN_SHARE = 0.01
_MAX_POLLED_USERS = 100
# An editor may remove a file just before it writes it again.
_DELETE_GRACE_S = 0.4
_OWNER_TIMEOUT_S = 50.0
_ERROR_PAUSE_S = 2.0
# The snapshots of larger folders are left to `recollect mirror sync`.
MAX_MEMORIES_AT_STOP = 20_000


class _Stopped(Exception):
    """The mirror is stopped during a long comparison, which the next start continues."""


class Mirror:
    """The mirror of a service; closed with it."""

    def __init__(self, service: Service, *, root: Path, root_user: str, git: bool) -> None:
        self.root = root
        self._service = service
        self._root_user, self._has_git = root_user, git
        self._lock = MirrorLock(root)
        self._synchronizer: Synchronizer | None = None
        self._busy = asyncio.Lock()
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._changed_users: set[str] = set()
        self._touched_paths: set[str] = set()
        # Files that disappeared, and when.
        self._missing_since: dict[str, float] = {}
        # What was done since the last commit.
        self._result = SyncResult()
        self._snapshot_users: set[str] = set()
        # Whether there are too many files to write a snapshot after each change.
        self._is_large = False
        self._poll_queue: list[str] = []

    def start(self) -> None:
        """Mirror the folder until this is closed, as soon as no other process does."""
        if self._running is None:
            self._service.change_notifier.subscribe(self._on_user_changed)
            self._running = asyncio.create_task(self._run())

    def _on_user_changed(self, user: str) -> None:
        self._changed_users.add(user)
        self._wake.set()

    async def close(self) -> None:
        """Write pending changes, and release the folder."""
        self._stop.set()
        self._wake.set()
        if self._running is not None:
            await asyncio.wait([self._running])
            self._running = None
        await asyncio.to_thread(self._release)

    async def sync(self, progress: CountCallback = lambda count: None) -> SyncResult:
        """Synchronise files and ledger once; raise StoreBusy if another process mirrors the folder."""
        async with self._locked() as synchronizer:
            result = SyncResult()
            await synchronizer.sync_all(progress, result)
            outdated = await asyncio.to_thread(synchronizer.outdated_snapshots)
            await synchronizer.write_snapshots(result.users | outdated)
            await self._commit(synchronizer, result)
            return result

    async def verify(self, progress: CountCallback = lambda count: None) -> tuple[int, list[Difference]]:
        """Compare every file with its memory without a change; return the number of files and the differences."""
        return await verify_files(self.root, self._service, root_user=self._root_user, progress=progress)

    async def forget(self, user: str) -> StoreErasure:
        """Remove what was erased of a user from files, snapshot and git; report if that is not done yet."""
        try:
            async with self._locked() as synchronizer:
                return await synchronizer.erase_user(user)
        except StoreBusy:
            return await self._wait_for_owner(user)
        except (RecollectError, OSError) as error:
            _log.error("mirror: erased memories are still in %s: %s", self.root, error)
            return StoreErasure("mirror", reached=False, note=f"it is removed when the mirror next starts: {error}")

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[Synchronizer]:
        async with self._busy:
            was_open = self._synchronizer is not None
            synchronizer = await self._open()
            try:
                yield synchronizer
            finally:
                if not was_open and self._running is None:
                    await asyncio.to_thread(self._release)

    async def _open(self) -> Synchronizer:
        """Return the synchronizer; lock the folder if this process has not."""
        return await asyncio.to_thread(self._acquire) if self._synchronizer is None else self._synchronizer

    def _acquire(self) -> Synchronizer:
        if not self._lock.acquire():
            raise StoreBusy(f"another process mirrors {self.root}")
        try:
            state = MirrorState(make_state_folder(self.root) / STATE_FILE)
            git = self._open_git() if self._has_git else None
            synchronizer = Synchronizer(self.root, state, service=self._service, root_user=self._root_user, git=git)
            owner = state.meta("root user")
            if owner not in (None, self._root_user):
                raise InvalidSettings(
                    f"{self.root} belongs to user {owner!r}, but `chat_user` is {self._root_user!r}"
                )
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
            return GitRepository(self.root)
        except Unsupported as error:
            _log.warning("mirror: files are not versioned: %s", error)
            return None

    def _release(self) -> None:
        if self._synchronizer is not None:
            self._synchronizer.close()
            self._synchronizer = None
        self._lock.release()

    async def _wait_for_owner(self, user: str) -> StoreErasure:
        """Wait until the process that mirrors the folder has erased the user's files."""
        revision = await self._service.revision(user)
        deadline = monotonic() + _OWNER_TIMEOUT_S
        while monotonic() < deadline:
            position = await asyncio.to_thread(self._owner_position, user)
            if position.epoch == revision.epoch or (position.revision == -1 and not revision.number):
                return StoreErasure("mirror", note="by the process that mirrors the folder")
            await asyncio.sleep(0.1)
        return StoreErasure("mirror", reached=False, note="the process that mirrors the folder has not done it yet")

    def _owner_position(self, user: str) -> HistoryPosition:
        try:
            state = MirrorState(make_state_folder(self.root) / STATE_FILE, read_only=True)
        except StoreUnavailable:
            # It is just being created.
            return HistoryPosition(user)
        try:
            return state.position(user)
        finally:
            state.close()

    # Running

    async def _run(self) -> None:
        last_error = ""
        while not self._stop.is_set():
            try:
                async with self._busy:
                    synchronizer = await self._open()
                # Watch before the comparison, so that no change is missed.
                watcher = FolderWatcher(self.root, self._on_paths_changed)
                try:
                    async with self._busy:
                        await synchronizer.sync_all(self._raise_if_stopped, self._result)
                    _log.info("mirror: %s is up to date", self.root)
                    await self._run_rounds(synchronizer)
                finally:
                    await watcher.close()
                return
            except _Stopped:
                return
            except (RecollectError, OSError) as error:
                if last_error != (last_error := str(error)):
                    level = logging.INFO if isinstance(error, StoreBusy) else logging.ERROR
                    _log.log(level, "mirror: this process does not mirror %s: %s", self.root, error)
            await asyncio.to_thread(self._release)
            with suppress(TimeoutError):
                async with asyncio.timeout(_TAKE_OVER_S):
                    await self._stop.wait()

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
                        await synchronizer.sync_all(self._raise_if_stopped, self._result)
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
                self._touched_paths |= await synchronizer.sync_paths(paths, self._result)
            polled = [user for user in await self._next_polled_users() if user not in changed_users]
            await synchronizer.write_users([*changed_users, *polled], self._result)
        except BaseException:
            self._touched_paths |= touched
            self._changed_users |= changed_users
            raise
        if self._result.changed or self._result.is_whole:
            await self._commit(synchronizer, self._result)
        self._snapshot_users |= self._result.users
        self._result = SyncResult()
        await self._write_snapshots(synchronizer, is_last=is_last)

    def _due_paths(self, synchronizer: Synchronizer, touched: Iterable[str]) -> set[str]:
        """Return the touched paths to process now; those of removed files wait for a moment."""
        touched, now = {*touched, *self._missing_since}, monotonic()
        missing = set(synchronizer.missing_paths(touched))
        self._missing_since = {path: self._missing_since.get(path, now) for path in missing}
        early = {path for path, since in self._missing_since.items() if now - since < _DELETE_GRACE_S}
        for path in missing - early:
            del self._missing_since[path]
        # A folder stands for the files below it, so it waits with them.
        folders = {path for path in touched - missing if any(each.startswith(f"{path}/") for each in early)}
        self._touched_paths |= folders
        return (touched | missing) - early - folders

    async def _next_polled_users(self) -> list[str]:
        """Return a few users whose memories other processes may have changed; all users in turn."""
        if not self._poll_queue:
            self._poll_queue = await self._service.users()
        batch, self._poll_queue = self._poll_queue[:_MAX_POLLED_USERS], self._poll_queue[_MAX_POLLED_USERS:]
        return batch

    async def _commit(self, synchronizer: Synchronizer, result: SyncResult) -> None:
        git = synchronizer.git
        if git is None:
            return
        if result.is_whole:
            # Commit what changed while nobody mirrored, except rejected files, which may contain anything.
            rejected = [file.path for file in await asyncio.to_thread(synchronizer.state.rejected.all)]
            await asyncio.to_thread(git.commit_all, result.commit_message, excluding=rejected)
        else:
            await asyncio.to_thread(git.commit, result.changed, result.commit_message)

    async def _write_snapshots(self, synchronizer: Synchronizer, *, is_last: bool) -> None:
        if not self._snapshot_users or (self._is_large and not is_last):
            return
        size = (await asyncio.to_thread(synchronizer.state.count))["memories"]
        self._is_large = size > MAX_EAGER_MEMORIES
        if size <= (MAX_MEMORIES_AT_STOP if is_last else MAX_EAGER_MEMORIES):
            users, self._snapshot_users = self._snapshot_users, set()
            await synchronizer.write_snapshots(users)
