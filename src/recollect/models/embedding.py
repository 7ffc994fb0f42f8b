"""The protocols of embedders, texts in and unit vectors out, and of rerankers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from recollect.frozen_dataclass import frozen_dataclass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# In quotes, so that numpy is not loaded.
Matrix: TypeAlias = "NDArray[np.float32]"
Role: TypeAlias = Literal["passage", "query"]


@frozen_dataclass
class EmbeddingModel:
    """The identity of a model: vectors of two identities are never compared."""

    name: str
    dimensions: int

    def __str__(self) -> str:
        return f"{self.name} ({self.dimensions} dimensions)"


# Token vectors of late interaction are stored in the ledger as those of a model of this name.
TOKEN_MODEL = EmbeddingModel("recollect-late-1", 96)


class Embedder(Protocol):
    """Turns texts into float32 vectors of length one, one row a text."""

    @property
    def model(self) -> EmbeddingModel: ...

    async def embed(self, texts: Sequence[str], *, role: Role = "passage") -> Matrix:
        """Embed `texts` in order; `role` distinguishes questions from passages."""

    async def close(self) -> None: ...


class Reranker(Protocol):
    """Reads a question and a text together: more accurate than comparing vectors, and slower."""

    @property
    def name(self) -> str: ...

    async def rerank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Return a score from 0 to 1 for each text in order: how well it answers `query`.

        Who stops waiting stops the work: a cancelled call must not go on in the background.
        """

    async def close(self) -> None: ...
