"""Run an import: read a source in batches, add what is new, and report the rest."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any
from uuid import UUID

from recollect.errors import InvalidInput
from recollect.ledger.ledger import Ledger
from recollect.ledger.plan import ExistingRecords, is_retained
from recollect.model.change import Author, ConversationUpdate, Vector
from recollect.model.job import JobKind, NewJob
from recollect.model.memory import Category, MemoryRecord
from recollect.model.scope import Scope
from recollect.model.text import validate_id
from recollect.model.times import as_utc, now
from recollect.models.embedding import Embedder, EmbeddingModel
from recollect.transfer.export import ParsedExport, import_session
from recollect.transfer.import_ import ImportCounts, add_records, drop_existing, parse_record
from recollect.transfer.importers.items import (
    MAX_NAMED,
    ExportLine,
    ImportOptions,
    ImportReport,
    SkippedItem,
    SourceItem,
    SourceRecord,
    SourceSession,
    check_readable,
    load_importer,
    recognise_source,
)
from recollect.transfer.importers.source import ImportSource
from recollect.write.redact import Redactor
from recollect.write.write_quota import WriteQuota


@dataclass(slots=True)
class DedupeResult:
    """The records to add, those over the quota, and the counts of the others."""

    new: list[MemoryRecord] = field(default_factory=list)
    over_quota: list[MemoryRecord] = field(default_factory=list)
    counts: ImportCounts = field(default_factory=ImportCounts)


class ImportDeduper:
    """Deduplicates batches of records. A dry run remembers earlier batches, which are not in the ledger."""

    def __init__(self, ledger: Ledger, quota: WriteQuota, *, dry_run: bool) -> None:
        self._ledger, self._quota, self._dry_run = ledger, quota, dry_run
        self._existing: defaultdict[str, ExistingRecords] = defaultdict(ExistingRecords)
        self._planned: dict[str, int] = {}

    async def dedupe(self, records: Sequence[MemoryRecord]) -> DedupeResult:
        """Deduplicate records whose ids are not in the ledger."""
        result = DedupeResult()
        by_user: dict[str, list[MemoryRecord]] = {}
        for record in records:
            by_user.setdefault(record.scope.user, []).append(record)
        for user, user_records in by_user.items():
            await self._dedupe_user(user, user_records, result)
        return result

    async def _dedupe_user(self, user: str, records: list[MemoryRecord], result: DedupeResult) -> None:
        planned = self._planned.get(user, 0)
        remaining = await self._quota.remaining(user, planned + len(records)) - planned
        if remaining >= len(records) and not self._dry_run:
            # The ledger deduplicates on write.
            result.new += records
            return
        existing = self._existing[user] if self._dry_run else ExistingRecords()
        for holder in await self._ledger.find_conflicting(Scope(user), records):
            if holder.id not in existing.by_id and existing.conflicting(holder) is None:
                existing.add(holder)
        for record in records:
            current = existing.conflicting(record)
            if current is not None and is_retained(current, record, at=now()):
                has_same_text = existing.same_text(record) is not None
                result.counts += ImportCounts(present=1) if has_same_text else ImportCounts(kept=1)
            elif remaining > 0:
                remaining -= 1
                planned += 1
                while (current := existing.conflicting(record)) is not None:
                    existing.release(current)
                existing.add(record)
                result.new.append(record)
            else:
                result.over_quota.append(record)
        if self._dry_run:
            self._planned[user] = planned


BATCH_SIZE = 2000
_MAX_CONCURRENT = 64
# Learning from imported turns yields to everything current.
_LEARN_JOB = NewJob(kind=JobKind.EXTRACT, priority=-50)


async def run_import(
    source: ImportSource,
    options: ImportOptions,
    *,
    kind: str = "auto",
    ledger: Ledger,
    embedder: Embedder,
    redactor: Redactor,
    quota: WriteQuota,
    by: Author,
    progress: Callable[[int], None] = lambda done: None,
) -> ImportReport:
    """Import all records of a source, or report what would be imported."""
    why = "as given"
    if kind == "auto":
        kind, why = await asyncio.to_thread(recognise_source, source)
    check_readable(kind, source)
    reader = _BatchReader(kind, options, embedder.model)
    deduper = ImportDeduper(ledger, quota, dry_run=options.dry_run)
    items = load_importer(kind).read(source)
    counts, done = ImportCounts(), 0
    try:
        while batch := await asyncio.to_thread(reader.next_records, items):
            sifted = await drop_existing(batch, ledger=ledger, redactor=redactor)
            deduped = await deduper.dedupe(sifted.new)
            counts += ImportCounts(present=sifted.present, redacted=sifted.redacted) + deduped.counts
            reader.skip_over_quota(deduped.over_quota, quota.limit_message)
            if options.dry_run:
                counts += ImportCounts(added=len(deduped.new))
            else:
                job = _LEARN_JOB if options.learn else None
                vectors = reader.vectors_of(deduped.new)
                counts += await add_records(
                    deduped.new, ledger=ledger, embedder=embedder, by=by, quota=quota, job=job, vectors=vectors
                )
                await _apply_sessions(reader, options, ledger=ledger, by=by)
            done += len(batch)
            await asyncio.to_thread(progress, done)
        if not options.dry_run:
            await _apply_sessions(reader, options, ledger=ledger, by=by)
            for session in reader.parsed.sessions:
                await import_session(session, ledger=ledger, redactor=redactor, by=by)
            for owner, tombstones in reader.parsed.tombstones:
                await ledger.put_tombstones(owner, tombstones)
        for skipped in source.skipped:
            reader.skip(skipped, refused=True)
    finally:
        await asyncio.to_thread(_close, source, items)
    return reader.report(why, counts)


def _close(source: ImportSource, items: Iterator[SourceItem]) -> None:
    """Close the source and its reader, which may not be at its end."""
    if isinstance(items, Generator):
        # If the import was cancelled, another thread may still be reading.
        with suppress(ValueError):
            items.close()
    source.close()


async def _apply_sessions(reader: _BatchReader, options: ImportOptions, *, ledger: Ledger, by: Author) -> None:
    """Set the title, summary and end of the sessions that were read completely."""
    ended = reader.pop_sessions()
    for start in range(0, len(ended), _MAX_CONCURRENT):
        batch = ended[start : start + _MAX_CONCURRENT]
        await asyncio.gather(*(_apply_session(*each, reader.kind, options, ledger=ledger, by=by) for each in batch))


async def _apply_session(
    scope: Scope,
    session: SourceSession,
    turn_count: int,
    kind: str,
    options: ImportOptions,
    *,
    ledger: Ledger,
    by: Author,
) -> None:
    conversation = await ledger.conversation(scope)
    if not conversation.turn_count:
        # All of its turns exceeded the quota.
        return
    fields: dict[str, Any] = {}
    metadata = {"imported_from": kind} | ({"title": session.title} if session.title else {})
    if any(conversation.metadata.get(name) != value for name, value in metadata.items()):
        fields["metadata"] = {**conversation.metadata, **metadata}
    if session.summary and not conversation.summary:
        fields["summary"] = session.summary
    # A session that was continued here is learned from as usual.
    if not options.learn and conversation.turn_count <= turn_count:
        if conversation.learned_to < conversation.turn_count:
            fields["learned_to"] = conversation.turn_count
        if conversation.closed_at is None:
            fields["closed_at"] = conversation.last_turn_at
    if fields:
        await ledger.apply(scope, [], by=by, effects=[ConversationUpdate(scope, fields)])


class _BatchReader:
    """Converts the items of a source to records, and counts them and the skipped ones."""

    def __init__(self, kind: str, options: ImportOptions, model: EmbeddingModel) -> None:
        self.kind = kind
        self.parsed = ParsedExport()
        self._options = options
        self._model = model
        self._locations: dict[str, str] = {}
        self._categories: Counter[bool] = Counter()
        self._skipped: Counter[str] = Counter()
        self._refused = 0
        self._named: list[SkippedItem] = []
        self._users: dict[str, None] = {}
        self._turns: Counter[Scope] = Counter()
        self._sessions: dict[Scope, SourceSession] = {}

    def next_records(self, items: Iterator[SourceItem]) -> list[MemoryRecord]:
        """Return the next records; empty at the end."""
        records = self.parsed.records
        records.clear()
        self.parsed.vectors.clear()
        self._locations.clear()
        # A batch may have no records at all.
        while not records and (batch := list(islice(items, BATCH_SIZE))):
            for item in batch:
                self._read_item(item)
        return list(records)

    def vectors_of(self, records: Iterable[MemoryRecord]) -> dict[str, Vector]:
        """Return the imported vectors of records whose text was not redacted."""
        texts = {record.id: record.content for record in self.parsed.records}
        vectors = self.parsed.vectors
        return {
            each.id: vectors[each.id] for each in records if each.id in vectors and texts[each.id] == each.content
        }

    def skip(self, item: SkippedItem, *, refused: bool = False) -> None:
        """Count a skipped item; `refused` if it is invalid or exceeds a limit."""
        self._skipped[item.why] += 1
        self._refused += refused
        if len(self._named) < MAX_NAMED:
            self._named.append(item)

    def skip_over_quota(self, records: Iterable[MemoryRecord], why: str) -> None:
        """Count the records that exceed the quota."""
        for record in records:
            self.skip(SkippedItem(self._locations.get(record.id, record.id), why), refused=True)

    def pop_sessions(self) -> Sequence[tuple[Scope, SourceSession, int]]:
        """Return the sessions that ended since the last call, with their numbers of turns."""
        ended, self._sessions = self._sessions, {}
        return [(scope, session, self._turns[scope]) for scope, session in ended.items()]

    def report(self, why: str, counts: ImportCounts) -> ImportReport:
        """Return the report of the whole import."""
        return ImportReport(
            kind=self.kind,
            why=why,
            memories=self._categories[False],
            turns=self._categories[True],
            sessions=len(self._turns),
            **asdict(counts),
            users=tuple(self._users),
            left=dict(self._skipped.most_common()),
            named=tuple(self._named),
            refused=self._refused,
            dry_run=self._options.dry_run,
            learning=len(self._turns) if self._options.learn else 0,
        )

    def _read_item(self, item: SourceItem) -> None:
        if isinstance(item, SkippedItem):
            # Every line of an export is expected to be valid.
            self.skip(item, refused=self.kind == "recollect")
            return
        try:
            if isinstance(item, SourceSession):
                scope = self._scope(item.user, item.project, item.session)
                if scope in self._turns:
                    self._sessions[scope] = item
                return
            if isinstance(item, ExportLine):
                is_object = isinstance(item.data, dict)
                user = self._options.owner(item.data.get("user_id")) if is_object else None
                record = self.parsed.add(item.data, user=user, model=self._model)
                if record is not None and record.category is Category.TURN:
                    self._turns[record.scope] += 1
            else:
                record = self._convert(item)
                self.parsed.records.append(record)
        except InvalidInput as error:
            # The turns of a session have given its reason.
            if not isinstance(item, SourceSession):
                self.skip(SkippedItem(item.where, str(error)), refused=True)
            return
        if record is not None:
            self._categories[record.category is Category.TURN] += 1
            self._users[record.scope.user] = None
            self._locations[record.id] = item.where

    def _scope(self, user: str | None, project: str | None, session: str | None) -> Scope:
        return Scope(self._options.owner(user), self._options.project or project or "", _session_name(session or ""))

    def _convert(self, item: SourceRecord) -> MemoryRecord:
        scope = self._scope(item.user, item.project, item.session)
        if item.fields.get("category") == "turn":
            raise InvalidInput("a turn needs a role; choose another category")
        at = _parse_time(item.at)
        fields = {name: value for name, value in item.fields.items() if value is not None}
        origin = {"from": self.kind, "id": item.id[:300]}
        if item.user is not None and item.user != scope.user:
            origin["user"] = item.user
        line: dict[str, Any] = {
            "source": f"import:{self.kind}",
            **fields,
            "id": self._id(item, item.id),
            "evidence": [self._id(item, cited) for cited in item.cites],
            "memory": item.text,
            "project_id": scope.project,
            "session_id": scope.session,
            "created_at": at,
            "metadata": {**fields.get("metadata", {}), "imported": origin},
        }
        if item.role is not None:
            self._turns[scope] += 1
            line |= {
                "category": "turn",
                "occurred_at": at,
                "importance": 0.3,
                "trust": "high" if item.role == "user" else "low",
                "detail": {"role": item.role, "position": self._turns[scope], "name": item.name},
            }
        return parse_record(line, user=scope.user)

    def _id(self, item: SourceRecord, id: str) -> str:
        return stable_id(self.kind, item.user or "", item.session or "", id)


def stable_id(*parts: str) -> str:
    """Return an id that depends only on the parts."""
    digest = hashlib.blake2b("\0".join(parts).encode(errors="replace"), digest_size=16).digest()
    return str(UUID(bytes=digest, version=5))


def _session_name(session: str) -> str:
    """Return the session's name, or a stable id if the name is invalid."""
    try:
        return validate_id(session, name="session")
    except InvalidInput:
        return stable_id(session)


def _parse_time(at: Any) -> datetime | None:
    """Return a time; a number is in seconds since 1970, or in milliseconds if it is too large for that."""
    if at is None or at == "":
        return None
    if isinstance(at, int | float) and not isinstance(at, bool) and abs(at) > 1e11:
        at /= 1000
    return as_utc(at, name="its time")
