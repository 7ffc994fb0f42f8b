"""Apply batches of changes with their effects, in one transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import assert_never

from recollect.frozen_dataclass import frozen_dataclass
from recollect.ledger.codec import to_plain
from recollect.ledger.plan import (
    ExistingRecords,
    Plan,
    Revert,
    check_not_erased,
    check_owner,
    claiming_records,
    conflicting_records,
    fingerprint_of,
    is_usage_only,
    plan,
    plan_reverts,
    undone_line_ids,
)
from recollect.ledger.sql.accounts import add_to_daily_total, add_usage, key_reuse_error
from recollect.ledger.sql.conversations import apply_note
from recollect.ledger.sql.full_text import count_words, index_words
from recollect.ledger.sql.history import ENTRY_COLUMNS, entry, entry_from_row, put_evidence
from recollect.ledger.sql.jobs import lock_jobs, put_job, scope_exists
from recollect.ledger.sql.leases import finish_by_id
from recollect.ledger.sql.memories import (
    INSERT_MEMORY,
    SELECTED_COLUMNS,
    UPDATE_MEMORY,
    by_ids,
    record_from_row,
    record_to_params,
)
from recollect.ledger.sql.mentions import put_mentions
from recollect.ledger.sql.tombstones import write_tombstones
from recollect.ledger.sql.tx import Tx, fetch_one
from recollect.ledger.sql.vectors import drop_vectors, put_vectors
from recollect.ledger.types import Revision
from recollect.model.change import (
    Add,
    Applied,
    Author,
    Change,
    ChangeKind,
    ConversationUpdate,
    Effect,
    EnqueueJob,
    FinishJob,
    HistoryEntry,
    IdempotencyToken,
    ModelUsage,
    Outcome,
    Supersede,
    check_effects,
)
from recollect.model.erasure import user_digest
from recollect.model.ids import new_id
from recollect.model.memory import MemoryRecord
from recollect.model.scope import Scope
from recollect.model.times import now, to_micros
from recollect.models.embedding import EmbeddingModel


async def apply_effects(tx: Tx, scope: Scope, effects: Sequence[Effect]) -> None:
    """Apply effects in order; the caller has locked the user."""
    # A job can outlive the session it was made for, which it must not recreate.
    from_job = any(isinstance(effect, FinishJob) for effect in effects)
    for effect in effects:
        match effect:
            case FinishJob():
                await finish_by_id(tx, scope.user, effect.job_id, effect.lease, result=effect.result)
            case ConversationUpdate():
                await apply_note(tx, effect, existing_only=from_job)
            case EnqueueJob():
                await put_job(tx, await lock_jobs(tx, scope.user), effect.scope, effect.job)
            case ModelUsage():
                await add_usage(tx, effect)
            case _:
                assert_never(effect)
    await add_to_totals(tx, effects)


async def add_to_totals(tx: Tx, effects: Sequence[Effect]) -> None:
    """Add LLM usage to the total of all users."""
    # In the order of days, to prevent deadlocks.
    for spent in sorted((effect for effect in effects if isinstance(effect, ModelUsage)), key=lambda each: each.at):
        await add_to_daily_total(tx, spent)


@frozen_dataclass
class Owner:
    """The user a transaction writes for, and the revision it creates if it writes anything."""

    name: str
    number: int
    revision: int
    epoch: int

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever written for the user."""
        return self.revision == 1


async def lock_user(tx: Tx, user: str) -> Owner:
    """Lock the user until the transaction ends; writers of the same user wait here for each other."""
    row = await fetch_one(
        tx,
        "INSERT INTO users (user_id, revision, created_at) VALUES (:user, 0, :at) "
        "ON CONFLICT (user_id) DO UPDATE SET revision = users.revision RETURNING number, revision, epoch",
        {"user": user, "at": to_micros(now())},
    )
    assert row is not None
    epoch = row[2] if row[1] else await _resumed_epoch(tx, user, row[0])
    return Owner(user, row[0], row[1] + 1, epoch)


async def _resumed_epoch(tx: Tx, user: str, number: int) -> int:
    """Return the epoch of a new user, which continues after an erasure of the same user."""
    # Read after the lock: the lock may have waited for that very erasure.
    row = await fetch_one(
        tx,
        "UPDATE users SET epoch = COALESCE((SELECT max(epoch) FROM erasures WHERE user_id = :digest), epoch) "
        "WHERE number = :number RETURNING epoch",
        {"digest": user_digest(user), "number": number},
    )
    assert row is not None
    return int(row[0])


async def apply(
    tx: Tx,
    scope: Scope,
    changes: Sequence[Change | Revert],
    *,
    by: Author,
    model: EmbeddingModel | None = None,
    once: IdempotencyToken | None = None,
    effects: Sequence[Effect] = (),
    since: Revision | None = None,
) -> Applied:
    """Make all of the changes and effects, or none, as `Ledger.apply` describes; `model` is that of the vectors."""
    check_owner(scope, changes)
    check_effects(scope, effects)
    if is_usage_only(changes, effects) and not await scope_exists(tx, Scope(scope.user)):
        # A user erased during an LLM call is not recreated to record its cost; only the total is.
        await add_to_totals(tx, effects)
        return Applied(by.batch or new_id(), ())
    owner = await lock_user(tx, scope.user)
    if once is not None and (done := await _done_before(tx, scope, once)):
        return done
    check_not_erased(owner.epoch, since)
    existing = await _load(tx, scope, changes)
    planned = plan(changes, existing, at=now())
    batch = by.batch or new_id()
    await write_plan(tx, owner, planned, model=model, batch=batch, by=by)
    await apply_effects(tx, scope, effects)
    applied = Applied(batch, tuple(planned.outcomes))
    if once is not None:
        outcomes = [(str(outcome.verb), outcome.record.id, outcome.changed) for outcome in applied.outcomes]
        await tx.run(
            'INSERT INTO idempotency (user_id, "key", digest, created_at, result) '
            "VALUES (:user, :key, :digest, :at, :result)",
            {
                "user": scope.user,
                "key": once.key_digest,
                "digest": once.digest,
                "at": to_micros(now()),
                "result": json.dumps({"batch": applied.batch, "outcomes": outcomes}),
            },
        )
    return applied


async def undo(tx: Tx, scope: Scope, entry_id: int, *, by: Author, whole: bool = False) -> Applied:
    """Undo one history entry, or the `whole` batch it is part of."""
    # Locked before reading, so that nothing changes before it is undone.
    await lock_user(tx, scope.user)
    target_entry = await entry(tx, scope, entry_id)
    batch = await _lines(tx, scope, "batch = :value", target_entry.batch)
    if whole:
        later = await _lines(tx, scope, "undoes >= :value", batch[0].id)
        undone = undone_line_ids(later)
        batch = [line for line in batch if line.id not in undone]
    current = await by_ids(tx, scope, [line.memory_id for line in batch])
    return await apply(tx, scope, plan_reverts(target_entry, batch, current, whole=whole), by=by)


async def _lines(tx: Tx, scope: Scope, test: str, value: str | int) -> list[HistoryEntry]:
    rows = await tx.rows(
        f"SELECT {ENTRY_COLUMNS} FROM history WHERE user_id = :user AND {test} ORDER BY id",
        {"user": scope.user, "value": value},
    )
    return [entry_from_row(row) for row in rows]


async def _load(tx: Tx, scope: Scope, changes: Sequence[Change | Revert]) -> ExistingRecords:
    """Return the records that the changes name, and those they may conflict with."""
    ids = [change.record.id for change in changes if isinstance(change, (Add, Supersede))]
    ids += [change.id for change in changes if not isinstance(change, Add)]
    existing = ExistingRecords()
    for record in (await by_ids(tx, scope, ids)).values():
        existing.add(record)
    claiming = claiming_records(changes, existing.by_id)
    marks = [mark[1] for record in claiming if (mark := fingerprint_of(record))]
    keys = [record.key for record in claiming if record.key is not None]
    places = list({record.visibility_key for record in claiming})
    for column, values in (("fingerprint", marks), ('"key"', keys)):
        for record in await _active_records(tx, scope, places, column, values) if values else ():
            if record.id not in existing.by_id:
                existing.add(record)
    return existing


async def find_conflicting(tx: Tx, scope: Scope, records: Sequence[MemoryRecord]) -> list[MemoryRecord]:
    """Return the user's active memories with the same text or the same key in the same place as a record."""
    existing = await _load(tx, scope, [Add(record) for record in records])
    return conflicting_records(records, existing)


async def _active_records(
    tx: Tx, scope: Scope, places: list[str], column: str, values: list[str]
) -> list[MemoryRecord]:
    rows = await tx.rows(
        f"SELECT {SELECTED_COLUMNS} FROM memories WHERE user_id = :user AND status = 'active' "
        f"AND {tx.dialect.among('place', 'places')} AND {tx.dialect.among(column, 'values')}",
        {"user": scope.user, "places": places, "values": values},
    )
    return [record_from_row(row) for row in rows]


async def write_plan(
    tx: Tx, owner: Owner, plan: Plan, *, model: EmbeddingModel | None, batch: str, by: Author
) -> None:
    """Write a plan as the user's next revision; its vectors are of the model."""
    await write_tombstones(tx, owner.name, plan)
    if plan.is_empty:
        return
    await tx.run(
        "UPDATE users SET revision = :revision WHERE number = :number",
        {"revision": owner.revision, "number": owner.number},
    )
    # Changed rows first: their old text or key may be taken by an added row, or by another changed one,
    # so all of them are cleared before any is set.
    if len(plan.changed) > 1:
        await tx.run(
            'UPDATE memories SET fingerprint = NULL, "key" = NULL '
            f"WHERE user_id = :user AND {tx.dialect.among('id', 'ids')}",
            {"user": owner.name, "ids": list(plan.changed)},
        )
    if plan.changed:
        await tx.many(
            UPDATE_MEMORY, [record_to_params(record, revision=owner.revision) for record in plan.changed.values()]
        )
    words = {id: index_words(owner.number, record.content) for id, record in plan.added.items()}
    if plan.added:
        new = [(record, count_words(words[id])) for id, record in plan.added.items()]
        await tx.many(
            INSERT_MEMORY,
            [record_to_params(record, revision=owner.revision) | {"term_count": count} for record, count in new],
        )
    rows = await _rows_of(tx, owner, [*plan.added, *plan.changed])
    await tx.dialect.terms.put(tx, {rows[id]: text for id, text in words.items()})
    await _reword(tx, owner, plan, rows)
    await put_evidence(tx, owner.name, plan, rows)
    await put_mentions(tx, owner.name, plan, rows)
    if plan.vectors:
        assert model is not None
        await put_vectors(tx, model, owner.name, {rows[id]: vector for id, vector in plan.vectors.items()})
    await _write_lines(tx, owner, plan, batch=batch, by=by)


async def _reword(tx: Tx, owner: Owner, plan: Plan, rows: Mapping[str, int]) -> None:
    """Reindex rows with changed text; drop their vectors."""
    reworded = [id for id, record in plan.changed.items() if record.content != plan.originals[id].content]
    if not reworded:
        return
    old = {rows[id]: index_words(owner.number, plan.originals[id].content) for id in reworded}
    new = {rows[id]: index_words(owner.number, plan.changed[id].content) for id in reworded}
    await tx.dialect.terms.drop(tx, old)
    await tx.dialect.terms.put(tx, new)
    await tx.many(
        "UPDATE memories SET term_count = :count WHERE row = :row",
        [{"row": row, "count": count_words(text)} for row, text in new.items()],
    )
    await drop_vectors(tx, owner.name, list(new))


async def _rows_of(tx: Tx, owner: Owner, ids: list[str]) -> dict[str, int]:
    rows = await tx.rows(
        f"SELECT id, row FROM memories WHERE user_id = :user AND {tx.dialect.among('id', 'ids')}",
        {"user": owner.name, "ids": ids},
    )
    return {row[0]: row[1] for row in rows}


async def _write_lines(tx: Tx, owner: Owner, plan: Plan, *, batch: str, by: Author) -> None:
    at = to_micros(plan.at)
    await tx.many(
        "INSERT INTO history (user_id, memory_id, batch, verb, at, who, why, actor, version, undoes, before, after) "
        "VALUES (:user, :memory_id, :batch, :verb, :at, :who, :why, :actor, :version, :undoes, :before, :after)",
        [
            {
                "user": owner.name,
                "memory_id": line.memory_id,
                "batch": batch,
                "verb": str(line.verb),
                "at": at,
                "who": by.who,
                "why": by.why,
                "actor": str(by.actor),
                "version": line.version,
                "undoes": line.undoes,
                "before": None if line.before is None else json.dumps(to_plain(line.before), ensure_ascii=False),
                "after": json.dumps(to_plain(line.after), ensure_ascii=False),
            }
            for line in plan.lines
        ],
    )


async def _done_before(tx: Tx, scope: Scope, once: IdempotencyToken) -> Applied | None:
    """Return the result of an earlier request with the same key, if there was one."""
    row = await fetch_one(
        tx,
        'SELECT digest, result FROM idempotency WHERE user_id = :user AND "key" = :key',
        {"user": scope.user, "key": once.key_digest},
    )
    if row is None:
        return None
    if row[0] != once.digest:
        raise key_reuse_error(once)
    result = json.loads(row[1])
    records = await by_ids(tx, scope, [id for _, id, _ in result["outcomes"]])
    return Applied(
        result["batch"],
        tuple(
            Outcome(ChangeKind(verb), records[id], changed)
            for verb, id, changed in result["outcomes"]
            if id in records
        ),
        replayed=True,
    )
