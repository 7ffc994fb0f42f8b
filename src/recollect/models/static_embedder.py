"""The bundled embedder: a table of token vectors, without network, GPU or torch.

A text's vector is the weighted sum of its tokens' vectors, scaled to length one. The weights are already
in the table's scales, so a query costs one tokenisation, one gather and one product.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.aio.erasable_cache import erasable_cache
from recollect.errors import InvalidSettings
from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern
from recollect.models.embedding import EmbeddingModel, Matrix, Role
from recollect.text.stopwords import drop_conversation_words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer


BUNDLED_TABLE = Path(__file__).parent / "table"
DIMENSIONS = 256

# A megabyte must not cost a second: what a text is about shows long before this many characters.
MAX_CHARACTERS = 32_768

# Up to here a thread costs more than the work; beyond it the event loop would feel the work.
INLINE_CHARACTERS = 4_096

# Above this a text repeats itself, and gathering each token once saves time and memory.
MANY_TOKENS = 1_024

# Up to here a batch is tokenised in this thread.
FEW_TEXTS = 32

_ASCII_WORD = lazy_pattern("[a-z0-9]+|[^ \\na-z0-9]")
MAX_WORD_CHARACTERS = 32


@frozen_dataclass
class _Table:
    tokenizer: Tokenizer
    vectors: NDArray[np.int8]
    scales: NDArray[np.float32]
    unknown_id: int
    word_tokens: Callable[[str], list[int]]


class StaticEmbedder:
    """Embeds in about 0.1 ms on one core, from files in the package, always alike for the same text.

    Questions and passages share one space; of a question, words about the talk itself ("did we discuss") are left
    out, since every word here counts by itself. Only the first 32,768 characters of a
    text count. A text without a known token (empty, emoji only, an unknown script) still gets a vector of
    length one, derived from its words: equal to itself, nearly orthogonal to everything else.
    """

    def __init__(self, folder: Path = BUNDLED_TABLE) -> None:
        self._folder = folder
        self._model = _identity(folder)
        self._table: _Table | None = None

    @property
    def model(self) -> EmbeddingModel:
        return self._model

    async def embed(self, texts: Sequence[str], *, role: Role = "passage") -> Matrix:
        """Embed `texts` in order; small calls in this thread, large ones in another."""
        if role == "query":
            texts = [drop_conversation_words(text) for text in texts]
        if self._table is not None and sum(map(len, texts)) <= INLINE_CHARACTERS:
            return self._embed(self._table, texts)
        return await asyncio.to_thread(self._load_and_embed, texts)

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Embed `texts` in this thread, for small models that use the vectors as features."""
        if self._table is None:
            self._table = _load(self._folder)
        return self._embed(self._table, texts)

    async def close(self) -> None:
        """Unload the table; the next call loads it."""
        self._table = None

    def _load_and_embed(self, texts: Sequence[str]) -> Matrix:
        table = self._table = _load(self._folder)
        return self._embed(table, texts)

    def _embed(self, table: _Table, texts: Sequence[str]) -> Matrix:
        import numpy as np

        from recollect.models.embedder_wrappers import unit_rows

        if not texts:
            return np.empty((0, self._model.dimensions), dtype=np.float32)
        sums = np.stack([_sum(table, tokens) for tokens in _tokens(table, texts)])
        return unit_rows(sums, texts)


def word_pieces(text: str) -> list[int]:
    """Return the piece ids of a text in the vocabulary of the bundled table."""
    [pieces] = word_piece_ids([text])
    return pieces


def word_piece_ids(texts: Sequence[str]) -> list[list[int]]:
    """Return the piece ids of each text in the vocabulary of the bundled table; at least one for each."""
    return _tokens(_load(BUNDLED_TABLE), texts)


def word_piece_texts(text: str) -> list[str]:
    """Return the pieces of a text as spelled; those inside a word begin with ##."""
    tokenizer = _load(BUNDLED_TABLE).tokenizer
    return [tokenizer.id_to_token(piece) or "" for piece in word_pieces(text)]


def piece_vectors(ids: Sequence[int] | slice = slice(None)) -> NDArray[np.float32]:
    """Return a unit vector for each of some pieces, or for the whole vocabulary, which takes 30 MB."""
    import numpy as np

    vectors = _load(BUNDLED_TABLE).vectors[ids].astype(np.float32)
    lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-6)
    return np.asarray(vectors / lengths, np.float32)


def _identity(folder: Path) -> EmbeddingModel:
    try:
        card = json.loads((folder / "table.json").read_text(encoding="utf-8"))
        return EmbeddingModel(name=str(card["name"]), dimensions=int(card["dimensions"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidSettings(f"{folder} holds no readable table of vectors: {error}") from error


@cache
def _load(folder: Path) -> _Table:
    """Map the table once for all embedders of this process."""
    import numpy as np

    try:
        tokenizer = load_tokenizer(folder)
        # As plain arrays: indexing the memmap subclass costs several microseconds more each time.
        vectors = np.asarray(np.load(folder / "vectors.npy", mmap_mode="r"))
        scales = np.load(folder / "scales.npy").astype(np.float32)
    except Exception as error:
        # The tokenizer raises bare Exceptions.
        raise InvalidSettings(f"{folder} holds no readable table of vectors: {error}") from error

    @erasable_cache(65_536)
    def word_tokens(word: str) -> list[int]:
        ids: list[int] = tokenizer.encode(word, add_special_tokens=False).ids
        return ids

    return _Table(tokenizer, vectors, scales, tokenizer.token_to_id("[UNK]") or 0, word_tokens)


def load_tokenizer(folder: Path = BUNDLED_TABLE) -> Tokenizer:
    """Return the tokenizer of the vocabulary in a folder, which has a word piece a line: half the time of JSON."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    tokenizer = Tokenizer(WordPiece.from_file(str(folder / "vocab.txt"), unk_token="[UNK]"))  # noqa: S106 - no password
    tokenizer.normalizer = BertNormalizer()
    tokenizer.pre_tokenizer = BertPreTokenizer()
    return tokenizer


def _tokens(table: _Table, texts: Sequence[str]) -> list[list[int]]:
    """Return the token ids of each text; an empty text has one unknown token."""
    tokens = [_ascii_tokens(table, text[:MAX_CHARACTERS]) for text in texts]
    # A lone surrogate is legal in a Python string and an error in the tokenizer.
    others = {
        at: texts[at][:MAX_CHARACTERS].encode("utf-8", "ignore").decode("utf-8")
        for at, ids in enumerate(tokens)
        if ids is None
    }
    if len(others) <= FEW_TEXTS and sum(map(len, others.values())) <= INLINE_CHARACTERS:
        # One by one: starting the tokenizer's threads costs milliseconds on a busy machine.
        encodings = [table.tokenizer.encode(text, add_special_tokens=False) for text in others.values()]
    else:
        encodings = table.tokenizer.encode_batch_fast(list(others.values()), add_special_tokens=False)
    for at, encoding in zip(others, encodings, strict=True):
        tokens[at] = encoding.ids
    return [ids or [table.unknown_id] for ids in tokens]


def _ascii_tokens(table: _Table, text: str) -> list[int] | None:
    """Return the token ids of an ASCII text without very long words, as the tokenizer splits it; None for others.

    It splits at spaces and marks, and each word by itself. Most words are cached, which takes a fifth of the time.
    """
    if not text.isascii() or not text.replace("\n", " ").isprintable():
        return None
    words = _ASCII_WORD.findall(text.lower())
    # Very long words are not cached: as keys they would cost more than they save.
    if max(map(len, words), default=0) > MAX_WORD_CHARACTERS:
        return None
    return list(chain.from_iterable(map(table.word_tokens, words)))


def _sum(table: _Table, tokens: list[int]) -> NDArray[np.float32]:
    import numpy as np

    ids = np.array(tokens)
    weights = table.scales[ids]
    if len(tokens) > MANY_TOKENS:
        ids, counts = np.unique(ids, return_counts=True)
        weights = table.scales[ids] * counts.astype(np.float32)
    # One product a text: measured three times as fast as gathering a whole batch for np.add.reduceat.
    total: NDArray[np.float32] = weights @ table.vectors[ids].astype(np.float32)
    return total
