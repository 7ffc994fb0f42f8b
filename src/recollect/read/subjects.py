"""Group memories by what they are about, so that a prompt shows statements about one subject together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from recollect.ledger.terms import terms_of
from recollect.model.memory import Category, MemoryRecord

# What a text is about is said at its beginning, and a pasted page must not cost milliseconds.
_HEAD_CHARS = 400
# Two texts are about one subject if they share so many terms, and these are so large a part of the shorter text.
_MIN_SHARED, _MIN_OVERLAP = 2, 0.5
# A term of more than this part of the memories ("user") says nothing about their subjects.
_MAX_SPREAD = 0.5
_SUMMARIES = frozenset({Category.SUMMARY, Category.EPISODE})


@dataclass(frozen=True, slots=True)
class _Subject:
    """A memory with its distinctive terms and the turns it was learned from; a turn is its own."""

    record: MemoryRecord
    terms: frozenset[str]
    turns: frozenset[str]


def group_by_subject(records: Sequence[MemoryRecord]) -> list[int]:
    """Return the number of each memory's group; groups are numbered in the order of their first memories.

    A memory joins the first group whose first memory has the same key, a turn or most terms in common, or supersedes
    it or is superseded by it.
    """
    subjects = _subjects(records)
    leaders: list[_Subject] = []
    groups = []
    for each in subjects:
        group = next((at for at, leader in enumerate(leaders) if _is_same_subject(leader, each)), len(leaders))
        if group == len(leaders):
            leaders.append(each)
        groups.append(group)
    return groups


def _subjects(records: Sequence[MemoryRecord]) -> list[_Subject]:
    terms = [frozenset(terms_of(record.content[:_HEAD_CHARS])) for record in records]
    spread = Counter(term for each in terms for term in each)
    max_count = max(len(records) * _MAX_SPREAD, 2)
    common_terms = {term for term, count in spread.items() if count > max_count}
    return [
        _Subject(
            record, record_terms - common_terms, frozenset((record.id,) if _is_turn(record) else record.evidence)
        )
        for record, record_terms in zip(records, terms, strict=True)
    ]


def _is_turn(record: MemoryRecord) -> bool:
    return record.category is Category.TURN


def _is_same_subject(one: _Subject, other: _Subject) -> bool:
    a, b = one.record, other.record
    if a.category in _SUMMARIES or b.category in _SUMMARIES:
        return False
    if a.key is not None and (a.category, a.key) == (b.category, b.key):
        return True
    if a.superseded_by == b.id or b.superseded_by == a.id or not one.turns.isdisjoint(other.turns):
        return True
    shared = len(one.terms & other.terms)
    return shared >= _MIN_SHARED and shared >= _MIN_OVERLAP * min(len(one.terms), len(other.terms))
