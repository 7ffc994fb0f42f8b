"""Embeddings from any server with OpenAI's `/embeddings`."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recollect.errors import InvalidSettings, ModelUnavailable
from recollect.models.embedder_wrappers import unit_rows
from recollect.models.embedding import EmbeddingModel, Matrix, Role
from recollect.models.http_client import ModelHttpClient

# Common models take 8,192 tokens, and some scripts need a token for each character.
MAX_CHARACTERS = 8_000

# A batch of 128 vectors of 16,384 numbers, written out as text, is a little less than this.
MAX_ANSWER_BYTES = 64 << 20


class OpenAIEmbedder:
    """Embeds through POST {base_url}/embeddings, in batches, with a deadline for each batch.

    `dimensions` asks the server for vectors of that size; without it, `with_dimensions` learns the size with
    one call. Only the first 8,000 characters of a text are sent.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str = "",
        *,
        model: str,
        dimensions: int | None = None,
        batch_size: int = 128,
        timeout_s: float = 30.0,
    ) -> None:
        if batch_size < 1 or timeout_s <= 0 or (dimensions is not None and dimensions < 1):
            raise InvalidSettings("an embedder's dimensions, batch size and timeout must be positive")
        self._name = model
        self._requested_dimensions = dimensions
        self._dimensions = dimensions
        self._batch_size = batch_size
        self._http = ModelHttpClient(
            base_url,
            api_key,
            path="/embeddings",
            model=model,
            timeout_s=timeout_s,
            max_answer_bytes=MAX_ANSWER_BYTES,
        )

    async def with_dimensions(self) -> OpenAIEmbedder:
        """Ask the server for the dimensions if they are not configured, and return the embedder."""
        if self._dimensions is None:
            try:
                await self.embed(["probe"])
            except BaseException:
                await self.close()
                raise
        return self

    @property
    def model(self) -> EmbeddingModel:
        """The identity of the model; raises `InvalidSettings` while the dimensions are unknown."""
        if self._dimensions is None:
            raise InvalidSettings(
                f"the dimensions of {self._name} are not known yet: give them, or use with_dimensions()"
            )
        return EmbeddingModel(self._name, self._dimensions)

    async def embed(self, texts: Sequence[str], *, role: Role = "passage") -> Matrix:
        """Embed `texts` in order; this API does not use `role`."""
        if not texts:
            return np.empty((0, self.model.dimensions), dtype=np.float32)
        batches = [texts[at : at + self._batch_size] for at in range(0, len(texts), self._batch_size)]
        return np.concatenate([await self._embed_batch(batch) for batch in batches])

    async def close(self) -> None:
        await self._http.close()

    async def _embed_batch(self, texts: Sequence[str]) -> Matrix:
        # Lone surrogates cannot be sent, and an empty input is refused by OpenAI: a space means the same.
        inputs = [text[:MAX_CHARACTERS].encode("utf-8", "ignore").decode("utf-8") or " " for text in texts]
        body: dict[str, Any] = {"model": self._name, "input": inputs, "encoding_format": "base64"}
        if self._requested_dimensions is not None:
            body["dimensions"] = self._requested_dimensions
        answer = await self._http.post(body)
        try:
            vectors = _vectors(json.loads(answer), count=len(texts))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ModelUnavailable(f"{self._http.display_url} answered no embeddings: {error}") from error
        got = vectors.shape[1]
        if self._dimensions is None:
            self._dimensions = got
        if got != self._dimensions:
            raise InvalidSettings(
                f"{self._http.display_url} answered vectors of {got} dimensions for {self._name}, "
                f"where {self._dimensions} were expected"
            )
        return unit_rows(vectors, texts)


def _vectors(answer: dict[str, Any], *, count: int) -> NDArray[np.float32]:
    """Return the vectors in the order of the inputs; raise `ValueError` if the response is malformed."""
    rows = answer["data"]
    by_index = {row.get("index", at): _vector(row["embedding"]) for at, row in enumerate(rows)}
    if len(rows) != count or sorted(by_index) != list(range(count)):
        raise ValueError(f"{len(rows)} rows for {count} texts, or not one for each")
    return np.stack([by_index[at] for at in range(count)])


def _vector(embedding: Any) -> NDArray[np.float32]:
    """Decode one embedding, as base64 or as a list if the server ignored `encoding_format`."""
    if isinstance(embedding, str):
        try:
            vector = np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4")
        except binascii.Error as error:
            raise ValueError(f"an embedding is not base64: {error}") from error
    else:
        vector = np.asarray(embedding, dtype=np.float32)
    if vector.ndim != 1 or not vector.size or not np.isfinite(vector).all():
        raise ValueError("an embedding is not a list of finite numbers")
    return vector.astype(np.float32)
