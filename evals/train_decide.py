"""Train the model that estimates whether a message needs memory (`read/decide.npz`).

    python -m evals.train_decide [--measure MESSAGES.jsonl]

It reads `evals/data/search_decision.jsonl`, written for this project: messages with `search` 1 (memory may help) or 0
(general knowledge, a command, small talk). `source` is "first" for the original 1,400, "added" for later ones and
"template" for those filled in from templates, which are easy to predict from each other. It prints the shares of
messages decided rightly under cross-validation, with all the rules of `read/decide.py` applied, and writes the
weights. A file given with `--measure` is only measured, never trained on. Needs scikit-learn, which the package
itself does not need.

The model is a logistic regression over word n-grams and named features (`read/decide.py`). While it is trained,
it also sees the sum of the embeddings of the words. Such a sum is linear in the words, so that its part is stored as
one weight for each word of the embedding table: words that no training message has get a weight from words like them,
and no embedding is needed to decide. Character n-grams were tried and made the held-out figures worse.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from recollect.models.linear_text import LinearTextModel, hash_ngrams, load_model, save_model, tokenize
from recollect.models.static_embedder import BUNDLED_TABLE, load_tokenizer
from recollect.read.decide import (
    MIN_LIKELIHOOD,
    MODEL_FILE,
    NAMED_FEATURES,
    NGRAM_BUCKETS,
    OUTPUT,
    WORD_BUCKETS,
    apply_rules,
    text_features,
)

DATA = Path(__file__).parent / "data" / "search_decision.jsonl"
FOLDS = 10
# Less regularisation ranks the hard pairs of the data better, more makes the probabilities less extreme.
INVERSE_REGULARISATION = 100.0
# How much the embedding and the named features count beside the n-grams before regularisation.
EMBEDDING_SCALE = 0.7
NAMED_SCALE = 0.5
# An n-gram of one message says nothing about another.
MIN_MESSAGES = 2


def train(messages: Sequence[dict[str, Any]]) -> LinearTextModel:
    """Fit the model, and fold the weights of the embedding into the weights of words."""
    table = _feature_table([message["text"] for message in messages])
    sparse = table[:, : WORD_BUCKETS + NGRAM_BUCKETS]
    frequent = np.asarray((sparse > 0).sum(axis=0)).ravel() >= MIN_MESSAGES
    frequent[:WORD_BUCKETS] = False
    columns = np.concatenate([np.flatnonzero(frequent), np.arange(len(frequent), table.shape[1])])
    fitted = LogisticRegression(C=INVERSE_REGULARISATION, max_iter=500)
    fitted.fit(table[:, columns], [message["search"] for message in messages])
    weights = np.zeros(table.shape[1])
    weights[columns] = fitted.coef_[0]
    named_end = len(frequent) + len(NAMED_FEATURES)
    buckets = weights[: len(frequent)]
    vectors = _embedding_by_word_bucket()
    buckets[:WORD_BUCKETS] += vectors @ weights[named_end:] * EMBEDDING_SCALE
    return LinearTextModel(
        outputs=(OUTPUT,),
        sparse=buckets[:, None].astype(np.float32),
        dense=(weights[len(frequent) : named_end] * NAMED_SCALE)[:, None].astype(np.float32),
        bias=fitted.intercept_.astype(np.float32),
    )


def _feature_table(texts: Sequence[str]) -> csr_matrix:
    """Return one row for each text: scaled counts of hashed features, named features, sum of embeddings."""
    vectors = _embedding_by_word_bucket()
    starts, places, values, named, embedded = [0], [], [], [], []
    for text in texts:
        features = text_features(text)
        scale = 1 / np.sqrt(max(1, len(features.buckets)))
        places.extend(features.buckets)
        values.extend([scale] * len(features.buckets))
        starts.append(len(places))
        named.append(features.dense * NAMED_SCALE)
        words = features.buckets[features.buckets < WORD_BUCKETS]
        embedded.append(vectors[words].sum(axis=0) * scale * EMBEDDING_SCALE)
    sparse = csr_matrix((values, places, starts), shape=(len(texts), WORD_BUCKETS + NGRAM_BUCKETS))
    return hstack([sparse, np.array(named), np.array(embedded)]).tocsr()


@cache
def _embedding_by_word_bucket() -> np.ndarray:
    """Return the vector of each word bucket; where two words collide, that of the more frequent one."""
    vocabulary = load_tokenizer().get_vocab()
    vectors = np.load(BUNDLED_TABLE / "vectors.npy").astype(np.float32)
    vectors *= np.load(BUNDLED_TABLE / "scales.npy").astype(np.float32)[:, None]
    by_bucket = np.zeros((WORD_BUCKETS, vectors.shape[1]), np.float32)
    # The marks of beginning and end are in every text.
    taken = set(hash_ngrams([], WORD_BUCKETS, words=1, chars=0))
    # WordPiece vocabularies are sorted by frequency.
    for word, place in sorted(vocabulary.items(), key=lambda item: item[1]):
        if tokenize(word) != [word]:
            continue
        for bucket in set(hash_ngrams([word], WORD_BUCKETS, words=1, chars=0)) - taken:
            taken.add(bucket)
            by_bucket[bucket] = vectors[place]
    return by_bucket


def likelihoods(model: LinearTextModel, messages: Iterable[dict[str, Any]]) -> np.ndarray:
    """Return the probability for each message."""
    logits = model.logits([text_features(message["text"]) for message in messages])[:, 0]
    return 1 / (1 + np.exp(-logits))


def cross_validate(messages: Sequence[dict[str, Any]]) -> np.ndarray:
    """Return the probability for each message from a model that was trained without it."""
    held_out = np.zeros(len(messages))
    labels = [message["search"] for message in messages]
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    for training, test in folds.split(labels, labels):
        model = train([messages[at] for at in training])
        held_out[test] = likelihoods(model, [messages[at] for at in test])
    return held_out


def report(title: str, messages: Sequence[dict[str, Any]], scores: np.ndarray) -> None:
    """Print the shares decided rightly, and the threshold that would search 99 % of the messages that need memory."""
    decisions = [
        apply_rules(each["text"], lambda _, s=score: s) for each, score in zip(messages, scores, strict=True)
    ]
    right = {label: [] for label in (0, 1)}
    for message, decision in zip(messages, decisions, strict=True):
        right[message["search"]].append(decision.search == bool(message["search"]))
    by_model = sorted(d.score for m, d in zip(messages, decisions, strict=True) if m["search"])
    print(
        f"  {title:38s} {len(right[1]):5d} need memory, searched {np.mean(right[1]):7.2%}   "
        f"{len(right[0]):5d} others, skipped {np.mean(right[0]):7.2%}   "
        f"threshold {MIN_LIKELIHOOD}, for 99 % {by_model[len(by_model) // 100]:.3f}"
    )


def read(path: Path) -> list[dict[str, Any]]:
    """Read a JSON Lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


def main() -> None:
    """Cross-validate, train, write, measure."""
    parser = argparse.ArgumentParser(description="Train read/decide.npz.")
    parser.add_argument("--measure", type=Path, action="append", default=[], help="only measured, never trained on")
    inputs = parser.parse_args()
    messages = read(DATA)
    scores = cross_validate(messages)
    for title, chosen in (
        ("all, held out", lambda each: True),
        ("English, held out", lambda each: each["lang"] == "en"),
        ("other languages, held out", lambda each: each["lang"] != "en"),
        ("the first 1,400, held out", lambda each: each["source"] == "first"),
        ("without templates, held out", lambda each: each["source"] != "template"),
    ):
        stored = [at for at, message in enumerate(messages) if chosen(message)]
        report(title, [messages[at] for at in stored], scores[stored])
    save_model(MODEL_FILE, train(messages))
    print(f"  {MODEL_FILE}: {MODEL_FILE.stat().st_size:,} bytes")
    for path in inputs.measure:
        measured = read(path)
        report(path.name, measured, likelihoods(load_model(MODEL_FILE), measured))


if __name__ == "__main__":
    main()
