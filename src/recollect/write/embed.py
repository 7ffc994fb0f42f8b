"""Embed what is to be kept; a failing embedder never loses a memory."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from recollect.errors import InvalidInput, RecollectError
from recollect.models.embedding import Embedder, EmbeddingModel

if TYPE_CHECKING:
    from recollect.model.change import Vector

_log = logging.getLogger("recollect")


async def embed(texts: Sequence[str], *, embedder: Embedder) -> list[Vector | None]:
    """A vector for each text, or None for all of them while the embedder is away or refuses.

    Memories without a vector are found by their words, and get one at the next re-embedding.
    """
    try:
        return list(await embedder.embed(texts, role="passage"))
    except RecollectError as error:
        _log.warning("%d texts are kept without vectors for now: %s", len(texts), error)
        return [None] * len(texts)


def ready_made(embedding: Sequence[float], model: EmbeddingModel) -> Vector:
    """A vector that a caller brings along, scaled to length one; it must be of the ledger's model."""
    import numpy as np

    try:
        vector = np.asarray(embedding, np.float32)
    except (TypeError, ValueError):
        raise InvalidInput("embedding is a list of numbers") from None
    if vector.shape != (model.dimensions,):
        raise InvalidInput(f"embedding has the shape {vector.shape}, but {model} makes vectors of {model.dimensions}")
    length = float(np.linalg.norm(vector))
    if not np.isfinite(length) or length == 0:
        raise InvalidInput("embedding must have a finite length greater than 0")
    return vector / np.float32(length)
