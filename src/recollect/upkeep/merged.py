"""What several memories become as one, and what that one must not have lost or made up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from recollect.model.ids import new_id
from recollect.model.memory import Category, MemoryRecord
from recollect.model.scope import Scope
from recollect.models.structured import InvalidAnswer
from recollect.upkeep.clusters import Candidate
from recollect.write.screening.imperatives import imperative_in
from recollect.write.screening.screen import is_refusal
from recollect.write.screening.written import as_written
from recollect.write.settling.reader import read
from recollect.write.settling.reading import Reading
from recollect.write.settling.relation import changed, keeps, nearness, same_subject

SOURCE = "consolidation"
MAX_EVIDENCE = 256
MAX_CHARS = 2_000

# Of the words of weight of a memory that holds, the merged one must have this share.
_MOST = 0.6
# What outdates another must be about the same for the most part.
_ALIKE = 0.5
_LEAST_LENGTH = 0.5
_NEW_WORDS = 4
# What tells how a statement stands to others has done its work once they are one.
_ORDERING = frozenset(
    [
        *(
            "final",
            "finally",
            "latest",
            "current",
            "currently",
            "new",
            "newly",
            "newest",
            "updated",
            "revised",
            "now",
        ),
        *("initial", "initially", "original", "originally", "added", "changed", "corrected", "actual", "actually"),
        *("also", "still", "already", "again", "total", "then", "previously", "formerly", "later", "another"),
    ]
)
# What people rely on is only outdated by another value for the very same thing.
_STRICT = (Category.IDENTITY, Category.CONSTRAINT, Category.INSTRUCTION)


@dataclass(frozen=True, slots=True)
class Merge:
    """Which statements of a cluster become one, in what words, and which of them no longer hold; none if apart."""

    members: tuple[int, ...] = ()
    statement: str = ""
    outdated: frozenset[int] = frozenset()


def read_merge(answer: object, cluster: Sequence[Candidate]) -> Merge:
    """The merge that an answer describes, or an InvalidAnswer that says what is wrong with it."""
    if not isinstance(answer, Mapping):
        raise InvalidAnswer('it must be an object with "members", "statement" and "outdated"')
    members = _numbers(answer, "members", len(cluster))
    statement = as_written(" ".join(str(answer.get("statement") or "").split()))
    if len(members) < 2 or not statement:
        return Merge()
    outdated = frozenset(_numbers(answer, "outdated", len(cluster))) & set(members)
    merge = Merge(tuple(members), statement, outdated)
    if wrong := what_is_wrong(merge, cluster):
        raise InvalidAnswer(wrong)
    return merge


def _numbers(answer: Mapping[Any, Any], name: str, count: int) -> list[int]:
    told = answer.get(name)
    if told is None:
        return []
    if not isinstance(told, list) or any(isinstance(each, bool) or not isinstance(each, int) for each in told):
        raise InvalidAnswer(f'"{name}" must be a list of numbers')
    if wrong := [each for each in told if not 0 <= each < count]:
        raise InvalidAnswer(f"there is no statement {wrong[0]}")
    return sorted(set(told))


def what_is_wrong(merge: Merge, cluster: Sequence[Candidate]) -> str:
    """What keeps the statement from taking the place of its members, in a sentence; empty if nothing does."""
    text, statement = merge.statement, read(merge.statement)
    members = {number: cluster[number] for number in merge.members}
    standing = {number: each for number, each in members.items() if number not in merge.outdated}
    if not standing:
        return "at least one statement must still hold"
    if is_refusal(text):
        return "the statement is a refusal"
    longest = max(len(each.record.content) for each in standing.values())
    whole = sum(len(each.record.content) for each in members.values())
    if len(text) < longest * _LEAST_LENGTH:
        return "the statement is much shorter than what it stands for"
    if len(text) > min(whole + 100, MAX_CHARS):
        return "the statement is longer than all that it stands for"
    if imperative_in(text) and not any(imperative_in(each.record.content) for each in members.values()):
        return "the statement gives an order that no source gives"
    for number, each in members.items():
        lost = _lost(statement, each.reading) if number in standing else _lost_name(statement, each.reading)
        if lost:
            return f"{lost} of statement {number} is missing"
        if number in merge.outdated and (wrong := _still_holds(statement, number, members, standing)):
            return wrong
    return _made_up(statement, [each.reading for each in members.values()])


def _lost(statement: Reading, source: Reading) -> str:
    if detail := keeps(statement, source):
        return detail
    if detail := _lost_name(statement, source):
        return detail
    counted = {word for word in source.words if not _is_ordering(word, source)}
    if counted and len(counted & statement.words) < math.ceil(_MOST * len(counted)):
        return "most"
    return "whom it is about" if not source.people <= statement.people else ""


def _lost_name(statement: Reading, source: Reading) -> str:
    """A name that is missing; what a statement begins with may be one, for all begin with a capital."""
    if any(name not in statement.order for name in source.names):
        return "a name"
    opening = source.opening
    if not opening or opening in statement.order or opening in statement.words or _is_ordering(opening, source):
        return ""
    return "" if opening in statement.people else "a name"


def _is_ordering(word: str, source: Reading) -> bool:
    """Whether a stem is that of a word which only tells how the statement stands to others."""
    return any(each[: len(word)] == word and each in source.order for each in _ORDERING)


def _still_holds(
    statement: Reading, number: int, members: Mapping[int, Candidate], standing: Mapping[int, Candidate]
) -> str:
    """Why a statement cannot be taken for outdated: nothing later says otherwise. Else empty."""
    old = members[number].reading
    lost = keeps(statement, old)
    if not lost and not _lost(statement, old):
        return ""
    strict = members[number].record.category in _STRICT
    for later, each in standing.items():
        new = each.reading
        if later < number or not same_subject(new, old) or nearness(new, old) < _ALIKE:
            continue
        if strict and not changed(new, old):
            continue
        if (new.numbers or not old.numbers) and (new.times or not old.times):
            return ""
    return f"no later statement says that {number} is outdated"


def _made_up(statement: Reading, sources: Sequence[Reading]) -> str:
    numbers = {number for each in sources for number in each.numbers}
    times = {time for each in sources for time in each.times}
    known = {word for each in sources for word in each.order}
    words = {word for each in sources for word in each.words}
    people = {person for each in sources for person in each.people}
    if extra := [number for number in statement.numbers if number not in numbers]:
        return f"no statement has the number {extra[0]}"
    if not statement.times <= times:
        return "no statement has that time"
    if extra := [name for name in statement.names if name not in known]:
        return f"no statement has the name {extra[0]}"
    if not statement.people <= people:
        return "no statement is about that person"
    if len(statement.negated) > sum(len(each.negated) for each in sources):
        return "no statement denies that"
    if len(statement.words - words) > max(_NEW_WORDS, len(words) // 2):
        return "the statement says much that no source says"
    return ""


def merged_record(merge: Merge, cluster: Sequence[Candidate], *, at: datetime, digest: str) -> MemoryRecord:
    """The memory that takes the place of the members, citing them and all that they rest on."""
    sources = [cluster[number].record for number in merge.members]
    standing = [cluster[number].record for number in merge.members if number not in merge.outdated]
    newest = standing[-1]
    return MemoryRecord(
        id=new_id(),
        scope=_shared_scope(sources),
        level=newest.level,
        type=newest.type,
        category=newest.category,
        content=merge.statement,
        created_at=at,
        updated_at=at,
        importance=max(each.importance for each in sources),
        confidence=min(each.confidence for each in standing),
        source=SOURCE,
        trust=newest.trust,
        evidence=joined_evidence(sources),
        tags=tuple(dict.fromkeys(tag for each in sources for tag in each.tags))[:MAX_EVIDENCE],
        metadata=newest.metadata,
        detail={"sources": [each.id for each in sources]},
        # It is as recent as what it was made of, not as its making.
        occurred_at=max(cluster[number].told_at for number in merge.members),
        prompt_digest=digest,
    )


def _shared_scope(records: Sequence[MemoryRecord]) -> Scope:
    """The project and the session that all of them came from, as far as it is the same."""
    first = records[0].scope
    if any(each.scope.project != first.project for each in records):
        return Scope(first.user)
    same = all(each.scope.session == first.session for each in records)
    return Scope(first.user, first.project, first.session if same else "")


def joined_evidence(records: Sequence[MemoryRecord]) -> tuple[str, ...]:
    """What all of the memories rest on, the latest if it is too much."""
    return tuple(dict.fromkeys(id for each in records for id in each.evidence))[-MAX_EVIDENCE:]
