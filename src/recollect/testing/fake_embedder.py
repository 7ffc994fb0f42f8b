"""An embedder for tests, as an object and as OpenAI's JSON.

The same text gives the same vector on every machine, and no model is loaded.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import shake_256
from typing import TYPE_CHECKING, Any

import numpy as np

from recollect.models.embedding import EmbeddingModel, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recollect.models.embedding import Matrix


_WORD = re.compile(r"\w+")
_NO_WORDS = "no words"  # contains a space, so that it is no word


class FakeEmbedder:
    """Embeds texts by their words: the more words two texts share, the closer they are.

    `fail_with` and `delay_s` may be changed at any time.
    """

    def __init__(
        self,
        dimensions: int = 64,
        *,
        name: str = "fake",
        fail_with: Exception | None = None,
        delay_s: float = 0.0,
    ) -> None:
        if dimensions < 1:
            raise ValueError(f"an embedding has at least one dimension, not {dimensions}")
        self.fail_with = fail_with
        self.delay_s = delay_s
        self.calls = 0
        self.texts_embedded = 0
        self.roles: list[Role] = []
        self.closed = False
        self._model = EmbeddingModel(name, dimensions)

    @property
    def model(self) -> EmbeddingModel:
        return self._model

    async def embed(self, texts: Sequence[str], *, role: Role = "passage") -> Matrix:
        """Embed texts by their words, after `delay_s`; raise `fail_with` if it is set."""
        self.calls += 1
        self.roles.append(role)
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        if self.fail_with is not None:
            raise self.fail_with
        self.texts_embedded += len(texts)
        return embed_words(texts, self._model.dimensions)

    async def close(self) -> None:
        self.closed = True


def embed_words(texts: Sequence[str], dimensions: int) -> Matrix:
    """Return a unit vector for each text: the normalised sum of a fixed direction per distinct word."""
    rows = np.empty((len(texts), dimensions), dtype=np.float32)
    for row, text in enumerate(texts):
        rows[row] = _sum_of_words(text, dimensions)
    return rows


def _sum_of_words(text: str, dimensions: int) -> Matrix:
    words = set(_WORD.findall(text.casefold()))
    # Integers are summed, so that the order of a set cannot change the last bit.
    total = np.zeros(dimensions, dtype=np.int64)
    for word in words:
        total += _direction(word, dimensions)
    if not total.any():
        total += _direction(_NO_WORDS, dimensions)
    return (total / np.linalg.norm(total)).astype(np.float32)


@lru_cache(maxsize=65_536)
def _direction(word: str, dimensions: int) -> NDArray[np.int8]:
    """Return plus or minus one in each dimension, from a hash of the word."""
    digest = shake_256(word.encode()).digest(-(-dimensions // 8))
    bits = np.unpackbits(np.frombuffer(digest, dtype=np.uint8))[:dimensions]
    return (bits.astype(np.int8) * 2 - 1).astype(np.int8)


def openai_embeddings(request: Mapping[str, Any], default_dimensions: int) -> dict[str, Any]:
    """Return the response to an embeddings request; raise ValueError for an invalid one."""
    texts, dimensions = _input_texts(request.get("input")), request.get("dimensions", default_dimensions)
    if type(dimensions) is not int or dimensions < 1:
        raise ValueError("'dimensions' must be a whole number of at least 1")
    packed = request.get("encoding_format") == "base64"
    data = []
    for index, row in enumerate(embed_words(texts, dimensions).astype("<f4")):
        vector = base64.b64encode(row.tobytes()).decode() if packed else row.tolist()
        data.append({"object": "embedding", "index": index, "embedding": vector})
    tokens = sum(len(_WORD.findall(text)) for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": request.get("model"), "usage": usage}


def _input_texts(value: object) -> list[str]:
    match value:
        case str() as text:
            return [text]
        case [int(), *_] as tokens:
            return [" ".join(map(str, tokens))]
        case [_, *_] as items if all(isinstance(item, str | list) for item in items):
            texts: Sequence[Any] = items
            return [text if isinstance(text, str) else " ".join(map(str, text)) for text in texts]
    raise ValueError("'input' must be a text, a list of texts, or lists of token numbers")
