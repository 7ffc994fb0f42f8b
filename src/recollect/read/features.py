"""What speaks for a candidate and against it: one column a signal, one row a candidate.

Each signal is a plain number a person can follow. What weighs how much is in `blend.toml`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recollect.index.protocol import Traits
from recollect.model.traits import Trait
from recollect.read.calibration import Calibration
from recollect.read.question import QuestionAnalysis
from recollect.text.time_expressions import Period, nearness

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CandidateTable:
    """The candidates of one question, side by side.

    `before` and `after` say where in the pool the turns beside each one stand, -1 where there is none. `dense` is
    only guessed where it is not `known`: for what has no vector, and for all while the question has none.
    """

    rows: Places
    dense: Floats
    has_dense: NDArray[np.bool_]
    lexical: Floats
    coverage: Floats
    before: Places
    after: Places
    traits: Traits
    # The mean over the question's pieces of the best match in each candidate; None without late interaction.
    late: Floats | None = None


@dataclass(frozen=True, slots=True)
class QueryStats:
    """What is known of the question against all the user's memories."""

    question: QuestionAnalysis
    terms: int
    count: int
    missing: float
    unknown_names: bool
    named: tuple[int, ...]
    mean: float
    spread: float
    calibration: Calibration
    periods: tuple[Period, ...] = ()


_TRAITS = np.array(
    [
        Trait.ASKS, Trait.ASSISTANT, Trait.FIRST_PERSON, Trait.TELLS_TIME, Trait.COUNTS, Trait.INSTRUCTION,
        Trait.PREFERS,
    ],
    np.int32,
)  # fmt: skip
# So many memories are few: nearly anything among them may be what is meant.
FEW_MEMORIES = 20.0

FEATURE_NAMES = (
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
    "late", "late_here", "late_before", "late_after", "q_late", "q_best_late",
    "q_unknown_name", "q_missing", "q_best_meaning", "q_best_coverage", "q_best_words", "q_best_here",
    "q_names_speaker", "q_terms", "q_personal", "q_idle", "q_few",
)  # fmt: skip


def compute_features(candidates: CandidateTable, stats: QueryStats) -> Floats:
    """The signals of every candidate, in the order of SIGNALS."""
    question, count = stats.question, len(candidates.rows)
    meaning = stats.calibration.scale_all(candidates.dense)
    here = (candidates.dense - stats.mean) / stats.spread
    best_words = float(candidates.lexical.max(initial=0.0))
    words = candidates.lexical / (best_words or 1.0)
    length = np.log1p(candidates.traits.words) - 3.0
    question_length = np.float32(np.log1p(stats.terms) - 1.8)
    asks, assistant, first_person, time, counts, instructs, prefers = _flags(candidates)
    neighbor_inputs = np.stack((here, words, asks))
    before, after = (
        _neighbor_values(neighbor_inputs, candidates.before),
        _neighbor_values(neighbor_inputs, candidates.after),
    )
    before2, after2 = _neighbor_values(before, candidates.before), _neighbor_values(after, candidates.after)
    speaker = np.zeros(count, bool)
    for named in stats.named:
        speaker |= candidates.traits.speakers == named
    columns = (
        meaning, here, here * length, here * question_length,
        candidates.lexical, words, candidates.coverage, words * length, words * question_length,
        *before[:2], *after[:2], *before2[:2], *after2[:2],
        *before[:2] * before[2], _session_best(here, candidates), _session_best(words, candidates),
        speaker, (candidates.traits.speakers >= 0) & ~speaker & bool(stats.named),
        length, np.maximum(length - 1.0, 0.0), candidates.traits.words < 6,
        asks, assistant, assistant * question.to_assistant, assistant * np.maximum(length - 1.0, 0.0),
        first_person, (candidates.before < 0) & (candidates.traits.sessions >= 0),
        time, time * question.asks_when, counts, counts * question.asks_count,
        instructs, instructs * here, instructs * candidates.coverage, instructs * question.wants_advice,
        prefers, prefers * question.wants_advice,
        _in_period(candidates, stats.periods), *_late_columns(candidates),
        stats.unknown_names, stats.missing, meaning.max(initial=0.0),
        candidates.coverage.max(initial=0.0), best_words, here.max(initial=0.0), bool(stats.named), question_length,
        question.personal, question.idle, FEW_MEMORIES / (FEW_MEMORIES + stats.count),
    )  # fmt: skip
    table = np.empty((len(FEATURE_NAMES), count), np.float32)
    for row, column in zip(table, columns, strict=True):
        row[:] = column
    return table.T


def _flags(candidates: CandidateTable) -> Floats:
    """One row for each of the traits that count."""
    return np.asarray((candidates.traits.flags & _TRAITS[:, None]) != 0, np.float32)


def _neighbor_values(values: Floats, places: Places) -> Floats:
    """The values of the turn beside each candidate, one row a signal, 0 where there is none."""
    return np.where(places >= 0, values[:, places], np.float32(0)) if len(places) else values


def _in_period(candidates: CandidateTable, periods: Sequence[Period]) -> Floats | float:
    """How well the time of each fits the time that is asked about; 0 where none is."""
    return np.maximum.reduce([nearness(period, candidates.traits.at_s) for period in periods]) if periods else 0.0


def _late_columns(candidates: CandidateTable) -> tuple[Floats | float, ...]:
    """Late interaction: own, relative to other candidates, of the turns before and after; used at all; the best."""
    late = candidates.late
    if late is None or not len(late):
        return (0.0,) * 6
    here = (late - late.mean()) / (late.std() + np.float32(1e-6))
    before, after = (_neighbor_values(here[None], places)[0] for places in (candidates.before, candidates.after))
    return late, here, before, after, 1.0, float(late.max())


def _session_best(values: Floats, candidates: CandidateTable) -> Floats:
    """The best value among the candidates of the same session; its own for what belongs to none."""
    best = np.full(int(candidates.traits.sessions.max(initial=-1)) + 1, -np.inf, np.float32)
    inside = candidates.traits.sessions >= 0
    np.maximum.at(best, candidates.traits.sessions[inside], values[inside])
    own = values.astype(np.float32)
    own[inside] = best[candidates.traits.sessions[inside]]
    return own
