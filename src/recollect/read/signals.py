"""What speaks for a candidate and against it: one column a signal, one row a candidate.

Each signal is a plain number a person can follow. What weighs how much is in `blend.toml`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recollect.index.protocol import Traits
from recollect.language.when import Period, nearness
from recollect.model.traits import Trait
from recollect.read.question import Question
from recollect.read.ruler import Ruler

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Pool:
    """The candidates of one question, side by side.

    `before` and `after` say where in the pool the turns beside each one stand, -1 where there is none. `dense` is
    only guessed where it is not `known`: for what has no vector, and for all while the question has none.
    """

    rows: Places
    dense: Floats
    known: NDArray[np.bool_]
    lexical: Floats
    coverage: Floats
    before: Places
    after: Places
    traits: Traits


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is known of the question against all the user's memories."""

    question: Question
    terms: int
    count: int
    missing: float
    unknown_names: bool
    named: tuple[int, ...]
    mean: float
    spread: float
    ruler: Ruler
    periods: tuple[Period, ...] = ()


_TRAITS = np.array(
    [
        Trait.ASKS, Trait.ASSISTANT, Trait.FIRST_PERSON, Trait.TELLS_TIME, Trait.COUNTS, Trait.STANDING,
        Trait.PREFERS,
    ],
    np.int32,
)  # fmt: skip
# So many memories are few: nearly anything among them may be what is meant.
FEW = 20.0

SIGNALS = (
    "meaning", "meaning_here", "meaning_long", "meaning_asked",
    "words", "words_here", "coverage", "words_long", "words_asked",
    "before_meaning", "before_words", "after_meaning", "after_words",
    "before2_meaning", "before2_words", "after2_meaning", "after2_words",
    "answers_meaning", "answers_words", "session_meaning", "session_words",
    "speaker_asked", "speaker_other", "length", "very_long", "very_short",
    "asks", "assistant", "assistant_asked", "assistant_long", "first_person", "opens_session",
    "tells_time", "time_asked", "counts", "count_asked",
    "standing", "standing_near", "standing_said", "standing_wanted", "prefers", "preference_wanted",
    "in_period",
    "q_unknown_name", "q_missing", "q_best_meaning", "q_best_coverage", "q_best_words", "q_best_here",
    "q_names_speaker", "q_terms", "q_personal", "q_idle", "q_few",
)  # fmt: skip


def signals(pool: Pool, outlook: Outlook) -> Floats:
    """The signals of every candidate, in the order of SIGNALS."""
    question, count = outlook.question, len(pool.rows)
    meaning = outlook.ruler.scaled(pool.dense)
    here = (pool.dense - outlook.mean) / outlook.spread
    best_words = float(pool.lexical.max(initial=0.0))
    said = pool.lexical / (best_words or 1.0)
    length = np.log1p(pool.traits.words) - 3.0
    asked = np.float32(np.log1p(outlook.terms) - 1.8)
    asks, assistant, first_person, time, counts, standing, prefers = _flags(pool)
    beside = np.stack((here, said, asks))
    before, after = _beside(beside, pool.before), _beside(beside, pool.after)
    before2, after2 = _beside(before, pool.before), _beside(after, pool.after)
    speaker = np.zeros(count, bool)
    for named in outlook.named:
        speaker |= pool.traits.speakers == named
    columns = (
        meaning, here, here * length, here * asked,
        pool.lexical, said, pool.coverage, said * length, said * asked,
        *before[:2], *after[:2], *before2[:2], *after2[:2],
        *before[:2] * before[2], _session_best(here, pool), _session_best(said, pool),
        speaker, (pool.traits.speakers >= 0) & ~speaker & bool(outlook.named),
        length, np.maximum(length - 1.0, 0.0), pool.traits.words < 6,
        asks, assistant, assistant * question.to_assistant, assistant * np.maximum(length - 1.0, 0.0),
        first_person, (pool.before < 0) & (pool.traits.sessions >= 0),
        time, time * question.asks_when, counts, counts * question.asks_count,
        standing, standing * here, standing * pool.coverage, standing * question.wants_advice,
        prefers, prefers * question.wants_advice,
        _in_period(pool, outlook.periods), outlook.unknown_names, outlook.missing, meaning.max(initial=0.0),
        pool.coverage.max(initial=0.0), best_words, here.max(initial=0.0), bool(outlook.named), asked,
        question.personal, question.idle, FEW / (FEW + outlook.count),
    )  # fmt: skip
    table = np.empty((len(SIGNALS), count), np.float32)
    for row, column in zip(table, columns, strict=True):
        row[:] = column
    return table.T


def _flags(pool: Pool) -> Floats:
    """One row for each of the traits that count."""
    return np.asarray((pool.traits.flags & _TRAITS[:, None]) != 0, np.float32)


def _beside(values: Floats, places: Places) -> Floats:
    """The values of the turn beside each candidate, one row a signal, 0 where there is none."""
    return np.where(places >= 0, values[:, places], np.float32(0)) if len(places) else values


def _in_period(pool: Pool, periods: Sequence[Period]) -> Floats | float:
    """How well the time of each fits the time that is asked about; 0 where none is."""
    return np.maximum.reduce([nearness(period, pool.traits.at_s) for period in periods]) if periods else 0.0


def _session_best(values: Floats, pool: Pool) -> Floats:
    """The best value among the candidates of the same session; its own for what belongs to none."""
    best = np.full(int(pool.traits.sessions.max(initial=-1)) + 1, -np.inf, np.float32)
    inside = pool.traits.sessions >= 0
    np.maximum.at(best, pool.traits.sessions[inside], values[inside])
    own = values.astype(np.float32)
    own[inside] = best[pool.traits.sessions[inside]]
    return own
