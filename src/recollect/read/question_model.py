"""Recognise a question without its mark: a linear model over word and character n-grams.

`python -m evals.train_question` trains it and writes `question.npz`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from recollect.aio.erasable_cache import erasable_cache
from recollect.models.linear_text import LinearTextModel, TextInput, hash_ngrams, load_model, tokenize

MODEL_FILE = Path(__file__).parent / "question.npz"
OUTPUT = "question"
BUCKETS = 1 << 15
# Minimum probability of a question.
THRESHOLD = 0.5

QUESTION_MARKS = ("?", "？", "؟")
_MARKS = frozenset("?？؟¿.!…。！")
# The order of the first words tells "when was I" from "when I was".
_OPENING_TOKENS = 4


# The sentences of memories are judged anew for each answer.
@erasable_cache(1024)
def is_question(sentence: str, *, min_probability: float = THRESHOLD) -> bool:
    """Return whether a sentence asks for something, with or without a question mark."""
    if sentence.rstrip().endswith(QUESTION_MARKS) or sentence.startswith("¿"):
        return True
    [[logit]] = _model().logits([question_features(sentence)])
    return bool(logit >= np.log(min_probability / (1 - min_probability)))


def question_features(sentence: str) -> TextInput:
    """Return the features of a sentence without the marks at its ends, which would tell what it is."""
    tokens = [token for token in tokenize(sentence) if token not in _MARKS]
    opening = hash_ngrams(tokens[:_OPENING_TOKENS], BUCKETS, prefix="o:", words=_OPENING_TOKENS, chars=0)
    buckets = {*hash_ngrams(tokens, BUCKETS, words=3, chars=4), *opening}
    return TextInput(np.array(sorted(buckets), np.int64), np.zeros(0, np.float32))


@cache
def _model() -> LinearTextModel:
    return load_model(MODEL_FILE)
