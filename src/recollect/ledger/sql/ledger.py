"""SqlLedger: the promise of `Ledger`, kept by the body of SQL on some engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.ledger.counted import counted, unheard
from recollect.ledger.protocol import Derived, IndexRow, Numbered, Revision, Said, Unembedded
from recollect.ledger.sql import changes as change_sql
from recollect.ledger.sql import conversations as conversation_sql
from recollect.ledger.sql import erase as erase_sql
from recollect.ledger.sql import evidence as evidence_sql
from recollect.ledger.sql import history as history_sql
from recollect.ledger.sql import memories, terms, upkeep
from recollect.ledger.sql import turns as turn_sql
from recollect.ledger.sql import vectors as vector_sql
from recollect.ledger.sql.feeding import SqlFeeds
from recollect.ledger.sql.kept import SqlResponses
from recollect.ledger.sql.keys import SqlKeys
from recollect.ledger.sql.lengths import LengthCache
from recollect.ledger.sql.migrate import migrate
from recollect.ledger.sql.model_states import SqlModelStates
from recollect.ledger.sql.postings import PostingCache
from recollect.ledger.sql.replies import SqlReplies
from recollect.ledger.sql.tombstones import SqlTombstones, add_for_forgotten, is_filled
from recollect.ledger.sql.tx import EVERYONE, NOBODY, Engine, whose
from recollect.ledger.sql.work import QUICK_LIMIT, SqlJobs
from recollect.ledger.terms import TERMS_RULES
from recollect.model.change import Applied, By, Change, Entry, Once
from recollect.model.effect import Effect
from recollect.model.erase import Cleared, Erase, Erasure, Receipt
from recollect.model.job import Appended, NewJob
from recollect.model.memory import MemoryRecord
from recollect.model.query import EVERYTHING, Filter, Listing
from recollect.model.result import Page
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Conversation, Turn
from recollect.models.embedding import EmbeddingModel

if TYPE_CHECKING:
    from recollect.ledger.sealed import Backup
    from recollect.model.change import Vector

# Up to here a lexical search takes about a millisecond: not worth another thread.
_QUICK_ROWS = 20_000
# As many are taken up in less time than it takes to hand them to another thread and back.
_QUICK_CHANGES = 256
# Of a user who has not been searched for a while, this many are looked through as soon.
_QUICK_COLD = 1000
_USERS_AT_ONCE = 50


class SqlLedger(SqlJobs, SqlResponses, SqlReplies, SqlKeys, SqlFeeds, SqlModelStates, SqlTombstones):
    """A ledger on a SQL database. Vectors given to it are of the one model it was opened with."""

    def __init__(self, engine: Engine, model: EmbeddingModel) -> None:
        self._engine = self.engine = engine
        self._writer = change_sql.Writer(engine, model)
        self._lengths = LengthCache()
        self._postings = PostingCache()
        self.on_change: Callable[[str], None] = unheard

    @classmethod
    async def open(cls, engine: Engine, model: EmbeddingModel) -> SqlLedger:
        """Bring the schema up to date; a full text made with other rules is made anew."""
        ledger = cls(engine, model)
        try:
            await migrate(engine)
            if await engine.read(upkeep.terms_version, of=NOBODY, quick=True) != TERMS_RULES:
                await ledger.rebuild_terms()
            if not await engine.read(is_filled, of=NOBODY, quick=True):
                await engine.write(add_for_forgotten, of=EVERYONE)
        except BaseException:
            await engine.close()
            raise
        return ledger

    async def apply(
        self,
        scope: Scope,
        changes: Sequence[Change],
        *,
        by: By,
        once: Once | None = None,
        effects: Sequence[Effect] = (),
        since: Revision | None = None,
    ) -> Applied:
        applied = await self._engine.write(
            lambda tx: change_sql.apply(
                tx, self._writer, scope, changes, by=by, once=once, effects=effects, since=since
            ),
            of=scope.user,
        )
        self.on_change(scope.user)
        return counted(applied, effects, by)

    async def undo(self, scope: Scope, entry_id: int, *, by: By, whole: bool = False) -> Applied:
        undone = await self._engine.write(
            lambda tx: change_sql.undo(tx, self._writer, scope, entry_id, by=by, whole=whole), of=scope.user
        )
        self.on_change(scope.user)
        return undone

    async def append(
        self,
        scope: Scope,
        turns: Sequence[Turn],
        *,
        vectors: Sequence[Vector | None],
        by: By,
        jobs: Sequence[NewJob] = (),
        given_at: datetime | None = None,
    ) -> Appended:
        new = turn_sql.NewTurns(turns, vectors, given_at)
        appended = await self._engine.write(
            lambda tx: turn_sql.append(tx, self._writer, scope, new, by=by, jobs=jobs), of=scope.user
        )
        self.on_change(scope.user)
        return appended

    async def touch(self, scope: Scope, ids: Sequence[str], *, at: datetime) -> None:
        await self._engine.write(lambda tx: upkeep.touch(tx, scope, ids, at=at), of=scope.user)

    async def get(self, scope: Scope, ids: Sequence[str]) -> list[MemoryRecord]:
        found = await self._engine.read(lambda tx: memories.by_ids(tx, scope, ids), of=scope.user, quick=True)
        return [found[id] for id in ids if id in found]

    async def find(self, scope: Scope, listing: Listing) -> Page:
        return await self._engine.read(lambda tx: memories.find(tx, scope, listing), of=scope.user)

    async def count(self, scope: Scope, listing: Listing) -> int:
        return await self._engine.read(lambda tx: memories.count(tx, scope, listing), of=scope.user)

    async def history(
        self,
        scope: Scope,
        *,
        memory_id: str | None = None,
        limit: int = 100,
        before: int | None = None,
        after: int | None = None,
    ) -> list[Entry]:
        return await self._engine.read(
            lambda tx: history_sql.history(tx, scope, memory_id=memory_id, limit=limit, before=before, after=after),
            of=scope.user,
        )

    async def altered(self, user: str, since: datetime) -> list[Entry]:
        return await self._engine.read(lambda tx: history_sql.altered(tx, user, since), of=user)

    async def entry(self, scope: Scope, entry_id: int) -> Entry:
        return await self._engine.read(lambda tx: history_sql.entry(tx, scope, entry_id), of=scope.user, quick=True)

    async def conversation(self, scope: Scope) -> Conversation:
        return await self._engine.read(lambda tx: conversation_sql.conversation(tx, scope), of=scope.user, quick=True)

    async def turns(self, scope: Scope, *, after: int = 0, limit: int = 100) -> list[Turn]:
        return await self._engine.read(
            lambda tx: turn_sql.turns(tx, scope, after=after, limit=limit),
            of=scope.user,
            quick=limit <= QUICK_LIMIT,
        )

    async def users(self) -> list[str]:
        return await self._engine.read(upkeep.users, of=EVERYONE)

    async def lexical(self, scope: Scope, text: str) -> Said:
        return await self._engine.read(
            lambda tx: terms.lexical(tx, self._engine, self._lengths, self._postings, scope, text),
            of=scope.user,
            quick=self._engine.is_local and await self._has_few(scope.user),
        )

    async def _has_few(self, user: str) -> bool:
        """Whether a user's memories are looked through at once."""
        rows = self._lengths.count(user)
        if rows is not None:
            return rows <= _QUICK_ROWS
        most = _QUICK_COLD + 1
        return await self._engine.read(lambda tx: memories.at_least(tx, user, most), of=user, quick=True) < most

    async def fetch(
        self, scope: Scope, rows: Sequence[int], *, filter: Filter, as_of: datetime | None = None
    ) -> list[Numbered]:
        return await self._engine.read(
            lambda tx: memories.fetch(tx, scope, rows, filter, as_of=as_of), of=scope.user, quick=True
        )

    async def matching(self, scope: Scope, filter: Filter, *, as_of: datetime | None = None) -> Sequence[int]:
        return await self._engine.read(lambda tx: memories.matching(tx, scope, filter, as_of=as_of), of=scope.user)

    async def keyed(
        self, scope: Scope, filter: Filter, *, least: float, limit: int, as_of: datetime | None = None
    ) -> list[MemoryRecord]:
        return await self._engine.read(
            lambda tx: memories.keyed(tx, scope, filter, least=least, limit=limit, as_of=as_of),
            of=scope.user,
            quick=as_of is None and filter == EVERYTHING,
        )

    async def holders(self, scope: Scope, records: Sequence[MemoryRecord]) -> list[MemoryRecord]:
        return await self._engine.read(lambda tx: change_sql.holders(tx, scope, records), of=scope.user)

    async def derived(self, scope: Scope, turn_ids: Sequence[str]) -> Mapping[str, Sequence[Derived]]:
        return await self._engine.read(
            lambda tx: evidence_sql.derived(tx, scope, turn_ids), of=scope.user, quick=True
        )

    async def succession(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, tuple[Numbered, ...]]:
        return await self._engine.read(lambda tx: evidence_sql.succession(tx, scope, ids), of=scope.user, quick=True)

    async def revision(self, user: str) -> Revision:
        return await self._engine.read(lambda tx: vector_sql.revision(tx, user), of=user, quick=True)

    async def index_rows(
        self, user: str, *, model: EmbeddingModel, after: int, vectors: bool = True
    ) -> tuple[Revision, list[IndexRow]]:
        if self._engine.is_local:
            found = await self._engine.read(
                lambda tx: vector_sql.index_rows(tx, user, model, after, vectors=vectors, most=_QUICK_CHANGES + 1),
                of=user,
                quick=True,
            )
            if len(found[1]) <= _QUICK_CHANGES:
                return found
        return await self._engine.read(
            lambda tx: vector_sql.index_rows(tx, user, model, after, vectors=vectors), of=user
        )

    async def unembedded(
        self, model: EmbeddingModel, *, limit: int, after: int = 0, user: str | None = None
    ) -> list[Unembedded]:
        return await self._engine.read(
            lambda tx: vector_sql.unembedded(tx, model, limit, after, user), of=whose(user)
        )

    async def embed(
        self,
        model: EmbeddingModel,
        vectors: Mapping[int, Vector],
        *,
        user: str,
        versions: Mapping[int, int] | None = None,
    ) -> None:
        await self._engine.write(lambda tx: vector_sql.embed(tx, model, user, vectors, versions), of=user)

    async def vectors(self, user: str, ids: Sequence[str], *, model: EmbeddingModel) -> dict[str, bytes]:
        return await self._engine.read(lambda tx: vector_sql.vectors(tx, user, ids, model), of=user)

    async def models(self) -> dict[EmbeddingModel, int]:
        return await self._engine.read(vector_sql.models, of=EVERYONE)

    async def drop_model(self, model: EmbeddingModel) -> None:
        users = await self.users()
        # A few users at a time, so that nobody who writes waits for long.
        for start in range(0, len(users), _USERS_AT_ONCE):
            some = users[start : start + _USERS_AT_ONCE]
            await self._engine.write(
                lambda tx, some=some: vector_sql.drop_of_users(tx, model, some),  # type: ignore[misc]
                of=EVERYONE,
            )
        await self._engine.write(lambda tx: vector_sql.drop_model(tx, model), of=NOBODY)

    async def stats(self, user: str | None = None) -> Mapping[str, int]:
        counts = await self._engine.read(lambda tx: upkeep.stats(tx, user), of=whose(user))
        return counts if user is not None else {**counts, "bytes": await self._engine.size()}

    async def check(self) -> list[str]:
        broken = await self._engine.read(lambda tx: upkeep.check(tx, self._engine), of=EVERYONE)
        return [*await self._engine.check(), *broken]

    async def cautions(self) -> list[str]:
        return await self._engine.cautions()

    async def rebuild_terms(self, progress: Callable[[int], None] = lambda done: None) -> None:
        await self._engine.write(lambda tx: upkeep.rebuild_terms(tx, self._engine, progress), of=EVERYONE)

    async def erase(self, scope: Scope, what: Erase, *, by: By) -> Receipt:
        erased = await self._engine.write(
            lambda tx: erase_sql.erase(tx, self._writer, scope, what, by=by), of=scope.user
        )
        self.on_change(scope.user)
        return await self._told(scope, what, erased)

    async def purge(self, before: datetime) -> Cleared:
        counts: dict[str, int] = {}
        # A few users at a time, so that nobody who writes waits for long.
        while found := await self._engine.write(lambda tx: erase_sql.purge(tx, self._writer, before), of=EVERYONE):
            counts = {kind: counts.get(kind, 0) + number for kind, number in found.items()}
        if not counts:
            return Cleared("ledger", counts)
        done = await self._engine.sweep(erase_sql.TABLES)
        return Cleared("ledger", counts, done.reached, done.note)

    async def finish_erasures(self) -> Cleared:
        if not await self._engine.read(erase_sql.has_unfinished, of=EVERYONE, quick=True):
            return Cleared("ledger")
        return await self._scrubbed({}, now())

    async def erasures(self, since: datetime | None = None) -> list[Erasure]:
        return await self._engine.read(lambda tx: erase_sql.erasures(tx, since), of=EVERYONE)

    async def replay_erasures(self, erasures: Sequence[Erasure], *, by: By) -> list[Receipt]:
        told: list[tuple[Scope, Erase, erase_sql.Erased, Cleared]] = []
        for each in erasures:
            done = await self._engine.write(
                lambda tx, each=each: erase_sql.replay(tx, self._writer, each, by=by),  # type: ignore[misc]
                of=EVERYONE,
            )
            if done is not None:
                told.append((done[0], each.what, done[1], self._let_go(done[0].user)))
        # Once for all of them; also for those that a replay which was broken off had come to.
        if not told and not await self._engine.read(lambda tx: erase_sql.has_unfinished(tx, ever=True), of=EVERYONE):
            return []
        bytes_ = await self._scrubbed({}, now())
        return [
            erased.receipt(scope, what, replace(bytes_, counts=erased.counts), words)
            for scope, what, erased, words in told
        ]

    async def _told(self, scope: Scope, what: Erase, erased: erase_sql.Erased) -> Receipt:
        """The receipt of an erasure that was committed, once its bytes are gone as well."""
        words = self._let_go(scope.user)
        return erased.receipt(scope, what, await self._scrubbed(erased.counts, now()), words)

    def _let_go(self, user: str) -> Cleared:
        """Drop what is kept at hand of a user's words."""
        self._lengths.drop(user)
        return Cleared("word lists", {"words": self._postings.drop(user)})

    async def _scrubbed(self, counts: Mapping[str, int], at: datetime) -> Cleared:
        done = await self._engine.scrub(erase_sql.TABLES)
        if done.reached or done.is_final:
            await self._engine.write(lambda tx: erase_sql.finished(tx, at), of=EVERYONE)
        return erase_sql.cleared(counts, done)

    async def backup(self, path: Path, told: Callable[[int, int], None]) -> Backup:
        from recollect.ledger.sealed import seal

        made_at = now()
        await self._engine.copy_to(path, told)
        return await asyncio.to_thread(seal, path, made_at=made_at, engine=self._engine.dialect.name)

    async def fill(self, path: Path, told: Callable[[int, int], None]) -> None:
        await self._engine.copy_from(path, told)
        await self.rebuild_terms()

    async def close(self) -> None:
        await self._engine.close()
