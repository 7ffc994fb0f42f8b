"""Normalise embeddings: finite rows of length one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from recollect.errors import ModelUnavailable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recollect.models.embedding import Matrix


# Enough to tell two texts apart that the model knows nothing about.
MAX_UNKNOWN_WORDS = 64
MAX_UNKNOWN_CHARACTERS = 32_768

# Below this a row has no direction worth keeping.
NO_LENGTH = 1e-9


def unit_rows(vectors: NDArray[Any], texts: Sequence[str]) -> Matrix:
    """Scale each row to length one; a row of zeros gets a direction derived from the words of its text."""
    rows = np.array(vectors, dtype=np.float32)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    if not np.isfinite(lengths).all():
        raise ModelUnavailable("the embedding model answered with numbers that are not finite")
    for row in np.flatnonzero(lengths < NO_LENGTH).tolist():
        rows[row] = direction_of_unknown(texts[row], rows.shape[1])
        lengths[row] = np.linalg.norm(rows[row])
    rows /= lengths[:, None]
    return rows


def direction_of_unknown(text: str, dimensions: int) -> NDArray[np.float32]:
    """Return a direction from the hashes of the words: equal words agree, others are nearly orthogonal."""
    words = text[:MAX_UNKNOWN_CHARACTERS].casefold().split()[:MAX_UNKNOWN_WORDS]
    direction = np.zeros(dimensions, dtype=np.float32)
    for word in words or [""]:
        noise = hashlib.shake_256(word.encode("utf-8", "replace")).digest(dimensions)
        direction += np.frombuffer(noise, dtype=np.uint8) - np.float32(127.5)
    return direction
