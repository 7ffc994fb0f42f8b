"""Recognise standing instructions ("give me prices with VAT from now on") in what a user says: a linear model.

`python -m evals.train_instruction` trains it and writes `instruction.npz`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from recollect.lazy_pattern import lazy_pattern
from recollect.models.linear_text import LinearTextModel, TextInput, hash_ngrams, load_model, tokenize

MODEL_FILE = Path(__file__).parent / "instruction.npz"
OUTPUT = "instruction"
BUCKETS = 1 << 14
# Log-odds from which on a sentence is an instruction.
MIN_ODDS = 0.0

_SENTENCE_END = lazy_pattern(r"(?<=[.!?;…。！？\n])\s*")
# An instruction to the assistant is near the beginning, or the text is a pasted one.
_MAX_CHARS = 2_000


def has_instruction(text: str) -> bool:
    """Return whether a sentence of the text tells its reader what to do from now on."""
    inputs = [sentence_features(sentence) for sentence in split(text)]
    return bool(inputs) and bool(_model().logits(inputs).max() >= MIN_ODDS)


def split(text: str) -> list[str]:
    """Return the sentences and lines of a text that have a word."""
    return [part for part in _SENTENCE_END.split(text[:_MAX_CHARS]) if any(map(str.isalnum, part))]


def sentence_features(sentence: str) -> TextInput:
    """Return the hashed words, pairs and triples of words of a sentence."""
    buckets = hash_ngrams(tokenize(sentence), BUCKETS, words=3, chars=0)
    return TextInput(np.array(buckets, np.int64), np.zeros(0, np.float32))


@cache
def _model() -> LinearTextModel:
    return load_model(MODEL_FILE)
