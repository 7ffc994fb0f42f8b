"""Apply batches of changes with their effects, in one transaction."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
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
    is_usage_only,
    plan,
    plan_reverts,
    undone_line_ids,
)
from recollect.ledger.sql.accounts import add_to_daily_total, add_usage, key_reuse_error
from recollect.ledger.sql.conversations import apply_note
from recollect.ledger.sql.full_text import count_words, index_words
from recollect.ledger.sql.history import ENTRY_COLUMNS, add_evidence, entry, entry_from_row, update_evidence
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
from recollect.ledger.sql.mentions import add_mentions, update_mentions
from recollect.ledger.sql.tombstones import write_tombstones
from recollect.ledger.sql.tx import Tx, fetch_one
from recollect.ledger.sql.vectors import add_vectors, drop_vectors, put_vectors
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
from recollect.model.text import is_storable
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


async def lock_users(tx: Tx, users: Iterable[str]) -> dict[str, Owner]:
    """Lock several users, which only a database with one writer does; the others lock one."""
    names = list(dict.fromkeys(users))
    owners: dict[str, Owner] = {}
    if len(names) > 1:
        rows = await tx.rows(
            "SELECT user_id, number, revision, epoch FROM users "
            f"WHERE revision > 0 AND {tx.dialect.among('user_id', 'users')}",
            {"users": names},
        )
        owners = {user: Owner(user, number, revision + 1, epoch) for user, number, revision, epoch in rows}
    return owners | {user: await lock_user(tx, user) for user in names if user not in owners}


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


@frozen_dataclass
class ChangeRequest:
    """Changes of one caller, which are made together; vectors are of the model."""

    scope: Scope
    changes: Sequence[Change | Revert]
    by: Author
    model: EmbeddingModel | None = None


async def apply_each(tx: Tx, requests: Sequence[ChangeRequest]) -> list[Applied]:
    """Make the changes of several requests in order, each as a revision of its own; raise if one is impossible."""
    for request in requests:
        check_owner(request.scope, request.changes)
    owners = await lock_users(tx, (request.scope.user for request in requests))
    return await _write_changes(tx, owners, requests)


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
    [applied] = await _write_changes(tx, {scope.user: owner}, [ChangeRequest(scope, changes, by, model)])
    await apply_effects(tx, scope, effects)
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


async def _write_changes(tx: Tx, owners: Mapping[str, Owner], requests: Sequence[ChangeRequest]) -> list[Applied]:
    """Plan the requests in order, and write the plans."""
    existing = await _load(tx, [(request.scope.user, request.changes) for request in requests])
    writes = []
    for request in requests:
        planned = plan(request.changes, existing[request.scope.user], at=now())
        writes.append(PlannedWrite(owners[request.scope.user], planned, request.by.batch or new_id(), request.by))
    await write_plans(tx, writes, model=requests[0].model)
    return [Applied(write.batch, tuple(write.plan.outcomes)) for write in writes]


async def _load(
    tx: Tx, batches: Sequence[tuple[str, Sequence[Change | Revert]]]
) -> defaultdict[str, ExistingRecords]:
    """Return, for each user, the records that the changes name, and those they may conflict with."""
    ids: dict[tuple[str, str], None] = {}
    for user, changes in batches:
        for change in changes:
            if isinstance(change, (Add, Supersede)):
                ids[user, change.record.id] = None
            if not isinstance(change, Add):
                ids[user, change.id] = None
    existing: defaultdict[str, ExistingRecords] = defaultdict(ExistingRecords)
    # Unstorable ids cannot exist.
    for record in await _records(tx, ("user_id", "id"), [pair for pair in ids if is_storable(pair[1])]):
        existing[record.scope.user].add(record)
    claiming = [record for user, changes in batches for record in claiming_records(changes, existing[user].by_id)]
    for column, value_of in _UNIQUE_COLUMNS.items():
        claims = [
            (record.scope.user, record.visibility_key, value)
            for record in claiming
            if (value := value_of(record)) is not None
        ]
        active = f"AND status = 'active' AND {column} IS NOT NULL"
        for record in await _records(tx, ("user_id", "place", column), claims, active):
            if record.id not in existing[record.scope.user].by_id:
                existing[record.scope.user].add(record)
    return existing


# What no two active memories in one place share.
_UNIQUE_COLUMNS: Mapping[str, Callable[[MemoryRecord], str | None]] = {
    "fingerprint": lambda record: record.fingerprint,
    '"key"': lambda record: record.key,
}


async def _records(
    tx: Tx, columns: Sequence[str], values: Sequence[tuple[str, ...]], condition: str = ""
) -> list[MemoryRecord]:
    if not values:
        return []
    rows = await tx.rows(
        f"SELECT {SELECTED_COLUMNS} FROM memories WHERE {tx.dialect.among_tuples(columns, 'values')} {condition}",
        {"values": list(values)},
    )
    return [record_from_row(row) for row in rows]


async def find_conflicting(tx: Tx, scope: Scope, records: Sequence[MemoryRecord]) -> list[MemoryRecord]:
    """Return the user's active memories with the same text or the same key in the same place as a record."""
    existing = await _load(tx, [(scope.user, [Add(record) for record in records])])
    return conflicting_records(records, existing[scope.user])


@frozen_dataclass
class PlannedWrite:
    """A plan, the user it is written for, and its batch and author in history."""

    owner: Owner
    plan: Plan
    batch: str
    by: Author


async def write_plans(tx: Tx, writes: Sequence[PlannedWrite], *, model: EmbeddingModel | None) -> None:
    """Write plans in order, each as its user's next revision; their vectors are of the model."""
    revisions: Counter[str] = Counter()
    numbered = []
    for write in writes:
        await write_tombstones(tx, write.owner.name, write.plan)
        if not write.plan.is_empty:
            owner = replace(write.owner, revision=write.owner.revision + revisions[write.owner.name])
            revisions[owner.name] += 1
            numbered.append(replace(write, owner=owner))
    # Plans that change nothing stored are written together.
    for only_adds, group in groupby(numbered, key=lambda write: not write.plan.changed):
        for part in [list(group)] if only_adds else [[write] for write in group]:
            await _write_together(tx, part, model=model)


async def _write_together(tx: Tx, writes: Sequence[PlannedWrite], *, model: EmbeddingModel | None) -> None:
    await tx.many(
        "UPDATE users SET revision = :revision WHERE number = :number",
        [{"revision": write.owner.revision, "number": write.owner.number} for write in writes],
    )
    rows: dict[tuple[str, str], int] = {}
    # Changed rows first: their old text or key may be taken by an added one.
    for write in writes:
        if write.plan.changed:
            rows |= await _update(tx, write)
    added = [(write.owner, record) for write in writes for record in write.plan.added.values()]
    if added:
        words = [index_words(owner.number, record.content) for owner, record in added]
        await tx.many(
            INSERT_MEMORY,
            [
                record_to_params(record, revision=owner.revision) | {"term_count": count_words(text)}
                for (owner, record), text in zip(added, words, strict=True)
            ],
        )
        rows |= await _rows_of(tx, [(owner.name, record.id) for owner, record in added])
        new = {rows[owner.name, record.id]: record for owner, record in added}
        await tx.dialect.terms.put(tx, dict(zip(new, words, strict=True)))
        await add_evidence(tx, new)
        await add_mentions(tx, new)
    for put, is_new in ((put_vectors, False), (add_vectors, True)):
        vectors = {
            (write.owner.name, rows[write.owner.name, id]): vector
            for write in writes
            for id, vector in write.plan.vectors.items()
            if (id in write.plan.added) is is_new
        }
        if vectors:
            assert model is not None
            await put(tx, model, vectors)
    await _write_lines(tx, writes)


async def _update(tx: Tx, write: PlannedWrite) -> dict[tuple[str, str], int]:
    """Update the changed rows of a plan with all that is derived from them; return their numbers."""
    owner, plan = write.owner, write.plan
    # The text or key of one may be taken by another, so all are cleared before any is set.
    if len(plan.changed) > 1:
        await tx.run(
            'UPDATE memories SET fingerprint = NULL, "key" = NULL '
            f"WHERE user_id = :user AND {tx.dialect.among('id', 'ids')}",
            {"user": owner.name, "ids": list(plan.changed)},
        )
    await tx.many(
        UPDATE_MEMORY, [record_to_params(record, revision=owner.revision) for record in plan.changed.values()]
    )
    numbers = await _rows_of(tx, [(owner.name, id) for id in plan.changed])
    rows = {id: row for (_, id), row in numbers.items()}
    await _reword(tx, owner, plan, rows)
    await update_evidence(tx, owner.name, plan, rows)
    await update_mentions(tx, owner.name, plan, rows)
    return numbers


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


async def _rows_of(tx: Tx, ids: list[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Return the row numbers of memories by their users and ids."""
    rows = await tx.rows(
        f"SELECT user_id, id, row FROM memories WHERE {tx.dialect.among_tuples(('user_id', 'id'), 'ids')}",
        {"ids": ids},
    )
    return {(user, id): row for user, id, row in rows}


async def _write_lines(tx: Tx, writes: Sequence[PlannedWrite]) -> None:
    await tx.many(
        "INSERT INTO history (user_id, memory_id, batch, verb, at, who, why, actor, version, undoes, before, after) "
        "VALUES (:user, :memory_id, :batch, :verb, :at, :who, :why, :actor, :version, :undoes, :before, :after)",
        [
            {
                "user": write.owner.name,
                "memory_id": line.memory_id,
                "batch": write.batch,
                "verb": str(line.verb),
                "at": to_micros(write.plan.at),
                "who": write.by.who,
                "why": write.by.why,
                "actor": str(write.by.actor),
                "version": line.version,
                "undoes": line.undoes,
                "before": None if line.before is None else json.dumps(to_plain(line.before), ensure_ascii=False),
                "after": json.dumps(to_plain(line.after), ensure_ascii=False),
            }
            for write in writes
            for line in write.plan.lines
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
