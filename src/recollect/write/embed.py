"""Embed texts before they are stored; if the embedder fails, they are stored without vectors."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from recollect.errors import InvalidInput, RecollectError
from recollect.ledger.ledger import Ledger
from recollect.model.change import Add, Change, Supersede, Update, Vector
from recollect.models.embedding import Embedder, EmbeddingModel

_log = logging.getLogger("recollect")


async def embed(texts: Sequence[str], *, embedder: Embedder) -> list[Vector | None]:
    """Return a vector for each text, or None for each if the embedder fails.

    Memories without a vector are found by their words, and are embedded in the background later.
    """
    try:
        return list(await embedder.embed(texts, role="passage"))
    except RecollectError as error:
        _log.warning("%d texts are stored without vectors until they are embedded again: %s", len(texts), error)
        return [None] * len(texts)


async def embed_changes(changes: Sequence[Change], *, embedder: Embedder) -> list[Change]:
    """Return the changes with vectors for their texts."""
    texts = [text for change in changes if (text := unembedded_text(change)) is not None]
    vectors = iter(await embed(texts, embedder=embedder) if texts else [])
    return [change if unembedded_text(change) is None else _with_vector(change, next(vectors)) for change in changes]


def unembedded_text(change: Change) -> str | None:
    """Return the text of a change that has no vector yet."""
    if isinstance(change, (Add, Supersede)):
        return change.record.content if change.vector is None else None
    if isinstance(change, Update) and "content" in change.fields and change.vector is None:
        return str(change.fields["content"])
    return None


def _with_vector(change: Change, vector: Vector | None) -> Change:
    return replace(change, vector=vector) if isinstance(change, (Add, Supersede, Update)) else change


async def accept_vector(embedding: Sequence[float], model: EmbeddingModel, *, ledger: Ledger) -> Vector | None:
    """Return a caller's vector; None if it has the dimensions of a previous or next model.

    During a change of the model callers switch at different times, so the text is embedded here instead.
    """
    try:
        return normalize_vector(embedding, model)
    except InvalidInput:
        lengths = {state.model.dimensions for state in await ledger.model_states()} - {model.dimensions}
        if not hasattr(embedding, "__len__") or len(embedding) not in lengths:
            raise
        return None


def normalize_vector(embedding: Sequence[float], model: EmbeddingModel) -> Vector:
    """Return a caller's vector scaled to length one; it must have the dimensions of the model."""
    import numpy as np

    try:
        vector = np.asarray(embedding, np.float32)
    except (TypeError, ValueError):
        raise InvalidInput("`embedding` must be a list of numbers") from None
    if vector.shape != (model.dimensions,):
        raise InvalidInput(f"`embedding` must have {model.dimensions} numbers for {model}, got shape {vector.shape}")
    length = float(np.linalg.norm(vector))
    if not np.isfinite(length) or length == 0:
        raise InvalidInput("`embedding` must have a finite length greater than 0")
    return vector / np.float32(length)
