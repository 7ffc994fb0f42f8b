"""Which of a user's memories may be one: those that say the same, and those that speak of the same thing."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from recollect.index.protocol import Index
from recollect.ledger.protocol import Ledger
from recollect.model.filters import any_of
from recollect.model.memory import Category, MemoryRecord, MemoryType
from recollect.model.query import Filter, Listing
from recollect.model.scope import Level, Scope
from recollect.write.settling.reading import Reading
from recollect.write.settling.relation import same_subject
from recollect.write.settling.same import SameLimits, Text, likeness, ready, said_again

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from recollect.model.change import Vector

Found = TypeVar("Found")

# The log and what sums it up stay as they are, and so does what has a key: it has one value already.
_MERGED = (
    Category.FACT,
    Category.PREFERENCE,
    Category.IDENTITY,
    Category.CONSTRAINT,
    Category.INSTRUCTION,
    Category.EVENT,
    Category.INSIGHT,
)
_MERGEABLE: Filter = any_of("category", [str(each) for each in _MERGED])
# What the detail of a plain statement may hold; with more, words alone would not stand for it.
_PLAIN_DETAIL = frozenset(["sources", "unreconciled", "review", "proposed_by", "promoted_from_id", "made"])
_PAGE = 500
_INLINE = 64
# Below this two statements are no paraphrases; comparing them by their letters would be a waste.
_MAYBE_SAME = 0.5
# What is longer is a text of its own, not a statement to be merged with others.
LONGEST = 600
_MOST_COMPARED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Likings:
    """How near memories must be to be looked at together, and how many at most."""

    similarity: float = 0.6
    most: int = 8
    same: SameLimits = field(default_factory=SameLimits)


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A memory that may be merged with others of its group."""

    record: MemoryRecord
    text: Text
    vector: Vector
    fresh: bool = True

    @property
    def told_at(self) -> datetime:
        """When it was last so, as far as is known."""
        return self.record.occurred_at or self.record.created_at

    @property
    def reading(self) -> Reading:
        """What the statement holds."""
        return self.text.reading or Reading()


@dataclass(frozen=True, slots=True)
class Repeated:
    """A memory, and those that say no more than it does."""

    keeper: Candidate
    repeats: tuple[Candidate, ...]


async def candidates(
    scope: Scope, *, ledger: Ledger, index: Index, look: int, after: datetime | None = None
) -> tuple[list[list[Candidate]], bool]:
    """The newest memories of the scope in groups that may be merged among themselves, and whether there are more.

    With `after`, groups in which nothing was changed since are left out.
    """
    found, more = await _newest(scope, ledger, look)
    places: dict[str, list[MemoryRecord]] = defaultdict(list)
    for record in found:
        places[record.place].append(record)
    groups: dict[Any, list[Candidate]] = defaultdict(list)
    for records in places.values():
        if len(records) > 1 and (after is None or any(each.updated_at > after for each in records)):
            for each in await _with_vectors(records, ledger, index, after):
                groups[_group_of(each.record)].append(each)
    useful = [each for each in groups.values() if len(each) > 1 and any(one.fresh for one in each)]
    return useful, more


async def _newest(scope: Scope, ledger: Ledger, look: int) -> tuple[list[MemoryRecord], bool]:
    found: list[MemoryRecord] = []
    cursor = None
    while len(found) < look:
        listing = Listing(filter=_MERGEABLE, limit=min(_PAGE, look - len(found)), cursor=cursor)
        page = await ledger.find(scope, listing)
        found += filter(_may_merge, page)
        cursor = page.cursor
        if cursor is None:
            break
    return found, cursor is not None


def _may_merge(record: MemoryRecord) -> bool:
    """Whether its words are all there is to it: no key, no end, no steps or lessons, nothing it was seen in."""
    return (
        record.key is None
        and record.expires_at is None
        and record.valid_to is None
        and record.type is not MemoryType.REFLECTIVE
        and record.detail.keys() <= _PLAIN_DETAIL
    )


async def _with_vectors(
    records: Sequence[MemoryRecord], ledger: Ledger, index: Index, after: datetime | None
) -> list[Candidate]:
    """The memories of one place that hold now and have a vector."""
    import numpy as np

    place = _place_of(records[0])
    view = await index.view(place, _MERGEABLE)
    found: list[Candidate] = []
    for start in range(0, len(records), _PAGE):
        only = any_of("id", [each.id for each in records[start : start + _PAGE]])
        rows = await ledger.matching(place, only)
        numbered = await ledger.fetch(place, rows, filter=only) if rows else []
        if not numbered:
            continue
        vectors = await view.vectors(np.asarray([each.row for each in numbered], np.int64))
        texts = await asyncio.to_thread(_ready, [each.record.content for each in numbered])
        found += [
            Candidate(each.record, text, vector, after is None or each.record.updated_at > after)
            for each, text, vector in zip(numbered, texts, vectors, strict=True)
            if vector.any()
        ]
    return found


def _ready(contents: Sequence[str]) -> list[Text]:
    return [ready(each) for each in contents]


def _place_of(record: MemoryRecord) -> Scope:
    scope = record.scope
    if record.level is Level.USER:
        return Scope(scope.user)
    return Scope(scope.user, scope.project, scope.session if record.level is Level.SESSION else "")


def _group_of(record: MemoryRecord) -> Any:
    """What memories must have in common: where they live, whose words they are, what they are, what callers noted."""
    plain = record.category in (Category.FACT, Category.EVENT)
    return (
        record.place,
        record.trust,
        "fact" if plain else record.category,
        record.type is MemoryType.PROCEDURAL,
        json.dumps(dict(record.metadata), sort_keys=True),
    )


async def repeated(group: Sequence[Candidate], likings: Likings) -> list[Repeated]:
    """Memories that say the same as another of the group, each with the better wording; nothing is in two."""
    return await _aside(_repeated, group, likings)


async def related(
    group: Sequence[Candidate], likings: Likings, *, without: Collection[str] = ()
) -> list[list[Candidate]]:
    """Memories that are near to each other and about the same, in clusters in order of time; nothing is in two."""
    short = [each for each in group if each.record.id not in without and len(each.record.content) <= LONGEST]
    return await _aside(_related, short, likings)


async def _aside(
    work: Callable[[Sequence[Candidate], Likings], Found], group: Sequence[Candidate], likings: Likings
) -> Found:
    """Do it in a thread if it takes long enough to hold up others."""
    if len(group) <= _INLINE:
        return work(group, likings)
    return await asyncio.to_thread(work, group, likings)


def _near(group: Sequence[Candidate]) -> NDArray[np.float32]:
    import numpy as np

    matrix = np.stack([each.vector for each in group])
    near: NDArray[np.float32] = matrix @ matrix.T
    np.fill_diagonal(near, -1.0)
    return near


def _repeated(group: Sequence[Candidate], likings: Likings) -> list[Repeated]:
    if len(group) < 2:
        return []
    near = _near(group)
    best = sorted(range(len(group)), key=lambda at: _wording(group[at]), reverse=True)
    taken: set[int] = set()
    found: list[Repeated] = []
    for at in best:
        if at in taken:
            continue
        same = [
            other
            for other in near[at].argsort()[::-1][:_MOST_COMPARED].tolist()
            if other not in taken
            and near[at, other] >= _MAYBE_SAME
            and (group[at].fresh or group[other].fresh)
            and said_again(likeness(group[at].text, group[other].text), float(near[at, other]), limits=likings.same)
        ]
        if same:
            taken |= {at, *same}
            found.append(Repeated(group[at], tuple(group[other] for other in same)))
    return found


def _wording(candidate: Candidate) -> tuple[Any, ...]:
    """What makes one wording better than another that says the same: it says more, surer, later."""
    reading, record = candidate.reading, candidate.record
    return len(reading.words), record.confidence, candidate.told_at, record.id


def _related(group: Sequence[Candidate], likings: Likings) -> list[list[Candidate]]:
    if len(group) < 2:
        return []
    near = _near(group)
    linked = near >= likings.similarity
    free = set(range(len(group)))
    found: list[list[Candidate]] = []
    # Around whatever has most others near it, so that all of a cluster are near to one of its members.
    for at in sorted(free, key=lambda at: (-int(linked[at].sum()), -group[at].told_at.timestamp())):
        if at not in free:
            continue
        others = [
            other
            for other in near[at].argsort()[::-1].tolist()
            if other in free and linked[at, other] and same_subject(group[at].reading, group[other].reading)
        ]
        members = [group[each] for each in (at, *others[: likings.most - 1])]
        if len(members) > 1 and any(each.fresh for each in members):
            free -= {at, *others[: likings.most - 1]}
            found.append(sorted(members, key=lambda each: (each.told_at, each.record.id)))
    return found
