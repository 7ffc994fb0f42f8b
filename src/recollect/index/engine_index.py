"""An index over an engine: users with few memories are searched exactly, as without one; for others it is asked.

What rows are like stays in memory for all of them, and decides what may be found: the engine only suggests. While it
is away, or far behind, the ledger's vectors are compared one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from recollect.errors import IndexUnavailable
from recollect.index.asked import Asked
from recollect.index.engine import Engine
from recollect.index.engine_view import EngineView, Source
from recollect.index.exact import ExactIndex
from recollect.index.feeder import Feeder
from recollect.index.protocol import Index, View
from recollect.index.recent import Recent, Sample, seen_of
from recollect.index.shard import ROW_BYTES, Shard
from recollect.index.shards import Shards
from recollect.index.view import mask_of
from recollect.ledger.protocol import Ledger, Revision
from recollect.model.breaker import Leave
from recollect.model.erase import Cleared
from recollect.model.query import EVERYTHING, Filter
from recollect.model.scope import Scope
from recollect.models.embedding import EmbeddingModel

# How much of the memory is for what rows are like, without their vectors.
_LIGHT_SHARE = 4
# With more changed rows than these beside what it has, an engine is of no use for a user.
_MOST_RECENT = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """From how many memories of a user on the engine is asked, how much memory there is, how long is waited.

    Where no more than `few_rows` of them may be found, those are read from the ledger and compared one by one, which
    takes about as long as asking.
    """

    exact_rows: int = 20_000
    few_rows: int = 2_000
    budget_bytes: int = 1 << 30
    timeout_s: float = 1.0


@dataclass(slots=True)
class _Beside:
    """What is held of a user besides the shard."""

    recent: Recent | None = None
    sample: Sample | None = None


class EngineIndex:
    """Searches by an engine; one that has to be fed comes with its feeder."""

    def __init__(
        self,
        ledger: Ledger,
        model: EmbeddingModel,
        engine: Engine,
        *,
        sizes: Sizes | None = None,
        feeder: Feeder | None = None,
    ) -> None:
        self._ledger = ledger
        self._model = model
        self._engine = engine
        self._sizes = sizes or Sizes()
        self.feeder = feeder
        self._settles_s: float = getattr(engine, "settles_s", 0.0)
        self._asked = Asked(engine, timeout_s=self._sizes.timeout_s, by_marks=feeder is not None)
        budget = self._sizes.budget_bytes
        self._exact = ExactIndex(ledger, model, budget_bytes=budget - budget // _LIGHT_SHARE)
        self._light = Shards(ledger, model, budget_bytes=budget // _LIGHT_SHARE, light=True)
        self._beside: dict[str, _Beside] = {}
        row_bytes = ROW_BYTES + 3 * model.dimensions
        self._most_exact = max((budget - budget // _LIGHT_SHARE) // row_bytes, self._sizes.exact_rows)

    @property
    def engine(self) -> Engine:
        """What is asked."""
        return self._engine

    @property
    def trouble(self) -> str:
        """What is wrong with the engine; empty if nothing is."""
        return self._asked.trouble or (self.feeder.trouble if self.feeder else "")

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return self._exact.nbytes + self._light.nbytes

    async def view(self, scope: Scope, filter: Filter, *, as_of: datetime | None = None, turns: bool = True) -> View:
        user = scope.user
        if not await self._is_large(user):
            return await self._exact.view(scope, filter, as_of=as_of, turns=turns)
        # What held once and is not active any more no engine has.
        leave = self._asked.leave() if as_of is None else Leave.NO
        beside = await self._caught_up(user) if leave is not Leave.NO else None
        if beside is None and await self._ledger.row_count(user, most=self._most_exact + 1) <= self._most_exact:
            return await self._exact.view(scope, filter, as_of=as_of, turns=turns)
        everything = filter == EVERYTHING and as_of is None
        allowed = None if everything else await self._ledger.matching(scope, filter, as_of=as_of)
        shard = await self._light.get(user)
        places = shard.seen_places(scope)
        mask = mask_of(shard, places, allowed, as_of=as_of, turns=turns)
        if beside is None:
            return EngineView(shard, mask, Source(user, self._ledger, self._model))
        source = Source(user, self._ledger, self._model, self._asked, leave, places, self._sizes.few_rows)
        return EngineView(shard, mask, source, recent=beside.recent, sample=await self._sample(user, shard, beside))

    async def _is_large(self, user: str) -> bool:
        most = self._sizes.exact_rows
        if held := self._exact.held_rows(user):
            return held > most
        light = self._light.held(user)
        if light is not None and light.count > most:
            return True
        return await self._ledger.row_count(user, most=most + 1) > most

    async def _caught_up(self, user: str) -> _Beside | None:
        """What stands beside the engine for a user; None if it is too far behind to be asked."""
        shard = await self._light.get(user)
        beside = self._beside.setdefault(user, _Beside())
        if len(self._beside) > 2 * len(self._light) + 8:
            self._beside = {name: each for name, each in self._beside.items() if self._light.held(name) is not None}
        if self.feeder is None:
            return beside
        fed_as, recent = self.feeder.fed_as, beside.recent
        if recent is None or recent.upto.epoch != shard.revision.epoch:
            seen = await seen_of(user, ledger=self._ledger, index=fed_as, settles_s=self._settles_s)
            if await self._ledger.row_count(user, most=_MOST_RECENT + 1, after=seen) > _MOST_RECENT:
                return None
            recent = beside.recent = Recent(Revision(seen, -1))
        await recent.catch_up(user, shard, ledger=self._ledger, model=self._model)
        await recent.look(user, ledger=self._ledger, index=fed_as, settles_s=self._settles_s)
        if len(recent.rows) > _MOST_RECENT:
            beside.recent = None
            return None
        return beside

    async def _sample(self, user: str, shard: Shard, beside: _Beside) -> Sample:
        sample = beside.sample
        if sample is None or not sample.fits(shard):
            sample = beside.sample = await Sample.take(user, shard, ledger=self._ledger, model=self._model)
        return sample

    async def forget(self, user: str) -> Cleared:
        self._beside.pop(user, None)
        light = await self._light.let_go(user)
        exact = await self._exact.forget(user)
        rows = exact.counts["rows"] + (light.count if light else 0)
        if self.feeder is None:
            return Cleared("index", {"rows": rows}, note="" if rows else "nothing was held")
        try:
            dropped = await self.feeder.drop_strangers(user)
        except (IndexUnavailable, TimeoutError):
            note = f"{self._engine.name} does not answer: what it has of this goes when it does"
            return Cleared("index", {"rows": rows}, reached=False, note=note)
        note = f"in {self._engine.name}; {self.feeder.leaves}"
        return Cleared("index", {"rows": rows, "rows in the engine": dropped}, note=note)

    async def close(self) -> None:
        await self._exact.close()
        self._light.clear()
        self._beside.clear()
        await self._engine.close()


def feeder_of(index: Index) -> Feeder | None:
    """What feeds the index, if it has a store of its own."""
    return index.feeder if isinstance(index, EngineIndex) else None


def trouble_of(index: Index) -> str:
    """What is wrong with the engine behind the index; empty if nothing is, or there is none."""
    return index.trouble if isinstance(index, EngineIndex) else ""


def nudging(index: Index, tell: Callable[[str], None]) -> Callable[[str], None]:
    """What tells of a user's change, and has the index fed with it."""
    feeder = feeder_of(index)
    if feeder is None:
        return tell

    def changed(user: str) -> None:
        tell(user)
        feeder.nudge()

    return changed
