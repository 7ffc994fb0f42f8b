"""Embedding models and cross-encoders from a hub or a folder, run by the library in their name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from math import exp
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from recollect.errors import InvalidSettings, MissingExtra, ModelUnavailable
from recollect.models.embedding import EmbeddingModel, Matrix, Role
from recollect.models.server_errors import describe_error
from recollect.models.worker_pool import WorkerPool

Encode: TypeAlias = Callable[[list[str], Role], Any]


L = TypeVar("L")


def _find_loader(kind: str, name: str, loaders: Mapping[str, L]) -> tuple[str, L, str]:
    """Return the library, its loader and the path of a model named `library:name-or-path`."""
    library, _, path = name.partition(":")
    if library not in loaders or not path:
        choices = ", ".join(f"{known}:NAME" for known in loaders)
        raise InvalidSettings(f"the {kind} {name!r} is not one of {choices}")
    return library, loaders[library], path


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
        library, loader, path = _find_loader("embedder", name, EMBEDDER_LOADERS)
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


EMBEDDER_LOADERS: dict[str, Callable[[str], Encode]] = {
    "model2vec": _model2vec,
    "sentence-transformers": _sentence_transformers,
    "fastembed": _fastembed,
}


Score: TypeAlias = Callable[[str, list[str]], Any]

# Enough side by side to use a GPU, few enough that a call that was given up ends soon on a CPU.
BATCH = 8

# Seconds of work for a small model on a CPU: who came behind that would give up before being served.
MAX_WAITING = 128

# Common models read 512 tokens of a pair, and some scripts need a token for each character.
MAX_CHARACTERS = 4_000

# A download that failed is tried again, but not in the face of every recall.
RETRY_S = 60.0


class HubReranker:
    """Scores with a model named `library:name-or-folder`, in one thread of its own.

    The libraries are `sentence-transformers` and `fastembed`; each is an extra of the same name. The model is loaded,
    and perhaps downloaded, by the first call. If that gives up waiting, the loading goes on without it, and until it
    is done further calls are refused at once.
    """

    def __init__(self, name: str, *, load: Callable[[], Score]) -> None:
        self._name = name
        self._load = load
        # One worker: these models are not promised to be safe in several threads, and use all cores anyway.
        self._worker = WorkerPool("reranker", workers=1)
        self._score: Score | None = None
        self._failure = ""
        self._failed_at = 0.0
        self._is_loading = self._is_abandoned = False
        self._waiting = 0

    @classmethod
    def named(cls, name: str) -> HubReranker:
        """Load the model called `name`; raise `MissingExtra` if its library is not installed."""
        library, loader, path = _find_loader("reranker", name, RERANKER_LOADERS)
        # The import itself takes seconds; whether there is anything to import is known at once.
        if find_spec(library.replace("-", "_")) is None:
            raise MissingExtra(f"the reranker {name!r}", library)
        return cls(name, load=partial(loader, path))

    @property
    def name(self) -> str:
        return self._name

    async def rerank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Return a score from 0 to 1 for each text in order; a cancelled call starts no further batch."""
        if not texts:
            return []
        if self._waiting >= MAX_WAITING:
            raise ModelUnavailable(f"the reranker {self._name!r} is busy with {self._waiting} texts")
        self._waiting += len(texts)
        try:
            score = self._score or await self._await_model()
            cut_query, cut_texts = _cut(query), [_cut(text) for text in texts]
            batches = [cut_texts[start : start + BATCH] for start in range(0, len(cut_texts), BATCH)]
            scored = await self._worker.map(lambda batch: self._chances(score, cut_query, batch), batches)
        finally:
            self._waiting -= len(texts)
        return [chance for batch in scored for chance in batch]

    async def close(self) -> None:
        self._worker.close()
        self._score = None

    async def _await_model(self) -> Score:
        if self._is_loading and self._is_abandoned:
            raise ModelUnavailable(f"the reranker {self._name!r} is still being loaded")
        try:
            [score] = await self._worker.map(self._load_once, [self._load])
        except asyncio.CancelledError:
            self._is_abandoned = True
            raise
        return score

    def _load_once(self, load: Callable[[], Score]) -> Score:
        """Load the model in the worker's only thread, so never twice at a time."""
        if self._score is not None:
            return self._score
        if self._failure and time.monotonic() - self._failed_at < RETRY_S:
            raise ModelUnavailable(self._failure)
        self._is_loading, self._is_abandoned = True, False
        try:
            score = load()
            self._chances(score, "probe", ["probe"])
        except Exception as error:
            # Each library raises what its own dependencies raise: there is no narrower common class.
            self._failure = f"the reranker {self._name!r} could not be loaded: {error}"
            self._failed_at = time.monotonic()
            raise ModelUnavailable(self._failure) from error
        finally:
            self._is_loading = False
        self._score = score
        return score

    def _chances(self, score: Score, query: str, texts: list[str]) -> list[float]:
        import numpy as np

        try:
            logits = np.asarray(score(query, texts), dtype=np.float64)
        except Exception as error:
            raise ModelUnavailable(
                f"the reranker {self._name!r} failed: {describe_error(error, [query, *texts])}"
            ) from error
        if logits.shape != (len(texts),) or not np.isfinite(logits).all():
            # A model that tells kinds of pairs apart answers a number for each kind.
            raise ModelUnavailable(f"the reranker {self._name!r} did not answer one score for each text")
        return [_chance(logit) for logit in logits.tolist()]


def _cut(text: str) -> str:
    # A lone surrogate is legal in a Python string and an error in the tokenizers.
    return text[:MAX_CHARACTERS].encode("utf-8", "ignore").decode("utf-8")


def _chance(logit: float) -> float:
    # Beyond this the exponential overflows, and the chance is 0 to the last digit.
    return 1 / (1 + exp(min(-logit, 700.0)))


def _sentence_transformers_scores(path: str) -> Score:
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(path)

    def score(query: str, texts: list[str]) -> Any:
        pairs = [(query, text) for text in texts]
        # Some models come with a sigmoid of their own, others without: the plain numbers are asked of all.
        return model.predict(pairs, batch_size=BATCH, activation_fn=lambda logits: logits, show_progress_bar=False)

    return score


def _fastembed_scores(path: str) -> Score:
    from fastembed.rerank.cross_encoder import TextCrossEncoder

    folder = Path(path)
    model = _fastembed_folder(folder) if folder.is_dir() else TextCrossEncoder(model_name=path)
    return lambda query, texts: list(model.rerank(query, texts, batch_size=BATCH))


def _fastembed_folder(folder: Path) -> Any:
    """Register a model in a folder under the folder's name: the library loads only registered models."""
    from fastembed.common.model_description import ModelSource
    from fastembed.rerank.cross_encoder import TextCrossEncoder

    network = "model.onnx" if (folder / "model.onnx").is_file() else "onnx/model.onnx"
    name = str(folder.resolve())
    if not any(supported["model"].lower() == name.lower() for supported in TextCrossEncoder.list_supported_models()):
        TextCrossEncoder.add_custom_model(name, sources=ModelSource(hf=name), model_file=network)
    return TextCrossEncoder(model_name=name, specific_model_path=name)


RERANKER_LOADERS: dict[str, Callable[[str], Score]] = {
    "sentence-transformers": _sentence_transformers_scores,
    "fastembed": _fastembed_scores,
}
