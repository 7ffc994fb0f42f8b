"""Bring the files, what was last seen of them, and the ledger together.

A file that nobody touched follows the ledger; one that somebody touched wins over it. What the ledger has and the
folder has not is written out; what the folder has and the ledger never had, or lost, is read in.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from recollect.errors import StoreUnavailable
from recollect.ledger.protocol import Ledger, Revision
from recollect.mirror.adding import Desk, Taken
from recollect.mirror.folder import Folder
from recollect.mirror.git import Git
from recollect.mirror.incoming import Reader
from recollect.mirror.layout import CONFLICTS, ENTRIES, SNAPSHOT, STARTS, base_of, spot_of
from recollect.mirror.notebook import MEMORIES
from recollect.mirror.outgoing import Put, Writer, follow, follow_anew
from recollect.mirror.snapshot import MOST_AT_ONCE, is_behind, write_snapshot
from recollect.mirror.state import Followed, Row, State
from recollect.mirror.whose import Owners
from recollect.model.erase import Cleared, Target, user_digest
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.service import Service

_log = logging.getLogger("recollect")
# The moment by which a ledger is known again.
_MARK = "mirrored"
_PAGE = 500
_ROUNDS = 3
Progress = Callable[[int], None]


class AnotherLedger(StoreUnavailable):
    """The ledger is not the one whose mirror this is."""


@dataclass(slots=True)
class Synced:
    """What was done on both sides."""

    taken: Taken = field(default_factory=Taken)
    put: Put = field(default_factory=Put)
    # Whose files were written out.
    followed: set[str] = field(default_factory=set)
    # Whether all files were compared.
    is_whole: bool = False

    def add(self, other: Synced) -> None:
        """Take in what was done besides."""
        self.taken.add(other.taken)
        self.put.add(other.put)
        self.followed |= other.followed
        self.is_whole |= other.is_whole

    @property
    def users(self) -> set[str]:
        """Whose files are otherwise now."""
        return self.followed | self.taken.users

    @property
    def written(self) -> list[str]:
        """The paths that we wrote or removed."""
        return [*self.put.changed, *self.taken.put.changed]

    @property
    def changed(self) -> list[str]:
        """The paths at which something is otherwise now, whoever did it."""
        return [*self.taken.paths, *self.written]


class Together:
    """The folder that this process mirrors, and the ledger it is a mirror of."""

    def __init__(
        self, root: Path, state: State, *, service: Service, ledger: Ledger, root_user: str, git: Git | None
    ) -> None:
        self.folder, self.state, self.git = Folder(root), state, git
        self._ledger, self._root_user = ledger, root_user
        # Where nothing changed since, there is nothing to do.
        self._followed: dict[str, Revision] = {}
        self.writer = Writer(self.folder, state, root_user=root_user)
        self._desk = Desk(self.folder, state, self.writer, service, ledger)
        self._owners = Owners(self.folder, root_user=root_user)
        self._reader = Reader(self._desk, self._owners)

    # Start

    async def start(self, progress: Progress) -> Synced:
        """Compare all of it, and bring it together."""
        done = Synced(is_whole=True)
        self._followed.clear()
        mark = await self._mark()
        is_new = not await self._is_known(mark)
        if is_new:
            await asyncio.to_thread(self.state.begin_anew)
        found = await asyncio.to_thread(self._scan)
        await asyncio.to_thread(self._find_lost)
        stamps = await asyncio.to_thread(self.state.stamps)
        other = (path for path, stamp in found.items() if is_new or stamps.get(path) != stamp)
        changed = {path for path in other if spot_of(path) is not None}
        for user in [] if is_new else await self._users():
            changed |= await self._look_back(user, done)
        await self._take(sorted(changed), await self._missing(stamps.keys() - found.keys()), done, progress)
        if is_new and not done.taken.again:
            # Only now: whatever breaks off before is done again.
            await asyncio.to_thread(self.state.set_meta, "ledger", mark)
        users = await self._users()
        await self.follow(users, done, progress)
        for user in users:
            done.put.add(await self._write_unwritten(user))
        await asyncio.to_thread(self.state.set_meta, "synced_at", now().isoformat())
        return done

    async def _write_unwritten(self, user: str) -> Put:
        """Try again what could not be written the last time."""
        rows = await asyncio.to_thread(self.state.of, user, unwritten=True)
        records = await self._ledger.get(Scope(user), [row.id for row in rows[:_PAGE]]) if rows else []
        return await asyncio.to_thread(self.writer.put, user, records)

    async def _mark(self) -> str:
        """What this ledger is known by."""
        moments = await self._ledger.moments()
        if _MARK not in moments:
            await self._ledger.note_moments({_MARK: now()})
            moments = await self._ledger.moments()
        return moments[_MARK].isoformat()

    async def _is_known(self, mark: str) -> bool:
        """Whether all files were read into this ledger; another one, or one that is new, knows nothing of them."""
        return await asyncio.to_thread(self.state.meta, "ledger") == mark

    def _scan(self) -> dict[str, str]:
        """The stamp of every file by its path, whether a memory or not."""
        found = {}
        self.folder.sweep()
        for start in (*STARTS, CONFLICTS):
            for path, stamp in self.folder.scan(start, sweep=True):
                found[path] = stamp.text if stamp else ""
        return found

    def _find_lost(self) -> None:
        """Where a whole folder of entries is gone, nobody deleted each of them: it is written anew."""
        places = [
            base_of(user, self._root_user) + name for user in self.state.users() for name in (ENTRIES, MEMORIES)
        ]
        for place in places:
            if (self.folder.root / place).is_dir():
                continue
            rows = self.state.below(place)
            if any(row.stamp for row in rows):
                _log.warning("mirror: %s is gone; its files are written anew", place)
                self.state.drop(rows)
                self.state.unfollow(rows[0].user)
                self._followed.pop(rows[0].user, None)

    async def _look_back(self, user: str, done: Synced) -> set[str]:
        """Let go of what was erased since; of a ledger that was put back to an earlier state, the files to read."""
        followed = await asyncio.to_thread(self.state.followed, user)
        revision = await self._ledger.revision(user)
        if not _is_behind(followed, revision):
            return set()
        newest = await self._ledger.history(Scope(user), limit=1)
        if newest and newest[0].id < followed.position:
            await asyncio.to_thread(self.state.unfollow, user)
            return {row.path for row in await asyncio.to_thread(self.state.of, user) if row.stamp}
        await self.let_go(user)
        return set()

    async def _missing(self, paths: Iterable[str]) -> list[Row]:
        def rows() -> list[Row]:
            for path in paths:
                self.state.unset_bad(path)
            return [row for path in paths if (row := self.state.at(path)) is not None and row.stamp]

        return await asyncio.to_thread(rows)

    async def _users(self) -> list[str]:
        return sorted({*await self._ledger.users(), *await asyncio.to_thread(self.state.users)})

    # From the files

    async def look(self, paths: Iterable[str]) -> Synced:
        """Take in what was done to files; paths of folders stand for all that is or was below them."""
        done = Synced()
        await asyncio.to_thread(self._find_lost)
        changed, missing = await asyncio.to_thread(self._sort_out, set(paths))
        await self._take(changed, missing, done, lambda count: None)
        return done

    def missing(self, paths: Iterable[str]) -> list[str]:
        """Those of the paths whose files are known and are not there."""
        return [row.path for row in self._sort_out(set(paths))[1]]

    def _sort_out(self, paths: set[str]) -> tuple[list[str], list[Row]]:
        wanted = {path for path in paths if spot_of(path) is not None}
        for folder in paths - wanted:
            wanted |= {path for path, _ in self.folder.scan(folder) if spot_of(path) is not None}
            wanted |= {row.path for row in self.state.below(folder)}
        bad = {each.path: each.stamp for each in self.state.bad()}
        changed, missing = [], []
        for path in sorted(wanted):
            stamp, row = self.folder.stamp(path), self.state.at(path)
            text = stamp.text if stamp else ""
            if stamp is None and row is not None:
                missing += [row] if row.stamp else []
            elif (row is None or row.stamp != text) and bad.get(path) != text:
                changed.append(path)
            if stamp is None and path in bad:
                self.state.unset_bad(path)
        return changed, missing

    async def _take(self, paths: Sequence[str], missing: Sequence[Row], done: Synced, progress: Progress) -> None:
        read = 0
        for start in range(0, len(paths), _PAGE):
            page = paths[start : start + _PAGE]
            done.taken.add(await self._reader.take(page))
            read += len(page)
            progress(read)
        if missing:
            done.taken.add(await self._reader.take([], missing=missing))
        again = set(done.taken.again)
        # What failed as a whole is left for later.
        if again and again != set(paths):
            done.taken.again = []
            changed, gone = await asyncio.to_thread(self._sort_out, again)
            done.taken.add(await self._reader.take(changed, missing=gone))

    # From the ledger

    async def follow(self, users: Iterable[str], done: Synced, progress: Progress = lambda count: None) -> None:
        """Write out what changed of users; what someone had just touched is looked at first."""
        for user in users:
            revision = await self._ledger.revision(user)
            if self._followed.get(user) == revision:
                continue
            for _ in range(_ROUNDS):
                followed = await asyncio.to_thread(self.state.followed, user)
                if _is_behind(followed, revision):
                    if not await self._is_known(await self._mark()):
                        raise AnotherLedger("the ledger is another one than before: all files are compared anew")
                    await self.let_go(user)
                    followed = await asyncio.to_thread(self.state.followed, user)
                if not revision.number:
                    # Nothing is left of them, and nothing is kept, not even the name.
                    break
                put = await self._follow(user, followed, progress)
                done.put.add(put)
                if put.changed:
                    done.followed.add(user)
                if not put.disturbed:
                    self._followed[user] = revision
                    break
                changed, missing = await asyncio.to_thread(self._sort_out, set(put.disturbed))
                await self._take(changed, missing, done, lambda count: None)

    async def _follow(self, user: str, followed: Followed, progress: Progress) -> Put:
        if followed == Followed():
            return await follow_anew(
                user, ledger=self._ledger, writer=self.writer, state=self.state, progress=progress
            )
        return await follow(user, ledger=self._ledger, writer=self.writer, state=self.state)

    # Erasing

    async def let_go(self, user: str) -> Cleared:
        """Remove what the ledger has no more, from the files, the snapshot and the history of versions."""
        revision = await self._ledger.revision(user)
        rows = await asyncio.to_thread(self.state.of, user)
        there: set[str] = set()
        for start in range(0, len(rows), _PAGE):
            ids = [row.id for row in rows[start : start + _PAGE]]
            there |= {record.id for record in await self._ledger.get(Scope(user), ids)}
        gone = [row for row in rows if row.id not in there]
        everything = revision.number == 0 and not there and await self._was_erased(user)
        counts = await asyncio.to_thread(self._remove, user, gone, everything=everything)
        followed = await asyncio.to_thread(self.state.followed, user)
        if everything:
            await asyncio.to_thread(self.state.unfollow, user)
        else:
            seen = Followed(followed.position, min(followed.revision, revision.number - 1), revision.epoch)
            await asyncio.to_thread(self.state.follow, user, seen)
        await asyncio.to_thread(self.state.scrub)
        return Cleared("mirror", counts)

    async def _was_erased(self, user: str) -> bool:
        """Whether all of a user was erased; a ledger that merely lost them gets them back from the files."""
        digest = user_digest(user)
        erasures = await self._ledger.erasures()
        return any(each.target is Target.USER and each.user == digest for each in erasures)

    def _remove(self, user: str, gone: Sequence[Row], *, everything: bool) -> dict[str, int]:
        base = base_of(user, self._root_user)
        ids = {row.id for row in gone}
        paths = set(self.writer.remove(gone).removed)
        for kept in self.state.kept():
            if kept.user == user and (everything or kept.id in ids):
                paths |= {kept.path} if self.folder.remove(kept.path) else set()
                self.state.unkeep(kept.path)
        for bad in self.state.bad():
            spot = spot_of(bad.path)
            if spot is not None and spot.base == base and (everything or self._names(bad.path, ids)):
                paths |= {bad.path} if self.folder.remove(bad.path) else set()
                self.state.unset_bad(bad.path)
        if everything:
            for name in (ENTRIES, MEMORIES, CONFLICTS) if not base else ("",):
                shutil.rmtree(self.folder.root / base / name, ignore_errors=True)
            (self.folder.root / ENTRIES).mkdir(exist_ok=True)
            self.folder.remove(base + SNAPSHOT)
        elif self.state.count(user)["memories"] <= MOST_AT_ONCE:
            self.write_snapshots([user])
        else:
            # It may name what was erased, and takes long to write.
            self.folder.remove(base + SNAPSHOT)
        self.folder.sync()
        counts = {"files": len(paths)}
        if self.git is not None and (gone or everything):
            folders = [base] if base else [f"{name}/" for name in (ENTRIES, MEMORIES, CONFLICTS)]
            below = folders if everything else []
            counts["commits"] = self.git.forget(ids, {*paths, *(row.path for row in gone)}, below=below)
        # Last of all: whatever breaks off before is done again.
        self.state.drop(gone)
        return counts

    def _names(self, path: str, ids: set[str]) -> bool:
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
            base = base_of(user, self._root_user)
            write_snapshot(user, base, folder=self.folder, state=self.state, changed=changed)

    def unsnapped(self) -> set[str]:
        """Whose `memory_index.json` is not what their files say by now."""
        bases = {user: base_of(user, self._root_user) for user in self.state.users()}
        return {user for user, base in bases.items() if is_behind(user, base, folder=self.folder, state=self.state)}

    def close(self) -> None:
        """Let go of what is open."""
        self.state.close()


def _is_behind(followed: Followed, revision: Revision) -> bool:
    """Whether rows went from the ledger since it was followed."""
    return followed != Followed() and (revision.epoch != followed.epoch or revision.number < followed.revision)
