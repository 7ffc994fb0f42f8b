"""Writing a batch of changes: lock the user, load what it touches, plan, write the plan with its history."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from recollect.errors import IdempotencyReuse, NotFound
from recollect.ledger.fields import to_plain
from recollect.ledger.plan import Known, Plan, Revert, fingerprint_of, plan, reverts, slot_of
from recollect.ledger.sql.history import ENTRY_COLUMNS, entry_from_row
from recollect.ledger.sql.memories import by_ids
from recollect.ledger.sql.records import INSERT, SELECTED, UPDATE, from_row, to_row
from recollect.ledger.sql.terms import put_terms, swap_terms
from recollect.ledger.sql.tx import Engine, Tx, one
from recollect.ledger.sql.vectors import drop_vectors, put_vectors
from recollect.model.change import Add, Applied, By, Change, Once, Outcome, Supersede, Verb
from recollect.model.ids import new_id
from recollect.model.memory import MemoryRecord
from recollect.model.scope import Scope
from recollect.model.times import now, to_micros
from recollect.models.embedding import EmbeddingModel


@dataclass(frozen=True, slots=True)
class Writer:
    """What a write needs besides the transaction."""

    engine: Engine
    model: EmbeddingModel


@dataclass(frozen=True, slots=True)
class Owner:
    """The user a transaction writes for, locked until it ends."""

    name: str
    number: int
    revision: int


async def lock_user(tx: Tx, user: str) -> Owner:
    """Begin a new revision of the user's memories; writers of the same user wait for each other here."""
    row = await one(
        tx,
        "INSERT INTO users (user_id, revision, created_at) VALUES (:user, 1, :at) "
        "ON CONFLICT (user_id) DO UPDATE SET revision = users.revision + 1 RETURNING number, revision",
        {"user": user, "at": to_micros(now())},
    )
    assert row is not None
    return Owner(user, row[0], row[1])


async def apply(
    tx: Tx, writer: Writer, scope: Scope, changes: Sequence[Change | Revert], *, by: By, once: Once | None = None
) -> Applied:
    """Make all of the changes, or raise and leave none."""
    owner = await lock_user(tx, scope.user)
    if once is not None and (done := await _done_before(tx, scope, once)):
        return done
    known = await _load(tx, scope, changes)
    planned = plan(changes, known, at=now())
    batch = new_id()
    await write_plan(tx, writer, owner, planned, batch=batch, by=by)
    applied = Applied(batch, tuple(planned.outcomes))
    if once is not None:
        await _keep_done(tx, scope, once, applied)
    return applied


async def undo(tx: Tx, writer: Writer, scope: Scope, entry_id: int, *, by: By) -> Applied:
    """Take back one line of history."""
    entry = await one(
        tx,
        f"SELECT {ENTRY_COLUMNS} FROM history WHERE user_id = :user AND id = :id",
        {"user": scope.user, "id": entry_id},
    )
    if entry is None:
        raise NotFound(f"no change {entry_id}")
    rows = await tx.rows(
        f"SELECT {ENTRY_COLUMNS} FROM history WHERE user_id = :user AND batch = :batch ORDER BY id",
        {"user": scope.user, "batch": entry[1]},
    )
    batch = [entry_from_row(row) for row in rows]
    wanted = next(line for line in batch if line.id == entry_id)
    current = await by_ids(tx, scope, [line.memory_id for line in batch])
    return await apply(tx, writer, scope, reverts(wanted, batch, current), by=by)


async def _load(tx: Tx, scope: Scope, changes: Sequence[Change | Revert]) -> Known:
    """Whatever the changes name, and whatever already says what they add."""
    new = [change.record for change in changes if isinstance(change, (Add, Supersede))]
    ids = [change.id for change in changes if not isinstance(change, Add)] + [record.id for record in new]
    known = Known(by_id=await by_ids(tx, scope, ids))
    marks = [mark[1] for record in new if (mark := fingerprint_of(record))]
    if marks:
        for record in await _active(tx, scope, "fingerprint", marks):
            mark = fingerprint_of(record)
            if mark:
                known.by_fingerprint[mark] = known.by_id.setdefault(record.id, record)
    keys = [record.key for record in new if record.key is not None]
    if keys:
        for record in await _active(tx, scope, '"key"', keys):
            slot = slot_of(record)
            if slot:
                known.by_slot[slot] = known.by_id.setdefault(record.id, record)
    return known


async def _active(tx: Tx, scope: Scope, column: str, values: list[str]) -> list[MemoryRecord]:
    rows = await tx.rows(
        f"SELECT {SELECTED} FROM memories WHERE user_id = :user AND status = 'active' "
        f"AND {tx.dialect.among(column, 'values')}",
        {"user": scope.user, "values": values},
    )
    return [from_row(row) for row in rows]


async def write_plan(tx: Tx, writer: Writer, owner: Owner, plan: Plan, *, batch: str, by: By) -> None:
    """Write everything the plan says."""
    if plan.is_empty:
        return
    # Changed rows first: what they give up, a key or the same words, may be what an added one takes.
    if plan.changed:
        await tx.many(UPDATE, [to_row(record, revision=owner.revision) for record in plan.changed.values()])
    if plan.added:
        await tx.many(INSERT, [to_row(record, revision=owner.revision) for record in plan.added.values()])
    rows = await _rows_of(tx, owner, [*plan.added, *plan.changed])
    await put_terms(tx, writer.engine, owner, {rows[id]: record.content for id, record in plan.added.items()})
    reworded = {
        rows[id]: (plan.originals[id].content, record.content)
        for id, record in plan.changed.items()
        if record.content != plan.originals[id].content
    }
    await swap_terms(tx, writer.engine, owner, reworded)
    await drop_vectors(tx, owner.name, list(reworded))
    await put_vectors(tx, writer.model, owner.name, {rows[id]: vector for id, vector in plan.vectors.items()})
    await _write_lines(tx, owner, plan, batch=batch, by=by)


async def _rows_of(tx: Tx, owner: Owner, ids: list[str]) -> dict[str, int]:
    rows = await tx.rows(
        f"SELECT id, row FROM memories WHERE user_id = :user AND {tx.dialect.among('id', 'ids')}",
        {"user": owner.name, "ids": ids},
    )
    return {id: row for id, row in rows}


async def _write_lines(tx: Tx, owner: Owner, plan: Plan, *, batch: str, by: By) -> None:
    at = to_micros(plan.at)
    await tx.many(
        "INSERT INTO history (user_id, memory_id, batch, verb, at, who, why, version, undoes, before, after) "
        "VALUES (:user, :memory_id, :batch, :verb, :at, :who, :why, :version, :undoes, :before, :after)",
        [
            {
                "user": owner.name,
                "memory_id": line.memory_id,
                "batch": batch,
                "verb": str(line.verb),
                "at": at,
                "who": by.who,
                "why": by.why,
                "version": line.version,
                "undoes": line.undoes,
                "before": None if line.before is None else json.dumps(to_plain(line.before), ensure_ascii=False),
                "after": json.dumps(to_plain(line.after), ensure_ascii=False),
            }
            for line in plan.lines
        ],
    )


async def _done_before(tx: Tx, scope: Scope, once: Once) -> Applied | None:
    """What the same request came to when it was done, or nothing if it was not."""
    row = await one(
        tx,
        'SELECT digest, result FROM idempotency WHERE user_id = :user AND "key" = :key',
        {"user": scope.user, "key": once.key},
    )
    if row is None:
        return None
    if row[0] != once.digest:
        raise IdempotencyReuse(f"idempotency key {once.key!r} was used for another request; take a new key")
    result = json.loads(row[1])
    records = await by_ids(tx, scope, [id for _, id, _ in result["outcomes"]])
    return Applied(
        result["batch"],
        tuple(Outcome(Verb(verb), records[id], changed) for verb, id, changed in result["outcomes"] if id in records),
        replayed=True,
    )


async def _keep_done(tx: Tx, scope: Scope, once: Once, applied: Applied) -> None:
    outcomes = [(str(outcome.verb), outcome.record.id, outcome.changed) for outcome in applied.outcomes]
    await tx.run(
        'INSERT INTO idempotency (user_id, "key", digest, created_at, result) '
        "VALUES (:user, :key, :digest, :at, :result)",
        {
            "user": scope.user,
            "key": once.key,
            "digest": once.digest,
            "at": to_micros(now()),
            "result": json.dumps({"batch": applied.batch, "outcomes": outcomes}),
        },
    )
