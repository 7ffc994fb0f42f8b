"""Parse and check how a cluster of memories is merged, and build the merged memory.

A merge is optional, so a doubtful one is refused: the sources stay as they are and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from recollect.ledger.terms import terms_of
from recollect.model.extracted import FactOp
from recollect.model.ids import new_id
from recollect.model.memory import Category, MemoryRecord
from recollect.model.scope import Scope
from recollect.models.structured import InvalidAnswer
from recollect.text.grounding import missing_names, missing_numbers
from recollect.upkeep.clusters import MergeCandidate
from recollect.write.operations import Operation, OperationParser
from recollect.write.screening.imperatives import find_instruction
from recollect.write.screening.screen import is_refusal
from recollect.write.screening.written import clean_model_text

SOURCE = "consolidation"
MAX_EVIDENCE = 256
MAX_MERGED_CHARS = 2_000
# The merged memory has this share of the words of each memory that still holds.
_MIN_SHARED = 0.6
_MIN_LENGTH = 0.5
_EXTRA_CHARS = 100
# Users rely on these; only their own words may end one.
_NEVER_OUTDATED = (Category.IDENTITY, Category.CONSTRAINT, Category.INSTRUCTION)


@dataclass(frozen=True, slots=True)
class Merge:
    """Members of a cluster, from 0, that become one statement, and which of them are outdated."""

    members: tuple[int, ...]
    statement: str
    outdated: frozenset[int] = frozenset()


def parse_merge(answer: object, cluster: Sequence[MergeCandidate]) -> Merge | None:
    """Return the merge that the operations of an answer describe; None if they change nothing.

    One "update" gives the statement. Each "end" names a memory that the statement replaces too; an end with content
    says why that memory no longer holds. Raise InvalidAnswer for anything else, and for a merge that fails a check.
    """
    parsed = OperationParser(len(cluster), len(cluster)).parse(answer)
    if parsed.complaints:
        raise InvalidAnswer(parsed.complaints[0])
    operations = [each for each in parsed.value if each.op is not None]
    if not operations:
        return None
    updates = [each for each in operations if each.op is FactOp.UPDATE]
    ends = {_index(each): each for each in operations if each.op is FactOp.END}
    if len(updates) != 1 or len(updates) + len(ends) < len(operations):
        raise InvalidAnswer('it needs exactly one "update"; all other operations are "end", each of another memory')
    updated = _index(updates[0])
    if not ends or updated in ends:
        raise InvalidAnswer('it needs an "end" of each memory that the update replaces besides its own')
    outdated = frozenset(at for at, end in ends.items() if end.content)
    merge = Merge(tuple(sorted({updated, *ends})), clean_model_text(updates[0].content), outdated)
    if reason := _order_objection(updated, merge, cluster) or check_merge(merge, cluster):
        raise InvalidAnswer(reason)
    return merge


def _index(operation: Operation) -> int:
    if operation.memory is None:
        raise InvalidAnswer('an "end" needs the number of a memory')
    return operation.memory - 1


def _order_objection(updated: int, merge: Merge, cluster: Sequence[MergeCandidate]) -> str:
    """Return why a memory cannot be outdated; it must be older than the memory that is updated."""
    for at in sorted(merge.outdated):
        if cluster[at].stated_at > cluster[updated].stated_at:
            return f"memory {at + 1} is newer than memory {updated + 1} and cannot be outdated by it"
        if cluster[at].record.category in _NEVER_OUTDATED:
            return f"memory {at + 1} is a user's {cluster[at].record.category} and must be kept"
    return ""


def check_merge(merge: Merge, cluster: Sequence[MergeCandidate]) -> str:
    """Return why the statement cannot replace its members; empty if it can."""
    text = merge.statement
    members = {at: cluster[at].record.content for at in merge.members}
    valid = {at: content for at, content in members.items() if at not in merge.outdated}
    if is_refusal(text):
        return "the content is a refusal"
    if len(text) < _MIN_LENGTH * max(map(len, valid.values())):
        return "the content is much shorter than the memories it replaces"
    if len(text) > min(sum(map(len, members.values())) + _EXTRA_CHARS, MAX_MERGED_CHARS):
        return "the content is longer than all memories it replaces"
    if find_instruction(text) and not any(map(find_instruction, members.values())):
        return "the content gives an instruction that no memory gives"
    for at, content in valid.items():
        if lost := [*missing_numbers(content, text), *missing_names(content, text)]:
            return f"{lost[0]} of memory {at + 1} is missing"
        terms = set(terms_of(content))
        if len(terms & set(terms_of(text))) < _MIN_SHARED * len(terms):
            return f"most of memory {at + 1} is missing"
    return _invented(text, "\n".join(f"{cluster[at].stated_at:%Y} {members[at]}" for at in members))


def _invented(text: str, sources: str) -> str:
    if numbers := missing_numbers(text, sources):
        return f"no memory has the number {next(iter(numbers))}"
    if names := missing_names(text, sources):
        return f"no memory has the name {names[0]}"
    return ""


def merged_record(merge: Merge, cluster: Sequence[MergeCandidate], *, at: datetime, digest: str) -> MemoryRecord:
    """Return the memory that replaces the members, citing them and their evidence."""
    sources = [cluster[number].record for number in merge.members]
    valid = [cluster[number].record for number in merge.members if number not in merge.outdated]
    newest = valid[-1]
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
        confidence=min(each.confidence for each in valid),
        source=SOURCE,
        trust=newest.trust,
        evidence=join_evidence(sources),
        tags=tuple(dict.fromkeys(tag for each in sources for tag in each.tags))[:MAX_EVIDENCE],
        metadata=newest.metadata,
        detail={"sources": [each.id for each in sources]},
        # It is as recent as its sources, not as the run that merged them.
        occurred_at=max(cluster[number].stated_at for number in merge.members),
        prompt_digest=digest,
    )


def _shared_scope(records: Sequence[MemoryRecord]) -> Scope:
    """Return the project and the session as far as all of the records share them."""
    first = records[0].scope
    if any(each.scope.project != first.project for each in records):
        return Scope(first.user)
    same = all(each.scope.session == first.session for each in records)
    return Scope(first.user, first.project, first.session if same else "")


def join_evidence(records: Sequence[MemoryRecord]) -> tuple[str, ...]:
    """Return the evidence of all records, the latest if it is too much."""
    return tuple(dict.fromkeys(id for each in records for id in each.evidence))[-MAX_EVIDENCE:]
