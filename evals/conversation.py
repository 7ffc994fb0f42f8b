"""A conversation with questions whose answers are known, whatever file it came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetTurn:
    """One turn as its file has it: `id` is what evidence names, `at` is the time in the file's own words."""

    id: str
    text: str
    speaker: str
    session: str
    at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetQuestion:
    """A question and the turns that answer it; one outside the `headline` is told apart and not averaged in."""

    id: str
    text: str
    category: str
    gold: tuple[str, ...]
    headline: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetConversation:
    """Everything that was said and everything that is asked.

    `speakers` tells whose lives it is about: a question about others has no answer here.
    """

    name: str
    speakers: frozenset[str]
    turns: tuple[DatasetTurn, ...]
    questions: tuple[DatasetQuestion, ...]


def scored(conversations: Sequence[DatasetConversation]) -> int:
    """How many questions have an answer to find."""
    return sum(bool(question.gold) for each in conversations for question in each.questions)
