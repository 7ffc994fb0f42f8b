"""Embeddings from any server that speaks OpenAI's `/embeddings`."""

from __future__ import annotations

import asyncio
import base64
import binascii
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np

from recollect.errors import InvalidInput, InvalidSettings, ModelUnavailable
from recollect.models.embedding import EmbeddingModel, Role
from recollect.models.unit_vectors import unit_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recollect.models.embedding import Matrix

TRIES = 3
FIRST_PAUSE_S = 0.25

# A server that asks for more patience than this is reported as unavailable: the caller knows better whether to wait.
MAX_PAUSE_S = 10.0

# Common models take 8,192 tokens, and some scripts need a token for each character.
MAX_CHARACTERS = 8_000

# Much of a server's error text is noise, and all of it ends up in logs.
MAX_DETAIL_CHARACTERS = 200

RETRYABLE_STATUSES = frozenset({408, 429, 500, 502, 503, 504, 529})


class OpenAIEmbedder:
    """Embeds through POST {base_url}/embeddings, in batches, with a deadline for every try.

    `dimensions` asks the server for vectors of that size; without it, use `connect`, which learns the size with
    one call. Only the first 8,000 characters of a text are sent. Embedding twice does no harm, so a lost
    connection, a 429 and a 5xx are tried again a few times; anything else is raised at once.
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
        self._asked_dimensions = dimensions
        self._dimensions = dimensions
        self._batch_size = batch_size
        self._timeout_s = timeout_s
        self._api_key = api_key
        self._url = _endpoint(base_url)
        # What messages show: a URL may carry a password.
        self._shown_url = str(self._url.copy_with(userinfo=b"", query=None))
        self._client = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {}, timeout=timeout_s
        )

    @classmethod
    async def connect(
        cls,
        base_url: str,
        api_key: str = "",
        *,
        model: str,
        dimensions: int | None = None,
        batch_size: int = 128,
        timeout_s: float = 30.0,
    ) -> OpenAIEmbedder:
        """Make an embedder whose identity is known, asking the server when `dimensions` is not given."""
        embedder = cls(
            base_url,
            api_key,
            model=model,
            dimensions=dimensions,
            batch_size=batch_size,
            timeout_s=timeout_s,
        )
        if dimensions is None:
            try:
                await embedder.embed(["probe"])
            except BaseException:
                await embedder.close()
                raise
        return embedder

    @property
    def model(self) -> EmbeddingModel:
        """The identity; InvalidSettings until the size of the vectors is given or learned."""
        if self._dimensions is None:
            raise InvalidSettings(f"the dimensions of {self._name} are not known yet: give them, or use connect()")
        return EmbeddingModel(self._name, self._dimensions)

    async def embed(self, texts: Sequence[str], *, role: Role = "passage") -> Matrix:
        """Embed `texts` in order; this API has no notion of `role`."""
        if not texts:
            return np.empty((0, self.model.dimensions), dtype=np.float32)
        batches = [texts[at : at + self._batch_size] for at in range(0, len(texts), self._batch_size)]
        return np.concatenate([await self._embed_batch(batch) for batch in batches])

    async def close(self) -> None:
        await self._client.aclose()

    async def _embed_batch(self, texts: Sequence[str]) -> Matrix:
        # Lone surrogates cannot be sent, and an empty input is refused by OpenAI: a space means the same.
        inputs = [text[:MAX_CHARACTERS].encode("utf-8", "ignore").decode("utf-8") or " " for text in texts]
        body: dict[str, Any] = {"model": self._name, "input": inputs, "encoding_format": "base64"}
        if self._asked_dimensions is not None:
            body["dimensions"] = self._asked_dimensions
        answer = await self._post(body)
        try:
            vectors = _vectors(answer.json(), count=len(texts))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ModelUnavailable(f"{self._shown_url} answered no embeddings: {error}") from error
        got = vectors.shape[1]
        if self._dimensions is None:
            self._dimensions = got
        if got != self._dimensions:
            raise InvalidSettings(
                f"{self._shown_url} answered vectors of {got} dimensions for {self._name}, "
                f"where {self._dimensions} were expected"
            )
        return unit_rows(vectors, texts)

    async def _post(self, body: dict[str, Any]) -> httpx.Response:
        """Post `body` up to TRIES times; return the first good answer or raise what the last one means."""
        pause_s = 0.0
        for tries_left in range(TRIES - 1, -1, -1):
            await asyncio.sleep(pause_s)
            pause_s = random.uniform(0.5, 1.0) * FIRST_PAUSE_S * 2 ** (TRIES - 1 - tries_left)
            try:
                async with asyncio.timeout(self._timeout_s):
                    answer = await self._client.post(self._url, json=body)
            except (TimeoutError, httpx.TimeoutException) as error:
                # The server may still be working on it: asking again would only add to its load.
                raise ModelUnavailable(f"{self._shown_url} did not answer in {self._timeout_s:g} s") from error
            except httpx.TransportError as error:
                if not tries_left:
                    raise ModelUnavailable(f"{self._shown_url} cannot be reached: {error}") from error
                continue
            if answer.is_success:
                return answer
            pause_s = max(pause_s, _retry_after_s(answer))
            if answer.status_code not in RETRYABLE_STATUSES or not tries_left or pause_s > MAX_PAUSE_S:
                break
        raise self._refusal(answer)

    def _refusal(self, answer: httpx.Response) -> InvalidInput | ModelUnavailable:
        """What an answer that is not a success means to the caller, without the key."""
        status = answer.status_code
        said = f"{self._shown_url} answered {status}"
        if status in (401, 403):
            # Without the server's words: they tend to repeat a part of the key.
            return InvalidSettings(f"{said}: the API key was refused")
        detail = answer.text[:MAX_DETAIL_CHARACTERS].strip()
        if self._api_key:
            detail = detail.replace(self._api_key, "***")
        if status == 404:
            return InvalidSettings(f"{said}: check the base URL and the model {self._name}: {detail}")
        if 400 <= status < 500 and status not in RETRYABLE_STATUSES:
            return InvalidInput(f"{said}: {detail}")
        return ModelUnavailable(f"{said}: {detail}")


def _endpoint(base_url: str) -> httpx.URL:
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL as error:
        raise InvalidSettings(f"the embedder's base URL cannot be read: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise InvalidSettings("the embedder's base URL must start with http:// or https:// and name a host")
    return url.copy_with(path=url.path.rstrip("/") + "/embeddings")


def _retry_after_s(answer: httpx.Response) -> float:
    """The pause the server asks for; 0 when it asks for none, or by a date."""
    try:
        return max(0.0, float(answer.headers.get("Retry-After", "")))
    except ValueError:
        return 0.0


def _vectors(answer: dict[str, Any], *, count: int) -> NDArray[np.float32]:
    """The vectors of an answer in the order of the inputs; ValueError says what is wrong with it."""
    rows = answer["data"]
    by_index = {row.get("index", at): _vector(row["embedding"]) for at, row in enumerate(rows)}
    if len(rows) != count or sorted(by_index) != list(range(count)):
        raise ValueError(f"{len(rows)} rows for {count} texts, or not one for each")
    return np.stack([by_index[at] for at in range(count)])


def _vector(embedding: Any) -> NDArray[np.float32]:
    """One embedding, whether the server packed it as asked or ignored `encoding_format`."""
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
