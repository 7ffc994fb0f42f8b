"""The trained model that says how likely a newer statement replaces an older one, from the signals of the pair.

A small network over the signals; one of them is the sum of trained weights of the pair's words. The file is made
by `evals/train_newest.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

MODEL_FILE = Path(__file__).with_name("prefer_newest.npz")
# Signals are cut off at this many deviations from their mean, so that an unusual pair is judged like a usual one.
MAX_DEVIATIONS = 4.0


@dataclass(frozen=True, slots=True)
class NewestModel:
    """Weights of word vectors in three roles, and a network with one hidden layer over standardised signals."""

    words: Floats
    mean: Floats
    deviation: Floats
    hidden: Floats
    hidden_bias: Floats
    output: Floats
    output_bias: Floats

    def odds(self, features: Floats) -> Floats:
        """Return the log-odds of each row of signals."""
        inputs = np.clip((features - self.mean) / self.deviation, -MAX_DEVIATIONS, MAX_DEVIATIONS)
        rows: Floats = np.maximum(inputs @ self.hidden + self.hidden_bias, 0) @ self.output + self.output_bias
        return rows


@cache
def newest_model() -> NewestModel:
    """Return the model that comes with the package."""
    return load_newest_model(MODEL_FILE)


def load_newest_model(path: Path) -> NewestModel:
    """Read a model file."""
    with np.load(path) as stored:
        return NewestModel(**{name: stored[name].astype(np.float32) for name in NewestModel.__dataclass_fields__})


def save_newest_model(path: Path, model: NewestModel) -> None:
    """Write a model file."""
    arrays = {name: getattr(model, name).astype(np.float16) for name in NewestModel.__dataclass_fields__}
    np.savez_compressed(path, **arrays)
