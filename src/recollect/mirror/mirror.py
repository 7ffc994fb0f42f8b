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
from recollect.mirror.git import Git
from recollect.mirror.hold import STATE, Hold, own_folder
from recollect.mirror.messages import message_of
from recollect.mirror.snapshot import MOST_AT_ONCE
from recollect.mirror.state import Followed, State
from recollect.mirror.together import AnotherLedger, Progress, Synced, Together
from recollect.mirror.watch import Watch
from recollect.model.erase import Cleared
from recollect.service import Service

_log = logging.getLogger("recollect")
_TICK_S = 0.5
_TAKE_OVER_S = 2.0
_RESCAN_S = 60.0
# Looking at all files again takes at most this share of the time.
_RESCAN_SHARE = 0.01
_MOST_POLLED = 100
# An editor may remove a file a moment before it writes it anew.
_GRACE_S = 0.4
_AWAITED_S = 50.0
_PAUSE_S = 2.0
# The snapshots of larger folders are left to `recollect mirror sync`.
_MOST_AT_THE_END = 20_000


class _Stopped(Exception):
    """It is told to stop in the middle of a long comparison; the next start goes on from there."""


class Mirror:
    """The folder of a service; closed with it."""

    def __init__(self, service: Service, ledger: Ledger, *, root: Path, root_user: str, git: bool) -> None:
        self._service, self._ledger = service, ledger
        self._root, self._root_user, self._has_git = root, root_user, git
        self._hold = Hold(root)
        self._open: Together | None = None
        self._busy = asyncio.Lock()
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._heard: set[str] = set()
        self._touched: set[str] = set()
        # Files that were there and are not, and since when.
        self._gone_since: dict[str, float] = {}
        self._uncommitted: Synced | None = None
        self._unsnapped: set[str] = set()
        # Whether there are too many files to write a snapshot with each change.
        self._is_large = False
        self._rounds: list[str] = []

    @property
    def root(self) -> Path:
        """The folder."""
        return self._root

    def start(self) -> None:
        """Mirror the folder until this is closed, or as soon as the process that does it now ends."""
        if self._running is None:
            self._service.news.hear(self._hear)
            self._running = asyncio.create_task(self._run())

    def _hear(self, user: str) -> None:
        self._heard.add(user)
        self._wake.set()

    async def close(self) -> None:
        """Write out what is left, and let go of the folder."""
        self._stop.set()
        self._wake.set()
        if self._running is not None:
            await asyncio.wait([self._running])
            self._running = None
        await asyncio.to_thread(self._let_go)

    async def sync(self, progress: Progress = lambda count: None) -> Synced:
        """Bring files and ledger together once; a StoreBusy if another process mirrors the folder."""
        async with self._held() as together:
            done = await together.start(progress)
            behind = await asyncio.to_thread(together.unsnapped)
            await asyncio.to_thread(together.write_snapshots, done.users | behind, set(done.changed))
            await self._commit(together, done)
            return done

    async def forget(self, user: str) -> Cleared:
        """Remove what was erased of a user from files, snapshot and versions; tells if that is not done yet."""
        try:
            async with self._held() as together:
                return await together.let_go(user)
        except StoreBusy:
            return await self._await_other(user)
        except (RecollectError, OSError) as error:
            _log.error("mirror: what was erased is still in %s: %s", self._root, error)
            return Cleared("mirror", reached=False, note=f"it is removed when the mirror next starts: {error}")

    @asynccontextmanager
    async def _held(self) -> AsyncIterator[Together]:
        """The folder, for as long as it is needed."""
        async with self._busy:
            held = self._open
            together = held if held is not None else await asyncio.to_thread(self._take)
            try:
                yield together
            finally:
                if held is None and self._running is None:
                    await asyncio.to_thread(self._let_go)

    def _take(self) -> Together:
        if not self._hold.take():
            raise StoreBusy(f"another process mirrors {self._root}")
        try:
            state = State(own_folder(self._root) / STATE)
            git = self._open_git() if self._has_git else None
            together = Together(
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
                git.begin()
        except BaseException:
            self._hold.let_go()
            raise
        self._open = together
        return together

    def _open_git(self) -> Git | None:
        try:
            return Git(self._root)
        except Unsupported as error:
            _log.warning("mirror: files are kept without versions: %s", error)
            return None

    def _let_go(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None
        self._hold.let_go()

    async def _await_other(self, user: str) -> Cleared:
        """Wait until the process that mirrors the folder has seen to it."""
        revision = await self._ledger.revision(user)
        deadline = monotonic() + _AWAITED_S
        while monotonic() < deadline:
            followed = await asyncio.to_thread(self._followed_by_other, user)
            if followed.epoch == revision.epoch or (followed.revision == -1 and not revision.number):
                return Cleared("mirror", note="by the process that mirrors the folder")
            await asyncio.sleep(0.1)
        return Cleared("mirror", reached=False, note="the process that mirrors the folder has not done it yet")

    def _followed_by_other(self, user: str) -> Followed:
        try:
            state = State(own_folder(self._root) / STATE, read_only=True)
        except StoreUnavailable:
            # It is only just being made.
            return Followed()
        try:
            return state.followed(user)
        finally:
            state.close()

    # Running

    async def _run(self) -> None:
        told = ""
        while not self._stop.is_set():
            try:
                await self._mirror()
                return
            except _Stopped:
                return
            except (RecollectError, OSError) as error:
                if told != (told := str(error)):
                    level = logging.INFO if isinstance(error, StoreBusy) else logging.ERROR
                    _log.log(level, "mirror: %s is not mirrored by this process now: %s", self._root, error)
            await asyncio.to_thread(self._let_go)
            with suppress(TimeoutError):
                async with asyncio.timeout(_TAKE_OVER_S):
                    await self._stop.wait()

    async def _mirror(self) -> None:
        async with self._busy:
            together = self._open if self._open is not None else await asyncio.to_thread(self._take)
        # Watched from before it is compared, so that nothing done meanwhile is missed.
        watching = Watch(self._root, self._touch)
        try:
            async with self._busy:
                self._note(await together.start(self._go_on_unless_stopped))
            _log.info("mirror: %s is up to date", self._root)
            await self._go_on(together)
        finally:
            await watching.close()

    def _go_on_unless_stopped(self, _count: int) -> None:
        if self._stop.is_set():
            raise _Stopped

    def _touch(self, paths: set[str]) -> None:
        self._touched |= paths
        self._wake.set()

    async def _go_on(self, together: Together) -> None:
        scanned_at, took_s = monotonic(), 0.0
        while True:
            is_last = self._stop.is_set()
            try:
                async with self._busy:
                    if monotonic() - scanned_at > max(_RESCAN_S, took_s / _RESCAN_SHARE):
                        begun = monotonic()
                        self._note(await together.start(self._go_on_unless_stopped))
                        scanned_at, took_s = monotonic(), monotonic() - begun
                    await self._round(together, is_last=is_last)
            except AnotherLedger as error:
                _log.warning("mirror: %s", error)
                scanned_at, took_s = float("-inf"), 0.0
            except (RecollectError, OSError) as error:
                _log.error("mirror: %s", error)
                await asyncio.sleep(0 if is_last else _PAUSE_S)
            if is_last:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._wake.wait()
            self._wake.clear()

    async def _round(self, together: Together, *, is_last: bool) -> None:
        touched, self._touched = self._touched, set()
        heard, self._heard = self._heard, set()
        try:
            if paths := await asyncio.to_thread(self._due, together, touched):
                done = await together.look(paths)
                self._touched |= set(done.taken.again)
                self._note(done)
            done = Synced()
            await together.follow([*heard, *await self._polled(together, heard)], done)
            self._note(done)
        except BaseException:
            self._touched |= touched
            self._heard |= heard
            raise
        if self._uncommitted is not None:
            await self._commit(together, self._uncommitted)
            self._uncommitted = None
        await self._snap(together, is_last=is_last)

    def _due(self, together: Together, touched: Iterable[str]) -> set[str]:
        """The touched paths to look at now: those whose files are gone wait a moment."""
        touched, moment = {*touched, *self._gone_since}, monotonic()
        gone = set(together.missing(touched))
        self._gone_since = {path: self._gone_since.get(path, moment) for path in gone}
        early = {path for path, since in self._gone_since.items() if moment - since < _GRACE_S}
        for path in gone - early:
            del self._gone_since[path]
        # A folder stands for the files below it that wait, so it waits as well.
        folders = {path for path in touched - gone if any(each.startswith(f"{path}/") for each in early)}
        self._touched |= folders
        return (touched | gone) - early - folders

    async def _polled(self, together: Together, heard: Iterable[str]) -> list[str]:
        """Some users whose memories another process may have changed: a few each time, everyone in turn."""
        if not self._rounds:
            self._rounds = await self._ledger.users()
        some, self._rounds = self._rounds[:_MOST_POLLED], self._rounds[_MOST_POLLED:]
        return [user for user in some if user not in heard]

    def _note(self, done: Synced) -> None:
        if done.changed or done.is_whole:
            self._uncommitted = self._uncommitted or Synced()
            self._uncommitted.add(done)
        self._unsnapped |= done.users

    async def _commit(self, together: Together, done: Synced) -> None:
        if together.git is None:
            return
        if done.is_whole:
            # Nobody has committed what was done while nobody mirrored. What is left aside may hold anything.
            aside = [bad.path for bad in await asyncio.to_thread(together.state.bad)]
            await asyncio.to_thread(together.git.commit_all, message_of(done), but=aside)
        else:
            await asyncio.to_thread(together.git.commit, done.changed, message_of(done))

    async def _snap(self, together: Together, *, is_last: bool) -> None:
        if not self._unsnapped or (self._is_large and not is_last):
            return
        size = (await asyncio.to_thread(together.state.count))["memories"]
        self._is_large = size > MOST_AT_ONCE
        if size <= (_MOST_AT_THE_END if is_last else MOST_AT_ONCE):
            users, self._unsnapped = self._unsnapped, set()
            await asyncio.to_thread(together.write_snapshots, users)
