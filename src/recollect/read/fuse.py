"""Fuse how near a memory is in meaning and in words into one score from 0 to 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recollect.read.gather import Candidates

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Blend:
    """A logistic blend: what each signal adds to the odds, and where the odds start."""

    base: float
    dense: float
    lexical: float
    both: float


# Fitted by evals/fit_blend.py on conversations with known answers; see docs/evaluation.md.
DEFAULT_BLEND = Blend(base=-2.94, dense=5.03, lexical=4.03, both=0.0)


def fuse(candidates: Candidates, blend: Blend = DEFAULT_BLEND) -> NDArray[np.float32]:
    """One score from 0 to 1 for each candidate."""
    dense, lexical = candidates.dense, candidates.lexical
    odds = blend.base + blend.dense * dense + blend.lexical * lexical + blend.both * dense * lexical
    return np.asarray(1 / (1 + np.exp(-odds)), np.float32)
