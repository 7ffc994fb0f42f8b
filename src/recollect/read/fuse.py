"""Fuse what speaks for each candidate into one relevance from 0 to 1."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Literal, TypeAlias, assert_never

import numpy as np

from recollect.read.features import FEATURE_NAMES, FEW_MEMORIES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]


Fusion: TypeAlias = Literal["learned", "rrf", "weights"]

# Reciprocal ranks: how little the first places stand out.
_RANK_OFFSET = 20
# Plain weights: of words, and of meaning, where four deviations above the mean is as near as it gets.
_WORDS_WEIGHT = 0.6
_NEAREST_DEVIATIONS = 4.0
# What happened at the time that is asked about, in log-odds; the learned blend has its own weight for it.
_IN_PERIOD = 1.5
# How near a wish that is beside the question may come to the best answer.
_UNRELATED_SHARE = np.float32(0.98)
# About as many memories as the weights were learned on.
_TRAINING_MEMORIES = 200.0
# What speaks against a memory counts for this much of itself even where it is the only one: 5 of 25.
_CERTAIN_MEMORIES = 5.0
# On the scale where strangers are 0 and answers 1.
_MIN_MEANING = 0.3
# Unrelated memories match a question's pieces by 0.45 on average, answers by 0.67.
_MIN_LATE = 0.5
# Beyond this a chance is 0 or 1 to the last digit, and its exponential soon more than can be held.
_MAX_ODDS = 60.0


@dataclass(frozen=True, slots=True)
class Blend:
    """A logistic blend: where the odds start, and what each signal adds to them."""

    base: float
    weights: Floats

    def relevance(self, table: Floats, count: int) -> Floats:
        """How likely each candidate of so many memories answers the question, were an answer as likely as none."""
        odds = adjust_for_count(self.base + table @ self.weights, count, has_evidence(table))
        odds = np.clip(odds, -_MAX_ODDS, _MAX_ODDS)
        return np.asarray(1 / (1 + np.exp(-odds)), np.float32)


def adjust_for_count(odds: Floats, count: int, evidence: NDArray[np.bool_]) -> Floats:
    """Log-odds as they stand among so many memories.

    Among few, any one is likelier to be what is meant, and little speaks against it for certain: neither which words
    nobody says nor what is near by comparison. Both wear off as the memories grow. What nothing speaks for stays out.
    """
    likelier = np.float32(0.5 * math.log1p(_TRAINING_MEMORIES / max(count, 1)))
    odds = np.where(evidence, odds + likelier, odds)
    damping = np.float32((count + _CERTAIN_MEMORIES) / (count + _CERTAIN_MEMORIES + FEW_MEMORIES))
    return np.where((odds < 0) & evidence, odds * damping, odds)


def has_evidence(table: Floats) -> NDArray[np.bool_]:
    """Whether a candidate shares a word with the question, or is nearer to it than unrelated memories are."""
    evidence: NDArray[np.bool_] = (
        (feature_column(table, "coverage") > 0)
        | (feature_column(table, "meaning") > _MIN_MEANING)
        | (feature_column(table, "late") > _MIN_LATE)
    )
    return evidence


@cache
def learned_blend(*, has_late: bool) -> Blend:
    """Return the weights that `evals/train_blend.py` wrote, with or without those of late interaction."""
    name = "blend.toml" if has_late else "blend_without_late.toml"
    text = (files("recollect.read") / name).read_text(encoding="utf-8")
    return parse_blend(text, FEATURE_NAMES)


def parse_blend(text: str, features: Sequence[str]) -> Blend:
    """A blend from its file; a signal that is not named weighs nothing."""
    data = tomllib.loads(text)
    unknown = data["weights"].keys() - set(features)
    if unknown:
        raise ValueError(f"there are no signals {', '.join(sorted(unknown))} to weigh")
    return Blend(float(data["base"]), np.array([data["weights"].get(name, 0.0) for name in features], np.float32))


def fuse(table: Floats, count: int, fusion: Fusion = "learned") -> Floats:
    """One relevance for each candidate, from its signals; `count` is how many memories there are to find."""
    match fusion:
        case "learned":
            has_late = bool(len(table)) and bool(feature_column(table, "q_late")[0])
            return _demote_unrelated(learned_blend(has_late=has_late).relevance(table, count), table)
        case "rrf":
            return _boost_in_period(
                _reciprocal_ranks(feature_column(table, "meaning"), feature_column(table, "words")), table
            )
        case "weights":
            near = np.clip(feature_column(table, "meaning_here") / _NEAREST_DEVIATIONS, 0, 1)
            return _boost_in_period(
                _WORDS_WEIGHT * feature_column(table, "words_here") + (1 - _WORDS_WEIGHT) * near, table
            )
    assert_never(fusion)


def _demote_unrelated(relevance: Floats, table: Floats) -> Floats:
    """Standing wishes that share no word with the question come after whatever fits it best.

    They are worth knowing whatever is asked, and so the blend likes them; but they are not what was asked for.
    """
    unrelated = (feature_column(table, "standing") > 0) & (feature_column(table, "coverage") == 0)
    if unrelated.any() and not unrelated.all():
        relevance = np.where(
            unrelated, np.minimum(relevance, relevance[~unrelated].max() * _UNRELATED_SHARE), relevance
        )
    return relevance


def _boost_in_period(relevance: Floats, table: Floats) -> Floats:
    """More likely by as much as its time fits the one that is asked about; as it was where none is."""
    odds = np.exp(_IN_PERIOD * feature_column(table, "in_period"))
    return np.asarray(relevance * odds / (1 - relevance + relevance * odds), np.float32)


def feature_column(table: Floats, name: str) -> Floats:
    """One signal of all candidates."""
    return np.asarray(table[:, FEATURE_NAMES.index(name)])


def _reciprocal_ranks(*features: Floats) -> Floats:
    """The mean of each signal's reciprocal rank, 1 for what is first in all; what a signal is 0 for gets nothing."""
    total = np.zeros(len(features[0]), np.float32)
    for values in features:
        ranks = np.empty(len(values), np.float32)
        ranks[np.argsort(-values, kind="stable")] = np.arange(len(values), dtype=np.float32)
        total += np.where(values > 0, (_RANK_OFFSET + 1) / (_RANK_OFFSET + 1 + ranks), 0)
    return np.asarray(total / len(features), np.float32)


def logit(chance: float) -> float:
    """The log-odds of a chance, within what a number can hold."""
    chance = min(max(chance, 1e-6), 1 - 1e-6)
    return math.log(chance / (1 - chance))
