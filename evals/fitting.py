"""Fitting in a few lines of linear algebra: small blends need nothing larger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recollect.models.linear_text import TextInput

_STEPS = 40
# Chosen for the sets that are trained on, held out; smaller ones fit their habits.
_RIDGE = 0.03
_LENGTHS = [0.5**halvings for halvings in range(12)]
_SHORTEST = _LENGTHS[-2]
_NGRAM_STEPS, _NGRAM_RATE, _NGRAM_RIDGE = 200, 0.3, 1e-5


@dataclass(frozen=True, slots=True)
class RankingExample:
    """One question: the signals of its candidates, which of them answer it, how many answers there are in all."""

    group: str
    table: np.ndarray
    right: np.ndarray
    answers: int
    weight: float = 1.0


def fit_listwise(request: Sequence[RankingExample]) -> tuple[float, np.ndarray]:
    """Base and weights under which answers stand out among their candidates, and nothing stands out where none is.

    Each question is a choice between its candidates and "none of these", which has odds of 1.
    """
    sizes = np.array([len(each.table) for each in request])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    table = np.concatenate([each.table for each in request]).astype(np.float64)
    mean, deviation = table.mean(0), table.std(0) + 1e-9
    inputs = np.column_stack([np.ones(len(table)), (table - mean) / deviation])
    target = np.concatenate([each.right / max(each.right.sum(), 1) for each in request])
    weights = group_weights(request)
    rows = np.repeat(weights, sizes)
    ridge = np.full(inputs.shape[1], _RIDGE)
    ridge[0] = 0
    beta = np.zeros(inputs.shape[1])
    beta[0] = -3.0

    def likelihood(scores: np.ndarray) -> float:
        nothing = np.log(1 + np.add.reduceat(np.exp(np.clip(scores, -40, 40)), starts))
        return float((rows * target) @ scores - weights @ nothing)

    scores = inputs @ beta
    best = likelihood(scores)
    for _ in range(_STEPS):
        odds = np.exp(np.clip(scores, -40, 40))
        share = odds / np.repeat(1 + np.add.reduceat(odds, starts), sizes)
        weighted = inputs * (rows * share)[:, None]
        averages = np.add.reduceat(inputs * share[:, None], starts)
        gradient = inputs.T @ (rows * (target - share)) - ridge * beta
        curve = inputs.T @ weighted - (averages * weights[:, None]).T @ averages + np.diag(ridge + 1e-9)
        step = np.linalg.solve(curve, gradient)
        direction = inputs @ step
        # A whole step may go too far; the penalty is small enough to be left out here.
        length = next(each for each in _LENGTHS if likelihood(scores + each * direction) >= best or each < _SHORTEST)
        beta, scores = beta + length * step, scores + length * direction
        gain, best = likelihood(scores) - best, likelihood(scores)
        if gain < 1e-8:
            break
    scaled = beta[1:] / deviation
    return float(beta[0] - mean @ scaled), scaled


def group_weights(request: Sequence[RankingExample]) -> np.ndarray:
    """Weights under which every group counts the same, whatever the number of its questions."""
    totals: dict[str, float] = {}
    for each in request:
        totals[each.group] = totals.get(each.group, 0.0) + 1
    weights = np.array([each.weight / totals[each.group] for each in request])
    return weights / weights.sum()


def platt(values: np.ndarray, right: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Logistic regression on one number, by Newton's method: the base and the scale."""
    base, [scale] = fit_logistic(values[:, None], right, weights, ridge=1e-9)
    return base, float(scale)


def fit_logistic(
    table: np.ndarray, right: np.ndarray, weights: np.ndarray, *, ridge: float
) -> tuple[float, np.ndarray]:
    """Plain logistic regression."""
    mean, deviation = table.mean(0), table.std(0) + 1e-9
    inputs = np.column_stack([np.ones(len(table)), (table - mean) / deviation])
    weights = weights / weights.sum()
    beta = np.zeros(inputs.shape[1])
    for _ in range(_STEPS):
        chance = 1 / (1 + np.exp(-inputs @ beta))
        gradient = inputs.T @ (weights * (right - chance)) - ridge * beta
        curve = (inputs * (weights * chance * (1 - chance))[:, None]).T @ inputs
        beta += np.linalg.solve(curve + (ridge + 1e-9) * np.eye(len(beta)), gradient)
    scaled = beta[1:] / deviation
    return float(beta[0] - mean @ scaled), scaled


def fit_ngrams(
    inputs: Sequence[TextInput], labels: np.ndarray, importance: np.ndarray, buckets: int
) -> tuple[np.ndarray, float]:
    """Return the weights and the bias of a logistic regression on hashed n-grams, both classes counting the same."""
    rows = np.repeat(np.arange(len(inputs)), [len(each.buckets) for each in inputs])
    columns = np.concatenate([each.buckets for each in inputs])
    values = np.repeat([len(each.buckets) ** -0.5 for each in inputs], [len(each.buckets) for each in inputs])
    totals = importance[labels].sum(), importance[~labels].sum()
    balance = importance * np.where(labels, 0.5 / totals[0], 0.5 / totals[1])
    weights, bias = np.zeros(buckets), 0.0
    mean, square = np.zeros(buckets + 1), np.zeros(buckets + 1)
    for step in range(1, _NGRAM_STEPS + 1):
        logits = np.bincount(rows, weights[columns] * values, len(inputs)) + bias
        errors = balance * (1 / (1 + np.exp(-logits)) - labels)
        gradient = np.append(
            np.bincount(columns, errors[rows] * values, buckets) + _NGRAM_RIDGE * weights, errors.sum()
        )
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.99 * square + 0.01 * gradient**2
        move = (
            _NGRAM_RATE
            * (1 - step / _NGRAM_STEPS)
            * mean
            / (1 - 0.9**step)
            / (np.sqrt(square / (1 - 0.99**step)) + 1e-8)
        )
        weights, bias = weights - move[:-1], bias - float(move[-1])
    return weights, bias


def balanced(
    request: Sequence[RankingExample], odds: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Answers beside all other candidates, both sides of a question weighing the same.

    So a score of one half means: as much like an answer as like anything else that comes up.
    """
    values, right, weights = [], [], []
    for each, odd, weight in zip(request, odds, group_weights(request), strict=True):
        for side in (each.right, ~each.right):
            if side.any():
                values.append(odd[side])
                right.append(each.right[side])
                weights.append(np.full(side.sum(), weight / side.sum()))
    return np.concatenate(values), np.concatenate(right).astype(float), np.concatenate(weights)


def recall_at(each: RankingExample, odds: np.ndarray, count: int = 10) -> float:
    """The share of the answers among the first."""
    return float(each.right[np.argsort(-odds, kind="stable")[:count]].sum() / each.answers)


def ndcg_at(each: RankingExample, odds: np.ndarray, count: int = 10) -> float:
    """Discounted gain of the first, against the best that could be."""
    results = each.right[np.argsort(-odds, kind="stable")[:count]]
    gain = (results / np.log2(np.arange(len(results)) + 2)).sum()
    return float(gain / (1 / np.log2(np.arange(min(each.answers, count)) + 2)).sum())
