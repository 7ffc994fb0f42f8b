"""Count what was written once it is on disk: memories that were kept, and what models were asked for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.ledger.protocol import Derived, IndexRow, LexicalMatches, NumberedRecord, Revision, Unembedded
from recollect.ledger.sql import changes as change_sql
from recollect.ledger.sql import conversations as conversation_sql
from recollect.ledger.sql import erase as erase_sql
from recollect.ledger.sql import evidence as evidence_sql
from recollect.ledger.sql import full_text, maintenance, memories
from recollect.ledger.sql import history as history_sql
from recollect.ledger.sql import turns as turn_sql
from recollect.ledger.sql import vectors as vector_sql
from recollect.ledger.sql.api_key_store import SqlApiKeyStore
from recollect.ledger.sql.feed_store import SqlIndexFeed
from recollect.ledger.sql.full_text import DocLengthCache, PostingCache
from recollect.ledger.sql.idempotency_store import SqlIdempotencyStore
from recollect.ledger.sql.jobs_store import QUICK_LIMIT, SqlJobStore
from recollect.ledger.sql.migrate import migrate
from recollect.ledger.sql.responses_store import SqlResponseStore
from recollect.ledger.sql.tombstone_store import SqlTombstoneStore, add_for_forgotten, is_filled
from recollect.ledger.sql.tx import ALL_TENANTS, NO_TENANT, SqlEngine, tenant_or_all
from recollect.ledger.sql.vectors import SqlModelStateStore
from recollect.ledger.tokenizer import TERMS_RULES
from recollect.model.change import (
    Applied,
    Author,
    Change,
    ChangeKind,
    Effect,
    HistoryEntry,
    IdempotencyToken,
    ModelUsage,
)
from recollect.model.erasure import Erasure, ErasureRequest, Receipt, StoreErasure
from recollect.model.job import Appended, NewJob
from recollect.model.memory import Category, MemoryRecord
from recollect.model.query import EVERYTHING, Filter, Listing
from recollect.model.result import Page
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Conversation, Turn
from recollect.models.embedding import EmbeddingModel
from recollect.observability.metrics import LLM_CALLS, LLM_TOKENS, SAVED

if TYPE_CHECKING:
    from recollect.ledger.backup_file import Backup
    from recollect.model.change import Vector


# Who it is in history that learned something.
_EXTRACTION_AUTHOR = "extraction"
_ADDING_KINDS = (ChangeKind.ADD, ChangeKind.SUPERSEDE)


def ignore_change(user: str) -> None:
    """Where nobody wants to know that something of a user's has changed."""


def record_metrics(applied: Applied, effects: Sequence[Effect], by: Author) -> Applied:
    """The same, counted."""
    saved = sum(
        outcome.changed and outcome.verb in _ADDING_KINDS and outcome.record.category is not Category.TURN
        for outcome in applied.outcomes
    )
    if saved and not applied.replayed:
        SAVED.add("learned" if by.who == _EXTRACTION_AUTHOR else "given", by=saved)
    for effect in effects:
        if isinstance(effect, ModelUsage):
            LLM_CALLS.add(effect.step, effect.model, by=effect.calls)
            LLM_TOKENS.add(effect.step, effect.model, "in", by=effect.tokens_in)
            LLM_TOKENS.add(effect.step, effect.model, "out", by=effect.tokens_out)
    return applied


# Up to here a lexical search takes about a millisecond: not worth another thread.
_QUICK_ROWS = 20_000
# As many are taken up in less time than it takes to hand them to another thread and back.
_QUICK_CHANGES = 256
# Of a user who has not been searched for a while, this many are looked through as soon.
_QUICK_COLD = 1000
_USERS_PER_DROP = 50


class SqlLedger(
    SqlJobStore,
    SqlResponseStore,
    SqlIdempotencyStore,
    SqlApiKeyStore,
    SqlIndexFeed,
    SqlModelStateStore,
    SqlTombstoneStore,
):
    """A ledger on a SQL database. Vectors given to it are of the one model it was opened with."""

    def __init__(self, engine: SqlEngine, model: EmbeddingModel) -> None:
        self._engine = self.engine = engine
        self._context = change_sql.WriteContext(engine, model)
        self._lengths = DocLengthCache()
        self._postings = PostingCache()
        self.on_change: Callable[[str], None] = ignore_change

    @classmethod
    async def open(cls, engine: SqlEngine, model: EmbeddingModel) -> SqlLedger:
        """Bring the schema up to date; a full text made with other rules is made anew."""
        ledger = cls(engine, model)
        try:
            await migrate(engine)
            if await engine.read(maintenance.terms_version, tenant=NO_TENANT, quick=True) != TERMS_RULES:
                await ledger.rebuild_terms()
            if not await engine.read(is_filled, tenant=NO_TENANT, quick=True):
                await engine.write(add_for_forgotten, tenant=ALL_TENANTS)
        except BaseException:
            await engine.close()
            raise
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
        applied = await self._engine.write(
            lambda tx: change_sql.apply(
                tx, self._context, scope, changes, by=by, once=once, effects=effects, since=since
            ),
            tenant=scope.user,
        )
        self.on_change(scope.user)
        return record_metrics(applied, effects, by)

    async def undo(self, scope: Scope, entry_id: int, *, by: Author, whole: bool = False) -> Applied:
        undone = await self._engine.write(
            lambda tx: change_sql.undo(tx, self._context, scope, entry_id, by=by, whole=whole), tenant=scope.user
        )
        self.on_change(scope.user)
        return undone

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
        new = turn_sql.NewTurns(turns, vectors, received_at)
        appended = await self._engine.write(
            lambda tx: turn_sql.append(tx, self._context, scope, new, by=by, jobs=jobs), tenant=scope.user
        )
        self.on_change(scope.user)
        return appended

    async def touch(self, scope: Scope, ids: Sequence[str], *, at: datetime) -> None:
        await self._engine.write(lambda tx: maintenance.touch(tx, scope, ids, at=at), tenant=scope.user)

    async def get(self, scope: Scope, ids: Sequence[str]) -> list[MemoryRecord]:
        records = await self._engine.read(lambda tx: memories.by_ids(tx, scope, ids), tenant=scope.user, quick=True)
        return [records[id] for id in ids if id in records]

    async def find(self, scope: Scope, listing: Listing) -> Page:
        return await self._engine.read(lambda tx: memories.find(tx, scope, listing), tenant=scope.user)

    async def count(self, scope: Scope, listing: Listing) -> int:
        return await self._engine.read(lambda tx: memories.count(tx, scope, listing), tenant=scope.user)

    async def history(
        self,
        scope: Scope,
        *,
        memory_id: str | None = None,
        limit: int = 100,
        before: int | None = None,
        after: int | None = None,
    ) -> list[HistoryEntry]:
        return await self._engine.read(
            lambda tx: history_sql.history(tx, scope, memory_id=memory_id, limit=limit, before=before, after=after),
            tenant=scope.user,
        )

    async def changes_since(self, user: str, since: datetime) -> list[HistoryEntry]:
        return await self._engine.read(lambda tx: history_sql.changes_since(tx, user, since), tenant=user)

    async def entry(self, scope: Scope, entry_id: int) -> HistoryEntry:
        return await self._engine.read(
            lambda tx: history_sql.entry(tx, scope, entry_id), tenant=scope.user, quick=True
        )

    async def conversation(self, scope: Scope) -> Conversation:
        return await self._engine.read(
            lambda tx: conversation_sql.conversation(tx, scope), tenant=scope.user, quick=True
        )

    async def turns(self, scope: Scope, *, after: int = 0, limit: int = 100) -> list[Turn]:
        return await self._engine.read(
            lambda tx: turn_sql.turns(tx, scope, after=after, limit=limit),
            tenant=scope.user,
            quick=limit <= QUICK_LIMIT,
        )

    async def users(self) -> list[str]:
        return await self._engine.read(maintenance.users, tenant=ALL_TENANTS)

    async def lexical(self, scope: Scope, text: str) -> LexicalMatches:
        return await self._engine.read(
            lambda tx: full_text.lexical(tx, self._engine, self._lengths, self._postings, scope, text),
            tenant=scope.user,
            quick=self._engine.is_local and await self._is_small_user(scope.user),
        )

    async def _is_small_user(self, user: str) -> bool:
        """Whether a user's memories are looked through at once."""
        rows = self._lengths.count(user)
        if rows is not None:
            return rows <= _QUICK_ROWS
        max_count = _QUICK_COLD + 1
        return (
            await self._engine.read(lambda tx: memories.count_up_to(tx, user, max_count), tenant=user, quick=True)
            < max_count
        )

    async def fetch(
        self, scope: Scope, rows: Sequence[int], *, filter: Filter, as_of: datetime | None = None
    ) -> list[NumberedRecord]:
        return await self._engine.read(
            lambda tx: memories.fetch(tx, scope, rows, filter, as_of=as_of), tenant=scope.user, quick=True
        )

    async def matching(self, scope: Scope, filter: Filter, *, as_of: datetime | None = None) -> Sequence[int]:
        return await self._engine.read(
            lambda tx: memories.matching(tx, scope, filter, as_of=as_of), tenant=scope.user
        )

    async def keyed_facts(
        self, scope: Scope, filter: Filter, *, min_importance: float, limit: int, as_of: datetime | None = None
    ) -> list[MemoryRecord]:
        return await self._engine.read(
            lambda tx: memories.keyed_facts(
                tx, scope, filter, min_importance=min_importance, limit=limit, as_of=as_of
            ),
            tenant=scope.user,
            quick=as_of is None and filter == EVERYTHING,
        )

    async def find_conflicting(self, scope: Scope, records: Sequence[MemoryRecord]) -> list[MemoryRecord]:
        return await self._engine.read(lambda tx: change_sql.find_conflicting(tx, scope, records), tenant=scope.user)

    async def derived(self, scope: Scope, turn_ids: Sequence[str]) -> Mapping[str, Sequence[Derived]]:
        return await self._engine.read(
            lambda tx: evidence_sql.derived(tx, scope, turn_ids), tenant=scope.user, quick=True
        )

    async def succession(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, tuple[NumberedRecord, ...]]:
        return await self._engine.read(
            lambda tx: evidence_sql.succession(tx, scope, ids), tenant=scope.user, quick=True
        )

    async def revision(self, user: str) -> Revision:
        return await self._engine.read(lambda tx: vector_sql.revision(tx, user), tenant=user, quick=True)

    async def index_rows(
        self, user: str, *, model: EmbeddingModel, after: int, vectors: bool = True
    ) -> tuple[Revision, list[IndexRow]]:
        if self._engine.is_local:
            result = await self._engine.read(
                lambda tx: vector_sql.index_rows(
                    tx, user, model, after, vectors=vectors, max_rows=_QUICK_CHANGES + 1
                ),
                tenant=user,
                quick=True,
            )
            if len(result[1]) <= _QUICK_CHANGES:
                return result
        return await self._engine.read(
            lambda tx: vector_sql.index_rows(tx, user, model, after, vectors=vectors), tenant=user
        )

    async def unembedded(
        self,
        model: EmbeddingModel,
        *,
        limit: int,
        after: int = 0,
        user: str | None = None,
        rows: Sequence[int] | None = None,
    ) -> list[Unembedded]:
        return await self._engine.read(
            lambda tx: vector_sql.unembedded(tx, model, limit, after, user, rows), tenant=tenant_or_all(user)
        )

    async def store_token_vectors(
        self, model: EmbeddingModel, vectors: Mapping[int, bytes], *, user: str, versions: Mapping[int, int]
    ) -> None:
        await self._engine.write(
            lambda tx: vector_sql.store_token_vectors(tx, model, user, vectors, versions), tenant=user
        )

    async def embed(
        self,
        model: EmbeddingModel,
        vectors: Mapping[int, Vector],
        *,
        user: str,
        versions: Mapping[int, int] | None = None,
    ) -> None:
        await self._engine.write(lambda tx: vector_sql.embed(tx, model, user, vectors, versions), tenant=user)

    async def vectors(self, user: str, ids: Sequence[str], *, model: EmbeddingModel) -> dict[str, bytes]:
        return await self._engine.read(lambda tx: vector_sql.vectors(tx, user, ids, model), tenant=user)

    async def models(self) -> dict[EmbeddingModel, int]:
        return await self._engine.read(vector_sql.models, tenant=ALL_TENANTS)

    async def drop_model(self, model: EmbeddingModel) -> None:
        users = await self.users()
        # A few users at a time, so that nobody who writes waits for long.
        for start in range(0, len(users), _USERS_PER_DROP):
            batch = users[start : start + _USERS_PER_DROP]
            await self._engine.write(
                lambda tx, batch=batch: vector_sql.drop_of_users(tx, model, batch),  # type: ignore[misc]
                tenant=ALL_TENANTS,
            )
        await self._engine.write(lambda tx: vector_sql.drop_model(tx, model), tenant=NO_TENANT)

    async def stats(self, user: str | None = None) -> Mapping[str, int]:
        counts = await self._engine.read(lambda tx: maintenance.stats(tx, user), tenant=tenant_or_all(user))
        return counts if user is not None else {**counts, "bytes": await self._engine.size()}

    async def check(self) -> list[str]:
        broken = await self._engine.read(lambda tx: maintenance.check(tx, self._engine), tenant=ALL_TENANTS)
        return [*await self._engine.check(), *broken]

    async def security_warnings(self) -> list[str]:
        return await self._engine.security_warnings()

    async def rebuild_terms(self, progress: Callable[[int], None] = lambda done: None) -> None:
        await self._engine.write(lambda tx: maintenance.rebuild_terms(tx, self._engine, progress), tenant=ALL_TENANTS)

    async def erase(self, scope: Scope, request: ErasureRequest, *, by: Author) -> Receipt:
        outcome = await self._engine.write(
            lambda tx: erase_sql.erase(tx, self._context, scope, request, by=by), tenant=scope.user
        )
        self.on_change(scope.user)
        return await self._make_receipt(scope, request, outcome)

    async def purge(self, before: datetime) -> StoreErasure:
        counts: dict[str, int] = {}
        # A few users at a time, so that nobody who writes waits for long.
        while batch := await self._engine.write(
            lambda tx: erase_sql.purge(tx, self._context, before), tenant=ALL_TENANTS
        ):
            counts = {kind: counts.get(kind, 0) + number for kind, number in batch.items()}
        if not counts:
            return StoreErasure("ledger", counts)
        done = await self._engine.sweep(erase_sql.TABLES)
        return StoreErasure("ledger", counts, done.is_complete, done.note)

    async def finish_erasures(self) -> StoreErasure:
        if not await self._engine.read(erase_sql.has_unfinished, tenant=ALL_TENANTS, quick=True):
            return StoreErasure("ledger")
        return await self._scrub({}, now())

    async def erasures(self, since: datetime | None = None) -> list[Erasure]:
        return await self._engine.read(lambda tx: erase_sql.erasures(tx, since), tenant=ALL_TENANTS)

    async def replay_erasures(self, erasures: Sequence[Erasure], *, by: Author) -> list[Receipt]:
        replayed: list[tuple[Scope, ErasureRequest, erase_sql.ErasureOutcome, StoreErasure]] = []
        for each in erasures:
            done = await self._engine.write(
                lambda tx, each=each: erase_sql.replay(tx, self._context, each, by=by),  # type: ignore[misc]
                tenant=ALL_TENANTS,
            )
            if done is not None:
                replayed.append((done[0], each.what, done[1], self._drop_caches(done[0].user)))
        # Once for all of them; also for those that a replay which was broken off had come to.
        if not replayed and not await self._engine.read(
            lambda tx: erase_sql.has_unfinished(tx, ever=True), tenant=ALL_TENANTS
        ):
            return []
        bytes_ = await self._scrub({}, now())
        return [
            outcome.receipt(scope, request, replace(bytes_, counts=outcome.counts), cache_report)
            for scope, request, outcome, cache_report in replayed
        ]

    async def _make_receipt(
        self, scope: Scope, request: ErasureRequest, outcome: erase_sql.ErasureOutcome
    ) -> Receipt:
        """The receipt of an erasure that was committed, once its bytes are gone as well."""
        cache_report = self._drop_caches(scope.user)
        return outcome.receipt(scope, request, await self._scrub(outcome.counts, now()), cache_report)

    def _drop_caches(self, user: str) -> StoreErasure:
        """Drop what is kept at hand of a user's words."""
        self._lengths.drop(user)
        return StoreErasure("word lists", {"words": self._postings.drop(user)})

    async def _scrub(self, counts: Mapping[str, int], at: datetime) -> StoreErasure:
        done = await self._engine.scrub(erase_sql.TABLES)
        if done.is_complete or done.is_final:
            await self._engine.write(lambda tx: erase_sql.mark_finished(tx, at), tenant=ALL_TENANTS)
        return erase_sql.store_report(counts, done)

    async def backup(self, path: Path, on_progress: Callable[[int, int], None]) -> Backup:
        from recollect.ledger.backup_file import seal_backup

        made_at = now()
        await self._engine.copy_to(path, on_progress)
        return await asyncio.to_thread(seal_backup, path, made_at=made_at, engine=self._engine.dialect.name)

    async def restore_backup(self, path: Path, on_progress: Callable[[int, int], None]) -> None:
        await self._engine.copy_from(path, on_progress)
        await self.rebuild_terms()

    async def close(self) -> None:
        await self._engine.close()
