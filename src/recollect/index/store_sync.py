"""Write what changed in the ledger to a vector database: in batches, over all users, by one process at a time.

There is no queue: whatever is newer than the recorded position of the index is left to do. So writes cost nothing
more, and a killed process leaves nothing undone that the next one does not find.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np

from recollect.aio.background import BackgroundTask
from recollect.errors import IndexUnavailable, RecollectError
from recollect.frozen_dataclass import frozen_dataclass
from recollect.index.vector_store import ExternalVectorStore, StoredVector, hash_place, hash_user
from recollect.ledger.ledger import Ledger
from recollect.ledger.types import ChangedRow, IndexLag, Revision
from recollect.model.change import Vector
from recollect.model.erasure import Target
from recollect.model.ids import new_id
from recollect.model.memory import Status
from recollect.model.times import now
from recollect.models.embedding import EmbeddingModel
from recollect.observability.tracing import format_traceback

_log = logging.getLogger("recollect")

BATCH_ROWS = 500
_BATCH_USERS = 200
# Greater than any row number.
_LAST_ROW = 2**62
_LEASE_S = 30.0
# The timeout of a batch is less than the lease, so that no other process has begun by then.
_BATCH_TIMEOUT_S = 20.0
# Changes of other processes are polled; those of this one are written after a short delay, together.
INTERVAL_S = 5.0
_DEBOUNCE_S = 0.2
# Up to this many erased users are dropped without listing the users of the store first, which is slow.
_MAX_UNCHECKED_ERASED = 100
# How far the clocks of several machines may be apart.
_SKEW = timedelta(hours=1)


@dataclass(slots=True)
class _Batch:
    """Rows to write, or to drop if None, and the position of each user after that."""

    rows: dict[int, StoredVector | None] = field(default_factory=dict)
    fed: dict[str, Revision] = field(default_factory=dict)

    def add(self, user: str, changed: Sequence[ChangedRow]) -> None:
        user_hash = hash_user(user)
        for row in (each.row for each in changed):
            # A row may have changed again since an earlier page.
            self.rows[row.row] = None
            if row.status == Status.ACTIVE and row.vector is not None:
                self.rows[row.row] = StoredVector(
                    row.row, user_hash, hash_place(row.visibility_key), to_unit_vector(row.vector)
                )


def to_unit_vector(vector: bytes) -> Vector:
    """Unpack a stored vector and normalise it."""
    numbers = np.frombuffer(vector, "<f2").astype(np.float32)
    length = float(np.linalg.norm(numbers))
    return numbers / np.float32(length) if length else numbers


class IndexSync:
    """Keeps a store in sync with the ledger. Of several processes one has the lease, the others stand by."""

    def __init__(
        self,
        ledger: Ledger,
        model: EmbeddingModel,
        store: ExternalVectorStore,
        *,
        feed_name: str,
        every_s: float = INTERVAL_S,
    ) -> None:
        self.feed_name = feed_name
        self._ledger = ledger
        self.model = model
        self.store = store
        self._every_s = every_s
        self._worker_id = new_id()
        self._task = BackgroundTask(self._run)
        self._wake_event = asyncio.Event()
        # Erasures that were carried out in the store by this process.
        self._handled_erasures: set[str] = set()
        self.last_error = ""

    def start(self) -> None:
        """Sync in the background until stopped."""
        if not self._task.is_running:
            self._wake_event = asyncio.Event()
            self._task.start()

    async def stop(self) -> None:
        """Stop, and release the lease."""
        was_running = self._task.is_running
        await self._task.stop()
        if was_running:
            with suppress(RecollectError):
                await self._ledger.lease_feed(self.feed_name, feeder=self._worker_id, lease_s=-1)

    def wake(self) -> None:
        """Sync soon, because something changed."""
        self._wake_event.set()

    async def sync(self, progress: Callable[[int], None] = lambda rows: None) -> int:
        """Write what the store lacks, unless another process has the lease; return how many rows were written."""
        count = 0
        while await self._has_lease():
            await self._drop_erased_users()
            lagging = await self._ledger.lagging_users(self.feed_name, limit=_BATCH_USERS)
            if not lagging:
                break
            async for batch in self._batches(lagging):
                count += await self._write_batch(batch)
                progress(count)
        return count

    async def _batches(self, lagging: Sequence[IndexLag]) -> AsyncIterator[_Batch]:
        """Yield what the store lacks of these users, about BATCH_ROWS rows at a time."""
        batch = _Batch()
        for each in lagging:
            if each.indexed.epoch != each.current.epoch:
                await self.drop_orphans(each.user)
            after = (each.indexed.number if each.indexed.number <= each.current.number else 0, _LAST_ROW)
            is_last = False
            while not is_last:
                changed = await self._ledger.changed_rows(each.user, model=self.model, after=after, limit=BATCH_ROWS)
                batch.add(each.user, changed)
                is_last = len(changed) < BATCH_ROWS
                if not is_last:
                    after = (changed[-1].revision, changed[-1].row.row)
                # The last revision may continue in the next batch: only those before it are complete.
                batch.fed[each.user] = each.current if is_last else Revision(after[0] - 1, each.current.epoch)
                if len(batch.rows) >= BATCH_ROWS:
                    yield batch
                    batch = _Batch()
        yield batch

    async def rebuild(self, progress: Callable[[int], None] = lambda rows: None) -> int:
        """Clear the store and write everything, taking over the lease; return how many rows."""
        await self._ledger.lease_feed(self.feed_name, feeder=self._worker_id, lease_s=_LEASE_S, take=True)
        await self.store.clear()
        await self._ledger.reset_feed(self.feed_name)
        return await self.sync(progress)

    async def drop_orphans(self, user: str) -> int:
        """Drop the rows of a user that are no longer in the ledger; return how many."""
        async with asyncio.timeout(_BATCH_TIMEOUT_S):
            # The store first: what it has was in the ledger before.
            stored = await self.store.rows(hash_user(user))
            if not stored:
                return 0
            _, rows = await self._ledger.index_rows(user, model=self.model, after=0, vectors=False)
            if not rows:
                return await self.store.drop_user(hash_user(user))
            orphans = sorted(set(stored).difference(row.row for row in rows))
            for start in range(0, len(orphans), BATCH_ROWS):
                await self.store.drop(orphans[start : start + BATCH_ROWS])
        return len(orphans)

    async def _has_lease(self) -> bool:
        return await self._ledger.lease_feed(self.feed_name, feeder=self._worker_id, lease_s=_LEASE_S)

    async def _write_batch(self, batch: _Batch) -> int:
        if not batch.fed:
            return 0
        if not await self._has_lease():
            raise IndexUnavailable("another process has the lease of the index")
        removed = [row for row, stored in batch.rows.items() if stored is None]
        async with asyncio.timeout(_BATCH_TIMEOUT_S):
            if removed:
                await self.store.drop(removed)
            if len(removed) < len(batch.rows):
                await self.store.put([stored for stored in batch.rows.values() if stored is not None])
        settles_s = self.store.settles_s
        if not await self._ledger.save_feed_positions(
            self.feed_name, batch.fed, feeder=self._worker_id, settles_s=settles_s
        ):
            # This process was suspended for longer than the lease: what it wrote may have been erased meanwhile.
            for user in batch.fed:
                await self.drop_orphans(user)
            raise IndexUnavailable("another process has the lease of the index")
        return len(batch.rows)

    async def _drop_erased_users(self) -> None:
        """Drop users who were erased as a whole; the ledger has no other trace of them."""
        name, started = f"swept: {self.feed_name}", now()
        last = (await self._ledger.maintenance_times()).get(name)
        erasures = await self._ledger.erasures(since=last - _SKEW if last else None)
        fresh = {
            each.id: each.user
            for each in erasures
            if each.target is Target.USER and each.id not in self._handled_erasures
        }
        if fresh:
            hashes = set(fresh.values())
            if len(hashes) > _MAX_UNCHECKED_ERASED:
                hashes.intersection_update(await self.store.users())
            names = {hash_user(user): user for user in await self._ledger.users()}
            for user_hash in hashes:
                # An erased user may have written again.
                await (self.drop_orphans(names[user_hash]) if user_hash in names else self.store.drop_user(user_hash))
            self._handled_erasures |= set(fresh)
        if fresh or last is None or started - last > _SKEW:
            await self._ledger.record_maintenance_times({name: started})

    async def catch_up(self) -> None:
        """Write what the store lacks, or record the error."""
        try:
            await self.sync()
            self.last_error = ""
        except (IndexUnavailable, TimeoutError) as error:
            message = str(error) or type(error).__name__
            if not self.last_error:
                _log.warning("%s cannot be synced: %s", self.store.name, message)
            self.last_error = f"{self.store.name} cannot be synced: {message}"

    async def _run(self) -> None:
        while True:
            try:
                await self.catch_up()
            except RecollectError as error:
                _log.warning("the index cannot be synced: %s", error)
            except Exception as error:
                _log.error("syncing the index failed: %s", format_traceback(error))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._wake_event.wait()
            self._wake_event.clear()
            # Further changes of the next moment are written together.
            await asyncio.sleep(self._every_s if self.last_error else _DEBOUNCE_S)


@frozen_dataclass
class IndexCheck:
    """How many rows of a user a store should have, has, misses and has in excess, and how many changed since.

    For a user that the ledger does not know, `user` is a hash.
    """

    user: str
    rows: int
    kept: int
    missing: int
    extra: int
    waiting: int

    @property
    def is_consistent(self) -> bool:
        """Return whether the store has what its recorded position says."""
        return not self.missing and not self.extra


async def verify_index(
    ledger: Ledger, model: EmbeddingModel, store: ExternalVectorStore, *, feed_name: str
) -> AsyncIterator[IndexCheck]:
    """Yield a check of every user of the ledger, and of other users in the store."""
    users = await ledger.users()
    for user in users:
        # The store before the ledger: what is written meanwhile is in the ledger by then.
        stored = set(await store.rows(hash_user(user)))
        fed = await ledger.feed_position(user, index=feed_name)
        _, changed = await ledger.index_rows(user, model=model, after=fed.revision.number, vectors=False)
        _, rows = await ledger.index_rows(user, model=model, after=0, vectors=False)
        expected = {row.row for row in rows if row.status == Status.ACTIVE and row.vector is not None}
        waiting = {row.row for row in changed}
        missing, extra = expected - stored - waiting, stored - expected - waiting
        yield IndexCheck(
            user, len(expected), len(stored), len(missing), len(extra), len((expected ^ stored) & waiting)
        )
    for user_hash in sorted(set(await store.users()).difference(map(hash_user, users))):
        count = len(await store.rows(user_hash))
        yield IndexCheck(user_hash, 0, count, 0, count, 0)
