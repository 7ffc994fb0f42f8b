"""Past states: read memories as they were at a moment, by undoing the later changes in their history.

A search as of a moment searches unchanged memories in the ledger as usual, restores the changed ones into a snapshot,
searches that too, and merges the results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import cast

from recollect.errors import NotFound, RecollectError
from recollect.index.exact import ExactIndex
from recollect.ledger.codec import from_plain, make_page, pack_vector
from recollect.ledger.ledger import Ledger
from recollect.ledger.snapshot import LedgerSnapshot
from recollect.model.change import HistoryEntry
from recollect.model.memory import EFFECTIVE_STATUSES, MemoryRecord, Status, valid_at
from recollect.model.query import MAX_VALUES, And, Filter, Listing, Not, Op, Where, both, matches
from recollect.model.result import Hit, Page, SearchResult
from recollect.model.scope import Scope
from recollect.models.embedding import Embedder
from recollect.read import pinned_facts

HistoryLines = Mapping[str, Sequence[HistoryEntry]]
# A memory that differs in one of these counts as changed; importance and confidence are those of today.
_COMPARED_FIELDS = ("content", "key", "value", "category", "type", "tags", "metadata", "occurred_at", "expires_at")
_PAGE = 500
_INDEX_BYTES = 1 << 30
# Changed texts embedded for one search; further ones are found by their words only.
_MAX_EMBEDDED = 500


@dataclass(frozen=True, slots=True)
class PastState:
    """The memories of a user that changed since a moment, and the records of those that were valid, as they were."""

    changed_ids: tuple[str, ...]
    valid_records: tuple[MemoryRecord, ...]

    @property
    def unchanged_filter(self) -> Filter:
        """Return a filter that excludes the changed memories."""
        parts = [
            self.changed_ids[start : start + MAX_VALUES] for start in range(0, len(self.changed_ids), MAX_VALUES)
        ]
        return And(tuple(Not(Where("id", Op.IN, part)) for part in parts))


async def find_as_of(scope: Scope, listing: Listing, moment: datetime, *, ledger: Ledger) -> Page:
    """Return a page of the memories that were valid at a moment, as they were."""
    if Status.ACTIVE not in listing.statuses:
        # Only active memories are valid.
        return make_page([], listing.limit)
    lines = await _history_since(scope.user, moment, ledger)
    # A changed memory may pass the filter only as it was, so the filter is applied afterwards.
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
    """Return one memory as it was at a moment, in any status; raise `NotFound` if it did not exist yet."""
    records = await ledger.get(scope, [id])
    if not records or min(records[0].created_at, records[0].valid_from or records[0].created_at) > moment:
        raise NotFound(f"no memory {id} at that moment" if records else f"no memory {id}")
    lines = await _history_since(scope.user, moment, ledger)
    return _restore_record(records[0], lines, moment) or records[0]


async def load_past_state(user: str, moment: datetime, *, ledger: Ledger) -> PastState:
    """Return the memories of a user that changed since a moment, and their previous state."""
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


async def pinned_facts_as_of(
    scope: Scope, filter: Filter, *, ledger: Ledger, limit: int, min_importance: float, as_of: datetime | None
) -> list[Hit]:
    """Return the pinned facts that pass the filter, with `as_of` as they were at that moment."""
    state = PastState((), ()) if as_of is None else await load_past_state(scope.user, as_of, ledger=ledger)
    hits = await pinned_facts.pinned_facts(
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
    more = await pinned_facts.pinned_facts(
        scope, filter, ledger=past_ledger, limit=limit, min_importance=min_importance, as_of=as_of
    )
    return sorted([*hits, *more], key=lambda hit: (hit.record.key is None, -hit.score))[:limit]


async def _history_since(user: str, moment: datetime, ledger: Ledger) -> dict[str, list[HistoryEntry]]:
    """Return the history entries since a moment by memory id, oldest first."""
    lines: dict[str, list[HistoryEntry]] = {}
    for line in await ledger.changes_since(user, moment):
        lines.setdefault(line.memory_id, []).append(line)
    return lines


def _restore_record(record: MemoryRecord, lines: HistoryLines, moment: datetime) -> MemoryRecord | None:
    """Return the memory without the later changes; None if there are none, or if it was added later."""
    since = lines.get(record.id, ())
    if not since or since[0].before is None:
        # A memory added later is used as it is today: its validity may begin before the moment.
        return None
    fields = {name: value for line in reversed(since) for name, value in (line.before or {}).items()}
    updated_at = min(record.updated_at, moment)
    return replace(record, **from_plain(fields), version=since[0].version - 1, updated_at=updated_at)


def _valid_record(record: MemoryRecord, lines: HistoryLines, moment: datetime) -> MemoryRecord | None:
    """Return the memory as it was if it was valid then; its validity period is the one known today."""
    restored = _restore_record(record, lines, moment)
    if restored is not None and restored.status is Status.ACTIVE:
        restored = replace(restored, valid_from=record.valid_from, valid_to=record.valid_to)
    result = restored or record
    return result if valid_at(result, moment) else None


def _is_unchanged(one: MemoryRecord, other: MemoryRecord) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in _COMPARED_FIELDS)


async def open_snapshot(
    user: str, records: Sequence[MemoryRecord], *, ledger: Ledger, embedder: Embedder
) -> tuple[Ledger, ExactIndex]:
    """Return a read-only ledger and an index of these records alone."""
    vectors = await _vectors(user, records, ledger=ledger, embedder=embedder)
    snapshot = cast(Ledger, LedgerSnapshot(records, vectors))
    return snapshot, ExactIndex(snapshot, embedder.model, budget_bytes=_INDEX_BYTES)


async def _vectors(
    user: str, records: Sequence[MemoryRecord], *, ledger: Ledger, embedder: Embedder
) -> dict[str, bytes]:
    ids = [record.id for record in records]
    today = {record.id: record.content for record in await ledger.get(Scope(user), ids)}
    same = [record.id for record in records if today.get(record.id) == record.content]
    stored = await ledger.vectors(user, same, model=embedder.model) if same else {}
    new = [record for record in records if today.get(record.id) != record.content][:_MAX_EMBEDDED]
    if not new:
        return stored
    try:
        embedded = await embedder.embed([record.content for record in new], role="passage")
    except RecollectError:
        # The search reports the failure of the embedder.
        return stored
    model = embedder.model
    return {**stored, **{each.id: pack_vector(vector, model) for each, vector in zip(new, embedded, strict=True)}}


def merge_results(one: SearchResult, other: SearchResult, limit: int) -> SearchResult:
    """Return the best hits of two searches, with the notes and times of both."""
    hits = sorted([*one.hits, *other.hits], key=lambda hit: (hit.record.key is None, -hit.score))[:limit]
    names = {**one.steps_us, **other.steps_us}
    steps = {name: one.steps_us.get(name, 0.0) + other.steps_us.get(name, 0.0) for name in names}
    notes = tuple(dict.fromkeys([*one.notes, *other.notes]))
    candidates = tuple(sorted([*one.candidates, *other.candidates], key=lambda each: -each.score))
    return SearchResult(tuple(hits), steps, notes, candidates, one.failure or other.failure)
