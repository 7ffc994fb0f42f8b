"""Embedding models from a hub or a folder, run by the library in their name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

from recollect.errors import InvalidSettings, MissingExtra, ModelUnavailable
from recollect.models.embedding import EmbeddingModel, Matrix, Role
from recollect.models.server_errors import describe_error

Encode: TypeAlias = Callable[[list[str], Role], Any]


class HubEmbedder:
    """Embeds with a model named `library:name-or-path`, in one thread of its own.

    The libraries are `model2vec`, `sentence-transformers` and `fastembed`; each is an extra of the same name.
    """

    def __init__(self, model: EmbeddingModel, *, encode: Encode) -> None:
        self._model = model
        self._encode = encode
        # One worker: these models are not promised to be safe in several threads, and use all cores anyway.
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="recollect-embed")

    @classmethod
    async def load(cls, name: str) -> HubEmbedder:
        """Load the model called `name`, which may download it."""
        return await asyncio.to_thread(cls._load, name)

    @classmethod
    def _load(cls, name: str) -> HubEmbedder:
        library, _, path = name.partition(":")
        loader = LOADERS.get(library)
        if loader is None or not path:
            choices = ", ".join(f"{library_name}:NAME" for library_name in LOADERS)
            raise InvalidSettings(f"the embedder {name!r} is not one of {choices}")
        try:
            encode = loader(path)
            dimensions = len(encode(["probe"], "passage")[0])
        except ImportError as error:
            raise MissingExtra(f"the embedder {name!r}", library) from error
        except Exception as error:
            # Each library raises what its own dependencies raise: there is no narrower common class.
            raise ModelUnavailable(f"the embedder {name!r} could not be loaded: {error}") from error
        return cls(EmbeddingModel(name, dimensions), encode=encode)

    @property
    def model(self) -> EmbeddingModel:
        return self._model

    async def embed(self, texts: Sequence[str], *, role: Role = "passage") -> Matrix:
        """Embed `texts` in order; models with different prompts for questions and passages get the `role`."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, self._embed, list(texts), role)

    async def close(self) -> None:
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _embed(self, texts: list[str], role: Role) -> Matrix:
        import numpy as np

        from recollect.models.embedder_wrappers import unit_rows

        if not texts:
            return np.empty((0, self._model.dimensions), dtype=np.float32)
        try:
            vectors = np.asarray(self._encode(texts, role), dtype=np.float32)
        except Exception as error:
            raise ModelUnavailable(
                f"the embedder {self._model.name!r} failed: {describe_error(error, texts)}"
            ) from error
        if vectors.shape != (len(texts), self._model.dimensions):
            raise ModelUnavailable(f"the embedder {self._model.name!r} answered with shape {vectors.shape}")
        return unit_rows(vectors, texts)


def _model2vec(path: str) -> Encode:
    from model2vec import StaticModel

    model = StaticModel.from_pretrained(path)
    # Its pool of processes would start for large batches; this thread is enough.
    return lambda texts, role: model.encode(texts, use_multiprocessing=False)


def _sentence_transformers(path: str) -> Encode:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(path)

    def encode(texts: list[str], role: Role) -> Any:
        encode_as = model.encode_query if role == "query" else model.encode_document
        return encode_as(texts, show_progress_bar=False)

    return encode


def _fastembed(name: str) -> Encode:
    from fastembed import TextEmbedding

    model = TextEmbedding(model_name=name)

    def encode(texts: list[str], role: Role) -> Any:
        return list(model.query_embed(texts) if role == "query" else model.passage_embed(texts))

    return encode


LOADERS: dict[str, Callable[[str], Encode]] = {
    "model2vec": _model2vec,
    "sentence-transformers": _sentence_transformers,
    "fastembed": _fastembed,
}
