"""The ledger: memories, turns and their history, jobs, responses and keys, on a SQL database.

Most methods are functions of `recollect.ledger.sql`, which describe them, run in a transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from recollect.ledger.redacted_writes import RedactedWrites, WriteRedactor
from recollect.ledger.sql import (
    accounts,
    audit,
    full_text,
    leases,
    maintenance,
    maintenance_tasks,
    memories,
    token_vectors,
)
from recollect.ledger.sql import changes as change_sql
from recollect.ledger.sql import conversations as conversation_sql
from recollect.ledger.sql import erase as erase_sql
from recollect.ledger.sql import history as history_sql
from recollect.ledger.sql import jobs as job_sql
from recollect.ledger.sql import mentions as mention_sql
from recollect.ledger.sql import model_states as model_sql
from recollect.ledger.sql import responses as response_sql
from recollect.ledger.sql import tombstones as tombstone_sql
from recollect.ledger.sql import turns as turn_sql
from recollect.ledger.sql import vectors as vector_sql
from recollect.ledger.sql.migrate import migrate
from recollect.ledger.sql.tx import (
    ALL_TENANTS,
    NO_TENANT,
    SqlEngine,
    prune_method,
    read_method,
    tenant_or_all,
    write_method,
)
from recollect.ledger.tokenizer import TERMS_RULES
from recollect.ledger.types import IndexRow, LexicalMatches, Revision
from recollect.model.change import (
    Applied,
    Author,
    Change,
    ChangeKind,
    Effect,
    HistoryEntry,
    IdempotencyToken,
    ModelUsage,
    Vector,
)
from recollect.model.erasure import Erasure, ErasureRequest, Receipt, StoreErasure
from recollect.model.job import Appended, Job, JobKind, NewJob
from recollect.model.memory import Category
from recollect.model.query import Listing, validate_limit
from recollect.model.result import Page
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Turn
from recollect.model.usage import LlmQuota
from recollect.models.embedding import EmbeddingModel
from recollect.observability.metrics import LLM_CALLS, LLM_TOKENS, SAVED

if TYPE_CHECKING:
    from recollect.ledger.backup_file import Backup


# The author of what was learned from turns.
_EXTRACTION_AUTHOR = "extraction"
_ADDING_KINDS = (ChangeKind.ADD, ChangeKind.SUPERSEDE)
# Reads up to these sizes take less time than handing them to another thread: rows of a page found by an index,
# vectors by their rows, terms of a user searched lately, changes since a revision.
_QUICK_LIMIT = 16
_QUICK_VECTORS = 512
_QUICK_TERMS = 200_000
_QUICK_CHANGES = 256
_USERS_PER_DROP = 50
# How often leasing looks for jobs that wait because the clock was set back.
_CLOCK_CHECK_S = 60.0


class Ledger:
    """The only source of truth. Acknowledged writes are on disk; a read sees one consistent view.

    Vectors given to it are of the one model it was opened with. `on_change` is called with the user after something
    of theirs has changed.
    """

    def __init__(self, engine: SqlEngine, model: EmbeddingModel, redactor: WriteRedactor | None = None) -> None:
        self.engine = engine
        self._model = model
        self.clean = RedactedWrites(redactor)
        self._lengths = full_text.DocLengthCache()
        self._postings = full_text.PostingCache()
        self._token_vectors = token_vectors.TokenVectorCache()
        self._check_clock_at = 0.0
        self.on_change: Callable[[str], None] = lambda user: None

    @classmethod
    async def open(cls, engine: SqlEngine, model: EmbeddingModel, redactor: WriteRedactor | None = None) -> Ledger:
        """Migrate the schema; rebuild a full text made with other rules."""
        ledger = cls(engine, model, redactor)
        try:
            await migrate(engine)
            if await engine.read(maintenance.terms_version, tenant=NO_TENANT, quick=True) != TERMS_RULES:
                await ledger.rebuild_terms()
            if not await engine.read(tombstone_sql.is_filled, tenant=NO_TENANT, quick=True):
                await engine.write(tombstone_sql.add_for_forgotten, tenant=ALL_TENANTS)
            if not await engine.read(mention_sql.is_filled, tenant=NO_TENANT, quick=True):
                await engine.write(mention_sql.fill, tenant=ALL_TENANTS)
        except BaseException:
            await engine.close()
            raise
        return ledger

    @property
    def is_local(self) -> bool:
        """Whether reading a few rows takes microseconds, because there is no network."""
        return self.engine.is_local

    async def close(self) -> None:
        """Finish pending writes and release all resources."""
        await self.engine.close()

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
        """Make all of the changes with their history, and all of the effects, or none.

        With `since`, the revision from which the changes were derived, raise Conflict if anything of the user was
        erased after it: the changes could bring it back.
        """
        changes, effects = await self.clean.changes(changes), await self.clean.effects(effects)
        by = self.clean.author(by)
        if changes and not effects and once is None and since is None:
            request = change_sql.ChangeRequest(scope, changes, by, self._model)
            applied = await self.engine.write_each(change_sql.apply_each, request, tenant=scope.user)
        else:
            applied = await self.engine.write(
                lambda tx: change_sql.apply(
                    tx, scope, changes, by=by, model=self._model, once=once, effects=effects, since=since
                ),
                tenant=scope.user,
            )
        self.on_change(scope.user)
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

    async def undo(self, scope: Scope, entry_id: int, *, by: Author, whole: bool = False) -> Applied:
        """Undo one history entry, or the `whole` batch it is part of."""
        by = self.clean.author(by)
        undone = await self.engine.write(
            lambda tx: change_sql.undo(tx, scope, entry_id, by=by, whole=whole), tenant=scope.user
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
        """Append turns to a session, in order, and enqueue jobs; return the turns with positions, and the jobs.

        With `received_at`, the time of the first attempt, appending is idempotent: turns whose ids exist are returned
        as they are, and those that an erasure reached since then are left out. If none is left nothing is written, no
        jobs either. Without it, an existing id raises Conflict.
        """
        turns, vectors = await self.clean.turns(turns, vectors)
        by, jobs = self.clean.author(by), await self.clean.jobs(jobs)
        new = turn_sql.NewTurns(scope, turns, vectors, self._model, by, jobs, received_at)
        appended = await self.engine.write_each(turn_sql.append_each, new, tenant=scope.user)
        self.on_change(scope.user)
        return appended

    touch = write_method(maintenance.touch)

    # Reading -----------------------------------------------------------------------------------------

    get = read_method(memories.get, quick=True)
    find = read_method(memories.find)
    count = read_method(memories.count)
    facets = read_method(memories.facets)
    history = read_method(history_sql.history)
    changes_since = read_method(history_sql.changes_since)
    entry = read_method(history_sql.entry, quick=True)
    users = read_method(maintenance.users, tenant=ALL_TENANTS)
    turns = read_method(turn_sql.turns, quick=lambda scope, after=0, limit=100: limit <= _QUICK_LIMIT)
    conversation = read_method(conversation_sql.conversation, quick=True)
    conversations = read_method(
        conversation_sql.conversations,
        quick=lambda user=None, open=None, limit=100, **_: (
            user is not None and open is None and limit <= _QUICK_LIMIT
        ),
    )

    # Searching ---------------------------------------------------------------------------------------

    fetch = read_method(memories.fetch, quick=True)
    matching = read_method(memories.matching)
    keyed_facts = read_method(
        memories.keyed_facts,
        quick=lambda scope, filter, as_of=None, **_: as_of is None and memories.compares_columns(filter),
    )
    find_conflicting = read_method(change_sql.find_conflicting)
    derived = read_method(history_sql.derived, quick=True)
    succession = read_method(history_sql.succession, quick=True)
    mentions = read_method(mention_sql.mentions)
    mentioning = read_method(mention_sql.mentioning)
    linked = read_method(mention_sql.linked)
    certain_names = read_method(mention_sql.certain_names)

    async def lexical(self, scope: Scope, text: str) -> LexicalMatches:
        """Return every row of the user that shares a term with the text."""
        return await self.engine.read(
            lambda tx: full_text.lexical(tx, self._lengths, self._postings, scope, text),
            tenant=scope.user,
            quick=self.engine.is_local and self._is_small_user(scope.user),
        )

    def _is_small_user(self, user: str) -> bool:
        """Return whether a lexical search of the user's memories takes few milliseconds."""
        terms = self._lengths.term_count(user)
        return terms is not None and terms <= _QUICK_TERMS

    # For indexes -------------------------------------------------------------------------------------

    revision = read_method(vector_sql.revision, quick=True)
    # Of given rows they are few.
    unembedded = read_method(vector_sql.unembedded, quick=lambda model, *, rows=None, **_: rows is not None)
    embed = write_method(vector_sql.embed)
    store_token_vectors = write_method(vector_sql.store_token_vectors)
    vectors = read_method(vector_sql.vectors)
    vectors_of = read_method(vector_sql.vectors_of, quick=lambda user, rows, model: len(rows) <= _QUICK_VECTORS)
    models = read_method(vector_sql.models, tenant=ALL_TENANTS)

    async def token_vectors(self, user: str, rows: Sequence[int]) -> dict[int, bytes]:
        """Return the packed token vectors of those of the rows that are the user's and have some."""
        return await self.engine.read(
            lambda tx: self._token_vectors.get(tx, user, rows), tenant=user, quick=len(rows) <= _QUICK_VECTORS
        )

    row_count = read_method(vector_sql.row_count, quick=True)
    changed_rows = read_method(vector_sql.changed_rows)
    feed_position = read_method(vector_sql.feed_position, quick=True)
    lagging_users = read_method(vector_sql.lagging_users, tenant=ALL_TENANTS)
    lease_feed = write_method(vector_sql.lease_feed, tenant=NO_TENANT)
    save_feed_positions = write_method(vector_sql.save_feed_positions, tenant=ALL_TENANTS)
    reset_feed = write_method(vector_sql.reset_feed, tenant=ALL_TENANTS)

    model_states = read_method(model_sql.model_states, tenant=NO_TENANT, quick=True)
    make_current = write_method(model_sql.make_current, tenant=NO_TENANT)
    lease_model = write_method(model_sql.lease_model, tenant=NO_TENANT)
    count_embedded = read_method(model_sql.count_embedded, tenant=ALL_TENANTS)

    async def index_rows(
        self, user: str, *, model: EmbeddingModel, after: int, vectors: bool = True
    ) -> tuple[Revision, list[IndexRow]]:
        """Return the current revision and the rows that changed since `after`, from one consistent view.

        Without `vectors`, empty bytes stand for each vector.
        """
        read = partial(vector_sql.index_rows, user=user, model=model, after=after, vectors=vectors)
        if self.engine.is_local:
            few = partial(read, max_rows=_QUICK_CHANGES + 1)
            result = await self.engine.read(few, tenant=user, quick=True)
            if len(result[1]) <= _QUICK_CHANGES:
                return result
        return await self.engine.read(read, tenant=user)

    async def drop_model(self, model: EmbeddingModel) -> None:
        """Remove all vectors of a model."""
        users = await self.users()
        # A few users at a time, so that no writer waits for long.
        for start in range(0, len(users), _USERS_PER_DROP):
            drop = partial(vector_sql.drop_of_users, model=model, users=users[start : start + _USERS_PER_DROP])
            await self.engine.write(drop, tenant=ALL_TENANTS)
        await self.engine.write(lambda tx: vector_sql.drop_model(tx, model), tenant=NO_TENANT)

    # Jobs and usage ----------------------------------------------------------------------------------

    enqueue = write_method(job_sql.enqueue, clean={"jobs": RedactedWrites.jobs})
    renew = write_method(leases.renew)
    finish = write_method(leases.finish, clean={"result": RedactedWrites.json})
    fail = write_method(leases.fail, clean={"error": RedactedWrites.label})
    release = write_method(leases.release, clean={"error": RedactedWrites.label})
    job = read_method(job_sql.job, quick=True)
    jobs = read_method(job_sql.jobs)
    job_stats = read_method(job_sql.job_stats, quick=lambda user=None: user is not None)
    replay = write_method(job_sql.replay)
    cancel = write_method(job_sql.cancel)
    maintenance_states = read_method(maintenance_tasks.maintenance_states, tenant=ALL_TENANTS)
    maintenance_times = read_method(maintenance_tasks.maintenance_times, tenant=ALL_TENANTS, quick=True)
    record_maintenance_times = write_method(maintenance_tasks.record_maintenance_times, tenant=NO_TENANT)
    enqueue_due = write_method(maintenance_tasks.enqueue_due, tenant=NO_TENANT)
    usage = read_method(accounts.usage)
    spent_today = read_method(accounts.spent_today, quick=True)
    prune_jobs = prune_method(job_sql.prune_jobs)
    prune_idempotency_keys = prune_method(job_sql.prune_idempotency_keys)
    prune_tombstones = prune_method(tombstone_sql.prune_tombstones)
    prune_responses = prune_method(response_sql.prune_responses, response_sql.prune_threads)

    async def lease(
        self, *, worker: str, limit: int, lease_s: float, kinds: Sequence[JobKind] | None = None
    ) -> list[Job]:
        """Lease jobs that are due, the highest priority first, each of a different user."""
        validate_limit(limit)
        if monotonic() >= self._check_clock_at:
            self._check_clock_at = monotonic() + _CLOCK_CHECK_S
            if await self.engine.read(leases.anything_ahead, tenant=ALL_TENANTS, quick=True):
                await self.engine.write(leases.pull_back, tenant=ALL_TENANTS)
        # Workers poll: they block no writer when there is nothing to do.
        if not await self.engine.read(leases.anything_due, tenant=ALL_TENANTS, quick=True):
            return []
        return await self.engine.write(
            lambda tx: leases.lease(tx, worker=worker, limit=limit, lease_s=lease_s, kinds=kinds), tenant=ALL_TENANTS
        )

    # Responses, idempotency keys, API keys, tombstones -----------------------------------------------

    save_response = write_method(
        response_sql.save_response, clean={"response": RedactedWrites.response, "items": RedactedWrites.items}
    )
    response = read_method(response_sql.response, quick=True)
    response_chain = read_method(response_sql.response_chain)
    drop_response = write_method(response_sql.drop_response)
    save_thread = write_method(response_sql.save_thread, clean={"thread": RedactedWrites.thread})
    thread = read_method(response_sql.thread, quick=True)
    drop_thread = write_method(response_sql.drop_thread)
    add_items = write_method(response_sql.add_items, clean={"added": RedactedWrites.items})
    thread_items = read_method(response_sql.thread_items)
    thread_item = read_method(response_sql.thread_item, quick=True)
    drop_item = write_method(response_sql.drop_item)

    claim_key = write_method(accounts.claim_key)
    store_answer = write_method(accounts.store_answer, clean={"answer": RedactedWrites.json})
    release_key = write_method(accounts.release_key)

    # The owner of a key is known only once it is found, so keys are not rows of a user.
    add_key = write_method(accounts.add_key, tenant=NO_TENANT, clean={"key": RedactedWrites.key})
    keys = read_method(accounts.keys, tenant=NO_TENANT)
    find_key = read_method(accounts.find_key, tenant=NO_TENANT, quick=True)
    has_keys = read_method(accounts.has_keys, tenant=NO_TENANT, quick=True)
    revoke_key = write_method(accounts.revoke_key, tenant=NO_TENANT)
    record_key_use = write_method(accounts.record_key_use, tenant=NO_TENANT)

    record_access = write_method(audit.record_access, tenant=NO_TENANT)
    accesses = read_method(audit.accesses, tenant=NO_TENANT)

    tombstoned = read_method(tombstone_sql.tombstoned)
    has_tombstones = read_method(tombstone_sql.has_tombstones, quick=True)
    tombstones = read_method(tombstone_sql.tombstones)
    put_tombstones = write_method(tombstone_sql.put_tombstones)

    # Erasing -----------------------------------------------------------------------------------------

    erasures = read_method(erase_sql.erasures, tenant=ALL_TENANTS)

    async def erase(self, scope: Scope, request: ErasureRequest, *, by: Author) -> Receipt:
        """Erase it with all that was derived from it, by the rules of `recollect.model.erasure`.

        A job that runs for the user at that moment has no effect; it runs again on what is left.
        """
        by = self.clean.author(by)
        outcome = await self.engine.write(lambda tx: erase_sql.erase(tx, scope, request, by=by), tenant=scope.user)
        self.on_change(scope.user)
        caches = self._drop_caches(scope.user)
        return outcome.receipt(scope, request, await self._scrub(outcome.counts, now()), caches)

    async def purge(self, before: datetime) -> StoreErasure:
        """Erase what was forgotten before a time, with the versions it had superseded; derived memories stay.

        It blocks nobody, so the store is not rewritten: stale copies of rows can stay until an erasure removes them.
        """
        counts: dict[str, int] = {}
        # A few users at a time, so that no writer waits for long.
        while batch := await self.engine.write(lambda tx: erase_sql.purge(tx, before), tenant=ALL_TENANTS):
            counts = {kind: counts.get(kind, 0) + number for kind, number in batch.items()}
        if not counts:
            return StoreErasure("ledger", counts)
        done = await self.engine.sweep(erase_sql.TABLES)
        return StoreErasure("ledger", counts, done.is_complete, done.note)

    async def finish_erasures(self) -> StoreErasure:
        """Retry what erasures of the last days could not reach; can block writers."""
        if not await self.engine.read(erase_sql.has_unfinished, tenant=ALL_TENANTS, quick=True):
            return StoreErasure("ledger")
        return await self._scrub({}, now())

    async def replay_erasures(self, erasures: Sequence[Erasure], *, by: Author) -> list[Receipt]:
        """Repeat the erasures that this store has no record of; return a receipt for each user it has."""
        by = self.clean.author(by)
        replayed: list[tuple[Scope, ErasureRequest, erase_sql.ErasureOutcome, StoreErasure]] = []
        for each in erasures:
            done = await self.engine.write(partial(erase_sql.replay, erasure=each, by=by), tenant=ALL_TENANTS)
            if done is not None:
                replayed.append((done[0], each.what, done[1], self._drop_caches(done[0].user)))
        # Once for all of them, those of an interrupted replay included.
        if not replayed and not await self.engine.read(
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
        self._token_vectors.drop(user)
        cached = self._postings.drop(user)
        return StoreErasure("word lists", {"words": len(cached.words) if cached else 0})

    async def _scrub(self, counts: Mapping[str, int], at: datetime) -> StoreErasure:
        done = await self.engine.scrub(erase_sql.TABLES)
        if done.is_complete or done.is_final:
            await self.engine.write(lambda tx: erase_sql.mark_finished(tx, at), tenant=ALL_TENANTS)
        return erase_sql.store_report(counts, done)

    # Maintenance -------------------------------------------------------------------------------------

    backups = read_method(maintenance.backups, tenant=NO_TENANT)
    note_backup = write_method(maintenance.note_backup, tenant=NO_TENANT)
    rebuild_terms = write_method(maintenance.rebuild_terms, tenant=ALL_TENANTS)

    async def stats(self, user: str | None = None) -> Mapping[str, int]:
        """Return counts: memories by status, turns, conversations, history, bytes."""
        counts = await self.engine.read(lambda tx: maintenance.stats(tx, user), tenant=tenant_or_all(user))
        return counts if user is not None else {**counts, "bytes": await self.engine.size()}

    async def check(self) -> list[str]:
        """Return what is damaged in the store, a sentence each."""
        return [*await self.engine.check(), *await self.engine.read(maintenance.check, tenant=ALL_TENANTS)]

    async def security_warnings(self) -> list[str]:
        """Return what makes the store less safe than it could be, a sentence each."""
        return await self.engine.security_warnings()

    async def backup(self, path: Path, on_progress: Callable[[int, int], None]) -> Backup:
        """Copy a consistent view of everything into a new, sealed file without blocking writers."""
        from recollect.ledger.backup_file import seal_backup

        made_at = now()
        await self.engine.copy_to(path, on_progress)
        return await asyncio.to_thread(seal_backup, path, made_at=made_at, engine=self.engine.dialect.name)

    async def restore_backup(self, path: Path, on_progress: Callable[[int, int], None]) -> None:
        """Restore a backup into an empty ledger."""
        await self.engine.copy_from(path, on_progress)
        await self.rebuild_terms()


_PAGE = 200


async def read_pages(ledger: Ledger, scope: Scope, listing: Listing) -> AsyncIterator[Page]:
    """Yield all pages of a listing; its limit is the size of a page."""
    while True:
        page = await ledger.find(scope, listing)
        yield page
        if page.cursor is None:
            return
        listing = replace(listing, cursor=page.cursor)


async def read_history(ledger: Ledger, scope: Scope, memory_id: str | None = None) -> AsyncIterator[HistoryEntry]:
    """Yield the changes of one or all memories, newest first."""
    before = None
    while lines := await ledger.history(scope, memory_id=memory_id, limit=_PAGE, before=before):
        for line in lines:
            yield line
        before = lines[-1].id


async def quota_exceeded_reason(
    ledger: Ledger, user: str, allowance: LlmQuota, *, unrecorded: int = 0, unrecorded_total: int = 0
) -> str:
    """Return why no LLM may be called for the user any more today; empty if one may.

    Tokens that are not in the ledger yet count too. Without a limit the ledger is not read.
    """
    if allowance.refusal:
        return allowance.refusal
    if allowance.user:
        spent = (await ledger.spent_today(user)).tokens + unrecorded
        if spent >= allowance.user:
            return f"the LLM has used today's {allowance.user:,} tokens of this user"
    if allowance.everyone:
        spent = (await ledger.spent_today(None)).tokens + unrecorded_total
        if spent >= allowance.everyone:
            return f"the LLM has used today's {allowance.everyone:,} tokens of all users"
    return ""
