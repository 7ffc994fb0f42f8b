"""Rank candidates by relevance, recency, importance and access."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from recollect.errors import InvalidInput
from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern
from recollect.model.memory import Category, MemoryRecord


@dataclass(slots=True)
class SearchCandidate:
    """A memory that a search considers: its index in the candidate table, its scores, and why it was dropped."""

    pool_index: int
    row: int
    record: MemoryRecord
    relevance: float
    score: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)
    decision: str = ""

    @property
    def text(self) -> str:
        """The content, after the speaker's name if there is one."""
        name = self.record.detail.get("name") if self.record.category is Category.TURN else None
        return f"{name}: {self.record.content}" if name else self.record.content


# A short question; a longer one, or one with numbers, often tells something by the way.
_ONLY_ASKS = lazy_pattern(r"[^.!?？。！,;\d\n]{1,60}[?？]\s*")
_ABOUT_QUESTIONS = lazy_pattern(
    r"\b(?:ask(?:ed|ing)?|questions?|gefragt|fragte|fragen?|demandé|preguntas?|preguntado)\b", re.I
)
_QUESTION_SHARE = 0.3
_DAY_S = 86_400.0
# Access counts from here on score 1.
_MAX_ACCESSES = 100


@frozen_dataclass(kw_only=True)
class RankingWeights:
    """Weights of recency, importance and access in the score; relevance has the rest.

    With `recency_adds` recency is a part of the score of its own; otherwise it scales the relevance down with age.
    """

    recency: float = 0.2
    recency_days: float = 30.0
    recency_adds: bool = True
    importance: float = 0.0
    access: float = 0.0

    def __post_init__(self) -> None:
        if self._added_recency + self.importance + self.access > 1:
            raise InvalidInput("The weights of recency, importance and access must not add up to more than 1")

    @property
    def _added_recency(self) -> float:
        return self.recency if self.recency_adds else 0.0

    def score(self, relevance: float, recency: float, importance: float, access: float) -> float:
        """Return the weighted score from 0 to 1."""
        if not self.recency_adds:
            relevance *= 1 - self.recency + self.recency * recency
        relevance_weight = 1 - self._added_recency - self.importance - self.access
        return (
            relevance_weight * relevance
            + self._added_recency * recency
            + self.importance * importance
            + self.access * access
        )


def demote_questions(candidates: Sequence[SearchCandidate], query: str) -> None:
    """Lower the relevance of messages that only ask, unless the query is about what was asked."""
    if _ABOUT_QUESTIONS.search(query):
        return
    for each in candidates:
        detail, text = each.record.detail, each.record.content
        is_user_turn = each.record.category is Category.TURN and detail.get("role") == "user"
        if is_user_turn and not detail.get("name") and _ONLY_ASKS.fullmatch(text):
            each.relevance *= _QUESTION_SHARE


def rank(candidates: Sequence[SearchCandidate], weights: RankingWeights, *, now: datetime) -> list[SearchCandidate]:
    """Score the candidates and return them best first."""
    for each in candidates:
        record = each.record
        # Age counts from the statement, not from the event: a plan for next year is as recent as the message.
        age_s = max((now - record.created_at).total_seconds(), 0.0)
        recency = math.exp(-age_s / _DAY_S / weights.recency_days)
        access = min(math.log1p(record.access_count) / math.log1p(_MAX_ACCESSES), 1.0)
        each.parts["recency"] = recency
        each.score = weights.score(each.relevance, recency, record.importance, access)
    return sorted(candidates, key=lambda each: -each.score)
