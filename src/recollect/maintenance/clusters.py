"""Find memories that may become one: exact duplicates, and clusters of near ones."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from recollect.frozen_dataclass import frozen_dataclass
from recollect.index.protocol import Index
from recollect.ledger.ledger import Ledger, read_pages
from recollect.model.change import Vector
from recollect.model.memory import MODEL, Category, MemoryRecord, MemoryType
from recollect.model.query import Filter, Listing, any_of
from recollect.model.scope import Level, Scope
from recollect.text.normalize import normalize

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


@frozen_dataclass(eq=False)
class MergeCandidate:
    """A memory that may be merged with others of its group; `fresh` if it changed since the last run."""

    record: MemoryRecord
    vector: Vector
    fresh: bool = True

    @property
    def stated_at(self) -> datetime:
        """Return when it was said: of two statements about an event, the later one holds."""
        return self.record.stated_at


@frozen_dataclass
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
            members.sort(key=lambda each: (each.record.confidence, each.stated_at, each.record.id))
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
    for at in sorted(free, key=lambda at: (-int(linked[at].sum()), -group[at].stated_at.timestamp())):
        if at not in free:
            continue
        neighbours = [other for other in near[at].argsort()[::-1].tolist() if other in free and linked[at, other]]
        cluster = [at, *neighbours[: _MAX_CLUSTER_SIZE - 1]]
        if len(cluster) > 1 and any(group[each].fresh for each in cluster):
            free -= set(cluster)
            members = [group[each] for each in cluster]
            clusters.append(sorted(members, key=lambda each: (each.stated_at, each.record.id)))
    return clusters


def _cosines(group: Sequence[MergeCandidate]) -> NDArray[np.float32]:
    import numpy as np

    matrix = np.stack([each.vector for each in group])
    near: NDArray[np.float32] = matrix @ matrix.T
    np.fill_diagonal(near, -1.0)
    return near
