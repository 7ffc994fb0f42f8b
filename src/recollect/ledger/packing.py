"""Vectors as they are kept: half precision, which no search can tell from the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recollect.errors import InvalidInput
from recollect.models.embedding import EmbeddingModel

if TYPE_CHECKING:
    from recollect.model.change import Vector


def unpack_vector(data: bytes, model: EmbeddingModel) -> Vector:
    """The vector that was stored so; what is none of the model's is refused."""
    import numpy as np

    if len(data) != 2 * model.dimensions:
        raise InvalidInput(f"a vector of {model} has {2 * model.dimensions} bytes, not {len(data)}")
    return np.frombuffer(data, "<f2").astype(np.float32)


def pack_vector(vector: Vector, model: EmbeddingModel) -> bytes:
    """The vector as it is stored; one that the model cannot have made is refused."""
    if vector.shape != (model.dimensions,):
        raise InvalidInput(f"a vector of {model} cannot have the shape {vector.shape}")
    return vector.astype("<f2").tobytes()
