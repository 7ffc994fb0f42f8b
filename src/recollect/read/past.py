"""What held at a moment, as it stood then: history says what was changed, forgotten or brought back since.

Memories that stand today as they did then are searched as ever; the others, few as a rule, are searched as they were,
and what both give is put together. Nothing of this is done where nobody asks about the past.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from recollect.errors import NotFound
from recollect.index.exact import ExactIndex
from recollect.ledger.cursors import page_of
from recollect.ledger.fields import from_plain
from recollect.ledger.memory import MemoryLedger
from recollect.ledger.packing import packed
from recollect.ledger.protocol import Ledger
from recollect.model.change import Entry
from recollect.model.filters import matches
from recollect.model.memory import MemoryRecord, Status
from recollect.model.query import MAX_VALUES, And, Filter, Listing, Not, Op, Where, both
from recollect.model.result import Hit, Page, SearchResult
from recollect.model.scope import Scope
from recollect.model.validity import HELD, valid_at
from recollect.models.embedding import Embedder, EmbeddingModel
from recollect.read import facts, search
from recollect.write.embed import embed

if TYPE_CHECKING:
    from recollect.read.search import Finders, Search, Taste

Lines = Mapping[str, Sequence[Entry]]
# What makes a memory another one to who searches; how much it matters and how sure it is are told as they are today.
_TOLD = ("content", "key", "value", "category", "type", "tags", "metadata", "occurred_at", "expires_at")
_PAGE = 500
_INDEX_BYTES = 1 << 30
# For what is not searched by meaning.
_NO_MODEL = EmbeddingModel("none", 1)
# So many texts that were changed since are embedded for a search at most; others are found by their words.
_MOST_EMBEDDED = 500


@dataclass(frozen=True, slots=True)
class Past:
    """Those memories of a user that do not stand as they did at a moment, and what of them held, as it was."""

    ids: tuple[str, ...]
    held: tuple[MemoryRecord, ...]

    @property
    def others(self) -> Filter:
        """What passes all but those."""
        parts = [self.ids[start : start + MAX_VALUES] for start in range(0, len(self.ids), MAX_VALUES)]
        return And(tuple(Not(Where("id", Op.IN, part)) for part in parts))


async def find(scope: Scope, listing: Listing, moment: datetime, *, ledger: Ledger) -> Page:
    """The memories of a listing that held at a moment, as they were then, a page at a time."""
    if Status.ACTIVE not in listing.statuses:
        # What held was active then.
        return page_of([], listing.limit)
    lines = await _altered(scope.user, moment, ledger)
    # What passes today may not have passed then.
    asked = replace(listing, statuses=tuple(Status), filter=And(()), limit=_PAGE) if lines else None
    asked = asked or replace(listing, statuses=HELD, limit=max(listing.limit, _PAGE))
    found: list[MemoryRecord] = []
    while len(found) <= listing.limit:
        page = await ledger.find(scope, asked)
        told = (_held(record, lines, moment) for record in page)
        found += [record for record in told if record is not None and matches(record, listing.filter)]
        if page.cursor is None:
            break
        asked = replace(asked, cursor=page.cursor)
    return page_of(found, listing.limit)


async def get(scope: Scope, id: str, moment: datetime, *, ledger: Ledger) -> MemoryRecord:
    """One memory as it stood at a moment, in whatever state it was; a NotFound for one that was not there yet."""
    found = await ledger.get(scope, [id])
    if not found or min(found[0].created_at, found[0].valid_from or found[0].created_at) > moment:
        raise NotFound(f"no memory {id} at that moment" if found else f"no memory {id}")
    lines = await _altered(scope.user, moment, ledger)
    return _as_it_was(found[0], lines, moment) or found[0]


async def past_of(user: str, moment: datetime, *, ledger: Ledger) -> Past:
    """What of a user's memories stands otherwise today than it did at a moment."""
    lines = await _altered(user, moment, ledger)
    names = list(lines)
    ids: list[str] = []
    held: list[MemoryRecord] = []
    for start in range(0, len(names), _PAGE):
        for record in await ledger.get(Scope(user), names[start : start + _PAGE]):
            told = _held(record, lines, moment)
            if valid_at(record, moment) == (told is not None) and (told is None or _says_the_same(record, told)):
                continue
            ids.append(record.id)
            held += [] if told is None else [told]
    return Past(tuple(ids), tuple(held))


async def search_then(scope: Scope, asked: Search, taste: Taste, finders: Finders) -> SearchResult:
    """The memories that fit the question, as they were at the moment it is asked of, if it is of one."""
    past = Past((), ()) if asked.as_of is None else await past_of(scope.user, asked.as_of, ledger=finders.ledger)
    if not past.ids:
        return await search.search(scope, asked, taste, finders)
    others = replace(asked, filter=both(asked.filter, past.others))
    found = await search.search(scope, others, taste, finders)
    if not past.held:
        return found
    then = await _finders_of(scope.user, past.held, finders)
    return _together(found, await search.search(scope, asked, taste, then), asked.limit)


async def keyed_then(
    scope: Scope, filter: Filter, *, ledger: Ledger, limit: int, least: float, as_of: datetime | None
) -> list[Hit]:
    """The keyed facts that pass the filter and matter so much, as they were at a moment, if one is named."""
    past = Past((), ()) if as_of is None else await past_of(scope.user, as_of, ledger=ledger)
    found = await facts.keyed_facts(
        scope, both(filter, past.others), ledger=ledger, limit=limit, least=least, as_of=as_of
    )
    if not past.held or not limit:
        return found
    then = MemoryLedger.of(scope.user, past.held, {}, model=_NO_MODEL)
    more = await facts.keyed_facts(scope, filter, ledger=then, limit=limit, least=least, as_of=as_of)
    return sorted([*found, *more], key=lambda hit: -hit.score)[:limit]


async def _altered(user: str, moment: datetime, ledger: Ledger) -> dict[str, list[Entry]]:
    """The lines of what was changed since a moment, by its memory, the oldest first."""
    lines: dict[str, list[Entry]] = {}
    for line in await ledger.altered(user, moment):
        lines.setdefault(line.memory_id, []).append(line)
    return lines


def _as_it_was(record: MemoryRecord, lines: Lines, moment: datetime) -> MemoryRecord | None:
    """The memory with all that was changed since taken back; None if it stands as it did, or was not there yet."""
    since = lines.get(record.id, ())
    if not since or since[0].before is None:
        # What came later is known as it is today, though it may tell of a time before.
        return None
    fields = {name: value for line in reversed(since) for name, value in (line.before or {}).items()}
    updated_at = min(record.updated_at, moment)
    return replace(record, **from_plain(fields), version=since[0].version - 1, updated_at=updated_at)


def _held(record: MemoryRecord, lines: Lines, moment: datetime) -> MemoryRecord | None:
    """The memory as it was, if it held; when what was active began and ended is told by what is known today."""
    was = _as_it_was(record, lines, moment)
    if was is not None and was.status is Status.ACTIVE:
        was = replace(was, valid_from=record.valid_from, valid_to=record.valid_to)
    told = was or record
    return told if valid_at(told, moment) else None


def _says_the_same(one: MemoryRecord, other: MemoryRecord) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in _TOLD)


async def _finders_of(user: str, records: Sequence[MemoryRecord], finders: Finders) -> Finders:
    """What searches these alone, as they are given."""
    vectors = await _vectors(user, records, ledger=finders.ledger, embedder=finders.embedder)
    model = finders.embedder.model
    ledger = MemoryLedger.of(user, records, vectors, model=model)
    return replace(finders, ledger=ledger, index=ExactIndex(ledger, model, budget_bytes=_INDEX_BYTES))


async def _vectors(
    user: str, records: Sequence[MemoryRecord], *, ledger: Ledger, embedder: Embedder
) -> dict[str, bytes]:
    ids = [record.id for record in records]
    today = {record.id: record.content for record in await ledger.get(Scope(user), ids)}
    same = [record.id for record in records if today.get(record.id) == record.content]
    known = await ledger.vectors(user, same, model=embedder.model) if same else {}
    new = [record for record in records if today.get(record.id) != record.content][:_MOST_EMBEDDED]
    made = await embed([record.content for record in new], embedder=embedder) if new else []
    pairs = zip(new, made, strict=True)
    return {**known, **{each.id: packed(vector, embedder.model) for each, vector in pairs if vector is not None}}


def _together(one: SearchResult, other: SearchResult, limit: int) -> SearchResult:
    hits = sorted([*one.hits, *other.hits], key=lambda hit: -hit.score)[:limit]
    names = {**one.steps_us, **other.steps_us}
    steps = {name: one.steps_us.get(name, 0.0) + other.steps_us.get(name, 0.0) for name in names}
    notes = tuple(dict.fromkeys([*one.notes, *other.notes]))
    candidates = tuple(sorted([*one.candidates, *other.candidates], key=lambda each: -each.score))
    return SearchResult(tuple(hits), steps, notes, candidates, one.failure or other.failure)
