"""Vectors as they are kept: half precision, which no search can tell from the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recollect.errors import InvalidInput
from recollect.models.embedding import EmbeddingModel

if TYPE_CHECKING:
    from recollect.model.change import Vector


def packed(vector: Vector, model: EmbeddingModel) -> bytes:
    """The vector as it is stored; one that the model cannot have made is refused."""
    if vector.shape != (model.dimensions,):
        raise InvalidInput(f"a vector of {model} cannot have the shape {vector.shape}")
    return vector.astype("<f2").tobytes()
