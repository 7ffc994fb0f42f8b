"""Join duplicate memories, and merge clusters of near ones as an LLM suggests.

A merge is optional, so a doubtful one is refused: the sources stay as they are and nothing is lost.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from recollect.deps import Deps
from recollect.errors import Conflict, InvalidInput, ModelUnavailable, NotFound
from recollect.index.protocol import Index
from recollect.ledger.ledger import Ledger, read_pages
from recollect.ledger.tokenizer import terms_of
from recollect.ledger.types import Revision
from recollect.maintenance.tasks import MaintenanceReport, MaintenanceRun, MaintenanceStep, MaintenanceTask, finish
from recollect.model.change import Change, ChangeKind, ModelUsage, Supersede, Update, Vector
from recollect.model.ids import new_id
from recollect.model.memory import MODEL, Category, MemoryRecord, MemoryType
from recollect.model.query import Filter, Listing, any_of
from recollect.model.scope import Level, Scope
from recollect.models.chat import Chat
from recollect.models.structured import InvalidAnswer
from recollect.prompts import prompt
from recollect.prompts.rendering import new_delimiter
from recollect.text.instructions import find_instruction
from recollect.text.normalize import normalize
from recollect.text.numbers import missing_names, missing_numbers
from recollect.write.ask_llm import LlmAnswer, LlmCost, ask_for_json, record_cost_on_error
from recollect.write.embed import embed
from recollect.write.operations import FactOp, Operation, OperationParser, memory_rows, operations_schema
from recollect.write.redact import clean_model_text
from recollect.write.screen import is_refusal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# The log and what sums it up stay as they are, and so does what has a key: it has one value already.
_MERGEABLE_CATEGORIES = (
    Category.FACT,
    Category.PREFERENCE,
    Category.IDENTITY,
    Category.CONSTRAINT,
    Category.INSTRUCTION,
    Category.EVENT,
    Category.INSIGHT,
)
_MERGEABLE_FILTER: Filter = any_of("category", [str(each) for each in _MERGEABLE_CATEGORIES])
# What the detail of a plain statement may hold; with more, words alone would not stand for it.
_PLAIN_DETAIL = frozenset(["sources", "unreconciled", "review", "proposed_by", "promoted_from_id", "made", MODEL])
_PAGE = 500
# A longer text stands by itself and is not merged with others.
MAX_CLUSTER_CHARS = 600
_MAX_CLUSTER_SIZE = 8
# Memories are near each other from this cosine on.
MIN_COSINE = 0.6


@dataclass(frozen=True, slots=True, eq=False)
class MergeCandidate:
    """A memory that may be merged with others of its group; `fresh` if it changed since the last run."""

    record: MemoryRecord
    vector: Vector
    fresh: bool = True


@dataclass(frozen=True, slots=True)
class Duplicates:
    """A memory, and others with the same words."""

    keeper: MergeCandidate
    repeats: tuple[MergeCandidate, ...]


async def load_candidates(
    scope: Scope, *, ledger: Ledger, index: Index, max_memories: int, after: datetime | None = None
) -> tuple[list[list[MergeCandidate]], bool]:
    """Return the newest memories of the scope in groups that may be merged, and whether there are more.

    With `after`, groups in which nothing changed since are left out.
    """
    newest, more = await _newest(scope, ledger, max_memories)
    places: dict[str, list[MemoryRecord]] = defaultdict(list)
    for record in newest:
        places[record.visibility_key].append(record)
    groups: dict[Any, list[MergeCandidate]] = defaultdict(list)
    for records in places.values():
        if len(records) > 1 and (after is None or any(each.updated_at > after for each in records)):
            for each in await _with_vectors(records, ledger, index, after):
                groups[_group_of(each.record)].append(each)
    useful = [each for each in groups.values() if len(each) > 1 and any(one.fresh for one in each)]
    return useful, more


async def _newest(scope: Scope, ledger: Ledger, max_memories: int) -> tuple[list[MemoryRecord], bool]:
    records: list[MemoryRecord] = []
    async for page in read_pages(ledger, scope, Listing(filter=_MERGEABLE_FILTER, limit=_PAGE)):
        records += filter(_may_merge, page)
        if len(records) >= max_memories:
            return records[:max_memories], page.cursor is not None or len(records) > max_memories
    return records, False


def _may_merge(record: MemoryRecord) -> bool:
    """Return whether the text is the whole memory: no key, no end of validity, no steps or lessons."""
    return (
        record.key is None
        and record.expires_at is None
        and record.valid_to is None
        and record.type is not MemoryType.REFLECTIVE
        and record.detail.keys() <= _PLAIN_DETAIL
    )


async def _with_vectors(
    records: Sequence[MemoryRecord], ledger: Ledger, index: Index, after: datetime | None
) -> list[MergeCandidate]:
    """Return the memories with one visibility that are valid now and have a vector."""
    import numpy as np

    place = _place_of(records[0])
    view = await index.view(place, _MERGEABLE_FILTER)
    loaded: list[MergeCandidate] = []
    for start in range(0, len(records), _PAGE):
        only = any_of("id", [each.id for each in records[start : start + _PAGE]])
        rows = await ledger.matching(place, only)
        numbered = await ledger.fetch(place, rows, filter=only) if rows else []
        if not numbered:
            continue
        vectors = await view.vectors(np.asarray([each.row for each in numbered], np.int64))
        loaded += [
            MergeCandidate(each.record, vector, after is None or each.record.updated_at > after)
            for each, vector in zip(numbered, vectors, strict=True)
            if vector.any()
        ]
    return loaded


def _place_of(record: MemoryRecord) -> Scope:
    scope = record.scope
    if record.level is Level.USER:
        return Scope(scope.user)
    return Scope(scope.user, scope.project, scope.session if record.level is Level.SESSION else "")


def _group_of(record: MemoryRecord) -> Any:
    """Return the properties that memories must share to be merged: place, trust, category, type and metadata."""
    plain = record.category in (Category.FACT, Category.EVENT)
    return (
        record.visibility_key,
        record.trust,
        "fact" if plain else record.category,
        record.type is MemoryType.PROCEDURAL,
        json.dumps(dict(record.metadata), sort_keys=True),
    )


async def find_duplicates(group: Sequence[MergeCandidate]) -> list[Duplicates]:
    """Return the memories of the group that have the same words, the surest and newest of each as the keeper."""
    return await asyncio.to_thread(_duplicates, group)


async def find_clusters(
    group: Sequence[MergeCandidate], *, without: Collection[str] = ()
) -> list[list[MergeCandidate]]:
    """Return clusters of near memories, each in order of time; no memory is in two."""
    short = [
        each for each in group if each.record.id not in without and len(each.record.content) <= MAX_CLUSTER_CHARS
    ]
    return await asyncio.to_thread(_clusters, short)


def _duplicates(group: Sequence[MergeCandidate]) -> list[Duplicates]:
    same: dict[str, list[MergeCandidate]] = defaultdict(list)
    for each in group:
        same[normalize(each.record.content)].append(each)
    duplicates: list[Duplicates] = []
    for members in same.values():
        if len(members) > 1 and any(each.fresh for each in members):
            members.sort(key=lambda each: (each.record.confidence, each.record.stated_at, each.record.id))
            duplicates.append(Duplicates(members[-1], tuple(members[:-1])))
    return duplicates


def _clusters(group: Sequence[MergeCandidate]) -> list[list[MergeCandidate]]:
    if len(group) < 2:
        return []
    near = _cosines(group)
    linked = near >= MIN_COSINE
    free = set(range(len(group)))
    clusters: list[list[MergeCandidate]] = []
    # Start with the memory that has most neighbours, so that all of a cluster are near one of its members.
    for at in sorted(free, key=lambda at: (-int(linked[at].sum()), -group[at].record.stated_at.timestamp())):
        if at not in free:
            continue
        neighbours = [other for other in near[at].argsort()[::-1].tolist() if other in free and linked[at, other]]
        cluster = [at, *neighbours[: _MAX_CLUSTER_SIZE - 1]]
        if len(cluster) > 1 and any(group[each].fresh for each in cluster):
            free -= set(cluster)
            members = [group[each] for each in cluster]
            clusters.append(sorted(members, key=lambda each: (each.record.stated_at, each.record.id)))
    return clusters


def _cosines(group: Sequence[MergeCandidate]) -> NDArray[np.float32]:
    import numpy as np

    matrix = np.stack([each.vector for each in group])
    near: NDArray[np.float32] = matrix @ matrix.T
    np.fill_diagonal(near, -1.0)
    return near


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
        if cluster[at].record.stated_at > cluster[updated].record.stated_at:
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
    sources = "\n".join(f"{cluster[at].record.stated_at:%Y} {members[at]}" for at in members)
    if numbers := missing_numbers(text, sources):
        return f"no memory has the number {next(iter(numbers))}"
    if names := missing_names(text, sources):
        return f"no memory has the name {names[0]}"
    return ""


def merged_record(
    merge: Merge, cluster: Sequence[MergeCandidate], *, at: datetime, digest: str, model: str
) -> MemoryRecord:
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
        detail={"sources": [each.id for each in sources], MODEL: model},
        # It is as recent as its sources, not as the run that merged them.
        occurred_at=max(cluster[number].record.stated_at for number in merge.members),
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


SCHEMA = operations_schema("op", "memory", "content")
# The limits of a run: memories read, and calls of the LLM.
MAX_MEMORIES = 2000
MAX_CALLS = 20
_MAX_TOKENS = 1024


async def consolidate(
    scope: Scope, *, deps: Deps, run: MaintenanceRun, after: datetime | None = None
) -> MaintenanceReport:
    """Join duplicates, merge clusters, and report the changes and the clusters that were skipped.

    With `after`, only clusters with a memory that changed since are processed. Without a chat model only duplicates
    are joined.
    """
    work = _Consolidation(scope, deps, run, await deps.ledger.revision(scope.user))
    groups, more = await load_candidates(
        scope, ledger=deps.ledger, index=deps.index, max_memories=MAX_MEMORIES, after=after
    )
    joined: set[str] = set()
    for group in groups:
        for each in await find_duplicates(group):
            joined |= {one.record.id for one in (each.keeper, *each.repeats)}
            await work.join(each)
    async with record_cost_on_error(deps.ledger, scope, work.unrecorded_usage, by=run.by):
        if (chat := deps.chat) is not None:
            for group in groups:
                for cluster in await find_clusters(group, without=joined):
                    await work.merge(cluster, chat)
        await finish(scope, run, deps.ledger, *work.unrecorded_usage())
    report = run.report(
        MaintenanceTask.CONSOLIDATE,
        scope,
        work.steps,
        left=work.left,
        looked_at=sum(map(len, groups)),
        more=more or work.skipped,
    )
    cost = work.cost
    return replace(report, calls=cost.calls, tokens_in=cost.tokens_in, tokens_out=cost.tokens_out)


class _Consolidation:
    """Applies one transaction for each merge, and records the steps and the cost."""

    def __init__(self, scope: Scope, deps: Deps, run: MaintenanceRun, since: Revision) -> None:
        self.steps: list[MaintenanceStep] = []
        self.left: list[str] = []
        self.cost = LlmCost()
        self.skipped = False
        self._unrecorded: list[LlmCost] = []
        self._scope = scope
        self._deps = deps
        self._run = run
        self._since = since
        self._calls = 0
        self._is_unavailable = False

    def unrecorded_usage(self) -> list[ModelUsage]:
        """Return the LLM usage that no write has recorded yet."""
        step, at = str(MaintenanceTask.CONSOLIDATE), self._run.at
        return [usage for cost in self._unrecorded for usage in cost.usage(self._scope.user, step, at=at)]

    async def join(self, duplicates: Duplicates) -> None:
        """Supersede the duplicates of a memory, and join their evidence."""
        if self._is_full():
            return
        keeper, repeats = duplicates.keeper.record, [each.record for each in duplicates.repeats]
        every = [*sorted(repeats, key=lambda each: each.created_at), keeper]
        sources = [*keeper.detail.get("sources", ()), *(each.id for each in repeats)]
        fields = {
            "importance": max(each.importance for each in every),
            "confidence": max(each.confidence for each in every),
            "evidence": join_evidence(every),
            "detail": {**keeper.detail, "sources": list(dict.fromkeys(sources))},
        }
        changes: list[Change] = [Supersede(each.id, keeper, each.version) for each in repeats]
        changes.append(Update(keeper.id, fields, keeper.version))
        await self._write(changes, ChangeKind.UPDATE, keeper, "they are duplicates", repeats)

    async def merge(self, cluster: Sequence[MergeCandidate], chat: Chat) -> None:
        """Ask the LLM how to merge a cluster, and supersede the sources by the merged memory."""
        if self._is_full() or self._is_unavailable or self._calls >= MAX_CALLS:
            self.skipped = True
            return
        self._calls += 1
        template = prompt("consolidate")
        rows = memory_rows([each.record for each in cluster], MAX_CLUSTER_CHARS)
        try:
            answer: LlmAnswer[Merge | None] = await ask_for_json(
                chat,
                template.fill(fence=new_delimiter(), memories=rows),
                schema=SCHEMA,
                check=lambda value: parse_merge(value, cluster),
                max_tokens=_MAX_TOKENS,
            )
        except ModelUnavailable as error:
            if self._calls == 1 and not self.steps:
                raise
            self._is_unavailable = self.skipped = True
            self._skip(cluster, str(error))
            return
        self.cost += answer.cost
        self._unrecorded.append(answer.cost)
        merge = answer.value
        if isinstance(answer.error, InvalidInput):
            raise answer.error
        if merge is None:
            self._skip(cluster, answer.reason or "the model keeps them separate")
            return
        record = merged_record(merge, cluster, at=self._run.at, digest=template.digest, model=answer.cost.model)
        [vector] = await embed([record.content], embedder=self._deps.embedder)
        sources = [cluster[number].record for number in merge.members]
        changes = [Supersede(each.id, record, each.version, vector) for each in sources]
        await self._write(changes, ChangeKind.ADD, record, "they have the same subject", sources)

    async def _write(
        self,
        changes: Sequence[Change],
        verb: ChangeKind,
        record: MemoryRecord,
        why: str,
        sources: Sequence[MemoryRecord],
    ) -> None:
        ids = tuple(each.id for each in sources)
        if not self._run.dry_run:
            try:
                await self._deps.ledger.apply(
                    self._scope,
                    changes,
                    by=self._run.author_for(f"consolidated: {why}"),
                    effects=self.unrecorded_usage(),
                    since=self._since,
                )
            except (Conflict, NotFound) as error:
                self.left.append(f"{', '.join(ids)}: {error}")
                return
            self._unrecorded.clear()
        self.steps.append(MaintenanceStep(verb=verb, id=record.id, content=record.content, why=why, sources=ids))

    def _skip(self, cluster: Sequence[MergeCandidate], why: str) -> None:
        self.left.append(f"{', '.join(each.record.id for each in cluster)}: {why}")

    def _is_full(self) -> bool:
        is_full = len(self.steps) >= self._run.max_changes
        self.skipped |= is_full
        return is_full
