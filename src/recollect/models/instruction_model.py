"""Recognise standing instructions ("give me prices with VAT from now on") in what a user says: a linear model.

`python -m evals.train_instruction` trains it and writes `instruction.npz`.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import numpy as np

from recollect.lazy_pattern import lazy_pattern
from recollect.models.linear_text import TextInput, hash_words, load_model, tokenize

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
    weights, bias = _weights()
    for sentence in split(text):
        buckets = _buckets(sentence)
        if sum(map(weights.__getitem__, buckets)) / math.sqrt(len(buckets)) + bias >= MIN_ODDS:
            return True
    return False


def split(text: str) -> list[str]:
    """Return the sentences and lines of a text that have a word."""
    return [part for part in _SENTENCE_END.split(text[:_MAX_CHARS]) if any(map(str.isalnum, part))]


def sentence_features(sentence: str) -> TextInput:
    """Return the hashed words, pairs and triples of words of a sentence."""
    return TextInput(np.array(sorted(_buckets(sentence)), np.int64), np.zeros(0, np.float32))


def _buckets(sentence: str) -> set[int]:
    return {gram % BUCKETS for gram in hash_words(tokenize(sentence), 3)}


@cache
def _weights() -> tuple[list[float], float]:
    """Return the weight of each bucket and the bias: for one sentence, arrays take twice as long."""
    model = load_model(MODEL_FILE)
    return model.sparse[:, 0].tolist(), float(model.bias[0])
