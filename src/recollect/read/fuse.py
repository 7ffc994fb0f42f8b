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

from recollect.read.signals import FEW, SIGNALS

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
_MODESTY = np.float32(0.98)
# About as many memories as the weights were learned on.
_MANY = 200.0
# What speaks against a memory counts for this much of itself even where it is the only one: 5 of 25.
_SURE = 5.0
# On the scale where strangers are 0 and answers 1.
_NEARER = 0.3
# Beyond this a chance is 0 or 1 to the last digit, and its exponential soon more than can be held.
_MOST_ODDS = 60.0


@dataclass(frozen=True, slots=True)
class Blend:
    """A logistic blend: where the odds start, and what each signal adds to them."""

    base: float
    weights: Floats

    def relevance(self, table: Floats, count: int) -> Floats:
        """How likely each candidate of so many memories answers the question, were an answer as likely as none."""
        odds = settled(self.base + table @ self.weights, count, speaks_for(table))
        odds = np.clip(odds, -_MOST_ODDS, _MOST_ODDS)
        return np.asarray(1 / (1 + np.exp(-odds)), np.float32)


def settled(odds: Floats, count: int, evidence: NDArray[np.bool_]) -> Floats:
    """Log-odds as they stand among so many memories.

    Among few, any one is likelier to be what is meant, and little speaks against it for certain: neither which words
    nobody says nor what is near by comparison. Both wear off as the memories grow. What nothing speaks for stays out.
    """
    odds = odds + np.float32(0.5 * math.log1p(_MANY / max(count, 1)))
    held_back = np.float32((count + _SURE) / (count + _SURE + FEW))
    return np.where((odds < 0) & evidence, odds * held_back, odds)


def speaks_for(table: Floats) -> NDArray[np.bool_]:
    """Whether a candidate shares a word with the question, or is nearer to it than strangers are."""
    evidence: NDArray[np.bool_] = (column(table, "coverage") > 0) | (column(table, "meaning") > _NEARER)
    return evidence


@cache
def learned_blend() -> Blend:
    """The weights in `blend.toml`, which `evals/train_blend.py` writes."""
    text = (files("recollect.read") / "blend.toml").read_text(encoding="utf-8")
    return read_blend(text, SIGNALS)


def read_blend(text: str, signals: Sequence[str]) -> Blend:
    """A blend from its file; a signal that is not named weighs nothing."""
    told = tomllib.loads(text)
    unknown = told["weights"].keys() - set(signals)
    if unknown:
        raise ValueError(f"there are no signals {', '.join(sorted(unknown))} to weigh")
    return Blend(float(told["base"]), np.array([told["weights"].get(name, 0.0) for name in signals], np.float32))


def fuse(table: Floats, count: int, fusion: Fusion = "learned") -> Floats:
    """One relevance for each candidate, from its signals; `count` is how many memories there are to find."""
    match fusion:
        case "learned":
            return _modest(learned_blend().relevance(table, count), table)
        case "rrf":
            return _in_time(_reciprocal_ranks(column(table, "meaning"), column(table, "words")), table)
        case "weights":
            near = np.clip(column(table, "meaning_here") / _NEAREST_DEVIATIONS, 0, 1)
            return _in_time(_WORDS_WEIGHT * column(table, "words_here") + (1 - _WORDS_WEIGHT) * near, table)
    assert_never(fusion)


def _modest(relevance: Floats, table: Floats) -> Floats:
    """Standing wishes that share no word with the question come after whatever fits it best.

    They are worth knowing whatever is asked, and so the blend likes them; but they are not what was asked for.
    """
    aside = (column(table, "standing") > 0) & (column(table, "coverage") == 0)
    if aside.any() and not aside.all():
        relevance = np.where(aside, np.minimum(relevance, relevance[~aside].max() * _MODESTY), relevance)
    return relevance


def _in_time(relevance: Floats, table: Floats) -> Floats:
    """More likely by as much as its time fits the one that is asked about; as it was where none is."""
    odds = np.exp(_IN_PERIOD * column(table, "in_period"))
    return np.asarray(relevance * odds / (1 - relevance + relevance * odds), np.float32)


def column(table: Floats, name: str) -> Floats:
    """One signal of all candidates."""
    return np.asarray(table[:, SIGNALS.index(name)])


def _reciprocal_ranks(*signals: Floats) -> Floats:
    """The mean of each signal's reciprocal rank, 1 for what is first in all; what a signal is 0 for gets nothing."""
    total = np.zeros(len(signals[0]), np.float32)
    for values in signals:
        ranks = np.empty(len(values), np.float32)
        ranks[np.argsort(-values, kind="stable")] = np.arange(len(values), dtype=np.float32)
        total += np.where(values > 0, (_RANK_OFFSET + 1) / (_RANK_OFFSET + 1 + ranks), 0)
    return np.asarray(total / len(signals), np.float32)


def logit(chance: float) -> float:
    """The log-odds of a chance, within what a number can hold."""
    chance = min(max(chance, 1e-6), 1 - 1e-6)
    return math.log(chance / (1 - chance))
