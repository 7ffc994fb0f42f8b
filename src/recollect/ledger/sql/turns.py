"""The log: turns and the conversations they make up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from recollect.errors import Conflict
from recollect.ledger.plan import Known, plan
from recollect.ledger.sql.changes import Writer, lock_user, write_plan
from recollect.ledger.sql.tx import Tx, one
from recollect.model.change import Add, By
from recollect.model.ids import new_id
from recollect.model.query import checked_limit
from recollect.model.scope import Scope
from recollect.model.times import from_micros, now, to_micros
from recollect.model.turn import Conversation, Role, Turn

if TYPE_CHECKING:
    from recollect.model.change import Vector

_SESSION = "user_id = :user AND project_id = :project AND session_id = :session"


def _session(scope: Scope) -> dict[str, Any]:
    return {"user": scope.user, "project": scope.project, "session": scope.session}


async def append(
    tx: Tx, writer: Writer, scope: Scope, turns: Sequence[Turn], *, vectors: Sequence[Vector | None], by: By
) -> tuple[Turn, ...]:
    """Add turns to the end of the scope's session."""
    if not turns:
        return ()
    if len({turn.id for turn in turns}) < len(turns):
        raise Conflict("two turns have the same id; give each its own")
    owner = await lock_user(tx, scope.user)
    said_at = [to_micros(turn.said_at) for turn in turns]
    row = await one(
        tx,
        "INSERT INTO conversations (user_id, project_id, session_id, turn_count, started_at, last_turn_at, version, "
        "body) VALUES (:user, :project, :session, :count, :first, :last, 1, '{}') "
        "ON CONFLICT (user_id, project_id, session_id) DO UPDATE SET "
        "turn_count = conversations.turn_count + excluded.turn_count, last_turn_at = "
        "CASE WHEN excluded.last_turn_at > conversations.last_turn_at THEN excluded.last_turn_at "
        "ELSE conversations.last_turn_at END, "
        "version = conversations.version + 1 RETURNING turn_count",
        {**_session(scope), "count": len(turns), "first": min(said_at), "last": max(said_at)},
    )
    assert row is not None
    start = row[0] - len(turns)
    placed = [replace(turn, scope=scope, position=start + n) for n, turn in enumerate(turns, 1)]
    changes = [Add(turn.as_memory(), vector) for turn, vector in zip(placed, vectors, strict=True)]
    await write_plan(tx, writer, owner, plan(changes, Known(), at=now()), batch=new_id(), by=by)
    await tx.many(
        "INSERT INTO turns (user_id, project_id, session_id, position, id, role, said_at) "
        "VALUES (:user, :project, :session, :position, :id, :role, :said_at)",
        [
            {**_session(scope), "position": turn.position, "id": turn.id, "role": str(turn.role), "said_at": at}
            for turn, at in zip(placed, said_at, strict=True)
        ],
    )
    return tuple(placed)


async def turns(tx: Tx, scope: Scope, *, after: int, limit: int) -> list[Turn]:
    """The session's turns after a position, in order; those forgotten are left out."""
    rows = await tx.rows(
        "SELECT t.id, t.role, m.content, t.said_at, t.position, m.body FROM turns t "
        "JOIN memories m ON m.user_id = t.user_id AND m.id = t.id "
        "WHERE t.user_id = :user AND t.project_id = :project AND t.session_id = :session "
        "AND t.position > :after AND m.status = 'active' ORDER BY t.position LIMIT :limit",
        {**_session(scope), "after": after, "limit": checked_limit(limit)},
    )
    return [
        Turn(
            id=id,
            scope=scope,
            role=Role(role),
            content=content,
            said_at=from_micros(said_at),
            name=json.loads(body).get("detail", {}).get("name"),
            position=position,
        )
        for id, role, content, said_at, position, body in rows
    ]


async def conversation(tx: Tx, scope: Scope) -> Conversation:
    """The state of the scope's session; one that has not begun has no turns."""
    row = await one(
        tx,
        f"SELECT turn_count, started_at, last_turn_at, closed_at, version, body FROM conversations WHERE {_SESSION}",
        _session(scope),
    )
    if row is None:
        return Conversation(scope=scope)
    body = json.loads(row[5])
    return Conversation(
        scope=scope,
        turn_count=row[0],
        started_at=None if row[1] is None else from_micros(row[1]),
        last_turn_at=None if row[2] is None else from_micros(row[2]),
        closed_at=None if row[3] is None else from_micros(row[3]),
        version=row[4],
        summary=body.get("summary", ""),
        invocations=tuple(body.get("invocations", ())),
        metadata=body.get("metadata", {}),
    )
