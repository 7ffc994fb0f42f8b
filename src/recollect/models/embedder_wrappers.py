"""Wrappers of embedders (errors of a caller's own one, a cache), and unit vectors."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recollect.errors import InvalidSettings, ModelUnavailable, RecollectError
from recollect.models.server_errors import describe_error

if TYPE_CHECKING:
    import numpy as np

    from recollect.models.embedding import Embedder, EmbeddingModel, Matrix, Role


# Enough to tell two texts apart that the model knows nothing about.
MAX_UNKNOWN_WORDS = 64
MAX_UNKNOWN_CHARACTERS = 32_768

# Keys of longer texts are computed in a thread.
_INLINE_CHARS = 1 << 16

# Below this a row has no direction worth keeping.
NO_LENGTH = 1e-9


def unit_rows(vectors: NDArray[Any], texts: Sequence[str]) -> Matrix:
    """Scale each row to length one; a row of zeros gets a direction derived from the words of its text."""
    rows = np.array(vectors, dtype=np.float32)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    # Also if one is not a number; of most rows none is.
    if not (lengths.min(initial=np.inf) >= NO_LENGTH and lengths.max(initial=0) < np.inf):
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


class CallerEmbedder:
    """Embeds like `inner`; any failure becomes `ModelUnavailable`, so that no memory is lost."""

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
        """Leave `inner` open: it belongs to the caller."""


class CachedEmbedder:
    """Embeds like `inner`, and caches the vectors of the `max_entries` texts used last.

    Keys are hashes, so no text stays in memory. An entry is one vector: 1 KB at 256 dimensions.
    """

    def __init__(self, inner: Embedder, *, max_entries: int = 10_000) -> None:
        if max_entries < 1:
            raise InvalidSettings(f"an embedding cache holds at least one entry, not {max_entries}")
        self._inner = inner
        self._max_entries = max_entries
        self._vectors: OrderedDict[bytes, NDArray[np.float32]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._vectors)

    @property
    def model(self) -> EmbeddingModel:
        return self._inner.model

    async def embed(self, texts: Sequence[str], *, role: Role = "passage") -> Matrix:
        """Embed `texts` in order, with one call of `inner` for those not in the cache."""
        keys = await self._keys(texts, role)
        # Held here as well as in the cache: a batch larger than the cache must still be answered.
        vectors = {key: self._vectors[key] for key in keys if key in self._vectors}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in vectors}
        if missing:
            rows = await self._inner.embed(list(missing.values()), role=role)
            # Copied row by row: a view would keep the whole batch alive for as long as one entry lives.
            vectors.update((key, row.copy()) for key, row in zip(missing, rows, strict=True))
        self._store(keys, vectors)
        return _stack([vectors[key] for key in keys], self.model.dimensions)

    async def _keys(self, texts: Sequence[str], role: Role) -> list[bytes]:
        def compute() -> list[bytes]:
            return [_key(self.model, role, text) for text in texts]

        # Megabytes would keep other requests waiting.
        return compute() if sum(map(len, texts)) <= _INLINE_CHARS else await asyncio.to_thread(compute)

    def clear(self) -> int:
        """Clear the cache; return the number of vectors."""
        count = len(self._vectors)
        self._vectors.clear()
        return count

    async def close(self) -> None:
        """Clear the cache and close `inner`."""
        self._vectors.clear()
        await self._inner.close()

    def _store(self, keys: list[bytes], vectors: dict[bytes, NDArray[np.float32]]) -> None:
        for key in keys:
            self._vectors[key] = vectors[key]
            self._vectors.move_to_end(key)
        while len(self._vectors) > self._max_entries:
            self._vectors.popitem(last=False)


def _key(model: EmbeddingModel, role: Role, text: str) -> bytes:
    # The separators cannot occur in a role or in a number, so no two triples share a preimage.
    preimage = f"{model.dimensions}\0{role}\0{model.name}\0{text}"
    return blake2b(preimage.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _stack(rows: list[NDArray[np.float32]], dimensions: int) -> Matrix:
    import numpy as np

    return np.stack(rows) if rows else np.empty((0, dimensions), dtype=np.float32)
