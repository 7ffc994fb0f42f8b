"""What the ledger in memory knows of embedding models."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from recollect.ledger.memory_rows import Row
from recollect.ledger.model_states import Embedded, ModelState, Origin, current_of
from recollect.model.times import now
from recollect.models.embedding import EmbeddingModel


class MemoryModels:
    """The plainest reading of `ModelStates`."""

    def __init__(self) -> None:
        self._models: dict[EmbeddingModel, ModelState] = {}
        self._holders: dict[EmbeddingModel, tuple[str, datetime]] = {}

    def _check_open(self) -> None:
        raise NotImplementedError

    def _rows(self) -> list[Row]:
        raise NotImplementedError

    async def model_states(self) -> list[ModelState]:
        self._check_open()
        return list(self._models.values())

    async def make_current(
        self, model: EmbeddingModel, origin: Origin, *, instead_of: EmbeddingModel | None
    ) -> ModelState:
        self._check_open()
        state = self._models.setdefault(model, ModelState(model=model))
        before = current_of(self._models.values())
        if before is not None and before.model != instead_of:
            return before
        if before is not None and before.model != model:
            self._models[before.model] = replace(before, is_current=False, retired_at=now())
        if before is None or before.model != model:
            state = replace(state, is_current=True, current_at=now(), retired_at=None)
        self._models[model] = replace(state, origin=origin)
        return self._models[model]

    async def hold_model(
        self, model: EmbeddingModel, origin: Origin, *, who: str, for_s: float, so_far: Embedded | None = None
    ) -> bool:
        self._check_open()
        state = self._models.setdefault(model, ModelState(model=model))
        holder, until = self._holders.get(model, ("", now()))
        if holder != who and until > now():
            return False
        until = now() + timedelta(seconds=for_s)
        self._holders[model] = (who, until)
        if so_far is not None:
            state = replace(state, embedded=so_far.done, to_embed=so_far.total)
        self._models[model] = replace(state, held_until=until, origin=origin if origin.spec else state.origin)
        return True

    async def count_embedded(self, model: EmbeddingModel) -> Embedded:
        rows = self._rows()
        return Embedded(sum(model in row.vectors for row in rows), len(rows))
