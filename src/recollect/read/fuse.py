"""Fuse the features of each candidate into one relevance from 0 to 1."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, assert_never

import numpy as np

from recollect.frozen_dataclass import frozen_dataclass
from recollect.read.features import FEATURE_NAMES, FEW_MEMORIES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]


Fusion: TypeAlias = Literal["learned", "rrf", "weights"]

# Reciprocal rank fusion: a larger offset makes the first ranks stand out less.
_RANK_OFFSET = 20
# Fixed weights: the share of the lexical score, and the semantic deviations above the mean that count as 1.
_LEXICAL_WEIGHT = 0.6
_MAX_DEVIATIONS = 4.0
# Log-odds added to memories of the period asked about; the learned blend has its own weight.
_IN_PERIOD_ODDS = 1.5
# Upper limit of an unrelated instruction's relevance, as a share of the best other candidate's.
_UNRELATED_SHARE = np.float32(0.98)
# About as many memories as a user of the training data has.
_TRAINING_MEMORIES = 200.0
# With a single memory, negative log-odds are scaled by about 5 / 25.
_MIN_CERTAINTY = 5.0
# Scaled by `Calibration`: unrelated texts are at 0, answers at 1.
_MIN_SEMANTIC = 0.3
# Unrelated memories have a late-interaction score of 0.45 on average, answers of 0.67.
_MIN_LATE = 0.5
# Log-odds are clipped here, so that the exponential does not overflow.
_MAX_ODDS = 60.0


@frozen_dataclass
class Blend:
    """A logistic model: the log-odds without any feature, and the weight of each feature."""

    base: float
    weights: Floats

    def relevance(self, table: Floats, count: int) -> Floats:
        """Return the probability that each candidate answers, for a user with `count` memories."""
        odds = adjust_for_count(self.base + table @ self.weights, count, has_evidence(table))
        odds = np.clip(odds, -_MAX_ODDS, _MAX_ODDS)
        return np.asarray(1 / (1 + np.exp(-odds)), np.float32)


def adjust_for_count(odds: Floats, count: int, evidence: NDArray[np.bool_]) -> Floats:
    """Adjust log-odds for a user with `count` memories.

    With few memories each one is more likely to be the answer, and comparisons with the others (missing words,
    relative scores) are less reliable: log-odds of candidates with evidence are raised, and negative ones damped.
    """
    bonus = np.float32(0.5 * math.log1p(_TRAINING_MEMORIES / max(count, 1)))
    odds = np.where(evidence, odds + bonus, odds)
    damping = np.float32((count + _MIN_CERTAINTY) / (count + _MIN_CERTAINTY + FEW_MEMORIES))
    return np.where((odds < 0) & evidence, odds * damping, odds)


def has_evidence(table: Floats) -> NDArray[np.bool_]:
    """Return which candidates share a term with the question or are more similar to it than unrelated texts."""
    evidence: NDArray[np.bool_] = (
        (feature_column(table, "coverage") > 0)
        | (feature_column(table, "semantic") > _MIN_SEMANTIC)
        | (feature_column(table, "late") > _MIN_LATE)
    )
    return evidence


@cache
def learned_blend(*, has_late: bool) -> Blend:
    """Return the weights that `evals/train_blend.py` wrote, with or without those of late interaction."""
    name = "blend.toml" if has_late else "blend_without_late.toml"
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    return parse_blend(text, FEATURE_NAMES)


def parse_blend(text: str, features: Sequence[str]) -> Blend:
    """Parse a weight file; a feature without a weight has weight 0."""
    data = tomllib.loads(text)
    unknown = data["weights"].keys() - set(features)
    if unknown:
        raise ValueError(f"unknown features in the weight file: {', '.join(sorted(unknown))}")
    return Blend(float(data["base"]), np.array([data["weights"].get(name, 0.0) for name in features], np.float32))


def fuse(table: Floats, count: int, fusion: Fusion = "learned") -> Floats:
    """Return the relevance of each candidate, from its features and the user's number of memories."""
    match fusion:
        case "learned":
            has_late = bool(len(table)) and bool(feature_column(table, "q_has_late")[0])
            return _demote_unrelated(learned_blend(has_late=has_late).relevance(table, count), table)
        case "rrf":
            return _boost_in_period(
                _reciprocal_ranks(feature_column(table, "semantic"), feature_column(table, "lexical")), table
            )
        case "weights":
            semantic = np.clip(feature_column(table, "semantic_relative") / _MAX_DEVIATIONS, 0, 1)
            lexical = feature_column(table, "lexical_relative")
            return _boost_in_period(_LEXICAL_WEIGHT * lexical + (1 - _LEXICAL_WEIGHT) * semantic, table)
    assert_never(fusion)


def _demote_unrelated(relevance: Floats, table: Floats) -> Floats:
    """Rank instructions that share no word with the question after the best other candidate.

    The blend gives all instructions a high relevance, because they matter for many answers.
    """
    unrelated = (feature_column(table, "instruction") > 0) & (feature_column(table, "coverage") == 0)
    if unrelated.any() and not unrelated.all():
        relevance = np.where(
            unrelated, np.minimum(relevance, relevance[~unrelated].max() * _UNRELATED_SHARE), relevance
        )
    return relevance


def _boost_in_period(relevance: Floats, table: Floats) -> Floats:
    """Raise the relevance of candidates in the period asked about."""
    odds = np.exp(_IN_PERIOD_ODDS * feature_column(table, "in_period"))
    return np.asarray(relevance * odds / (1 - relevance + relevance * odds), np.float32)


def feature_column(table: Floats, name: str) -> Floats:
    """Return one feature of all candidates."""
    return np.asarray(table[:, FEATURE_NAMES.index(name)])


def _reciprocal_ranks(*features: Floats) -> Floats:
    """Return the mean reciprocal rank over the features, 1 for the first in all; a feature of 0 adds nothing."""
    total = np.zeros(len(features[0]), np.float32)
    for values in features:
        ranks = np.empty(len(values), np.float32)
        ranks[np.argsort(-values, kind="stable")] = np.arange(len(values), dtype=np.float32)
        total += np.where(values > 0, (_RANK_OFFSET + 1) / (_RANK_OFFSET + 1 + ranks), 0)
    return np.asarray(total / len(features), np.float32)


def logit(probability: float) -> float:
    """Return the log-odds of a probability, clipped so that 0 and 1 are finite."""
    probability = min(max(probability, 1e-6), 1 - 1e-6)
    return math.log(probability / (1 - probability))
