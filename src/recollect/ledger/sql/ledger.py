"""The ledger on a SQL database: the methods of `Ledger`, each a function of this package over a transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from recollect.ledger.protocol import IndexRow, LexicalMatches, Revision, Unembedded
from recollect.ledger.sql import (
    api_keys,
    evidence,
    full_text,
    idempotency,
    leases,
    maintenance,
    maintenance_tasks,
    memories,
)
from recollect.ledger.sql import changes as change_sql
from recollect.ledger.sql import conversations as conversation_sql
from recollect.ledger.sql import erase as erase_sql
from recollect.ledger.sql import history as history_sql
from recollect.ledger.sql import jobs as job_sql
from recollect.ledger.sql import responses as response_sql
from recollect.ledger.sql import tombstones as tombstone_sql
from recollect.ledger.sql import turns as turn_sql
from recollect.ledger.sql import usage as usage_sql
from recollect.ledger.sql import vectors as vector_sql
from recollect.ledger.sql.feed_store import SqlIndexFeed
from recollect.ledger.sql.methods import read_method, write_method
from recollect.ledger.sql.migrate import migrate
from recollect.ledger.sql.tx import ALL_TENANTS, NO_TENANT, SqlEngine, Tx, tenant_or_all
from recollect.ledger.sql.vectors import SqlModelStateStore
from recollect.ledger.tokenizer import TERMS_RULES
from recollect.model.change import (
    Applied,
    Author,
    Change,
    ChangeKind,
    Effect,
    IdempotencyToken,
    ModelUsage,
)
from recollect.model.erasure import Erasure, ErasureRequest, Receipt, StoreErasure
from recollect.model.job import Appended, Job, JobKind, JobStats, NewJob
from recollect.model.memory import Category, MemoryRecord
from recollect.model.query import EVERYTHING, Filter, validate_limit
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Conversation, Turn
from recollect.model.usage import SpentToday
from recollect.models.embedding import EmbeddingModel
from recollect.observability.metrics import LLM_CALLS, LLM_TOKENS, SAVED

if TYPE_CHECKING:
    from recollect.ledger.backup_file import Backup
    from recollect.model.change import Vector


# The author of what was learned from turns.
_EXTRACTION_AUTHOR = "extraction"
_ADDING_KINDS = (ChangeKind.ADD, ChangeKind.SUPERSEDE)
# Reads up to these sizes take less time than handing them to another thread: rows of a page found by an index,
# memories of a user searched lately and of one who was not, changes since a revision.
_QUICK_LIMIT = 16
_QUICK_ROWS = 20_000
_QUICK_COLD = 1000
_QUICK_CHANGES = 256
_USERS_PER_DROP = 50


class SqlLedger(SqlIndexFeed, SqlModelStateStore):
    """A ledger on a SQL database. Vectors given to it are of the one model it was opened with."""

    def __init__(self, engine: SqlEngine, model: EmbeddingModel) -> None:
        self._engine = self.engine = engine
        self._context = change_sql.WriteContext(engine, model)
        self._lengths = full_text.DocLengthCache()
        self._postings = full_text.PostingCache()
        self.on_change: Callable[[str], None] = lambda user: None

    @classmethod
    async def open(cls, engine: SqlEngine, model: EmbeddingModel) -> SqlLedger:
        """Migrate the schema; rebuild a full text made with other rules."""
        ledger = cls(engine, model)
        try:
            await migrate(engine)
            if await engine.read(maintenance.terms_version, tenant=NO_TENANT, quick=True) != TERMS_RULES:
                await ledger.rebuild_terms()
            if not await engine.read(tombstone_sql.is_filled, tenant=NO_TENANT, quick=True):
                await engine.write(tombstone_sql.add_for_forgotten, tenant=ALL_TENANTS)
        except BaseException:
            await engine.close()
            raise
        return ledger

    async def close(self) -> None:
        await self._engine.close()

    # Writing -----------------------------------------------------------------------------------------

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
        _record_metrics(applied, effects, by)
        return applied

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

    touch = write_method(maintenance.touch)

    # Reading -----------------------------------------------------------------------------------------

    get = read_method(memories.get, quick=True)
    find = read_method(memories.find)
    count = read_method(memories.count)
    history = read_method(history_sql.history)
    changes_since = read_method(history_sql.changes_since)
    entry = read_method(history_sql.entry, quick=True)
    users = read_method(maintenance.users, tenant=ALL_TENANTS)
    conversation = read_method(conversation_sql.conversation, quick=True)
    fetch = read_method(memories.fetch, quick=True)
    matching = read_method(memories.matching)
    find_conflicting = read_method(change_sql.find_conflicting)
    derived = read_method(evidence.derived, quick=True)
    succession = read_method(evidence.succession, quick=True)

    async def turns(self, scope: Scope, *, after: int = 0, limit: int = 100) -> list[Turn]:
        return await self._engine.read(
            lambda tx: turn_sql.turns(tx, scope, after=after, limit=limit),
            tenant=scope.user,
            quick=limit <= _QUICK_LIMIT,
        )

    async def conversations(
        self,
        user: str | None = None,
        *,
        open: bool | None = None,
        idle_before: datetime | None = None,
        order: Literal["oldest", "newest"] = "oldest",
        limit: int = 100,
        after: Conversation | None = None,
    ) -> list[Conversation]:
        return await self._engine.read(
            lambda tx: conversation_sql.conversations(
                tx, user, open=open, idle_before=idle_before, order=order, limit=limit, after=after
            ),
            tenant=tenant_or_all(user),
            quick=user is not None and open is None and limit <= _QUICK_LIMIT,
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

    async def lexical(self, scope: Scope, text: str) -> LexicalMatches:
        return await self._engine.read(
            lambda tx: full_text.lexical(tx, self._engine, self._lengths, self._postings, scope, text),
            tenant=scope.user,
            quick=self._engine.is_local and await self._is_small_user(scope.user),
        )

    async def _is_small_user(self, user: str) -> bool:
        """Return whether a lexical search of the user's memories takes about a millisecond at most."""
        rows = self._lengths.count(user)
        if rows is not None:
            return rows <= _QUICK_ROWS
        max_count = _QUICK_COLD + 1
        return (
            await self._engine.read(lambda tx: memories.count_up_to(tx, user, max_count), tenant=user, quick=True)
            < max_count
        )

    # For indexes -------------------------------------------------------------------------------------

    revision = read_method(vector_sql.revision, quick=True)
    models = read_method(vector_sql.models, tenant=ALL_TENANTS)

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

    async def drop_model(self, model: EmbeddingModel) -> None:
        users = await self.users()
        # A few users at a time, so that no writer waits for long.
        for start in range(0, len(users), _USERS_PER_DROP):
            drop = partial(vector_sql.drop_of_users, model=model, users=users[start : start + _USERS_PER_DROP])
            await self._engine.write(drop, tenant=ALL_TENANTS)
        await self._engine.write(lambda tx: vector_sql.drop_model(tx, model), tenant=NO_TENANT)

    # Jobs --------------------------------------------------------------------------------------------

    enqueue = write_method(job_sql.enqueue)
    renew = write_method(leases.renew)
    finish = write_method(leases.finish)
    fail = write_method(leases.fail)
    release = write_method(leases.release)
    job = read_method(job_sql.job, quick=True)
    jobs = read_method(job_sql.jobs)
    replay = write_method(job_sql.replay)
    cancel = write_method(job_sql.cancel)
    maintenance_states = read_method(maintenance_tasks.maintenance_states, tenant=ALL_TENANTS)
    maintenance_times = read_method(maintenance_tasks.maintenance_times, tenant=ALL_TENANTS, quick=True)
    record_maintenance_times = write_method(maintenance_tasks.record_maintenance_times, tenant=NO_TENANT)
    usage = read_method(usage_sql.usage)

    async def enqueue_due(self, due: Sequence[tuple[Scope, NewJob]]) -> int:
        if not due:
            return 0
        return await self._engine.write(lambda tx: maintenance_tasks.enqueue_due(tx, due), tenant=NO_TENANT)

    async def lease(
        self, *, worker: str, limit: int, lease_s: float, kinds: Sequence[JobKind] | None = None
    ) -> list[Job]:
        validate_limit(limit)
        # Workers poll: they block no writer when there is nothing to do.
        if not await self._engine.read(leases.anything_due, tenant=ALL_TENANTS, quick=True):
            return []
        return await self._engine.write(
            lambda tx: leases.lease(tx, worker=worker, limit=limit, lease_s=lease_s, kinds=kinds), tenant=ALL_TENANTS
        )

    async def job_stats(self, user: str | None = None) -> JobStats:
        return await self._engine.read(
            lambda tx: job_sql.job_stats(tx, user), tenant=tenant_or_all(user), quick=user is not None
        )

    async def spent_today(self, user: str | None) -> SpentToday:
        # The total of all users holds no names.
        tenant = NO_TENANT if user is None else user
        return await self._engine.read(lambda tx: usage_sql.spent_today(tx, user), tenant=tenant, quick=True)

    async def prune_jobs(self, before: datetime) -> int:
        return await self._prune(job_sql.prune_jobs, before)

    async def prune_idempotency_keys(self, before: datetime) -> int:
        return await self._prune(job_sql.prune_idempotency_keys, before)

    async def prune_responses(self, before: datetime) -> int:
        pruned = await self._prune(response_sql.prune_responses, before)
        return pruned + await self._prune(response_sql.prune_threads, before)

    async def _prune(self, prune: Callable[[Tx, datetime], Coroutine[Any, Any, int]], before: datetime) -> int:
        """Prune a batch at a time, so that no writer waits for long; return how many rows went."""
        pruned = 0
        while True:
            batch = await self._engine.write(lambda tx: prune(tx, before), tenant=ALL_TENANTS)
            pruned += batch
            if batch < job_sql.PRUNE_BATCH:
                return pruned

    # Responses, idempotency keys, API keys, tombstones -----------------------------------------------

    save_response = write_method(response_sql.save_response)
    response = read_method(response_sql.response, quick=True)
    response_chain = read_method(response_sql.response_chain)
    drop_response = write_method(response_sql.drop_response)
    save_thread = write_method(response_sql.save_thread)
    thread = read_method(response_sql.thread, quick=True)
    drop_thread = write_method(response_sql.drop_thread)
    add_items = write_method(response_sql.add_items)
    thread_items = read_method(response_sql.thread_items)
    thread_item = read_method(response_sql.thread_item, quick=True)
    drop_item = write_method(response_sql.drop_item)

    claim_key = write_method(idempotency.claim_key)
    store_answer = write_method(idempotency.store_answer)
    release_key = write_method(idempotency.release_key)

    # The owner of a key is known only once it is found, so keys are not rows of a user.
    add_key = write_method(api_keys.add_key, tenant=NO_TENANT)
    keys = read_method(api_keys.keys, tenant=NO_TENANT)
    find_key = read_method(api_keys.find_key, tenant=NO_TENANT, quick=True)
    has_keys = read_method(api_keys.has_keys, tenant=NO_TENANT, quick=True)
    revoke_key = write_method(api_keys.revoke_key, tenant=NO_TENANT)

    async def record_key_use(self, used: Mapping[str, datetime]) -> None:
        if used:
            await self._engine.write(lambda tx: api_keys.record_key_use(tx, used), tenant=NO_TENANT)

    tombstoned = read_method(tombstone_sql.tombstoned)
    has_tombstones = read_method(tombstone_sql.has_tombstones, quick=True)
    tombstones = read_method(tombstone_sql.tombstones)
    put_tombstones = write_method(tombstone_sql.put_tombstones)

    # Maintenance -------------------------------------------------------------------------------------

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
        caches = self._drop_caches(scope.user)
        return outcome.receipt(scope, request, await self._scrub(outcome.counts, now()), caches)

    async def purge(self, before: datetime) -> StoreErasure:
        counts: dict[str, int] = {}
        # A few users at a time, so that no writer waits for long.
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

    erasures = read_method(erase_sql.erasures, tenant=ALL_TENANTS)

    async def replay_erasures(self, erasures: Sequence[Erasure], *, by: Author) -> list[Receipt]:
        replayed: list[tuple[Scope, ErasureRequest, erase_sql.ErasureOutcome, StoreErasure]] = []
        for each in erasures:
            repeat = partial(erase_sql.replay, context=self._context, erasure=each, by=by)
            done = await self._engine.write(repeat, tenant=ALL_TENANTS)
            if done is not None:
                replayed.append((done[0], each.what, done[1], self._drop_caches(done[0].user)))
        # Once for all of them, those of an interrupted replay included.
        if not replayed and not await self._engine.read(
            lambda tx: erase_sql.has_unfinished(tx, ever=True), tenant=ALL_TENANTS
        ):
            return []
        bytes_ = await self._scrub({}, now())
        return [
            outcome.receipt(scope, request, replace(bytes_, counts=outcome.counts), cache_report)
            for scope, request, outcome, cache_report in replayed
        ]

    def _drop_caches(self, user: str) -> StoreErasure:
        self._lengths.drop(user)
        cached = self._postings.drop(user)
        return StoreErasure("word lists", {"words": len(cached.words) if cached else 0})

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


def _record_metrics(applied: Applied, effects: Sequence[Effect], by: Author) -> None:
    """Count the memories that were added and the LLM calls they took."""
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
