"""Linear text classifiers: logistic regression over hashed n-grams, a sentence embedding and named features.

A model is one `.npz` file made by a training script in `evals/`. Its weights are 8-bit integers with one scale for
each output, so that a file with several outputs stays well below a megabyte and loads in milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern

Floats = NDArray[np.float32]


_WORD = lazy_pattern(r"\w+|[^\w\s]")
_DIGIT = lazy_pattern(r"\d")
# Scripts without spaces between words: every character counts as a word.
_SPACELESS = lazy_pattern("([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af])")
MAX_CHARS = 600


@frozen_dataclass
class TextInput:
    """One text to classify: the buckets of its hashed features (at least one), the embedding and named features."""

    buckets: NDArray[np.int64]
    dense: Floats


@frozen_dataclass
class LinearTextModel:
    """Several logistic outputs over the same features."""

    outputs: tuple[str, ...]
    sparse: Floats
    dense: Floats
    bias: Floats

    @property
    def bucket_count(self) -> int:
        """Return how many hash buckets the model was trained with."""
        return int(self.sparse.shape[0])

    def logits(self, texts: Sequence[TextInput]) -> Floats:
        """Return one row of logits for each text, in the order of `outputs`."""
        if not texts:
            return np.empty((0, len(self.outputs)), np.float32)
        counts = [len(text.buckets) for text in texts]
        weights = self.sparse[np.concatenate([text.buckets for text in texts])]
        # Each text counts the same, however many features it has.
        rows: Floats = np.add.reduceat(weights, [0, *accumulate(counts[:-1])], axis=0)
        rows /= np.sqrt(np.array(counts, np.float32))[:, None]
        if len(self.dense):
            rows += np.stack([text.dense for text in texts]) @ self.dense
        rows += self.bias
        return rows


def load_model(path: Path) -> LinearTextModel:
    """Read a model file."""
    with np.load(path) as stored:
        return LinearTextModel(
            outputs=tuple(str(name) for name in stored["outputs"]),
            sparse=stored["sparse"].astype(np.float32) * stored["sparse_scale"],
            dense=stored["dense"].astype(np.float32),
            bias=stored["bias"].astype(np.float32),
        )


def save_model(path: Path, model: LinearTextModel) -> None:
    """Write a model file, its hashed weights as 8-bit integers."""
    scale = np.maximum(np.abs(model.sparse).max(axis=0), 1e-9) / 127
    np.savez_compressed(
        path,
        outputs=np.array(model.outputs),
        sparse=np.rint(model.sparse / scale).astype(np.int8),
        sparse_scale=scale.astype(np.float32),
        dense=model.dense.astype(np.float16),
        bias=model.bias.astype(np.float32),
    )


def tokenize(text: str) -> list[str]:
    """Return lower-case words and punctuation marks; digits become 0, characters of spaceless scripts stand alone."""
    folded = _DIGIT.sub("0", text[:MAX_CHARS].casefold().replace("’", "'"))
    return _WORD.findall(folded if folded.isascii() else _SPACELESS.sub(r" \1 ", folded))


def hash_ngrams(
    tokens: Sequence[str], buckets: int, *, prefix: str = "", words: int = 3, chars: int = 5
) -> list[int]:
    """Return the buckets of the word n-grams up to `words` and the character n-grams from 2 to `chars`, each once."""
    seen = {gram % buckets for gram in _hash_word_ngrams(tokens, words, prefix)}
    if chars:
        for token in set(tokens):
            padded = f"\x02{token}\x03"
            for size in range(2, chars + 1):
                for start in range(len(padded) - size + 1):
                    seen.add(
                        crc32(f"{prefix}\x01{padded[start : start + size]}".encode("utf-8", "replace")) % buckets
                    )
    return sorted(seen)


def hash_words(tokens: Sequence[str], max_words: int) -> list[int]:
    """Return the hashes of the word n-grams up to `most`, those of single words (and both ends) first."""
    return _hash_word_ngrams(tokens, max_words)


def hash_features(features: Sequence[str], buckets: int) -> NDArray[np.int64]:
    """Return the buckets of named features, each once."""
    return np.array(sorted({crc32(feature.encode("utf-8", "replace")) % buckets for feature in features}), np.int64)


def _hash_word_ngrams(tokens: Sequence[str], max_words: int, prefix: str = "") -> list[int]:
    """Return the hashes of the word n-grams, shorter ones first, each continued from the hash of its first words."""
    padded = ["\x02", *tokens, "\x03"]
    words = [word.encode("utf-8", "replace") for word in padded]
    start = crc32(prefix.encode("utf-8", "replace"))
    grams = [crc32(word, start) for word in words]
    hashes, following = list(grams), [b"\x1f" + word for word in words]
    for size in range(1, max_words):
        grams = list(map(crc32, following[size:], grams))
        hashes += grams
    return hashes
