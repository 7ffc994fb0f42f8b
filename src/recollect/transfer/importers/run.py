"""Run an import: read a source in batches, add what is new, and report the rest."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from itertools import islice
from typing import Any

from recollect.errors import InvalidInput
from recollect.ledger.plan import ExistingRecords, is_retained
from recollect.model.ids import stable_id
from recollect.model.job import JobKind, NewJob
from recollect.model.memory import Category, MemoryRecord
from recollect.model.scope import Scope
from recollect.model.text import validate_id
from recollect.model.times import as_utc, now
from recollect.transfer.export import ParsedExport, import_session
from recollect.transfer.import_ import ImportCounts, RecordWriter, parse_record
from recollect.transfer.importers.items import (
    MAX_NAMED,
    ExportLine,
    ImportOptions,
    ImportReport,
    SkippedItem,
    SourceItem,
    SourceRecord,
    SourceSession,
    load_importer,
    recognise_source,
)
from recollect.transfer.importers.source import ImportSource

BATCH_SIZE = 2000
_MAX_CONCURRENT = 64
# Learning from imported turns yields to everything current.
_LEARN_JOB = NewJob(kind=JobKind.EXTRACT, priority=-50)


async def run_import(
    source: ImportSource,
    options: ImportOptions,
    writer: RecordWriter,
    *,
    kind: str = "auto",
    progress: Callable[[int], None] = lambda done: None,
) -> ImportReport:
    """Import all records of a source, or report what would be imported."""
    why = "as given"
    if kind == "auto":
        kind, why = await asyncio.to_thread(recognise_source, source)
    items = load_importer(kind, source).read(source)
    run = _ImportRun(kind, options, writer)
    done = 0
    try:
        while batch := await asyncio.to_thread(run.next_records, items):
            await run.add(batch)
            done += len(batch)
            await asyncio.to_thread(progress, done)
        await run.finish()
        for skipped in source.skipped:
            run.skip(skipped, refused=True)
    finally:
        await asyncio.to_thread(_close, source, items)
    return run.report(why)


def _close(source: ImportSource, items: Iterator[SourceItem]) -> None:
    """Close the source and its reader, which may not be at its end."""
    if isinstance(items, Generator):
        # If the import was cancelled, another thread may still be reading.
        with suppress(ValueError):
            items.close()
    source.close()


class _ImportRun:
    """Converts the items of a source to records, adds the new ones, and counts all of them."""

    def __init__(self, kind: str, options: ImportOptions, writer: RecordWriter) -> None:
        self._kind, self._options, self._writer = kind, options, writer
        self._counts = ImportCounts()
        self._parsed = ParsedExport()
        # A dry run remembers earlier batches, which are not in the ledger.
        self._existing: defaultdict[str, ExistingRecords] = defaultdict(ExistingRecords)
        self._planned: Counter[str] = Counter()
        self._locations: dict[str, str] = {}
        self._categories: Counter[bool] = Counter()
        self._skipped: Counter[str] = Counter()
        self._named: list[SkippedItem] = []
        self._refused = 0
        self._users: dict[str, None] = {}
        self._turns: Counter[Scope] = Counter()
        self._sessions: dict[Scope, SourceSession] = {}

    def next_records(self, items: Iterator[SourceItem]) -> list[MemoryRecord]:
        """Return the next records; empty at the end."""
        records = self._parsed.records
        for part in (records, self._parsed.vectors, self._locations):
            part.clear()
        # A batch may have no records at all.
        while not records and (batch := list(islice(items, BATCH_SIZE))):
            for item in batch:
                self._read_item(item)
        return list(records)

    def skip(self, item: SkippedItem, *, refused: bool = False) -> None:
        """Count a skipped item; `refused` if it is invalid or exceeds a limit."""
        self._skipped[item.why] += 1
        self._refused += refused
        if len(self._named) < MAX_NAMED:
            self._named.append(item)

    async def add(self, batch: list[MemoryRecord]) -> None:
        """Add the records of a batch that are new, and the sessions that it completes."""
        sifted = await self._writer.drop_existing(batch)
        self._counts += ImportCounts(present=sifted.present, redacted=sifted.redacted)
        by_user: dict[str, list[MemoryRecord]] = {}
        for record in sifted.new:
            by_user.setdefault(record.scope.user, []).append(record)
        new = [record for user in by_user for record in await self._dedupe(user, by_user[user])]
        if self._options.dry_run:
            self._counts += ImportCounts(added=len(new))
            return
        # Vectors are of the text before it was redacted.
        texts, vectors = {record.id: record.content for record in batch}, self._parsed.vectors
        usable = {each.id: vectors[each.id] for each in new if each.id in vectors and texts[each.id] == each.content}
        self._counts += await self._writer.add(new, job=_LEARN_JOB if self._options.learn else None, vectors=usable)
        await self._apply_sessions()

    async def finish(self) -> None:
        """Add the sessions and tombstones, unless it is a dry run."""
        if self._options.dry_run:
            return
        await self._apply_sessions()
        for session in self._parsed.sessions:
            await import_session(session, self._writer)
        for owner, tombstones in self._parsed.tombstones:
            await self._writer.ledger.put_tombstones(owner, tombstones)

    def report(self, why: str) -> ImportReport:
        return ImportReport(
            kind=self._kind,
            why=why,
            memories=self._categories[False],
            turns=self._categories[True],
            sessions=len(self._turns),
            **asdict(self._counts),
            users=tuple(self._users),
            left=dict(self._skipped.most_common()),
            named=tuple(self._named),
            refused=self._refused,
            dry_run=self._options.dry_run,
            learning=len(self._turns) if self._options.learn else 0,
        )

    async def _dedupe(self, user: str, records: list[MemoryRecord]) -> Iterable[MemoryRecord]:
        """Return the records of a user to add; the others exist or exceed the quota, and are counted."""
        dry_run, quota = self._options.dry_run, self._writer.quota
        planned = self._planned[user]
        remaining = await quota.remaining(user, planned + len(records)) - planned
        if remaining >= len(records) and not dry_run:
            # The ledger deduplicates on write.
            return records
        existing = self._existing[user] if dry_run else ExistingRecords()
        for holder in await self._writer.ledger.find_conflicting(Scope(user), records):
            if holder.id not in existing.by_id and existing.conflicting(holder) is None:
                existing.add(holder)
        new: list[MemoryRecord] = []
        for record in records:
            current = existing.conflicting(record)
            if current is not None and is_retained(current, record, at=now()):
                is_same = existing.same_text(record) is not None
                self._counts += ImportCounts(present=is_same, kept=not is_same)
            elif len(new) < remaining:
                while (current := existing.conflicting(record)) is not None:
                    existing.release(current)
                existing.add(record)
                new.append(record)
            else:
                where = self._locations.get(record.id, record.id)
                self.skip(SkippedItem(where, quota.limit_message), refused=True)
        self._planned[user] += len(new) if dry_run else 0
        return new

    async def _apply_sessions(self) -> None:
        """Set the title, summary and end of the sessions that were read completely."""
        ended, self._sessions = list(self._sessions.items()), {}
        for start in range(0, len(ended), _MAX_CONCURRENT):
            batch = ended[start : start + _MAX_CONCURRENT]
            await asyncio.gather(*(self._apply_session(scope, session) for scope, session in batch))

    async def _apply_session(self, scope: Scope, session: SourceSession) -> None:
        conversation = await self._writer.ledger.conversation(scope)
        if not conversation.turn_count:
            # All of its turns exceeded the quota.
            return
        fields: dict[str, Any] = {}
        metadata = {"imported_from": self._kind} | ({"title": session.title} if session.title else {})
        if any(conversation.metadata.get(name) != value for name, value in metadata.items()):
            fields["metadata"] = {**conversation.metadata, **metadata}
        if session.summary and not conversation.summary:
            fields["summary"] = session.summary
        # A session that was continued here is learned from as usual.
        if not self._options.learn and conversation.turn_count <= self._turns[scope]:
            if conversation.learned_to < conversation.turn_count:
                fields["learned_to"] = conversation.turn_count
            if conversation.closed_at is None:
                fields["closed_at"] = conversation.last_turn_at
        if fields:
            await self._writer.update_session(scope, fields)

    def _read_item(self, item: SourceItem) -> None:
        if isinstance(item, SkippedItem):
            # Every line of an export is expected to be valid.
            self.skip(item, refused=self._kind == "recollect")
            return
        try:
            if isinstance(item, SourceSession):
                scope = self._scope(item.user, item.project, item.session)
                if scope in self._turns:
                    self._sessions[scope] = item
                return
            record = self._parse_line(item) if isinstance(item, ExportLine) else self._convert(item)
        except InvalidInput as error:
            # The turns of a session have given its reason.
            if not isinstance(item, SourceSession):
                self.skip(SkippedItem(item.where, str(error)), refused=True)
            return
        if record is not None:
            self._categories[record.category is Category.TURN] += 1
            self._users[record.scope.user] = None
            self._locations[record.id] = item.where

    def _parse_line(self, line: ExportLine) -> MemoryRecord | None:
        user = self._options.owner(line.data.get("user_id")) if isinstance(line.data, dict) else None
        record = self._parsed.add(line.data, user=user, model=self._writer.embedder.model)
        if record is not None and record.category is Category.TURN:
            self._turns[record.scope] += 1
        return record

    def _scope(self, user: str | None, project: str | None, session: str | None) -> Scope:
        return Scope(self._options.owner(user), self._options.project or project or "", _session_name(session or ""))

    def _convert(self, item: SourceRecord) -> MemoryRecord:
        scope = self._scope(item.user, item.project, item.session)
        if item.fields.get("category") == "turn":
            raise InvalidInput("a turn needs a role; choose another category")
        at = _parse_time(item.at)
        fields = {name: value for name, value in item.fields.items() if value is not None}
        origin = {"from": self._kind, "id": item.id[:300]}
        if item.user is not None and item.user != scope.user:
            origin["user"] = item.user

        def make_id(id: str) -> str:
            return stable_id(self._kind, item.user or "", item.session or "", id)

        line: dict[str, Any] = {
            "source": f"import:{self._kind}",
            **fields,
            "id": make_id(item.id),
            "evidence": [make_id(cited) for cited in item.cites],
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
        record = parse_record(line, user=scope.user)
        self._parsed.records.append(record)
        return record


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
