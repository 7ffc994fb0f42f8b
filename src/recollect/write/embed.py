"""Embed what is to be kept; a failing embedder never loses a memory."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from recollect.errors import InvalidInput, RecollectError
from recollect.ledger.protocol import Ledger
from recollect.model.change import Add, Change, Supersede, Update
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


async def embed_changes(changes: Sequence[Change], *, embedder: Embedder) -> list[Change]:
    """The changes with vectors for the texts they bring in."""
    texts = [text for change in changes if (text := unembedded_text(change)) is not None]
    vectors = iter(await embed(texts, embedder=embedder) if texts else [])
    return [change if unembedded_text(change) is None else _with_vector(change, next(vectors)) for change in changes]


def unembedded_text(change: Change) -> str | None:
    """The text that a change brings in without a vector."""
    if isinstance(change, (Add, Supersede)):
        return change.record.content if change.vector is None else None
    if isinstance(change, Update) and "content" in change.fields and change.vector is None:
        return str(change.fields["content"])
    return None


def _with_vector(change: Change, vector: Vector | None) -> Change:
    return replace(change, vector=vector) if isinstance(change, (Add, Supersede, Update)) else change


async def accept_vector(embedding: Sequence[float], model: EmbeddingModel, *, ledger: Ledger) -> Vector | None:
    """A vector that a caller brings along; None if it is as long as those of a model before or to come.

    While the model is changed, callers change too, each at a time of its own: then the text is embedded here instead.
    """
    try:
        return normalize_vector(embedding, model)
    except InvalidInput:
        lengths = {state.model.dimensions for state in await ledger.model_states()} - {model.dimensions}
        if not hasattr(embedding, "__len__") or len(embedding) not in lengths:
            raise
        return None


def normalize_vector(embedding: Sequence[float], model: EmbeddingModel) -> Vector:
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
