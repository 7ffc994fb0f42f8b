"""Sessions that were brought in: named, summed up and ended as they were, and taken as learned from unless asked."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import UUID

from recollect.errors import InvalidInput
from recollect.ledger.protocol import Ledger
from recollect.model.change import Author, ConversationUpdate
from recollect.model.erasure import TombstoneSet
from recollect.model.job import JobKind, NewJob
from recollect.model.memory import Category, MemoryRecord
from recollect.model.scope import Scope
from recollect.model.text import validate_id
from recollect.model.times import as_utc
from recollect.model.turn import Conversation
from recollect.models.embedding import Embedder, EmbeddingModel
from recollect.transfer.export import (
    SESSION_LINE,
    TOMBSTONES_LINE,
    import_session,
    parse_session,
    parse_tombstones,
    parse_vector,
)
from recollect.transfer.import_ import ImportCounts, add_records, drop_existing, parse_record
from recollect.transfer.importers.dedupe import ImportDeduper
from recollect.transfer.importers.items import (
    MAX_NAMED,
    ExportLine,
    ImportOptions,
    ImportReport,
    SkippedItem,
    SourceItem,
    SourceRecord,
    SourceSession,
)
from recollect.transfer.importers.registry import check_readable, load_importer, recognise_source
from recollect.transfer.importers.source import ImportSource
from recollect.write.redact import Redactor
from recollect.write.write_quota import WriteQuota

if TYPE_CHECKING:
    from recollect.model.change import Vector


_MAX_CONCURRENT = 64


@dataclass(frozen=True, slots=True)
class EndedSession:
    """A session of which all was read: what is told of it, and how many turns it has in the source."""

    scope: Scope
    session: SourceSession
    turns: int
    kind: str


async def apply_sessions(
    ended: Sequence[EndedSession], options: ImportOptions, *, ledger: Ledger, by: Author
) -> None:
    """Leave the sessions as they were in the source; where nothing differs nothing is written."""
    if options.dry_run:
        return
    for start in range(0, len(ended), _MAX_CONCURRENT):
        batch = ended[start : start + _MAX_CONCURRENT]
        await asyncio.gather(*(_apply_session(each, options, ledger=ledger, by=by) for each in batch))


async def _apply_session(ended: EndedSession, options: ImportOptions, *, ledger: Ledger, by: Author) -> None:
    conversation = await ledger.conversation(ended.scope)
    if not conversation.turn_count:
        # There was no room for any of its turns.
        return
    fields: dict[str, Any] = {}
    metadata = {"imported_from": ended.kind} | ({"title": ended.session.title} if ended.session.title else {})
    if any(conversation.metadata.get(name) != value for name, value in metadata.items()):
        fields["metadata"] = {**conversation.metadata, **metadata}
    if ended.session.summary and not conversation.summary:
        fields["summary"] = ended.session.summary
    # Whoever has talked on there is heard as always.
    if not options.learn and conversation.turn_count <= ended.turns:
        if conversation.learned_to < conversation.turn_count:
            fields["learned_to"] = conversation.turn_count
        if conversation.closed_at is None:
            fields["closed_at"] = conversation.last_turn_at
    if fields:
        await ledger.apply(ended.scope, [], by=by, effects=[ConversationUpdate(ended.scope, fields)])


_BATCH = 2000
# What is learned from old talk waits for all that is said now.
_PRIORITY = -50
_LEARN_JOB = NewJob(kind=JobKind.EXTRACT, priority=_PRIORITY)


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
    """Bring in all that a source holds, or tell what would be."""
    why = "you said so"
    if kind == "auto":
        kind, why = await asyncio.to_thread(recognise_source, source)
    check_readable(kind, source)
    tally, deduper = ImportTally(kind, options, embedder.model), ImportDeduper(ledger, quota, dry_run=options.dry_run)
    items = load_importer(kind).read(source)
    try:
        done = 0
        while batch := await asyncio.to_thread(tally.next_records, items):
            sifted = await drop_existing(batch, ledger=ledger, redactor=redactor)
            deduped = await deduper.dedupe(sifted.new)
            tally.imported += ImportCounts(present=sifted.present, redacted=sifted.redacted) + deduped.counts
            tally.skip_over_quota(deduped.over_quota, quota.limit_message)
            if options.dry_run:
                tally.imported += ImportCounts(added=len(deduped.new))
            else:
                job = _LEARN_JOB if options.learn else None
                vectors = tally.vectors_of(deduped.new)
                tally.imported += await add_records(
                    deduped.new, ledger=ledger, embedder=embedder, by=by, quota=quota, job=job, vectors=vectors
                )
            await apply_sessions(tally.pop_ended(), options, ledger=ledger, by=by)
            done += len(batch)
            await asyncio.to_thread(progress, done)
        await apply_sessions(tally.pop_ended(), options, ledger=ledger, by=by)
        for session in () if options.dry_run else tally.conversations:
            await import_session(session, ledger=ledger, redactor=redactor, by=by)
        for owner, tombstones in () if options.dry_run else tally.tombstones:
            await ledger.put_tombstones(owner, tombstones)
        for skipped in source.skipped:
            tally.skip(skipped, refused=True)
    finally:
        await asyncio.to_thread(_close, source, items)
    return tally.result(why)


def _close(source: ImportSource, items: Iterator[SourceItem]) -> None:
    """Let go of a source, and of what its reader has open: it may have been broken off."""
    if isinstance(items, Generator):
        # Whoever went away while it was read leaves it to the one who still reads.
        with suppress(ValueError):
            items.close()
    source.close()


class ImportTally:
    """What was read so far: made into records, counted, and what was left out."""

    def __init__(self, kind: str, options: ImportOptions, model: EmbeddingModel) -> None:
        self.imported = ImportCounts()
        self.conversations: list[Conversation] = []
        self.tombstones: list[tuple[str, TombstoneSet]] = []
        self._model = model
        self._vectors: dict[tuple[str, str], Vector] = {}
        self._locations: dict[str, str] = {}
        self._kind, self._options = kind, options
        self._counts: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._named: list[SkippedItem] = []
        self._users: dict[str, None] = {}
        self._turns: Counter[Scope] = Counter()
        self._ended: dict[Scope, SourceSession] = {}

    def next_records(self, items: Iterator[SourceItem]) -> list[MemoryRecord]:
        """The next records; empty when there are no more."""
        records: list[MemoryRecord] = []
        self._vectors.clear()
        self._locations.clear()
        # Some of which nothing is kept are not the end.
        while not records and (batch := list(islice(items, _BATCH))):
            for item in batch:
                match item:
                    case SkippedItem():
                        self.skip(item)
                    case SourceSession():
                        self._note_session(item)
                    case SourceRecord() | ExportLine():
                        records += self._convert(item)
        return records

    def vectors_of(self, records: Iterable[MemoryRecord]) -> dict[str, Vector]:
        """The vectors that came with memories of which every word is kept."""
        pairs = ((record.id, self._vectors.get((record.id, record.content))) for record in records)
        return {id: vector for id, vector in pairs if vector is not None}

    def _convert(self, item: SourceRecord | ExportLine) -> list[MemoryRecord]:
        try:
            if isinstance(item, ExportLine) and isinstance(item.data, dict) and item.data.get("kind") == SESSION_LINE:
                self.conversations.append(
                    parse_session(item.data, user=self._options.owner(item.data.get("user_id")))
                )
                return []
            if (
                isinstance(item, ExportLine)
                and isinstance(item.data, dict)
                and item.data.get("kind") == TOMBSTONES_LINE
            ):
                owner = self._options.owner(item.data.get("user_id"))
                self.tombstones.append(parse_tombstones(item.data, user=owner))
                return []
            record = self._record(item)
            if isinstance(item, ExportLine) and (vector := parse_vector(item.data, self._model)) is not None:
                self._vectors[record.id, record.content] = vector
        except InvalidInput as error:
            self.skip(SkippedItem(item.where, str(error)), refused=True)
            return []
        self._count(record)
        self._locations[record.id] = item.where
        return [record]

    def skip(self, item: SkippedItem, *, refused: bool = False) -> None:
        """Something is not brought in; what was `refused` could have been, were it as it should."""
        self._skipped[item.why] += 1
        self._counts["refused"] += refused
        if len(self._named) < MAX_NAMED:
            self._named.append(item)

    def skip_over_quota(self, records: Iterable[MemoryRecord], why: str) -> None:
        """There is no room for these."""
        for record in records:
            self.skip(SkippedItem(self._locations.get(record.id, record.id), why), refused=True)

    def pop_ended(self) -> list[EndedSession]:
        """The sessions that ended since this was asked last."""
        ended, self._ended = self._ended, {}
        return [EndedSession(scope, session, self._turns[scope], self._kind) for scope, session in ended.items()]

    def result(self, why: str) -> ImportReport:
        """What came of it."""
        return ImportReport(
            kind=self._kind,
            why=why,
            memories=self._counts["memories"],
            turns=self._counts["turns"],
            sessions=len(self._turns),
            added=self.imported.added,
            present=self.imported.present,
            kept=self.imported.kept,
            redacted=self.imported.redacted,
            users=tuple(self._users),
            left=dict(self._skipped.most_common()),
            named=tuple(self._named),
            refused=self._counts["refused"],
            dry_run=self._options.dry_run,
            learning=len(self._turns) if self._options.learn else 0,
        )

    def _count(self, record: MemoryRecord) -> None:
        is_turn = record.category is Category.TURN
        self._counts["turns" if is_turn else "memories"] += 1
        self._users[record.scope.user] = None

    def _note_session(self, session: SourceSession) -> None:
        try:
            scope = self._scope(session.user, session.project, session.session)
        except InvalidInput:
            return  # Its turns have told why.
        if scope in self._turns:
            self._ended[scope] = session

    def _scope(self, user: str | None, project: str | None, session: str | None) -> Scope:
        return Scope(self._options.owner(user), self._options.project or project or "", _session_name(session or ""))

    def _id(self, item: SourceRecord, id: str) -> str:
        return stable_id(self._kind, item.user or "", item.session or "", id)

    def _record(self, item: SourceRecord | ExportLine) -> MemoryRecord:
        if isinstance(item, ExportLine):
            named = item.data.get("user_id") if isinstance(item.data, dict) else None
            return parse_record(item.data, user=self._options.owner(named))
        scope = self._scope(item.user, item.project, item.session)
        if item.fields.get("category") == "turn":
            raise InvalidInput("a turn is said by somebody; choose another category")
        at = _parse_time(item.at)
        fields = {name: value for name, value in item.fields.items() if value is not None}
        origin = {"from": self._kind, "id": item.id[:300]}
        if item.user is not None and item.user != scope.user:
            origin["user"] = item.user
        line: dict[str, Any] = {
            "source": f"import:{self._kind}",
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


def stable_id(*parts: str) -> str:
    """An id that is the same whenever it is made of the same parts."""
    digest = hashlib.blake2b("\0".join(parts).encode(errors="replace"), digest_size=16).digest()
    return str(UUID(bytes=digest, version=5))


def _session_name(session: str) -> str:
    """A session's name; one that cannot be a name is given one made from it."""
    try:
        return validate_id(session, name="session")
    except InvalidInput:
        return stable_id(session)


def _parse_time(at: Any) -> datetime | None:
    """When it was; a number is seconds since 1970, and one that is far too large milliseconds."""
    if at is None or at == "":
        return None
    if isinstance(at, int | float) and not isinstance(at, bool) and abs(at) > 1e11:
        at /= 1000
    return as_utc(at, name="its time")
