"""Bringing in what a reader finds: read, checked, screened, embedded and written, some at a time.

Every memory and turn gets an id made from its id in the source, so that doing it again changes nothing, and doing it
after it was broken off goes on where that was.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import UUID

from recollect.errors import InvalidInput
from recollect.ledger.protocol import Ledger
from recollect.model.change import By
from recollect.model.job import JobKind, NewJob
from recollect.model.memory import Category, MemoryRecord
from recollect.model.scope import Scope
from recollect.model.text import checked_id
from recollect.model.times import as_utc
from recollect.model.tombstone import TombstoneSet
from recollect.model.turn import Conversation
from recollect.models.embedding import Embedder, EmbeddingModel
from recollect.movein.fit import Fit
from recollect.movein.item import Found, Item, Left, Line, Session
from recollect.movein.registry import check_readable, reader, recognised
from recollect.movein.sessions import Ended, settle
from recollect.movein.source import Source
from recollect.movein.terms import NAMED, MovedIn, Terms
from recollect.upkeep.exported import SESSION, TOMBSTONES, put_session, read_session, read_tombstones, read_vector
from recollect.upkeep.transfer import Imported, read_line, sift, write
from recollect.write.room import Room
from recollect.write.screening.given import Redacting

if TYPE_CHECKING:
    from recollect.model.change import Vector

_BATCH = 2000
# What is learned from old talk waits for all that is said now.
_PRIORITY = -50
_LEARNING = NewJob(kind=JobKind.EXTRACT, priority=_PRIORITY)


async def move_in(
    source: Source,
    terms: Terms,
    *,
    kind: str = "auto",
    ledger: Ledger,
    embedder: Embedder,
    redacting: Redacting,
    room: Room,
    by: By,
    progress: Callable[[int], None] = lambda done: None,
) -> MovedIn:
    """Bring in all that a source holds, or tell what would be."""
    why = "you said so"
    if kind == "auto":
        kind, why = await asyncio.to_thread(recognised, source)
    check_readable(kind, source)
    tally, fit = Tally(kind, terms, embedder.model), Fit(ledger, room, dry_run=terms.dry_run)
    items = reader(kind).read(source)
    try:
        done = 0
        while batch := await asyncio.to_thread(tally.take, items):
            sifted = await sift(batch, ledger=ledger, redacting=redacting)
            fitted = await fit.part(sifted.new)
            tally.told += Imported(present=sifted.present, redacted=sifted.redacted) + fitted.told
            tally.leave_over(fitted.over, room.full)
            if terms.dry_run:
                tally.told += Imported(added=len(fitted.new))
            else:
                job = _LEARNING if terms.learn else None
                known = tally.vectors_of(fitted.new)
                tally.told += await write(
                    fitted.new, ledger=ledger, embedder=embedder, by=by, room=room, job=job, vectors=known
                )
            await settle(tally.ended(), terms, ledger=ledger, by=by)
            done += len(batch)
            await asyncio.to_thread(progress, done)
        await settle(tally.ended(), terms, ledger=ledger, by=by)
        for stood in () if terms.dry_run else tally.stood:
            await put_session(stood, ledger=ledger, redacting=redacting, by=by)
        for owner, found in () if terms.dry_run else tally.tombstones:
            await ledger.put_tombstones(owner, found)
        for left in source.left:
            tally.leave(left, refused=True)
    finally:
        await asyncio.to_thread(_let_go, source, items)
    return tally.result(why)


def _let_go(source: Source, items: Iterator[Item]) -> None:
    """Let go of a source, and of what its reader has open: it may have been broken off."""
    if isinstance(items, Generator):
        # Whoever went away while it was read leaves it to the one who still reads.
        with suppress(ValueError):
            items.close()
    source.close()


class Tally:
    """What was read so far: made into records, counted, and what was left out."""

    def __init__(self, kind: str, terms: Terms, model: EmbeddingModel) -> None:
        self.told = Imported()
        self.stood: list[Conversation] = []
        self.tombstones: list[tuple[str, TombstoneSet]] = []
        self._model = model
        self._vectors: dict[tuple[str, str], Vector] = {}
        self._where: dict[str, str] = {}
        self._kind, self._terms = kind, terms
        self._counts: Counter[str] = Counter()
        self._left: Counter[str] = Counter()
        self._named: list[Left] = []
        self._users: dict[str, None] = {}
        self._turns: Counter[Scope] = Counter()
        self._ended: dict[Scope, Session] = {}

    def take(self, items: Iterator[Item]) -> list[MemoryRecord]:
        """The next records; empty when there are no more."""
        records: list[MemoryRecord] = []
        self._vectors.clear()
        self._where.clear()
        # Some of which nothing is kept are not the end.
        while not records and (some := list(islice(items, _BATCH))):
            for item in some:
                match item:
                    case Left():
                        self.leave(item)
                    case Session():
                        self._note(item)
                    case Found() | Line():
                        records += self._taken(item)
        return records

    def vectors_of(self, records: Iterable[MemoryRecord]) -> dict[str, Vector]:
        """The vectors that came with memories of which every word is kept."""
        found = ((record.id, self._vectors.get((record.id, record.content))) for record in records)
        return {id: vector for id, vector in found if vector is not None}

    def _taken(self, item: Found | Line) -> list[MemoryRecord]:
        try:
            if isinstance(item, Line) and isinstance(item.told, dict) and item.told.get("kind") == SESSION:
                self.stood.append(read_session(item.told, user=self._terms.owner(item.told.get("user_id"))))
                return []
            if isinstance(item, Line) and isinstance(item.told, dict) and item.told.get("kind") == TOMBSTONES:
                owner = self._terms.owner(item.told.get("user_id"))
                self.tombstones.append(read_tombstones(item.told, user=owner))
                return []
            record = self._record(item)
            if isinstance(item, Line) and (vector := read_vector(item.told, self._model)) is not None:
                self._vectors[record.id, record.content] = vector
        except InvalidInput as error:
            self.leave(Left(item.where, str(error)), refused=True)
            return []
        self._count(record)
        self._where[record.id] = item.where
        return [record]

    def leave(self, left: Left, *, refused: bool = False) -> None:
        """Something is not brought in; what was `refused` could have been, were it as it should."""
        self._left[left.why] += 1
        self._counts["refused"] += refused
        if len(self._named) < NAMED:
            self._named.append(left)

    def leave_over(self, records: Iterable[MemoryRecord], why: str) -> None:
        """There is no room for these."""
        for record in records:
            self.leave(Left(self._where.get(record.id, record.id), why), refused=True)

    def ended(self) -> list[Ended]:
        """The sessions that ended since this was asked last."""
        ended, self._ended = self._ended, {}
        return [Ended(scope, session, self._turns[scope], self._kind) for scope, session in ended.items()]

    def result(self, why: str) -> MovedIn:
        """What came of it."""
        return MovedIn(
            kind=self._kind,
            why=why,
            memories=self._counts["memories"],
            turns=self._counts["turns"],
            sessions=len(self._turns),
            added=self.told.added,
            present=self.told.present,
            kept=self.told.kept,
            redacted=self.told.redacted,
            users=tuple(self._users),
            left=dict(self._left.most_common()),
            named=tuple(self._named),
            refused=self._counts["refused"],
            dry_run=self._terms.dry_run,
            learning=len(self._turns) if self._terms.learn else 0,
        )

    def _count(self, record: MemoryRecord) -> None:
        is_turn = record.category is Category.TURN
        self._counts["turns" if is_turn else "memories"] += 1
        self._users[record.scope.user] = None

    def _note(self, session: Session) -> None:
        try:
            scope = self._scope(session.user, session.project, session.session)
        except InvalidInput:
            return  # Its turns have told why.
        if scope in self._turns:
            self._ended[scope] = session

    def _scope(self, user: str | None, project: str | None, session: str | None) -> Scope:
        return Scope(self._terms.owner(user), self._terms.project or project or "", _name(session or ""))

    def _id(self, item: Found, id: str) -> str:
        return stable_id(self._kind, item.user or "", item.session or "", id)

    def _record(self, item: Found | Line) -> MemoryRecord:
        if isinstance(item, Line):
            named = item.told.get("user_id") if isinstance(item.told, dict) else None
            return read_line(item.told, user=self._terms.owner(named))
        scope = self._scope(item.user, item.project, item.session)
        if item.fields.get("category") == "turn":
            raise InvalidInput("a turn is said by somebody; choose another category")
        at = _time(item.at)
        fields = {name: value for name, value in item.fields.items() if value is not None}
        came = {"from": self._kind, "id": item.id[:300]}
        if item.user is not None and item.user != scope.user:
            came["user"] = item.user
        line: dict[str, Any] = {
            "source": f"import:{self._kind}",
            **fields,
            "id": self._id(item, item.id),
            "evidence": [self._id(item, cited) for cited in item.cites],
            "memory": item.text,
            "project_id": scope.project,
            "session_id": scope.session,
            "created_at": at,
            "metadata": {**fields.get("metadata", {}), "imported": came},
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
        return read_line(line, user=scope.user)


def stable_id(*parts: str) -> str:
    """An id that is the same whenever it is made of the same parts."""
    digest = hashlib.blake2b("\0".join(parts).encode(errors="replace"), digest_size=16).digest()
    return str(UUID(bytes=digest, version=5))


def _name(session: str) -> str:
    """A session's name; one that cannot be a name is given one made from it."""
    try:
        return checked_id(session, name="session")
    except InvalidInput:
        return stable_id(session)


def _time(at: Any) -> datetime | None:
    """When it was; a number is seconds since 1970, and one that is far too large milliseconds."""
    if at is None or at == "":
        return None
    if isinstance(at, int | float) and not isinstance(at, bool) and abs(at) > 1e11:
        at /= 1000
    return as_utc(at, name="its time")
