"""What a reranker is: a question and texts in, how well each text answers it out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Reranker(Protocol):
    """Reads a question and a text together, which says more than comparing their vectors, and costs more."""

    @property
    def name(self) -> str: ...

    async def rerank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """For each text in order, a score from 0 to 1: how well it answers `query`.

        Who stops waiting stops the work: a cancelled call must not go on in the background.
        """
        ...

    async def close(self) -> None: ...
