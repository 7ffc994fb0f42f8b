"""A small sentence encoder on the CPU: slower than the bundled table, and finds more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from recollect.models.embedding import EmbeddingModel, Role
from recollect.models.neural_files import ENCODER, find_files
from recollect.models.onnx_model import OnnxModel
from recollect.models.piecework import WorkerPool

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
        """Embed `texts` in order; a question as it is, since the model's own prefix for questions found no more."""
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
