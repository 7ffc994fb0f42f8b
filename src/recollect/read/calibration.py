"""Calibrate the cosines of an embedding model, so that one threshold fits all models.

Unrelated texts have a cosine of 0.2 with one model and of 0.6 with another. Each model is measured once, on twenty
everyday questions and their answers.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from recollect.errors import RecollectError
from recollect.frozen_dataclass import frozen_dataclass
from recollect.models.embedding import Embedder

if TYPE_CHECKING:
    from numpy.typing import NDArray


# Questions and messages that answer them.
_PAIRS = (
    ("Where does she work?", "I started at the hospital last month, mostly night shifts."),
    ("What did he cook for the party?", "We made a huge pot of chili and everybody loved it!"),
    ("When is the wedding?", "They're getting married in June, at the lake."),
    ("Which instrument does Tom play?", "I've been practising the cello every evening."),
    ("What is my daughter's name?", "Our little girl Mia turned four yesterday."),
    ("How many books did I read this year?", "I just finished my twelfth novel since January."),
    ("What car do they drive?", "We finally sold the old van and bought an electric one."),
    ("Why was the flight late?", "The plane sat on the runway for two hours because of the storm."),
    ("What is she allergic to?", "I can't eat peanuts, my throat swells up."),
    ("Which football team do I support?", "I never miss a match of my home club, even in the rain."),
    ("How did the exam go?", "I passed statistics, barely, but I passed."),
    ("What did we plan for the garden?", "Next spring I want raised beds with tomatoes and beans."),
    ("What budget was agreed for the kitchen?", "We said no more than ten thousand for the new kitchen."),
    ("Who repaired the roof?", "My neighbour's brother came by and fixed the tiles."),
    ("What does my boss dislike?", "My manager hates long meetings."),
    ("Where did they go on holiday?", "We spent two weeks hiking in the mountains of Norway."),
    ("What medicine do I take in the morning?", "The doctor put me on blood pressure pills, one a day at breakfast."),
    ("Which programming language do I like best?", "Python is still my favourite for small tools."),
    ("How old is the dog?", "Our puppy is nine months now and chews everything."),
    ("What film did she recommend?", "You have to see that documentary about octopuses."),
)


@frozen_dataclass
class Calibration:
    """Mean and deviation of the cosines of unrelated texts, and the mean cosine of questions and their answers."""

    mean: float
    deviation: float
    answer: float

    def scale_all(self, cosines: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scale cosines so that unrelated texts are at 0 and answers at 1."""
        return (cosines - np.float32(self.mean)) / np.float32(self.answer - self.mean)

    def scale(self, cosine: float) -> float:
        """Scale one cosine."""
        return (cosine - self.mean) / (self.answer - self.mean)


# After a failure: callers that bring their own vectors may have no embedder, and must not wait for it each time.
_RETRY_S = 30.0

# The result of `calibrate` for the bundled embedder.
BUNDLED_MODEL = "recollect-static-1"
BUNDLED_CALIBRATION = Calibration(mean=0.108, deviation=0.102, answer=0.382)


async def calibrate(embedder: Embedder) -> Calibration:
    """Measure an embedder on forty short texts."""
    questions = await embedder.embed([question for question, _ in _PAIRS], role="query")
    answers = await embedder.embed([answer for _, answer in _PAIRS], role="passage")
    cosines = np.asarray(questions @ answers.T, np.float64)
    unrelated = cosines[~np.eye(len(cosines), dtype=bool)]
    mean, deviation = float(unrelated.mean()), float(unrelated.std())
    answer = float(np.diag(cosines).mean())
    # A model that does not separate answers from unrelated texts still needs a scale greater than 0.
    return Calibration(mean, max(deviation, 1e-3), max(answer, mean + max(deviation, 1e-3)))


class EmbedderCalibration:
    """The calibration of one embedder, measured on first use."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._calibration = BUNDLED_CALIBRATION if embedder.model.name == BUNDLED_MODEL else None
        self._retry_at = 0.0
        self._is_measuring = False

    async def get(self) -> Calibration:
        """Return the calibration; that of the bundled embedder while measuring is under way or has failed."""
        if self._calibration is None:
            if self._is_measuring or monotonic() < self._retry_at:
                return BUNDLED_CALIBRATION
            self._is_measuring = True
            try:
                self._calibration = await calibrate(self._embedder)
            except RecollectError:
                self._retry_at = monotonic() + _RETRY_S
                return BUNDLED_CALIBRATION
            finally:
                self._is_measuring = False
        return self._calibration
