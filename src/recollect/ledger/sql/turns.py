"""Turns of sessions: appended in order, once each, and read back."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from recollect.errors import Conflict
from recollect.frozen_dataclass import frozen_dataclass
from recollect.ledger.plan import ExistingRecords, plan
from recollect.ledger.sql.changes import Owner, PlannedWrite, lock_users, write_plans
from recollect.ledger.sql.conversations import session_params
from recollect.ledger.sql.erase import erasures
from recollect.ledger.sql.jobs import enqueue
from recollect.ledger.sql.memories import by_ids
from recollect.ledger.sql.tombstones import resent_turns
from recollect.ledger.sql.tx import Tx, fetch_one
from recollect.model.change import Add, Author, Vector
from recollect.model.erasure import Erasure, Target
from recollect.model.ids import new_id
from recollect.model.job import Appended, NewJob
from recollect.model.memory import Category, MemoryRecord
from recollect.model.query import validate_limit
from recollect.model.scope import Scope
from recollect.model.times import from_micros, now, to_micros
from recollect.model.turn import Role, Turn
from recollect.models.embedding import EmbeddingModel

# How far the clocks of those who share a ledger may be apart.
_SKEW = timedelta(minutes=1)


@frozen_dataclass
class NewTurns:
    """Turns of a session with their vectors, which are of the model, their author, and the jobs to enqueue."""

    scope: Scope
    turns: Sequence[Turn]
    vectors: Sequence[Vector | None]
    model: EmbeddingModel
    by: Author
    jobs: Sequence[NewJob] = ()
    received_at: datetime | None = None


async def append_each(tx: Tx, requests: Sequence[NewTurns]) -> list[Appended]:
    """Append turns to sessions and enqueue jobs, in order, each request as `Ledger.append` describes."""
    for new in requests:
        if len({turn.id for turn in new.turns}) < len(new.turns):
            raise Conflict("two turns have the same id; give each its own")
    owners = await lock_users(tx, (new.scope.user for new in requests if new.turns))
    deduped = [await _dedupe(tx, new) for new in requests]
    inserted = await _insert_turns(tx, owners, requests, deduped)
    for owner in owners.values():
        if owner.is_new and not any(turn.scope.user == owner.name for turns in inserted for turn in turns):
            # An erased user does not come back by a request that was under way then.
            await tx.run("DELETE FROM users WHERE number = :number", {"number": owner.number})
    results = []
    for new, known, turns in zip(requests, deduped, inserted, strict=True):
        placed = {turn.id: turn for turn in turns} | dict(known.existing)
        jobs = await enqueue(tx, new.scope, new.jobs) if turns or not new.turns else ()
        results.append(Appended(tuple(placed[turn.id] for turn in new.turns if turn.id in placed), jobs))
    return results


async def _dedupe(tx: Tx, new: NewTurns) -> DedupedTurns:
    if new.received_at is None or not new.turns:
        return DedupedTurns({}, range(len(new.turns)))
    stored = await by_ids(tx, new.scope, [turn.id for turn in new.turns])
    recent_erasures = await erasures(tx, new.received_at, user=new.scope.user)
    resent = await resent_turns(tx, new.scope.user, new.turns, new.received_at)
    return dedupe_turns(new.scope, new.turns, stored=stored, erasures=recent_erasures, resent=resent)


@frozen_dataclass
class DedupedTurns:
    """The turns that exist already, by id, and the indexes of those that are still to be appended."""

    existing: Mapping[str, Turn]
    new_indexes: Sequence[int]


def dedupe_turns(
    scope: Scope,
    turns: Sequence[Turn],
    *,
    stored: Mapping[str, MemoryRecord],
    erasures: Sequence[Erasure],
    resent: Collection[str] = (),
) -> DedupedTurns:
    """Separate stored turns and new ones; leave out those that were erased since, or whose ids are `resent`."""
    existing = {turn.id: _stored_turn(scope, stored[turn.id]) for turn in turns if turn.id in stored}
    # An erasure of the future was made while a clock was wrong: it must not keep out what is said until then.
    erasures = [erasure for erasure in erasures if erasure.at <= now() + _SKEW]
    if any(_covers(erasure, scope) for erasure in erasures):
        return DedupedTurns(existing, [])
    excluded = {id for erasure in erasures for id in erasure.ids}.union(resent, existing)
    return DedupedTurns(existing, [n for n, turn in enumerate(turns) if turn.id not in excluded])


def _covers(erasure: Erasure, scope: Scope) -> bool:
    if erasure.target is Target.USER:
        return True
    if erasure.target is Target.PROJECT:
        return erasure.project == scope.project
    return erasure.target is Target.SESSION and (erasure.project, erasure.session) == (scope.project, scope.session)


def _stored_turn(scope: Scope, record: MemoryRecord) -> Turn:
    if record.category is not Category.TURN or record.scope != scope or "position" not in record.detail:
        raise Conflict(f"{record.id} is the id of something else; give the turn its own")
    return Turn(
        id=record.id,
        scope=scope,
        role=Role(record.detail["role"]),
        content=record.content,
        said_at=record.created_at,
        name=record.detail.get("name"),
        position=record.detail["position"],
        metadata=record.metadata,
    )


async def _insert_turns(
    tx: Tx, owners: Mapping[str, Owner], requests: Sequence[NewTurns], deduped: Sequence[DedupedTurns]
) -> list[list[Turn]]:
    """Insert the new turns of requests; return those of each with their positions."""
    inserted: list[list[Turn]] = []
    writes = []
    for new, known in zip(requests, deduped, strict=True):
        chosen = [new.turns[index] for index in known.new_indexes]
        start = await _extend_session(tx, new.scope, chosen) if chosen else 0
        turns = [replace(turn, scope=new.scope, position=start + n) for n, turn in enumerate(chosen, 1)]
        inserted.append(turns)
        if turns:
            vectors = [new.vectors[index] for index in known.new_indexes]
            changes = [Add(turn.as_memory(), vector) for turn, vector in zip(turns, vectors, strict=True)]
            planned = plan(changes, ExistingRecords(), at=now())
            writes.append(PlannedWrite(owners[new.scope.user], planned, new_id(), new.by))
    if writes:
        await write_plans(tx, writes, model=requests[0].model)
        await tx.many(
            "INSERT INTO turns (user_id, project_id, session_id, position, id, role, said_at) "
            "VALUES (:user, :project, :session, :position, :id, :role, :said_at)",
            [
                {
                    **session_params(turn.scope),
                    "position": turn.position,
                    "id": turn.id,
                    "role": str(turn.role),
                    "said_at": to_micros(turn.said_at),
                }
                for turns in inserted
                for turn in turns
            ],
        )
    return inserted


async def _extend_session(tx: Tx, scope: Scope, turns: Sequence[Turn]) -> int:
    """Reserve the next positions of a session for turns; return the position before them."""
    sent_at = [to_micros(turn.said_at) for turn in turns]
    row = await fetch_one(
        tx,
        "INSERT INTO conversations (user_id, project_id, session_id, turn_count, started_at, last_turn_at, version, "
        "body) VALUES (:user, :project, :session, :count, :first, :last, 1, '{}') "
        "ON CONFLICT (user_id, project_id, session_id) DO UPDATE SET "
        "turn_count = conversations.turn_count + excluded.turn_count, closed_at = NULL, "
        "started_at = COALESCE(conversations.started_at, excluded.started_at), last_turn_at = "
        "CASE WHEN conversations.last_turn_at > excluded.last_turn_at THEN conversations.last_turn_at "
        "ELSE excluded.last_turn_at END, "
        "version = conversations.version + 1 RETURNING turn_count",
        {**session_params(scope), "count": len(turns), "first": min(sent_at), "last": max(sent_at)},
    )
    assert row is not None
    return int(row[0]) - len(turns)


async def turns(tx: Tx, scope: Scope, *, after: int = 0, limit: int = 100) -> list[Turn]:
    """Return the active turns of the session after a position, in order."""
    rows = await tx.rows(
        "SELECT t.id, t.role, m.content, t.said_at, t.position, m.body FROM turns t "
        "JOIN memories m ON m.user_id = t.user_id AND m.id = t.id "
        "WHERE t.user_id = :user AND t.project_id = :project AND t.session_id = :session "
        "AND t.position > :after AND m.status = 'active' ORDER BY t.position LIMIT :limit",
        {**session_params(scope), "after": after, "limit": validate_limit(limit)},
    )
    return [
        Turn(
            id=id,
            scope=scope,
            role=Role(role),
            content=content,
            said_at=from_micros(sent_at),
            name=fields.get("detail", {}).get("name"),
            position=position,
            metadata=fields.get("metadata", {}),
        )
        for id, role, content, sent_at, position, body in rows
        for fields in (json.loads(body),)
    ]
