"""Estimate how likely a message needs memory: a linear model over words, word n-grams and a few named features.

`evals/train_decide.py` trains it and writes `decide.npz`. No embedding is computed here: the weights of words that
the training messages do not have were derived from the embedding table when the model was trained.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache
from math import exp, log1p, sqrt
from operator import mul
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.ledger.terms import STOP_WORDS
from recollect.models.linear_text import hash_words, tokenize

if TYPE_CHECKING:
    from recollect.models.linear_text import TextInput

MODEL_FILE = Path(__file__).parent / "decide.npz"
OUTPUT = "search"

# The first buckets hold one weight for each word, the others the word n-grams of the training messages.
# Many more buckets than words: a name that shares the bucket of a word would get its weight.
WORD_BUCKETS = 1 << 17
NGRAM_BUCKETS = 1 << 16
MAX_NGRAM_WORDS = 3

NAMED_FEATURES = (
    "question_mark", "i_or_we", "me_or_us", "my_or_our", "you", "words", "log_words", "digits", "one_capital",
    "more_capitals", "opens_capital", "not_ascii", "few_words", "ten_words", "sixteen_words", "quotes_text",
    "possessive_s", "i_or_me_by_length", "no_content_word", "one_content_word", "content_share",
)  # fmt: skip
_SUBJECT = frozenset(["i", "we", "im", "ive"])
_OBJECT = frozenset(["me", "us"])
_POSSESSIVES = frozenset(["my", "mine", "our", "ours"])
_YOU = frozenset(["you", "your", "yours"])
_SENTENCE_MARKS = frozenset("?？.!,。")
_MAX_WORDS = 40


def estimate(text: str) -> float:
    """Return the probability that the message needs memory."""
    buckets, values = _features(text)
    sparse, dense, bias = _weights()
    # So few that plain sums are done before arrays are set up.
    hashed = sum(map(sparse.__getitem__, buckets)) / sqrt(len(buckets))
    logit = hashed + sum(map(mul, values, dense)) + bias
    return 1 / (1 + exp(-max(-30.0, min(30.0, logit))))


def text_features(text: str) -> TextInput:
    """Return the features of a message as training takes them."""
    import numpy as np

    from recollect.models.linear_text import TextInput

    buckets, values = _features(text)
    return TextInput(np.array(buckets, np.int64), np.array(values, np.float32))


def _features(text: str) -> tuple[list[int], list[float]]:
    """Return the buckets of a message's words and n-grams, and the values of NAMED_FEATURES."""
    # A lone surrogate is legal in a Python string and cannot be hashed.
    tokens = tokenize(text if text.isascii() else text.encode("utf-8", "ignore").decode("utf-8"))
    # A question is the same with and without its mark.
    bare = [token for token in tokens if token not in _SENTENCE_MARKS]
    hashes = hash_words(bare, MAX_NGRAM_WORDS)
    words = {code % WORD_BUCKETS for code in hashes[: len(bare) + 2]}
    ngrams = {WORD_BUCKETS + code % NGRAM_BUCKETS for code in hashes}
    return [*words, *ngrams], _named_values(text, tokens)


def _named_values(text: str, tokens: Sequence[str]) -> list[float]:
    """Return the values of NAMED_FEATURES."""
    distinct = set(tokens)
    spelled = text[:600].split()
    count = len(spelled)
    capitals = sum(word[0].isupper() and word.strip("?.,!'\"") != "I" for word in spelled[1:])
    content = sum(token.isalpha() and token not in STOP_WORDS for token in tokens)
    subject, object_ = not _SUBJECT.isdisjoint(distinct), not _OBJECT.isdisjoint(distinct)
    return [
        "?" in distinct or "？" in distinct,
        subject,
        object_,
        not _POSSESSIVES.isdisjoint(distinct),
        not _YOU.isdisjoint(distinct),
        min(count, _MAX_WORDS) / 10,
        log1p(count),
        any(token[0] == "0" for token in tokens),
        capitals == 1,
        capitals > 1,
        text[:1].isupper(),
        not text.isascii(),
        count <= 3,
        count >= 10,
        count >= 16,
        '"' in distinct or ":" in distinct,
        "'s" in text or "’s" in text,
        log1p(count) if subject or object_ else 0.0,
        content == 0,
        content == 1,
        content / max(1, len(tokens)),
    ]


@cache
def _weights() -> tuple[array[float], list[float], float]:
    """Return the weights of buckets and of named features, and the bias, as plain numbers."""
    import numpy as np

    from recollect.models.linear_text import load_model

    model = load_model(MODEL_FILE)
    sparse = array("f", np.ascontiguousarray(model.sparse[:, 0], np.float32).tobytes())
    return sparse, model.dense[:, 0].tolist(), float(model.bias[0])
