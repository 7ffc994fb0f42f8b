"""Fit the blend of `recollect.read.fuse` on conversations with known answers, and print it.

    python -m evals.fit_blend questions.jsonl

Each line of the file is one question about one set of texts: {"texts": [...], "question": "...", "answers": [0, 5]}.
Every question weighs the same, whatever the number of its texts, so that no long conversation rules the fit.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from pathlib import Path
from typing import Any

import numpy as np

from recollect import Memory
from recollect.read.fuse import Blend

POOL = 100
LEXICAL = (0.6, 0.8, 1.0, 1.3, 1.6, 2.0, 2.5)
BOTH = (0.0, 0.4, 0.8, 1.5)


@dataclass(frozen=True, slots=True)
class Sample:
    """One question: the signals of its candidates, and which of them answer it."""

    signals: np.ndarray
    answers: np.ndarray


def samples(questions: Iterable[Mapping[str, Any]]) -> Iterator[Sample]:
    """Ask every question of a memory that holds its texts."""
    for texts, group in groupby(questions, key=lambda each: each["texts"]):
        with tempfile.TemporaryDirectory() as home, Memory(home=home) as memory:
            said = [{"role": "user", "content": text} for text in texts]
            turns = memory.remember(said, user_id="someone", session_id="s")
            at = {turn.id: number for number, turn in enumerate(turns)}
            for question in group:
                hits = memory.search(question["question"], user_id="someone", limit=POOL).hits
                signals = np.array([[hit.scores["dense"], hit.scores["lexical"]] for hit in hits])
                answers = np.array([at[hit.id] in question["answers"] for hit in hits])
                if len(hits):
                    yield Sample(signals, answers)


def fit(questions: Sequence[Sample]) -> Blend:
    """The ratios that rank answers highest, then the scale that makes the score a chance."""
    lexical, both = max(product(LEXICAL, BOTH), key=lambda ratios: mean_rank(questions, *ratios))
    base, scale = platt(*balanced(questions, lexical, both))
    return Blend(*(round(value, 2) for value in (base, scale, scale * lexical, scale * both)))


def blended(signals: np.ndarray, lexical: float, both: float) -> np.ndarray:
    """The signals as one number: what is near in meaning counts once, the rest in these ratios."""
    near, said = signals.T
    return np.asarray(near + lexical * said + both * near * said)


def balanced(questions: Sequence[Sample], lexical: float, both: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Answers beside the wrong candidates, both sides of a question weighing the same.

    So a score of one half means: as much like an answer as like anything else that came up.
    """
    values, answers, weights = [], [], []
    for sample in questions:
        value = blended(sample.signals, lexical, both)
        right, wrong = value[sample.answers], value[~sample.answers]
        if len(right) and len(wrong):
            values += [right, wrong]
            answers += [np.ones(len(right)), np.zeros(len(wrong))]
            weights += [np.full(len(right), 1 / len(right)), np.full(len(wrong), 1 / len(wrong))]
    return np.concatenate(values), np.concatenate(answers), np.concatenate(weights)


def mean_rank(questions: Sequence[Sample], lexical: float, both: float) -> float:
    """The mean of one over the rank of the first answer."""
    ranks = []
    for sample in questions:
        order = np.argsort(-blended(sample.signals, lexical, both))
        hits = np.flatnonzero(sample.answers[order])
        ranks.append(1 / (hits[0] + 1) if len(hits) else 0.0)
    return float(np.mean(ranks))


def platt(values: np.ndarray, answers: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Logistic regression on one number, by Newton's method: the base and the scale."""
    inputs, beta = np.column_stack([np.ones(len(values)), values]), np.zeros(2)
    for _ in range(50):
        chance = 1 / (1 + np.exp(-inputs @ beta))
        gradient = inputs.T @ (weights * (answers - chance))
        curve = (inputs * (weights * chance * (1 - chance))[:, None]).T @ inputs
        beta += np.linalg.solve(curve + 1e-9 * np.eye(2), gradient)
    return float(beta[0]), float(beta[1])


if __name__ == "__main__":
    lines = (json.loads(line) for path in sys.argv[1:] for line in Path(path).read_text().splitlines())
    found = list(samples(lines))
    print(fit(found), f"from {len(found)} questions")
