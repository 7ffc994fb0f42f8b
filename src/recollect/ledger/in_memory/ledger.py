"""The log as the ledger in memory keeps it: turns, in order."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from recollect.errors import Conflict, NotFound, StoreUnavailable, Unsupported
from recollect.ledger.codec import make_page, pack_vector, parse_cursor, to_plain
from recollect.ledger.in_memory.erasure import MemoryErasure
from recollect.ledger.in_memory.rows import (
    StoredRow,
    UserState,
    by_time,
    copy_of,
    derived_from,
    existing_records,
    index_row,
    is_within,
    lines_of,
    plain_copy,
    replayed,
)
from recollect.ledger.plan import (
    Plan,
    Revert,
    check_not_erased,
    check_owner,
    conflicting_records,
    is_usage_only,
    plan,
    plan_reverts,
    undone_line_ids,
)
from recollect.ledger.protocol import Derived, IndexRow, LexicalMatches, NumberedRecord, Revision, Unembedded
from recollect.ledger.sql.evidence import successions
from recollect.ledger.sql.ledger import ignore_change, record_metrics
from recollect.ledger.tokenizer import K1, B, query_terms, terms_of
from recollect.ledger.tombstones import dedupe_turns, turn_from_record
from recollect.model.change import (
    Add,
    Applied,
    Author,
    Change,
    ChangeKind,
    Effect,
    HistoryEntry,
    IdempotencyToken,
    check_effects,
)
from recollect.model.erasure import user_digest
from recollect.model.ids import new_id
from recollect.model.job import Appended, NewJob
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.query import Filter, Listing, matches, validate_limit
from recollect.model.result import Page
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Conversation, Turn
from recollect.model.validity import is_valid_now, valid_at
from recollect.models.embedding import EmbeddingModel

if TYPE_CHECKING:
    from recollect.ledger.backup_file import Backup
    from recollect.model.change import Vector


class MemoryTurns(MemoryErasure):
    """Turns and the conversations they make up."""

    async def append(
        self,
        scope: Scope,
        turns: Sequence[Turn],
        *,
        vectors: Sequence[Vector | None],
        by: Author,
        jobs: Sequence[NewJob] = (),
        received_at: datetime | None = None,
    ) -> Appended:
        if not turns:
            return Appended((), await self.enqueue(scope, jobs))
        if len({turn.id for turn in turns}) < len(turns):
            raise Conflict("two turns have the same id; give each its own")
        if received_at is None:
            placed = self._insert_turns(scope, turns, vectors, by=by)
            return Appended(placed, await self.enqueue(scope, jobs))
        rows = self._user(scope.user).rows
        stored = {turn.id: rows[turn.id].record for turn in turns if turn.id in rows}
        recent_erasures = [each for each in await self.erasures(received_at) if each.user == user_digest(scope.user)]
        resent = self._resent_turns(scope.user, turns, received_at)
        deduped = dedupe_turns(scope, turns, stored=stored, erasures=recent_erasures, resent=resent)
        if not deduped.new_indexes:
            return Appended(tuple(deduped.existing.values()))
        placed = self._insert_turns(
            scope, [turns[n] for n in deduped.new_indexes], [vectors[n] for n in deduped.new_indexes], by=by
        )
        turns_by_id = {turn.id: turn for turn in placed} | dict(deduped.existing)
        appended = tuple(turns_by_id[turn.id] for turn in turns if turn.id in turns_by_id)
        return Appended(appended, await self.enqueue(scope, jobs))

    def _insert_turns(
        self, scope: Scope, turns: Sequence[Turn], vectors: Sequence[Vector | None], *, by: Author
    ) -> tuple[Turn, ...]:
        user = self._user(scope.user)
        ids = [turn.id for turn in turns]
        if any(id in user.rows for id in ids):
            raise Conflict("a turn of that id was appended before")
        session = (scope.project, scope.session)
        turn_ids = user.turn_ids.get(session, [])
        placed = tuple(replace(turn, scope=scope, position=len(turn_ids) + n) for n, turn in enumerate(turns, 1))
        changes = [Add(turn.as_memory(), vector) for turn, vector in zip(placed, vectors, strict=True)]
        self._write(scope, user, changes, by=by)
        user.turn_ids[session] = turn_ids + ids
        before = user.conversations.get(session, Conversation(scope=scope))
        times = [turn.said_at for turn in turns]
        user.conversations[session] = replace(
            before,
            turn_count=before.turn_count + len(turns),
            started_at=before.started_at or min(times),
            last_turn_at=max(filter(None, [before.last_turn_at, *times])),
            closed_at=None,
            version=before.version + 1,
        )
        return placed

    async def conversation(self, scope: Scope) -> Conversation:
        session = (scope.project, scope.session)
        return self._user(scope.user).conversations.get(session, Conversation(scope=scope))

    async def turns(self, scope: Scope, *, after: int = 0, limit: int = 100) -> list[Turn]:
        user = self._user(scope.user)
        ids = user.turn_ids.get((scope.project, scope.session), [])
        result = [
            turn_from_record(scope, user.rows[id].record, position)
            for position, id in enumerate(ids, 1)
            if position > after and id in user.rows and user.rows[id].record.status is Status.ACTIVE
        ]
        return result[: validate_limit(limit)]


class InMemoryLedger(MemoryTurns):
    """Everything in dicts. Nothing waits, so each method is one undivided step of its event loop."""

    def __init__(self, model: EmbeddingModel) -> None:
        super().__init__()
        self._model = model
        self._users: dict[str, UserState] = {}
        self._row_count = 0
        self._entry_count = 0
        self._closed = False
        self.on_change: Callable[[str], None] = ignore_change

    @classmethod
    def from_records(
        cls, user: str, records: Sequence[MemoryRecord], vectors: Mapping[str, bytes], *, model: EmbeddingModel
    ) -> InMemoryLedger:
        """One that holds memories of a user as they are given, whatever they say alike, with packed vectors by id."""
        ledger = cls(model)
        owner = ledger._users[user] = UserState(revision=1)
        for number, record in enumerate(records, 1):
            own_vectors = {model: vectors[record.id]} if record.id in vectors else {}
            owner.rows[record.id] = StoredRow(number, copy_of(record), 1, own_vectors)
        ledger._row_count = len(records)
        return ledger

    async def apply(
        self,
        scope: Scope,
        changes: Sequence[Change],
        *,
        by: Author,
        once: IdempotencyToken | None = None,
        effects: Sequence[Effect] = (),
        since: Revision | None = None,
    ) -> Applied:
        user = self._user(scope.user)
        if once is not None and once.key in user.done:
            return replayed(user, once)
        if once is not None:
            self._check_key(scope.user, once)
        check_not_erased(user.epoch, since)
        check_owner(scope, changes)
        check_effects(scope, effects)
        if is_usage_only(changes, effects) and scope.user not in self._users:
            self._add_to_daily_total(effects)
            return record_metrics(Applied(by.batch or new_id(), ()), effects, by)
        with self._all_or_none(user):
            self._apply_effects(scope, user, effects)
            applied = self._write(scope, user, changes, by=by)
        if once is not None:
            user.done[once.key] = (once, applied, now())
        return record_metrics(applied, effects, by)

    async def undo(self, scope: Scope, entry_id: int, *, by: Author, whole: bool = False) -> Applied:
        entry = await self.entry(scope, entry_id)
        user = self._user(scope.user)
        batch = [each for each in user.entries if each.batch == entry.batch]
        if whole:
            undone = undone_line_ids(user.entries)
            batch = [each for each in batch if each.id not in undone]
        current = {id: row.record for id, row in user.rows.items()}
        return self._write(scope, user, plan_reverts(entry, batch, current, whole=whole), by=by)

    async def touch(self, scope: Scope, ids: Sequence[str], *, at: datetime) -> None:
        rows = self._user(scope.user).rows
        for id in set(ids) & set(rows):
            record = rows[id].record
            rows[id].record = replace(record, access_count=record.access_count + 1, last_accessed_at=at)

    def _user(self, name: str) -> UserState:
        """What the user has; someone new is kept with the first write that goes through."""
        if self._closed:
            raise StoreUnavailable("the ledger in memory is closed")
        return self._users.get(name) or UserState(epoch=self._epochs.get(user_digest(name), 0))

    def _write(self, scope: Scope, user: UserState, changes: Sequence[Change | Revert], *, by: Author) -> Applied:
        planned = plan(changes, existing_records(user), at=now())
        vectors = {id: pack_vector(vector, self._model) for id, vector in planned.vectors.items()}
        # Nothing below can fail, so all of it happens or none.
        self._users[scope.user] = user
        user.revision += not planned.is_empty
        batch = by.batch or new_id()
        for id, record in planned.added.items():
            self._row_count += 1
            user.rows[id] = StoredRow(self._row_count, copy_of(record), user.revision)
        for id, record in planned.changed.items():
            row = user.rows[id]
            if record.content != row.record.content:
                row.vectors.clear()
            row.record, row.revision = copy_of(record), user.revision
        for id, vector in vectors.items():
            user.rows[id].vectors[self._model] = vector
        self._write_lines(user, planned, batch=batch, by=by)
        self._write_tombstones(scope.user, planned)
        self.on_change(scope.user)
        return Applied(batch, tuple(planned.outcomes))

    def _write_lines(self, user: UserState, planned: Plan, *, batch: str, by: Author) -> None:
        for line in planned.lines:
            self._entry_count += 1
            user.entries.append(
                HistoryEntry(
                    id=self._entry_count,
                    batch=batch,
                    memory_id=line.memory_id,
                    verb=line.verb,
                    at=planned.at,
                    by=Author(by.who, by.why),
                    version=line.version,
                    before=None if line.before is None else plain_copy(to_plain(line.before)),
                    after=plain_copy(to_plain(line.after)),
                    undoes=line.undoes,
                )
            )

    async def get(self, scope: Scope, ids: Sequence[str]) -> list[MemoryRecord]:
        rows = self._user(scope.user).rows
        return [copy_of(rows[id].record) for id in ids if id in rows]

    async def find(self, scope: Scope, listing: Listing) -> Page:
        records = sorted(self._matching_records(scope, listing), key=by_time, reverse=listing.order == "newest")
        if listing.cursor is not None:
            last = parse_cursor(listing.cursor)
            newest = listing.order == "newest"
            records = [each for each in records if (by_time(each) < last if newest else by_time(each) > last)]
        return make_page(records, listing.limit)

    async def count(self, scope: Scope, listing: Listing) -> int:
        return sum(1 for _ in self._matching_records(scope, listing))

    def _matching_records(self, scope: Scope, listing: Listing) -> Iterator[MemoryRecord]:
        for row in self._user(scope.user).rows.values():
            record = row.record
            inside = scope.can_see(record.visibility_key) if listing.visible else is_within(record, scope)
            has_status = not listing.statuses or record.status in listing.statuses
            if inside and has_status and matches(record, listing.filter):
                yield copy_of(record)

    async def history(
        self,
        scope: Scope,
        *,
        memory_id: str | None = None,
        limit: int = 100,
        before: int | None = None,
        after: int | None = None,
    ) -> list[HistoryEntry]:
        lines = lines_of(self._user(scope.user), scope, memory_id=memory_id, before=before, after=after)
        return lines[: validate_limit(limit)]

    async def changes_since(self, user: str, since: datetime) -> list[HistoryEntry]:
        lines = [line for line in self._user(user).entries if line.at > since]
        changed = {line.memory_id for line in lines if line.verb is not ChangeKind.ADD}
        return [line for line in lines if line.memory_id in changed]

    async def entry(self, scope: Scope, entry_id: int) -> HistoryEntry:
        for entry in self._user(scope.user).entries:
            if entry.id == entry_id:
                return entry
        raise NotFound(f"no change {entry_id}")

    async def users(self) -> list[str]:
        self._check_open()
        return sorted(self._users)

    async def lexical(self, scope: Scope, text: str) -> LexicalMatches:
        term_counts = {
            row.number: Counter(terms_of(row.record.content)) for row in self._user(scope.user).rows.values()
        }
        average = sum(counts.total() for counts in term_counts.values()) / max(len(term_counts), 1)
        scores: defaultdict[int, float] = defaultdict(float)
        covered: defaultdict[int, float] = defaultdict(float)
        total, missing, missing_weight = 0.0, set[str](), 0.0
        for term in query_terms(text):
            occurrences = {number: counts[term] for number, counts in term_counts.items() if term in counts}
            rarity = math.log(1 + (len(term_counts) - len(occurrences) + 0.5) / (len(occurrences) + 0.5))
            total += rarity
            if not occurrences:
                missing.add(term)
                missing_weight += rarity
            for number, times in occurrences.items():
                length = term_counts[number].total() / average
                scores[number] += rarity * times / (times + K1 * (1 - B + B * length))
                covered[number] += rarity
        rows, total = sorted(scores), total or 1.0
        return LexicalMatches(
            np.asarray(rows, np.int64),
            np.asarray([min(scores[row] / total, 1.0) for row in rows], np.float32),
            np.asarray([min(covered[row] / total, 1.0) for row in rows], np.float32),
            frozenset(missing),
            missing_weight / total,
        )

    async def fetch(
        self, scope: Scope, rows: Sequence[int], *, filter: Filter, as_of: datetime | None = None
    ) -> list[NumberedRecord]:
        row_numbers = {int(row) for row in rows}
        return [each for each in self._visible_records(scope, filter, as_of) if each.row in row_numbers]

    async def matching(self, scope: Scope, filter: Filter, *, as_of: datetime | None = None) -> Sequence[int]:
        return [each.row for each in self._visible_records(scope, filter, as_of)]

    def _visible_records(self, scope: Scope, filter: Filter, as_of: datetime | None) -> Iterator[NumberedRecord]:
        moment = now()
        for row in self._user(scope.user).rows.values():
            record = row.record
            is_valid = is_valid_now(record, moment) if as_of is None else valid_at(record, as_of)
            if is_valid and scope.can_see(record.visibility_key) and matches(record, filter):
                yield NumberedRecord(row.number, copy_of(record))

    async def keyed_facts(
        self, scope: Scope, filter: Filter, *, min_importance: float, limit: int, as_of: datetime | None = None
    ) -> list[MemoryRecord]:
        facts = [
            each.record
            for each in self._visible_records(scope, filter, as_of)
            if each.record.key is not None and each.record.importance >= min_importance
        ]
        return sorted(facts, key=lambda fact: -fact.importance)[: validate_limit(limit)]

    async def find_conflicting(self, scope: Scope, records: Sequence[MemoryRecord]) -> list[MemoryRecord]:
        return conflicting_records(records, existing_records(self._user(scope.user)))

    async def derived(self, scope: Scope, turn_ids: Sequence[str]) -> Mapping[str, Sequence[Derived]]:
        return derived_from(self._user(scope.user), turn_ids)

    async def succession(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, tuple[NumberedRecord, ...]]:
        rows = self._user(scope.user).rows
        return successions(ids, {id: NumberedRecord(row.number, copy_of(row.record)) for id, row in rows.items()})

    async def revision(self, user: str) -> Revision:
        owner = self._user(user)
        return Revision(owner.revision, owner.epoch)

    async def index_rows(
        self, user: str, *, model: EmbeddingModel, after: int, vectors: bool = True
    ) -> tuple[Revision, list[IndexRow]]:
        rows = [
            index_row(row.number, row.record, row.vectors.get(model))
            for row in self._user(user).rows.values()
            if row.revision > after
        ]
        if not vectors:
            rows = [replace(row, vector=None if row.vector is None else b"") for row in rows]
        return await self.revision(user), rows

    async def unembedded(
        self, model: EmbeddingModel, *, limit: int, after: int = 0, user: str | None = None
    ) -> list[Unembedded]:
        self._check_open()
        lacking = [
            Unembedded(row.number, name, row.record.content, row.record.version)
            for name, owner in self._users.items()
            for row in owner.rows.values()
            if row.number > after and model not in row.vectors and user in (None, name)
        ]
        return sorted(lacking, key=lambda each: each.row)[: validate_limit(limit)]

    async def embed(
        self,
        model: EmbeddingModel,
        vectors: Mapping[int, Vector],
        *,
        user: str,
        versions: Mapping[int, int] | None = None,
    ) -> None:
        packed_vectors = {int(row): pack_vector(vector, model) for row, vector in vectors.items()}
        owner = self._user(user)
        owner.revision += 1
        for row in owner.rows.values():
            if row.number in packed_vectors and (versions is None or versions[row.number] == row.record.version):
                row.vectors[model] = packed_vectors[row.number]
                row.revision = owner.revision

    async def vectors(self, user: str, ids: Sequence[str], *, model: EmbeddingModel) -> dict[str, bytes]:
        rows = self._user(user).rows
        return {id: rows[id].vectors[model] for id in ids if id in rows and model in rows[id].vectors}

    async def models(self) -> dict[EmbeddingModel, int]:
        return dict(Counter(model for row in self._rows() for model in row.vectors))

    async def drop_model(self, model: EmbeddingModel) -> None:
        for row in self._rows():
            row.vectors.pop(model, None)

    def _rows(self) -> list[StoredRow]:
        self._check_open()
        return [row for user in self._users.values() for row in user.rows.values()]

    async def stats(self, user: str | None = None) -> Mapping[str, int]:
        self._check_open()
        owners = [state for name, state in self._users.items() if user in (None, name)]
        counts = dict.fromkeys(("memories", "turns", "superseded", "review", "forgotten"), 0)
        rows = [row for owner in owners for row in owner.rows.values()]
        for row in rows:
            kind = "turns" if row.record.category is Category.TURN else "memories"
            counts[kind if row.record.status is Status.ACTIVE else str(row.record.status)] += 1
        counts["users"] = len(owners)
        counts["conversations"] = sum(len(owner.conversations) for owner in owners)
        counts["history"] = sum(len(owner.entries) for owner in owners)
        counts["jobs"] = sum(user in (None, job.scope.user) for job in self._jobs.values())
        counts["vectors"] = sum(len(row.vectors) for row in rows)
        return counts if user is not None else {**counts, "bytes": sum(len(row.record.content) for row in rows)}

    async def check(self) -> list[str]:
        self._check_open()
        return []

    async def security_warnings(self) -> list[str]:
        self._check_open()
        return []

    async def rebuild_terms(self, progress: Callable[[int], None] = lambda done: None) -> None:
        # Terms are made when they are asked for, so there are none that could be stale.
        progress(len(self._rows()))

    async def backup(self, path: Path, on_progress: Callable[[int, int], None]) -> Backup:
        raise Unsupported("a ledger in memory has no backup: export it")

    async def restore_backup(self, path: Path, on_progress: Callable[[int, int], None]) -> None:
        raise Unsupported("a ledger in memory takes no backup: import an export")

    async def close(self) -> None:
        self._closed = True
        self._users.clear()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the ledger in memory is closed")


async def open_in_memory(model: EmbeddingModel) -> InMemoryLedger:
    """A ledger that holds nothing yet."""
    return InMemoryLedger(model)
