"""What held at a moment, as it stood then: history says what was changed, forgotten or brought back since.

Memories that stand today as they did then are searched as ever; the others, few as a rule, are searched as they were,
and what both give is put together. Nothing of this is done where nobody asks about the past.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, cast

from recollect import search
from recollect.errors import NotFound
from recollect.index.exact import ExactIndex
from recollect.ledger.codec import from_plain, make_page, pack_vector
from recollect.ledger.ledger import Ledger
from recollect.ledger.snapshot import LedgerSnapshot
from recollect.model.change import HistoryEntry
from recollect.model.memory import MemoryRecord, Status
from recollect.model.query import MAX_VALUES, And, Filter, Listing, Not, Op, Where, both, matches
from recollect.model.result import Hit, Page, SearchResult
from recollect.model.scope import Scope
from recollect.model.validity import EFFECTIVE_STATUSES, valid_at
from recollect.models.embedding import Embedder
from recollect.read import pinned_facts
from recollect.write.embed import embed

if TYPE_CHECKING:
    from recollect.search import RankingConfig, SearchDeps, SearchRequest


HistoryLines = Mapping[str, Sequence[HistoryEntry]]
# What makes a memory another one to who searches; how much it matters and how sure it is are told as they are today.
_COMPARED_FIELDS = ("content", "key", "value", "category", "type", "tags", "metadata", "occurred_at", "expires_at")
_PAGE = 500
_INDEX_BYTES = 1 << 30
# So many texts that were changed since are embedded for a search at most; others are found by their words.
_MAX_EMBEDDED = 500


@dataclass(frozen=True, slots=True)
class PastState:
    """Those memories of a user that do not stand as they did at a moment, and what of them held, as it was."""

    changed_ids: tuple[str, ...]
    valid_records: tuple[MemoryRecord, ...]

    @property
    def unchanged_filter(self) -> Filter:
        """What passes all but those."""
        parts = [
            self.changed_ids[start : start + MAX_VALUES] for start in range(0, len(self.changed_ids), MAX_VALUES)
        ]
        return And(tuple(Not(Where("id", Op.IN, part)) for part in parts))


async def find_as_of(scope: Scope, listing: Listing, moment: datetime, *, ledger: Ledger) -> Page:
    """The memories of a listing that held at a moment, as they were then, a page at a time."""
    if Status.ACTIVE not in listing.statuses:
        # What held was active then.
        return make_page([], listing.limit)
    lines = await _history_since(scope.user, moment, ledger)
    # What passes today may not have passed then.
    page_request = replace(listing, statuses=tuple(Status), filter=And(()), limit=_PAGE) if lines else None
    page_request = page_request or replace(listing, statuses=EFFECTIVE_STATUSES, limit=max(listing.limit, _PAGE))
    records: list[MemoryRecord] = []
    while len(records) <= listing.limit:
        page = await ledger.find(scope, page_request)
        valid = (_valid_record(record, lines, moment) for record in page)
        records += [record for record in valid if record is not None and matches(record, listing.filter)]
        if page.cursor is None:
            break
        page_request = replace(page_request, cursor=page.cursor)
    return make_page(records, listing.limit)


async def get_as_of(scope: Scope, id: str, moment: datetime, *, ledger: Ledger) -> MemoryRecord:
    """One memory as it stood at a moment, in whatever state it was; a NotFound for one that was not there yet."""
    records = await ledger.get(scope, [id])
    if not records or min(records[0].created_at, records[0].valid_from or records[0].created_at) > moment:
        raise NotFound(f"no memory {id} at that moment" if records else f"no memory {id}")
    lines = await _history_since(scope.user, moment, ledger)
    return _restore_record(records[0], lines, moment) or records[0]


async def load_past_state(user: str, moment: datetime, *, ledger: Ledger) -> PastState:
    """What of a user's memories stands otherwise today than it did at a moment."""
    lines = await _history_since(user, moment, ledger)
    names = list(lines)
    ids: list[str] = []
    valid: list[MemoryRecord] = []
    for start in range(0, len(names), _PAGE):
        for record in await ledger.get(Scope(user), names[start : start + _PAGE]):
            restored = _valid_record(record, lines, moment)
            if valid_at(record, moment) == (restored is not None) and (
                restored is None or _is_unchanged(record, restored)
            ):
                continue
            ids.append(record.id)
            valid += [] if restored is None else [restored]
    return PastState(tuple(ids), tuple(valid))


async def search_as_of(
    scope: Scope, request: SearchRequest, ranking: RankingConfig, deps: SearchDeps
) -> SearchResult:
    """The memories that fit the question, as they were at the moment it is asked of, if it is of one."""
    state = (
        PastState((), ())
        if request.as_of is None
        else await load_past_state(scope.user, request.as_of, ledger=deps.ledger)
    )
    if not state.changed_ids:
        return await search.search(scope, request, ranking, deps)
    unchanged_request = replace(request, filter=both(request.filter, state.unchanged_filter))
    result = await search.search(scope, unchanged_request, ranking, deps)
    if not state.valid_records:
        return result
    past_deps = await _past_deps(scope.user, state.valid_records, deps)
    return _merge_results(result, await search.search(scope, request, ranking, past_deps), request.limit)


async def keyed_facts_as_of(
    scope: Scope, filter: Filter, *, ledger: Ledger, limit: int, min_importance: float, as_of: datetime | None
) -> list[Hit]:
    """The keyed facts that pass the filter and matter so much, as they were at a moment, if one is named."""
    state = PastState((), ()) if as_of is None else await load_past_state(scope.user, as_of, ledger=ledger)
    hits = await pinned_facts.keyed_facts(
        scope,
        both(filter, state.unchanged_filter),
        ledger=ledger,
        limit=limit,
        min_importance=min_importance,
        as_of=as_of,
    )
    if not state.valid_records or not limit:
        return hits
    past_ledger = cast(Ledger, LedgerSnapshot(state.valid_records, {}))
    more = await pinned_facts.keyed_facts(
        scope, filter, ledger=past_ledger, limit=limit, min_importance=min_importance, as_of=as_of
    )
    return sorted([*hits, *more], key=lambda hit: -hit.score)[:limit]


async def _history_since(user: str, moment: datetime, ledger: Ledger) -> dict[str, list[HistoryEntry]]:
    """The lines of what was changed since a moment, by its memory, the oldest first."""
    lines: dict[str, list[HistoryEntry]] = {}
    for line in await ledger.changes_since(user, moment):
        lines.setdefault(line.memory_id, []).append(line)
    return lines


def _restore_record(record: MemoryRecord, lines: HistoryLines, moment: datetime) -> MemoryRecord | None:
    """The memory with all that was changed since taken back; None if it stands as it did, or was not there yet."""
    since = lines.get(record.id, ())
    if not since or since[0].before is None:
        # What came later is known as it is today, though it may tell of a time before.
        return None
    fields = {name: value for line in reversed(since) for name, value in (line.before or {}).items()}
    updated_at = min(record.updated_at, moment)
    return replace(record, **from_plain(fields), version=since[0].version - 1, updated_at=updated_at)


def _valid_record(record: MemoryRecord, lines: HistoryLines, moment: datetime) -> MemoryRecord | None:
    """The memory as it was, if it held; when what was active began and ended is told by what is known today."""
    restored = _restore_record(record, lines, moment)
    if restored is not None and restored.status is Status.ACTIVE:
        restored = replace(restored, valid_from=record.valid_from, valid_to=record.valid_to)
    result = restored or record
    return result if valid_at(result, moment) else None


def _is_unchanged(one: MemoryRecord, other: MemoryRecord) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in _COMPARED_FIELDS)


async def _past_deps(user: str, records: Sequence[MemoryRecord], deps: SearchDeps) -> SearchDeps:
    """What searches these alone, as they are given."""
    vectors = await _vectors(user, records, ledger=deps.ledger, embedder=deps.embedder)
    model = deps.embedder.model
    ledger = cast(Ledger, LedgerSnapshot(records, vectors))
    return replace(deps, ledger=ledger, index=ExactIndex(ledger, model, budget_bytes=_INDEX_BYTES), late=None)


async def _vectors(
    user: str, records: Sequence[MemoryRecord], *, ledger: Ledger, embedder: Embedder
) -> dict[str, bytes]:
    ids = [record.id for record in records]
    today = {record.id: record.content for record in await ledger.get(Scope(user), ids)}
    same = [record.id for record in records if today.get(record.id) == record.content]
    stored = await ledger.vectors(user, same, model=embedder.model) if same else {}
    new = [record for record in records if today.get(record.id) != record.content][:_MAX_EMBEDDED]
    embedded = await embed([record.content for record in new], embedder=embedder) if new else []
    pairs = zip(new, embedded, strict=True)
    return {
        **stored,
        **{each.id: pack_vector(vector, embedder.model) for each, vector in pairs if vector is not None},
    }


def _merge_results(one: SearchResult, other: SearchResult, limit: int) -> SearchResult:
    hits = sorted([*one.hits, *other.hits], key=lambda hit: -hit.score)[:limit]
    names = {**one.steps_us, **other.steps_us}
    steps = {name: one.steps_us.get(name, 0.0) + other.steps_us.get(name, 0.0) for name in names}
    notes = tuple(dict.fromkeys([*one.notes, *other.notes]))
    candidates = tuple(sorted([*one.candidates, *other.candidates], key=lambda each: -each.score))
    return SearchResult(tuple(hits), steps, notes, candidates, one.failure or other.failure)
