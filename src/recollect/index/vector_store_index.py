"""An index whose nearest rows are suggested by a vector database and scored here, with vectors of the ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from recollect.aio.breaker import Permit
from recollect.errors import IndexUnavailable
from recollect.frozen_dataclass import frozen_dataclass
from recollect.index.exact import ExactIndex
from recollect.index.protocol import Index, Nearest, View
from recollect.index.shard import ROW_BYTES, Shard, ShardCache, ShardView, cosines, unpack_vectors, visible_mask
from recollect.index.store_sync import IndexSync
from recollect.index.vector_store import GuardedStore, VectorStore
from recollect.ledger.ledger import Ledger
from recollect.ledger.types import Revision
from recollect.model.change import Vector
from recollect.model.erasure import StoreErasure
from recollect.model.query import EVERYTHING, Filter
from recollect.model.scope import Scope
from recollect.model.times import now, to_micros
from recollect.models.embedding import EmbeddingModel

Rows = NDArray[np.int64]


# The mean of a sample of this size is off by a 32nd of the standard deviation.
SAMPLE_ROWS = 1_024
CHECK_INTERVAL_S = 1.0


@dataclass(slots=True)
class UnsyncedRows:
    """Rows that changed since the revision the store surely has: by row, the revision of the change, and the vector.

    They are searched in addition to the store's suggestions, so that new memories are found at once.
    """

    revision: Revision
    rows: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    checked_at: float = 0.0

    async def catch_up(self, user: str, shard: Shard, *, ledger: Ledger, model: EmbeddingModel) -> None:
        """Add the rows that changed up to the revision of the shard."""
        if self.revision == shard.revision:
            return
        revision, changed = await ledger.index_rows(user, model=model, after=self.revision.number)
        for row in changed:
            self.rows.pop(row.row, None)
            if row.vector is not None:
                self.rows[row.row] = (revision.number, row.vector)
        self.revision = revision

    async def drop_synced(self, user: str, *, ledger: Ledger, index: str, settles_s: float) -> None:
        """Remove the rows that every search of the store sees by now."""
        moment = monotonic()
        if not self.rows or moment < self.checked_at + CHECK_INTERVAL_S:
            return
        self.checked_at = moment
        synced = await synced_revision(user, ledger=ledger, index=index, settles_s=settles_s)
        self.rows = {row: each for row, each in self.rows.items() if each[0] > synced}


async def synced_revision(user: str, *, ledger: Ledger, index: str, settles_s: float) -> int:
    """Return the last revision of a user of which every search of the store sees everything."""
    return (await ledger.feed_position(user, index=index)).visible_revision(settles_s, at=to_micros(now()))


@frozen_dataclass
class VectorSample:
    """A sample of a user's rows, drawn anew when the user has twice as many."""

    epoch: int
    population: int
    rows: NDArray[np.int64]
    halves: NDArray[np.float16]

    def fits(self, shard: Shard) -> bool:
        """Return whether it still represents the shard."""
        return self.epoch == shard.revision.epoch and shard.count < 2 * self.population

    @classmethod
    async def draw(cls, user: str, shard: Shard, *, ledger: Ledger, model: EmbeddingModel) -> VectorSample:
        """Draw a sample of the active rows with a vector."""
        count = shard.count
        rows = shard.rows[:count][shard.active[:count] & shard.embedded[:count]]
        if len(rows) > SAMPLE_ROWS:
            rows = np.sort(np.random.default_rng(count).choice(rows, SAMPLE_ROWS, replace=False))
        vectors = await ledger.vectors_of(user, rows.tolist(), model=model)
        rows = np.asarray([row for row in rows.tolist() if row in vectors], np.int64)
        halves = unpack_vectors((vectors[row] for row in rows.tolist()), model.dimensions)
        return cls(shard.revision.epoch, max(count, 1), rows, halves)


# The limit of Milvus.
MAX_REQUESTED = 16_000
_RETRY_FACTOR = 4
# Rows read from the ledger at once when all are compared.
_PAGE = 4_096
# Smaller visible samples are not used.
_MIN_SAMPLED = 128


@frozen_dataclass
class ViewSource:
    """Where a view gets vectors (the ledger) and suggestions (the store, if one is available)."""

    user: str
    ledger: Ledger
    model: EmbeddingModel
    store: GuardedStore | None = None
    permit: Permit = Permit.CALL
    places: Sequence[str] = ()
    few_rows: int = 0


class VectorStoreView(ShardView):
    """Rows whose traits are in memory and whose vectors are in the ledger. Mean and deviation are of a sample."""

    is_quick = False

    def __init__(
        self,
        shard: Shard,
        mask: NDArray[np.bool_],
        source: ViewSource,
        *,
        unsynced: UnsyncedRows | None = None,
        sample: VectorSample | None = None,
    ) -> None:
        super().__init__(shard, mask)
        self._source = source
        self._sample = sample
        self._vector_cache = {row: vector for row, (_, vector) in unsynced.rows.items()} if unsynced else {}
        self._unsynced = np.fromiter(self._vector_cache, np.int64, len(self._vector_cache))

    async def nearest(self, vector: Vector, *, limit: int) -> Nearest:
        rows = self._rows[self._mask & self._embedded]
        if not len(rows) or not vector.any():
            return Nearest(np.empty(0, np.int64), np.empty(0, np.float32), len(rows), 0.0, 0.0)
        suggested = rows
        if len(rows) > self._source.few_rows:
            suggestions = await self._suggest(vector, limit, len(rows))
            if suggestions is None:
                return await self._compare_all(vector, rows, limit)
            suggested = suggestions
        scores = await self.similarity(vector, suggested)
        if suggested is rows:
            mean, deviation = float(scores.mean()), float(scores.std())
        else:
            mean, deviation = await self._spread(vector, rows)
        order = np.lexsort((suggested, -scores))[:limit]
        return Nearest(suggested[order], scores[order], len(rows), mean, deviation)

    async def _suggest(self, vector: Vector, limit: int, visible_count: int) -> Rows | None:
        """Return visible rows that likely include the nearest; None if the store has too few or is unavailable."""
        source = self._source
        if source.store is None or limit > MAX_REQUESTED // 2:
            return None
        stored_count = int(np.count_nonzero(self._shard.visible_from(source.places)))
        # A few more than requested, and as many more as the mask removes.
        first_limit = (limit + limit // 4 + 8) * max(stored_count, visible_count) // visible_count
        unsynced = self._searchable(self._unsynced)
        for store_limit in (first_limit, first_limit * _RETRY_FACTOR):
            try:
                scored = await source.store.nearest(
                    source.user,
                    vector,
                    places=source.places,
                    limit=min(store_limit, MAX_REQUESTED),
                    permit=source.permit,
                )
            except IndexUnavailable:
                return None
            rows: Rows = np.unique(np.concatenate((self._searchable(scored.rows), unsynced)))
            if len(rows) >= min(limit, visible_count):
                return rows
        return None

    def _searchable(self, rows: Rows) -> Rows:
        """Return the rows that are visible and have a vector."""
        at, is_present = self._look_up(rows)
        return rows[is_present & self._mask[at] & self._embedded[at]] if len(self._mask) else rows[:0]

    async def _compare_all(self, vector: Vector, rows: Rows, limit: int) -> Nearest:
        """Return the nearest rows by comparing with every one, a page at a time."""
        source = self._source
        scores = np.zeros(len(rows), np.float32)
        for start in range(0, len(rows), _PAGE):
            page = rows[start : start + _PAGE].tolist()
            vectors = await source.ledger.vectors_of(source.user, page, model=source.model)
            scores[start : start + _PAGE] = cosines(
                vector, unpack_vectors(map(vectors.get, page), source.model.dimensions)
            )
        best = np.argpartition(scores, len(rows) - limit)[-limit:] if limit < len(rows) else np.arange(len(rows))
        order = best[np.lexsort((rows[best], -scores[best]))]
        return Nearest(rows[order], scores[order], len(rows), float(scores.mean()), float(scores.std()))

    async def _spread(self, vector: Vector, rows: Rows) -> tuple[float, float]:
        """Estimate the mean and the standard deviation of the scores of all rows."""
        halves = None
        if self._sample is not None:
            halves = self._sample.halves[self.is_visible(self._sample.rows)]
        if halves is None or len(halves) < _MIN_SAMPLED:
            halves = await self._halves(rows[:: max(1, len(rows) // _MIN_SAMPLED)])
        scores = cosines(vector, halves)
        return float(scores.mean()), float(scores.std())

    async def similarity(self, vector: Vector, rows: Rows) -> NDArray[np.float32]:
        if not len(rows):
            return np.zeros(0, np.float32)
        return cosines(vector, await self._halves(rows))

    async def vectors(self, rows: Rows) -> NDArray[np.float32]:
        return (await self._halves(rows)).astype(np.float32)

    async def _halves(self, rows: Rows) -> NDArray[np.float16]:
        """Return the vectors of rows, cached, because one set of candidates is read several times."""
        source, numbers = self._source, rows.tolist()
        missing = [row for row in numbers if row not in self._vector_cache]
        if missing:
            vectors = await source.ledger.vectors_of(source.user, missing, model=source.model)
            self._vector_cache |= {row: vectors.get(row, b"") for row in missing}
        return unpack_vectors((self._vector_cache[row] for row in numbers), source.model.dimensions)


# The share of the memory budget for traits of rows without vectors.
_LIGHT_DIVISOR = 4
# With more rows than this not yet in the store, it is not used for a user.
_MAX_UNSYNCED = 5_000


@frozen_dataclass(kw_only=True)
class VectorStoreLimits:
    """The number of memories up to which a user is searched exactly, the memory budget, and the timeout.

    If at most `few_rows` are visible they are read from the ledger and compared, which is as fast as the store; not
    if `exact_rows` is smaller.
    """

    exact_rows: int = 20_000
    few_rows: int = 2_000
    budget_bytes: int = 1 << 30
    timeout_s: float = 1.0


@dataclass(slots=True)
class _UserState:
    """The state of a user besides the shard."""

    unsynced: UnsyncedRows | None = None
    sample: VectorSample | None = None


class VectorStoreIndex:
    """Searches large users in a vector database, others in memory; `sync` writes to a store with its own copy."""

    def __init__(
        self,
        ledger: Ledger,
        model: EmbeddingModel,
        store: VectorStore,
        *,
        limits: VectorStoreLimits | None = None,
        sync: IndexSync | None = None,
    ) -> None:
        self._ledger = ledger
        self._model = model
        self.store = store
        self._limits = limits or VectorStoreLimits()
        self.sync = sync
        self._settles_s: float = getattr(store, "settles_s", 0.0)
        self._guarded = GuardedStore(store, timeout_s=self._limits.timeout_s, hashes_names=sync is not None)
        budget = self._limits.budget_bytes
        self._exact = ExactIndex(ledger, model, budget_bytes=budget - budget // _LIGHT_DIVISOR)
        self._light = ShardCache(ledger, model, budget_bytes=budget // _LIGHT_DIVISOR, light=True)
        self._user_states: dict[str, _UserState] = {}
        row_bytes = ROW_BYTES + 3 * model.dimensions
        self._max_exact_rows = max((budget - budget // _LIGHT_DIVISOR) // row_bytes, self._limits.exact_rows)

    @property
    def last_error(self) -> str:
        """Return what is wrong with the store; empty if nothing is."""
        return self._guarded.last_error or (self.sync.last_error if self.sync else "")

    @property
    def nbytes(self) -> int:
        """Return the bytes of memory in use."""
        return self._exact.nbytes + self._light.nbytes

    async def view(self, scope: Scope, filter: Filter, *, as_of: datetime | None = None, turns: bool = True) -> View:
        user = scope.user
        if not await self._is_large(user):
            return await self._exact.view(scope, filter, as_of=as_of, turns=turns)
        # Stores hold active rows only.
        permit = self._guarded.request_permit() if as_of is None else Permit.DENY
        state = await self._catch_up(user) if permit is not Permit.DENY else None
        if (
            state is None
            and await self._ledger.row_count(user, max_count=self._max_exact_rows + 1) <= self._max_exact_rows
        ):
            return await self._exact.view(scope, filter, as_of=as_of, turns=turns)
        everything = filter == EVERYTHING and as_of is None
        allowed = None if everything else await self._ledger.matching(scope, filter, as_of=as_of)
        shard = await self._light.get(user)
        places = shard.visible_places(scope)
        mask = visible_mask(shard, places, allowed, as_of=as_of, turns=turns)
        if state is None:
            return VectorStoreView(shard, mask, ViewSource(user, self._ledger, self._model))
        few_rows = min(self._limits.few_rows, self._limits.exact_rows)
        source = ViewSource(user, self._ledger, self._model, self._guarded, permit, places, few_rows)
        return VectorStoreView(
            shard, mask, source, unsynced=state.unsynced, sample=await self._sample(user, shard, state)
        )

    async def _is_large(self, user: str) -> bool:
        max_rows = self._limits.exact_rows
        if loaded_rows := self._exact.loaded_rows(user):
            return loaded_rows > max_rows
        light = self._light.peek(user)
        if light is not None and light.count > max_rows:
            return True
        return await self._ledger.row_count(user, max_count=max_rows + 1) > max_rows

    async def _catch_up(self, user: str) -> _UserState | None:
        """Return the state of a user; None if the store lags too far behind to be used."""
        shard = await self._light.get(user)
        state = self._user_states.setdefault(user, _UserState())
        if len(self._user_states) > 2 * len(self._light) + 8:
            self._user_states = {
                name: each for name, each in self._user_states.items() if self._light.peek(name) is not None
            }
        if self.sync is None:
            return state
        feed_name, unsynced = self.sync.feed_name, state.unsynced
        if unsynced is None or unsynced.revision.epoch != shard.revision.epoch:
            revision = await synced_revision(user, ledger=self._ledger, index=feed_name, settles_s=self._settles_s)
            if await self._ledger.row_count(user, max_count=_MAX_UNSYNCED + 1, after=revision) > _MAX_UNSYNCED:
                return None
            unsynced = state.unsynced = UnsyncedRows(Revision(revision, -1))
        await unsynced.catch_up(user, shard, ledger=self._ledger, model=self._model)
        await unsynced.drop_synced(user, ledger=self._ledger, index=feed_name, settles_s=self._settles_s)
        if len(unsynced.rows) > _MAX_UNSYNCED:
            state.unsynced = None
            return None
        return state

    async def _sample(self, user: str, shard: Shard, state: _UserState) -> VectorSample:
        sample = state.sample
        if sample is None or not sample.fits(shard):
            sample = state.sample = await VectorSample.draw(user, shard, ledger=self._ledger, model=self._model)
        return sample

    async def forget(self, user: str) -> StoreErasure:
        self._user_states.pop(user, None)
        light = await self._light.remove(user)
        exact = await self._exact.forget(user)
        rows = exact.counts["rows"] + (light.count if light else 0)
        if self.sync is None:
            return StoreErasure("index", {"rows": rows}, note="" if rows else "not in memory")
        try:
            dropped = await self.sync.drop_orphans(user)
        except (IndexUnavailable, TimeoutError):
            note = f"{self.store.name} does not answer; its rows are dropped once it does"
            return StoreErasure("index", {"rows": rows}, reached=False, note=note)
        note = f"in {self.store.name}; {self.sync.store.residue}"
        return StoreErasure("index", {"rows": rows, "rows in the engine": dropped}, note=note)

    async def close(self) -> None:
        await self._exact.close()
        self._light.clear()
        self._user_states.clear()
        await self.store.close()


def sync_of(index: Index) -> IndexSync | None:
    """Return the sync of an index whose store has its own copy of the vectors."""
    return index.sync if isinstance(index, VectorStoreIndex) else None


def last_index_error(index: Index) -> str:
    """Return what is wrong with the vector database of the index; empty if nothing is, or there is none."""
    return index.last_error if isinstance(index, VectorStoreIndex) else ""


def notify_and_sync(index: Index, notify: Callable[[str], None]) -> Callable[[str], None]:
    """Return a callback for changes that calls `notify`, and syncs the index if it needs to be."""
    sync = sync_of(index)
    if sync is None:
        return notify

    def changed(user: str) -> None:
        notify(user)
        sync.wake()

    return changed
