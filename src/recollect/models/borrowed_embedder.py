"""A caller's own embedder: its answers are checked, its errors translated, and it stays the caller's to close."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from recollect.errors import ModelUnavailable, RecollectError
from recollect.models.refusals import describe_error
from recollect.models.unit_vectors import unit_rows

if TYPE_CHECKING:
    from recollect.models.embedding import Embedder, EmbeddingModel, Matrix, Role


class CallerEmbedder:
    """Embeds like `inner`; whatever goes wrong in there is a ModelUnavailable, so that no memory is lost by it."""

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner

    @property
    def model(self) -> EmbeddingModel:
        return self._inner.model

    async def embed(self, texts: Sequence[str], *, role: Role = "passage") -> Matrix:
        try:
            rows = np.asarray(await self._inner.embed(texts, role=role), dtype=np.float32)
        except RecollectError:
            raise
        except Exception as error:
            raise ModelUnavailable(
                f"the embedder {self.model.name!r} failed: {describe_error(error, texts)}"
            ) from error
        if rows.shape != (len(texts), self.model.dimensions):
            raise ModelUnavailable(f"the embedder {self.model.name!r} answered with shape {rows.shape}")
        return unit_rows(rows, texts)

    async def close(self) -> None:
        """Leave `inner` open: who made it may still need it."""
