"""A small neural sentence encoder and cross-encoder for the CPU."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from math import exp
from typing import TYPE_CHECKING

from recollect.models.embedding import EmbeddingModel, Role
from recollect.models.onnx_model import CROSS_ENCODER, ENCODER, OnnxModel, find_files
from recollect.models.worker_pool import WorkerPool

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from recollect.models.embedding import Matrix


NEURAL_MODEL = EmbeddingModel("bge-small-en-int8", 384)

# A text of 35 tokens costs about 10 ms of one core, of 256 about 100 ms.
MAX_EMBED_TOKENS = 256


class NeuralEmbedder:
    """Embeds with bge-small-en; the same text always has the same vector, alone or among others.

    A text's vector is the mean of its tokens'. Only its first 256 tokens count. The model is loaded by the first
    call. Questions have a thread of their own, so that none waits behind a long import.
    """

    def __init__(self) -> None:
        folder = find_files(ENCODER, required_by="the embedder 'neural'")
        self._network = OnnxModel(folder, network_sha256=ENCODER.network_sha256, max_tokens=MAX_EMBED_TOKENS)
        self._workers: dict[Role, WorkerPool] = {"query": WorkerPool("embedder"), "passage": WorkerPool("embedder")}

    @property
    def model(self) -> EmbeddingModel:
        return NEURAL_MODEL

    async def embed(self, texts: Sequence[str], *, role: Role = "passage") -> Matrix:
        """Embed `texts` in order; without the model's prefix for questions, which did not improve retrieval."""
        import numpy as np

        from recollect.models.unit_vectors import unit_rows

        if not texts:
            return np.empty((0, NEURAL_MODEL.dimensions), dtype=np.float32)
        return unit_rows(np.stack(await self._workers[role].map(self._mean, texts)), texts)

    async def close(self) -> None:
        for worker in self._workers.values():
            worker.close()
        self._network.close()

    def _mean(self, text: str) -> NDArray[np.float32]:
        mean: NDArray[np.float32] = self._network.run(text).mean(axis=0)
        return mean


RERANKER_NAME = "ms-marco-minilm-l12-int8"

# A pair of 50 tokens costs about 15 ms of one core, of 192 about 70 ms: the cost grows faster than the length.
MAX_RERANK_TOKENS = 192

# Half the cores, so that the rest of the machine goes on; pairs share nothing, so two cores are twice as fast as one.
RERANK_WORKERS = max(1, (os.cpu_count() or 1) // 2)

# About a second of work: who came behind more than that would give up before being served.
MAX_WAITING = 80 * RERANK_WORKERS

# The model learned from the short questions people type into search engines; in front of a long message every text
# looks alike to it. Of such a message only the last question is put to it.
MAX_QUERY_CHARACTERS = 160

# What is asked after this much text stands near its end.
MAX_SEARCHED_CHARACTERS = 4_096

_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")


class NeuralReranker:
    """Scores each text by the probability that it answers the question, in its own threads.

    Only the first 192 tokens of question and text together are read. The model is loaded by the first call.
    """

    def __init__(self) -> None:
        folder = find_files(CROSS_ENCODER, required_by="the reranker 'neural'")
        self._network = OnnxModel(folder, network_sha256=CROSS_ENCODER.network_sha256, max_tokens=MAX_RERANK_TOKENS)
        self._worker = WorkerPool("reranker", workers=RERANK_WORKERS, max_waiting=MAX_WAITING)

    @property
    def name(self) -> str:
        return RERANKER_NAME

    async def rerank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Return a score from 0 to 1 for each text in order; a cancelled call starts no further pair."""
        question = _last_question(query)
        return await self._worker.map(lambda text: self._score(question, text), texts)

    async def close(self) -> None:
        self._worker.close()
        self._network.close()

    def _score(self, query: str, text: str) -> float:
        return 1 / (1 + exp(-float(self._network.run((query, text))[0])))


def _last_question(query: str) -> str:
    """Return a short query unchanged, and the last question or sentence of a long one."""
    if len(query) <= MAX_QUERY_CHARACTERS:
        return query
    sentences: list[str] = [match.strip() for match in _SENTENCE.findall(query[-MAX_SEARCHED_CHARACTERS:])]
    questions = [each for each in sentences if each.endswith(("?", "？"))]
    return (questions or sentences or [query])[-1][-MAX_QUERY_CHARACTERS:]
