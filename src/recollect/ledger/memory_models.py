"""What the ledger in memory knows of embedding models."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from recollect.ledger.memory_rows import StoredRow
from recollect.ledger.model_states import EmbeddingProgress, ModelOrigin, ModelState, current_model_state
from recollect.model.times import now
from recollect.models.embedding import EmbeddingModel


class MemoryModelStates:
    """The plainest reading of `ModelStateStore`."""

    def __init__(self) -> None:
        self._models: dict[EmbeddingModel, ModelState] = {}
        self._leases: dict[EmbeddingModel, tuple[str, datetime]] = {}

    def _check_open(self) -> None:
        raise NotImplementedError

    def _rows(self) -> list[StoredRow]:
        raise NotImplementedError

    async def model_states(self) -> list[ModelState]:
        self._check_open()
        return list(self._models.values())

    async def make_current(
        self, model: EmbeddingModel, origin: ModelOrigin, *, replacing: EmbeddingModel | None
    ) -> ModelState:
        self._check_open()
        state = self._models.setdefault(model, ModelState(model=model))
        before = current_model_state(self._models.values())
        if before is not None and before.model != replacing:
            return before
        if before is not None and before.model != model:
            self._models[before.model] = replace(before, is_current=False, retired_at=now())
        if before is None or before.model != model:
            state = replace(state, is_current=True, current_at=now(), retired_at=None)
        self._models[model] = replace(state, origin=origin)
        return self._models[model]

    async def lease_model(
        self,
        model: EmbeddingModel,
        origin: ModelOrigin,
        *,
        owner: str,
        lease_s: float,
        progress: EmbeddingProgress | None = None,
    ) -> bool:
        self._check_open()
        state = self._models.setdefault(model, ModelState(model=model))
        holder, until = self._leases.get(model, ("", now()))
        if holder != owner and until > now():
            return False
        until = now() + timedelta(seconds=lease_s)
        self._leases[model] = (owner, until)
        if progress is not None:
            state = replace(state, embedded=progress.done, to_embed=progress.total)
        self._models[model] = replace(state, lease_expires_at=until, origin=origin if origin.spec else state.origin)
        return True

    async def count_embedded(self, model: EmbeddingModel) -> EmbeddingProgress:
        rows = self._rows()
        return EmbeddingProgress(sum(model in row.vectors for row in rows), len(rows))
