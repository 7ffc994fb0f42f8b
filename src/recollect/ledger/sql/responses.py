"""Responses in SQL: kept whole, found by their id, or as the chain that leads to one."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from recollect.errors import Conflict, NotFound
from recollect.ledger.responses import NEVER_NATIVE, SKEW
from recollect.ledger.sql.changes import Owner, lock_user
from recollect.ledger.sql.tx import Row, Tx, fetch_one
from recollect.model.erase import user_digest
from recollect.model.response import StoredResponse
from recollect.model.scope import Scope
from recollect.model.text import is_storable
from recollect.model.times import from_micros, now, to_micros

_COLUMNS = (
    "id, project_id, session_id, root_id, previous_id, thread_id, upstream, epoch, created_at, expires_at, names, "
    "body"
)
_FRESH = "(expires_at IS NULL OR expires_at > :now)"


async def ensure_user(tx: Tx, user: str) -> Owner:
    """The user, held, and from now on one who has something."""
    owner = await lock_user(tx, user)
    await tx.run("UPDATE users SET revision = 1 WHERE number = :number AND revision = 0", {"number": owner.number})
    return owner


async def save_response(tx: Tx, scope: Scope, response: StoredResponse, *, started_at: datetime) -> None:
    """Keep a response, unless something of the user was erased since it was begun."""
    owner = await ensure_user(tx, scope.user)
    # Upkeep moves the epoch as well, but notes no erasure.
    if owner.epoch != response.epoch and await tx.rows(
        "SELECT 1 FROM erasures WHERE user_id = :digest AND requested_at >= :since LIMIT 1",
        {"digest": user_digest(scope.user), "since": to_micros(started_at - SKEW)},
    ):
        raise Conflict("something of this user was erased while the response was made; it is not kept")
    await tx.run(
        f"INSERT INTO responses (user_id, {_COLUMNS}) VALUES (:user, :id, :project, :session, :root, :previous, "
        ":thread, :upstream, :epoch, :created, :expires, :names, :body) ON CONFLICT (user_id, id) DO UPDATE SET "
        + ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS.split(", ") if name != "id"),
        _response_params(scope, response),
    )


def _response_params(scope: Scope, response: StoredResponse) -> Mapping[str, Any]:
    return {
        "user": scope.user,
        "id": response.id,
        "project": response.scope.project,
        "session": response.scope.session,
        "root": response.root_id,
        "previous": response.previous_id,
        "thread": response.thread_id,
        "upstream": response.upstream,
        "epoch": response.epoch,
        "created": to_micros(response.created_at),
        "expires": None if response.expires_at is None else to_micros(response.expires_at),
        "names": json.dumps(response.names),
        # In ASCII: a model may say characters that not every store can keep.
        "body": json.dumps({"response": response.body, "asked": list(response.input_items)}, separators=(",", ":")),
    }


def _response_from_row(user: str, row: Row) -> StoredResponse:
    id, project, session, root, previous, thread, upstream, epoch, created, expires, names, text = row
    body = json.loads(text)
    return StoredResponse(
        id=id,
        scope=Scope(user, project, session),
        root_id=root,
        previous_id=previous,
        thread_id=thread,
        upstream=upstream,
        epoch=epoch,
        created_at=from_micros(created),
        expires_at=None if expires is None else from_micros(expires),
        names=tuple(json.loads(names)),
        body=body["response"],
        input_items=tuple(body["asked"]),
    )


async def response(tx: Tx, scope: Scope, id: str) -> StoredResponse:
    """One response that has not expired."""
    row = is_storable(id) and await fetch_one(
        tx,
        f"SELECT {_COLUMNS} FROM responses WHERE user_id = :user AND id = :id AND {_FRESH}",
        {"user": scope.user, "id": id, "now": to_micros(now())},
    )
    if not row:
        raise NotFound(f"no response {id}")
    return _response_from_row(scope.user, row)


async def response_chain(tx: Tx, scope: Scope, id: str) -> list[StoredResponse]:
    """A response and all before it, the first one first."""
    last = await response(tx, scope, id)
    if not last.previous_id:
        return [last]
    rows = await tx.rows(
        "WITH RECURSIVE chain (id, previous_id, depth) AS ("
        "SELECT id, previous_id, 0 FROM responses WHERE user_id = :user AND id = :id UNION ALL "
        "SELECT r.id, r.previous_id, c.depth + 1 FROM responses r JOIN chain c ON r.id = c.previous_id "
        "WHERE r.user_id = :user AND c.depth < 100000) "
        "SELECT id FROM chain WHERE depth > 0 ORDER BY depth DESC",
        {"user": scope.user, "id": last.id},
    )
    before = [row[0] for row in rows]
    response_rows = await tx.rows(
        f"SELECT {_COLUMNS} FROM responses WHERE user_id = :user AND {tx.dialect.among('id', 'ids')}",
        {"user": scope.user, "ids": before},
    )
    by_id = {row[0]: row for row in response_rows}
    return [*(_response_from_row(scope.user, by_id[each]) for each in before), last]


async def drop_response(tx: Tx, scope: Scope, id: str) -> None:
    """Remove a response, and close the gap."""
    await lock_user(tx, scope.user)
    await response(tx, scope, id)
    await drop_responses(tx, scope.user, [id])


async def drop_responses(tx: Tx, user: str, ids: Collection[str]) -> None:
    """Remove responses; what went on from one goes on from what was before it."""
    for id in ids:
        params = {"user": user, "id": id}
        row = await fetch_one(
            tx, "SELECT root_id, previous_id, created_at FROM responses WHERE user_id = :user AND id = :id", params
        )
        assert row is not None
        later = {"user": user, "root": row[0], "at": row[2], "never": NEVER_NATIVE}
        await tx.run("DELETE FROM responses WHERE user_id = :user AND id = :id", params)
        # An upstream that kept what is gone would go on from it.
        await tx.run(
            "UPDATE responses SET epoch = :never WHERE user_id = :user AND root_id = :root AND created_at >= :at",
            later,
        )
        await tx.run(
            "UPDATE responses SET previous_id = :previous WHERE user_id = :user AND root_id = :root "
            "AND previous_id = :id",
            {**params, "root": row[0], "previous": row[1]},
        )


async def prune_responses(tx: Tx, before: datetime, limit: int) -> int:
    """Remove some of the chains that expired as a whole; gives how many responses."""
    rows = await tx.rows(
        "DELETE FROM responses WHERE (user_id, id) IN (SELECT r.user_id, r.id FROM responses r "
        "WHERE r.expires_at < :before AND NOT EXISTS (SELECT 1 FROM responses c WHERE c.user_id = r.user_id "
        "AND c.root_id = r.root_id AND (c.expires_at IS NULL OR c.expires_at >= :before)) "
        "ORDER BY r.expires_at LIMIT :limit) RETURNING 1",
        {"before": to_micros(before), "limit": limit},
    )
    return len(rows)
