"""Compute the features that candidates are ranked by: one row a candidate, one column a feature.

The weights of the features are in `blend.toml`. Conventions in the names:

- `semantic` is the cosine with the question, scaled by `Calibration`; `lexical` is the BM25 score; `late` is the
  late-interaction score; `coverage` is the share of the question's terms that the candidate has.
- `_relative` compares with the other memories of the user: deviations from the mean, or the share of the best score.
- `previous_`, `next_`, `previous2_` and `next2_` are values of the neighbouring turns of the session; `reply_` is the
  value of the previous turn if that is a question; `session_` is the best value in the session.
- `a_x_b` is the product of two features.
- Products, and values of neighbouring turns and sessions, use the relative `semantic`, `lexical` and `late`.
- `q_` is a feature of the question, the same for all candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from recollect.frozen_dataclass import frozen_dataclass
from recollect.index.protocol import Traits
from recollect.models.traits import Trait
from recollect.read.calibration import Calibration
from recollect.read.question import QuestionAnalysis
from recollect.text.time_expressions import Period, nearness

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Indexes = NDArray[np.int64]


@frozen_dataclass
class CandidateTable:
    """The candidates of one question and their scores, one array for each column.

    `before` and `after` are the indexes in this table of the previous and next turn of the session, -1 if there is
    none. `dense` is the cosine with the question; it is only an estimate where `has_dense` is false, because the
    candidate or the question has no vector. `late` is the mean over the question's word pieces of the best match in
    the candidate; None without late interaction.
    """

    rows: Indexes
    dense: Floats
    has_dense: NDArray[np.bool_]
    lexical: Floats
    coverage: Floats
    before: Indexes
    after: Indexes
    traits: Traits
    late: Floats | None = None


@frozen_dataclass
class QueryStats:
    """The question, and statistics of it over all memories of the user.

    `terms` is the number of search terms in the question, `missing` the share of them that no memory has, `named` the
    codes of the speakers that the question names. `mean` and `spread` are those of the cosines of all memories.
    """

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
# With this many memories, the feature `q_few_memories` is one half.
FEW_MEMORIES = 20.0

FEATURE_NAMES = (
    "semantic", "semantic_relative", "semantic_x_length", "semantic_x_question_length",
    "lexical", "lexical_relative", "coverage", "lexical_x_length", "lexical_x_question_length",
    "previous_semantic", "previous_lexical", "next_semantic", "next_lexical",
    "previous2_semantic", "previous2_lexical", "next2_semantic", "next2_lexical",
    "reply_semantic", "reply_lexical", "session_semantic", "session_lexical",
    "speaker_named", "speaker_not_named", "length", "very_long", "very_short",
    "is_question", "by_assistant", "by_assistant_x_to_assistant", "by_assistant_x_very_long",
    "first_person", "starts_session",
    "has_time", "has_time_x_asks_when", "has_number", "has_number_x_asks_count",
    "instruction", "instruction_x_semantic", "instruction_x_coverage", "instruction_x_asks_advice",
    "preference", "preference_x_asks_advice",
    "in_period",
    "late", "late_relative", "previous_late", "next_late", "session_late", "instruction_x_late",
    "q_has_late", "q_best_late",
    "q_unknown_name", "q_missing_terms", "q_best_semantic",
    "q_best_coverage", "q_best_lexical", "q_best_semantic_relative",
    "q_names_speaker", "q_length", "q_personal", "q_needs_no_memory", "q_few_memories",
)  # fmt: skip


def compute_features(candidates: CandidateTable, stats: QueryStats) -> Floats:
    """Return the features of every candidate, in the order of FEATURE_NAMES."""
    question, count = stats.question, len(candidates.rows)
    semantic = stats.calibration.scale_all(candidates.dense)
    semantic_relative = (candidates.dense - stats.mean) / stats.spread
    best_lexical = float(candidates.lexical.max(initial=0.0))
    lexical_relative = candidates.lexical / (best_lexical or 1.0)
    length = np.log1p(candidates.traits.words) - 3.0
    question_length = np.float32(np.log1p(stats.terms) - 1.8)
    very_long = np.maximum(length - 1.0, 0.0)
    is_question, by_assistant, first_person, has_time, has_number, instruction, preference = _flags(candidates)
    own = np.stack((semantic_relative, lexical_relative, is_question))
    previous, next_ = _neighbor_values(own, candidates.before), _neighbor_values(own, candidates.after)
    previous2, next2 = _neighbor_values(previous, candidates.before), _neighbor_values(next_, candidates.after)
    is_named = np.zeros(count, bool)
    for speaker in stats.named:
        is_named |= candidates.traits.speakers == speaker
    columns = (
        semantic, semantic_relative, semantic_relative * length, semantic_relative * question_length,
        candidates.lexical, lexical_relative, candidates.coverage, lexical_relative * length,
        lexical_relative * question_length,
        *previous[:2], *next_[:2], *previous2[:2], *next2[:2],
        *previous[:2] * previous[2],
        _session_best(semantic_relative, candidates), _session_best(lexical_relative, candidates),
        is_named, (candidates.traits.speakers >= 0) & ~is_named & bool(stats.named),
        length, very_long, candidates.traits.words < 6,
        is_question, by_assistant, by_assistant * question.is_to_assistant, by_assistant * very_long,
        first_person, (candidates.before < 0) & (candidates.traits.sessions >= 0),
        has_time, has_time * question.asks_when, has_number, has_number * question.asks_count,
        instruction, instruction * semantic_relative, instruction * candidates.coverage,
        instruction * question.asks_advice,
        preference, preference * question.asks_advice,
        _in_period(candidates, stats.periods),
        *_late_columns(candidates, instruction),
        stats.unknown_names, stats.missing, semantic.max(initial=0.0),
        candidates.coverage.max(initial=0.0), best_lexical, semantic_relative.max(initial=0.0),
        bool(stats.named), question_length, question.is_personal, question.needs_no_memory,
        FEW_MEMORIES / (FEW_MEMORIES + stats.count),
    )  # fmt: skip
    table = np.empty((len(FEATURE_NAMES), count), np.float32)
    for row, column in zip(table, columns, strict=True):
        row[:] = column
    return table.T


def _flags(candidates: CandidateTable) -> Floats:
    """Return the traits that are features, one row a trait."""
    return np.asarray((candidates.traits.flags & _TRAITS[:, None]) != 0, np.float32)


def _neighbor_values(values: Floats, neighbors: Indexes) -> Floats:
    """Return the values of the neighbour of each candidate, one row a feature; 0 without a neighbour."""
    return np.where(neighbors >= 0, values[:, neighbors], np.float32(0)) if len(neighbors) else values


def _in_period(candidates: CandidateTable, periods: Sequence[Period]) -> Floats | float:
    """Return how near each candidate is to the periods of the question, from 0 to 1; 0 without a period."""
    return np.maximum.reduce([nearness(period, candidates.traits.at_s) for period in periods]) if periods else 0.0


def _late_columns(candidates: CandidateTable, instruction: Floats) -> tuple[Floats | float, ...]:
    """Return the columns "late" to "q_best_late"; zeros without late interaction."""
    late = candidates.late
    if late is None or not len(late):
        return (0.0,) * 8
    relative = (late - late.mean()) / (late.std() + np.float32(1e-6))
    previous, next_ = (_neighbor_values(relative[None], each)[0] for each in (candidates.before, candidates.after))
    session = _session_best(relative, candidates)
    return late, relative, previous, next_, session, instruction * relative, 1.0, float(late.max())


def _session_best(values: Floats, candidates: CandidateTable) -> Floats:
    """Return the best value in the session of each candidate; its own value if it has no session."""
    best = np.full(int(candidates.traits.sessions.max(initial=-1)) + 1, -np.inf, np.float32)
    inside = candidates.traits.sessions >= 0
    np.maximum.at(best, candidates.traits.sessions[inside], values[inside])
    own = values.astype(np.float32)
    own[inside] = best[candidates.traits.sessions[inside]]
    return own
