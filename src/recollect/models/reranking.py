"""The protocol of rerankers: score how well texts answer a question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Reranker(Protocol):
    """Reads a question and a text together: more accurate than comparing vectors, and slower."""

    @property
    def name(self) -> str: ...

    async def rerank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Return a score from 0 to 1 for each text in order: how well it answers `query`.

        Who stops waiting stops the work: a cancelled call must not go on in the background.
        """
        ...

    async def close(self) -> None: ...
