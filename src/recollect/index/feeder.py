"""Feed an engine what changed in the ledger: in batches, over all users, by one process at a time.

What is left to do is nowhere written down: it is whatever is beyond what the ledger noted to be fed. So nothing is
added to a write, and one who is killed leaves nothing undone that the next does not find.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np

from recollect.errors import IndexUnavailable, RecollectError
from recollect.index.engine import FedEngine, Kept, place_mark, user_mark
from recollect.ledger.feeds import Behind, Changed, Revision
from recollect.ledger.protocol import Ledger
from recollect.model.background import BackgroundTask
from recollect.model.erase import Target
from recollect.model.faults import traced_fault
from recollect.model.ids import new_id
from recollect.model.memory import Status
from recollect.model.times import now
from recollect.models.embedding import EmbeddingModel

if TYPE_CHECKING:
    from recollect.model.change import Vector

_log = logging.getLogger("recollect")

_BATCH_ROWS = 500
_USERS = 200
# Beyond any row.
_LAST_ROW = 2**62
_LEASE_S = 30.0
# Longer than this nobody waits for one batch; less than the lease, so that nobody else has begun by then.
_BATCH_S = 20.0
# What others changed is looked for so often; what changed here is fed a moment later, with what comes by then.
_EVERY_S = 5.0
_CALM_S = 0.2
# So many are dropped without looking first whether anything is kept of them, which takes long.
_FEW_ERASED = 100
# Clocks of several machines can differ by so much.
_SKEW = timedelta(hours=1)


@dataclass(slots=True)
class _Batch:
    """What one round brings to the engine, by row, and how far that is with each user; None is to be dropped."""

    rows: dict[int, Kept | None] = field(default_factory=dict)
    fed: dict[str, Revision] = field(default_factory=dict)

    def take(self, user: str, changed: Sequence[Changed]) -> None:
        mark = user_mark(user)
        for row in (each.row for each in changed):
            # Of a row that changed again meanwhile the last one counts.
            self.rows[row.row] = None
            if row.status == Status.ACTIVE and row.vector is not None:
                self.rows[row.row] = Kept(row.row, mark, place_mark(row.place), unit(row.vector))


def unit(vector: bytes) -> Vector:
    """A vector as the ledger keeps it, of length 1 again."""
    wide = np.frombuffer(vector, "<f2").astype(np.float32)
    length = float(np.linalg.norm(wide))
    return wide / np.float32(length) if length else wide


class Feeder:
    """Keeps an engine fed. Several at one ledger take turns: one has the lease, the others stand by."""

    def __init__(
        self, ledger: Ledger, model: EmbeddingModel, engine: FedEngine, *, fed_as: str, every_s: float = _EVERY_S
    ) -> None:
        self.fed_as = fed_as
        self._ledger = ledger
        self.model = model
        self.engine = engine
        self._every_s = every_s
        self._me = new_id()
        self._keeping = BackgroundTask(self._keep)
        self._nudged = asyncio.Event()
        # Erasures of which this feeder knows that the engine has followed them.
        self._swept: set[str] = set()
        self.trouble = ""

    def start(self) -> None:
        """Begin to feed, until this is stopped."""
        if not self._keeping.is_running:
            self._nudged = asyncio.Event()
            self._keeping.start()

    async def stop(self) -> None:
        """Stop feeding; what is left, the next one finds."""
        was_feeding = self._keeping.is_running
        await self._keeping.stop()
        if was_feeding:
            with suppress(RecollectError):
                await self._ledger.lease_feeding(self.fed_as, feeder=self._me, lease_s=-1)

    def nudge(self) -> None:
        """Something changed: do not wait for the next look."""
        self._nudged.set()

    async def feed(self, progress: Callable[[int], None] = lambda rows: None) -> int:
        """Bring the engine what it lacks, unless another is about to; gives how many rows were put or dropped."""
        count = 0
        while await self._has_lease():
            await self._sweep()
            behind = await self._ledger.behind(self.fed_as, limit=_USERS)
            if not behind:
                break
            async for batch in self._batches(behind):
                count += await self._bring(batch)
                progress(count)
        return count

    async def _batches(self, behind: Sequence[Behind]) -> AsyncIterator[_Batch]:
        """What these users have that the engine lacks, about so many rows at a time."""
        batch = _Batch()
        for each in behind:
            if each.fed.epoch != each.now.epoch:
                await self.drop_strangers(each.user)
            after, is_last = (each.fed.number if each.fed.number <= each.now.number else 0, _LAST_ROW), False
            while not is_last:
                changed = await self._ledger.changed_rows(each.user, model=self.model, after=after, limit=_BATCH_ROWS)
                batch.take(each.user, changed)
                is_last = len(changed) < _BATCH_ROWS
                if not is_last:
                    after = (changed[-1].revision, changed[-1].row.row)
                # The last revision may go on in the next batch: only those before it are surely whole.
                batch.fed[each.user] = each.now if is_last else Revision(after[0] - 1, each.now.epoch)
                if len(batch.rows) >= _BATCH_ROWS:
                    yield batch
                    batch = _Batch()
        yield batch

    async def rebuild(self, progress: Callable[[int], None] = lambda rows: None) -> int:
        """Empty the engine and feed it anew, whoever was feeding it; gives how many rows."""
        await self._ledger.lease_feeding(self.fed_as, feeder=self._me, lease_s=_LEASE_S, take=True)
        await self.engine.clear()
        await self._ledger.drop_fed(self.fed_as)
        return await self.feed(progress)

    async def drop_strangers(self, user: str) -> int:
        """Drop what is kept of a user that the ledger does not have any more; gives how many rows that were."""
        async with asyncio.timeout(_BATCH_S):
            # The engine first: what it has was in the ledger before.
            kept = await self.engine.rows(user_mark(user))
            if not kept:
                return 0
            _, rows = await self._ledger.index_rows(user, model=self.model, after=0, vectors=False)
            if not rows:
                return await self.engine.drop_user(user_mark(user))
            strangers = sorted(set(kept).difference(row.row for row in rows))
            for start in range(0, len(strangers), _BATCH_ROWS):
                await self.engine.drop(strangers[start : start + _BATCH_ROWS])
        return len(strangers)

    @property
    def leaves(self) -> str:
        """What stays of rows that were dropped."""
        return self.engine.leaves

    async def _has_lease(self) -> bool:
        return await self._ledger.lease_feeding(self.fed_as, feeder=self._me, lease_s=_LEASE_S)

    async def _bring(self, batch: _Batch) -> int:
        if not batch.fed:
            return 0
        if not await self._has_lease():
            raise IndexUnavailable("another process feeds the index")
        gone = [row for row, kept in batch.rows.items() if kept is None]
        async with asyncio.timeout(_BATCH_S):
            if gone:
                await self.engine.drop(gone)
            if len(gone) < len(batch.rows):
                await self.engine.put([kept for kept in batch.rows.values() if kept is not None])
        settles_s = self.engine.settles_s
        if not await self._ledger.note_fed(self.fed_as, batch.fed, feeder=self._me, settles_s=settles_s):
            # We stood still for longer than a lease: what we put may have been erased meanwhile.
            for user in batch.fed:
                await self.drop_strangers(user)
            raise IndexUnavailable("another process feeds the index")
        return len(batch.rows)

    async def _sweep(self) -> None:
        """Drop what is kept of users who were erased as a whole: nothing else in the ledger tells of them."""
        name, begun = f"swept: {self.fed_as}", now()
        last = (await self._ledger.moments()).get(name)
        erasures = await self._ledger.erasures(since=last - _SKEW if last else None)
        fresh = {each.id: each.user for each in erasures if each.target is Target.USER and each.id not in self._swept}
        if fresh:
            marks = set(fresh.values())
            if len(marks) > _FEW_ERASED:
                marks.intersection_update(await self.engine.users())
            names = {user_mark(user): user for user in await self._ledger.users()}
            for mark in marks:
                # Someone who came back has rows of their own again.
                await (self.drop_strangers(names[mark]) if mark in names else self.engine.drop_user(mark))
            self._swept |= set(fresh)
        if fresh or last is None or begun - last > _SKEW:
            await self._ledger.note_moments({name: begun})

    async def catch_up(self) -> None:
        """Bring the engine what it lacks, or note why it does not take it."""
        try:
            await self.feed()
            self.trouble = ""
        except (IndexUnavailable, TimeoutError) as error:
            told = str(error) or type(error).__name__
            if not self.trouble:
                _log.warning("%s is not fed for now: %s", self.engine.name, told)
            self.trouble = f"{self.engine.name} is not fed: {told}"

    async def _keep(self) -> None:
        while True:
            try:
                await self.catch_up()
            except RecollectError as error:
                _log.warning("the index is not fed for now: %s", error)
            except Exception as error:
                _log.error("feeding the index failed. %s", traced_fault(error))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._nudged.wait()
            self._nudged.clear()
            # What comes in the next moment goes with it.
            await asyncio.sleep(self._every_s if self.trouble else _CALM_S)
