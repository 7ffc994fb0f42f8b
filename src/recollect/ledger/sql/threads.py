"""Threads and their items in SQL."""

from __future__ import annotations

import json
from datetime import datetime

from recollect.errors import Conflict, NotFound
from recollect.ledger.responses import paginate_items
from recollect.ledger.sql.changes import lock_user
from recollect.ledger.sql.responses import ensure_user
from recollect.ledger.sql.tx import Tx, fetch_one
from recollect.model.response import Plain, Thread, ThreadItems
from recollect.model.scope import Scope
from recollect.model.text import is_storable
from recollect.model.times import from_micros, now, to_micros

_IN_THREAD = "user_id = :user AND thread_id = :thread"


async def save_thread(tx: Tx, scope: Scope, thread: Thread) -> None:
    """Keep a thread, or what has changed of it."""
    await ensure_user(tx, scope.user)
    await tx.run(
        "INSERT INTO threads (user_id, id, project_id, session_id, created_at, expires_at, body) "
        "VALUES (:user, :id, :project, :session, :created, :expires, :body) ON CONFLICT (user_id, id) DO UPDATE SET "
        "expires_at = excluded.expires_at, body = excluded.body",
        {
            "user": scope.user,
            "id": thread.id,
            "project": thread.scope.project,
            "session": thread.scope.session,
            "created": to_micros(thread.created_at),
            "expires": None if thread.expires_at is None else to_micros(thread.expires_at),
            "body": json.dumps(dict(thread.metadata)),
        },
    )


async def thread(tx: Tx, scope: Scope, id: str) -> Thread:
    """One thread that has not expired."""
    row = is_storable(id) and await fetch_one(
        tx,
        "SELECT project_id, session_id, created_at, expires_at, body FROM threads "
        "WHERE user_id = :user AND id = :id AND (expires_at IS NULL OR expires_at > :now)",
        {"user": scope.user, "id": id, "now": to_micros(now())},
    )
    if not row:
        raise NotFound(f"no conversation {id}")
    return Thread(
        id=id,
        scope=Scope(scope.user, row[0], row[1]),
        created_at=from_micros(row[2]),
        expires_at=None if row[3] is None else from_micros(row[3]),
        metadata=json.loads(row[4]),
    )


async def drop_thread(tx: Tx, scope: Scope, id: str) -> None:
    """Remove a thread with its items."""
    await lock_user(tx, scope.user)
    await thread(tx, scope, id)
    await tx.run(f"DELETE FROM thread_items WHERE {_IN_THREAD}", {"user": scope.user, "thread": id})
    await tx.run("DELETE FROM threads WHERE user_id = :user AND id = :id", {"user": scope.user, "id": id})


async def add_thread_items(tx: Tx, scope: Scope, added: ThreadItems) -> None:
    """Add items to the end of a thread that is there."""
    await lock_user(tx, scope.user)
    await thread(tx, scope, added.thread_id)
    params = {"user": scope.user, "thread": added.thread_id}
    ids = [each["id"] for each in added.items]
    existing = await tx.rows(
        f"SELECT id FROM thread_items WHERE {_IN_THREAD} AND {tx.dialect.among('id', 'ids')}", {**params, "ids": ids}
    )
    if existing or len(set(ids)) < len(ids):
        raise Conflict("the conversation has an item of that id")
    last = await fetch_one(tx, f"SELECT COALESCE(max(position), 0) FROM thread_items WHERE {_IN_THREAD}", params)
    assert last is not None
    await tx.many(
        "INSERT INTO thread_items (user_id, thread_id, position, id, names, body) "
        "VALUES (:user, :thread, :position, :id, :names, :body)",
        [
            {
                **params,
                "position": position,
                "id": each["id"],
                "names": json.dumps(added.names),
                "body": json.dumps(dict(each), separators=(",", ":")),
            }
            for position, each in enumerate(added.items, last[0] + 1)
        ],
    )
    if added.expires_at is not None:
        await tx.run(
            "UPDATE threads SET expires_at = :at WHERE user_id = :user AND id = :thread",
            {**params, "at": to_micros(added.expires_at)},
        )


async def thread_items(
    tx: Tx, scope: Scope, thread_id: str, *, after: str, newest_first: bool, limit: int | None
) -> list[Plain]:
    """Items of a thread in order."""
    await thread(tx, scope, thread_id)
    params = {"user": scope.user, "thread": thread_id}
    rows = await tx.rows(f"SELECT id FROM thread_items WHERE {_IN_THREAD} ORDER BY position", params)
    page = paginate_items([row[0] for row in rows], after, newest_first=newest_first, limit=limit)
    body_rows = await tx.rows(
        f"SELECT id, body FROM thread_items WHERE {_IN_THREAD} AND {tx.dialect.among('id', 'ids')}",
        {**params, "ids": page},
    )
    bodies = dict(map(tuple, body_rows))
    return [json.loads(bodies[id]) for id in page]


async def thread_item(tx: Tx, scope: Scope, thread_id: str, id: str) -> Plain:
    """One item of a thread."""
    await thread(tx, scope, thread_id)
    row = is_storable(id) and await fetch_one(
        tx,
        f"SELECT body FROM thread_items WHERE {_IN_THREAD} AND id = :id",
        {"user": scope.user, "thread": thread_id, "id": id},
    )
    if not row:
        raise NotFound(f"no item {id} in conversation {thread_id}")
    body: Plain = json.loads(row[0])
    return body


async def drop_thread_item(tx: Tx, scope: Scope, thread_id: str, id: str) -> None:
    """Remove one item of a thread."""
    await lock_user(tx, scope.user)
    await thread_item(tx, scope, thread_id, id)
    await tx.run(
        f"DELETE FROM thread_items WHERE {_IN_THREAD} AND id = :id",
        {"user": scope.user, "thread": thread_id, "id": id},
    )


async def prune_threads(tx: Tx, before: datetime, limit: int) -> int:
    """Remove some of the threads that expired; gives how many."""
    rows = await tx.rows(
        "DELETE FROM threads WHERE (user_id, id) IN (SELECT user_id, id FROM threads WHERE expires_at < :before "
        "ORDER BY expires_at LIMIT :limit) RETURNING user_id, id",
        {"before": to_micros(before), "limit": limit},
    )
    await tx.many(f"DELETE FROM thread_items WHERE {_IN_THREAD}", [{"user": user, "thread": id} for user, id in rows])
    return len(rows)
