"""Stored OpenAI Responses, which form chains, and threads of items."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from recollect.errors import Conflict, NotFound
from recollect.ledger.sql.changes import Owner, lock_user
from recollect.ledger.sql.tx import PRUNE_BATCH, Row, Tx, fetch_one
from recollect.model.erasure import user_digest
from recollect.model.response import Plain, StoredResponse, Thread, ThreadItems
from recollect.model.scope import Scope
from recollect.model.text import is_storable
from recollect.model.times import from_micros, micros_or_none, now, time_or_none, to_micros

_COLUMNS = (
    "id, project_id, session_id, root_id, previous_id, thread_id, upstream, epoch, created_at, expires_at, names, "
    "body"
)
# The epoch of a response that its upstream must not continue, because something before it is gone.
_NEVER_NATIVE = -1
# How far the clocks of two machines may be apart.
_SKEW = timedelta(minutes=1)
_FRESH = "(expires_at IS NULL OR expires_at > :now)"


async def ensure_user(tx: Tx, user: str) -> Owner:
    """Lock the user, who from now on counts as one with data."""
    owner = await lock_user(tx, user)
    await tx.run("UPDATE users SET revision = 1 WHERE number = :number AND revision = 0", {"number": owner.number})
    return owner


async def save_response(
    tx: Tx, scope: Scope, response: StoredResponse, *, items: ThreadItems | None = None, started_at: datetime
) -> None:
    """Store a response, replacing one of its id, and add items to a thread: both or neither.

    Raise Conflict if anything of the user was erased since the response was begun, at its epoch.
    """
    owner = await ensure_user(tx, scope.user)
    # Maintenance moves the epoch as well, without recording an erasure.
    if owner.epoch != response.epoch and await tx.rows(
        "SELECT 1 FROM erasures WHERE user_id = :digest AND requested_at >= :since LIMIT 1",
        {"digest": user_digest(scope.user), "since": to_micros(started_at - _SKEW)},
    ):
        raise Conflict("something of this user was erased while the response was made, so it was not stored")
    await tx.run(
        f"INSERT INTO responses (user_id, {_COLUMNS}) VALUES (:user, :id, :project, :session, :root, :previous, "
        ":thread, :upstream, :epoch, :created, :expires, :names, :body) ON CONFLICT (user_id, id) DO UPDATE SET "
        + ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS.split(", ") if name != "id"),
        _response_params(scope, response),
    )
    if items is not None:
        await add_items(tx, scope, items)


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
        "expires": micros_or_none(response.expires_at),
        "names": json.dumps(response.names),
        # In ASCII, because models produce characters that not every database can store.
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
        expires_at=time_or_none(expires),
        names=tuple(json.loads(names)),
        body=body["response"],
        input_items=tuple(body["asked"]),
    )


async def response(tx: Tx, scope: Scope, id: str) -> StoredResponse:
    """Return a response; raise NotFound if it is unknown, of another user, or expired."""
    row = is_storable(id) and await fetch_one(
        tx,
        f"SELECT {_COLUMNS} FROM responses WHERE user_id = :user AND id = :id AND {_FRESH}",
        {"user": scope.user, "id": id, "now": to_micros(now())},
    )
    if not row:
        raise NotFound(f"no response {id}")
    return _response_from_row(scope.user, row)


async def response_chain(tx: Tx, scope: Scope, id: str) -> list[StoredResponse]:
    """Return a response and all it continues, the first one first; those may have expired."""
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
    """Remove a response; its successors then continue its predecessor."""
    await lock_user(tx, scope.user)
    await response(tx, scope, id)
    await drop_responses(tx, scope.user, [id])


async def drop_responses(tx: Tx, user: str, ids: Collection[str]) -> None:
    """Remove responses; link the successors of each to its predecessor."""
    for id in ids:
        params = {"user": user, "id": id}
        row = await fetch_one(
            tx, "SELECT root_id, previous_id, created_at FROM responses WHERE user_id = :user AND id = :id", params
        )
        assert row is not None
        later = {"user": user, "root": row[0], "at": row[2], "never": _NEVER_NATIVE}
        await tx.run("DELETE FROM responses WHERE user_id = :user AND id = :id", params)
        # An upstream that stored what is gone would continue it.
        await tx.run(
            "UPDATE responses SET epoch = :never WHERE user_id = :user AND root_id = :root AND created_at >= :at",
            later,
        )
        await tx.run(
            "UPDATE responses SET previous_id = :previous WHERE user_id = :user AND root_id = :root "
            "AND previous_id = :id",
            {**params, "root": row[0], "previous": row[1]},
        )


async def prune_responses(tx: Tx, before: datetime) -> int:
    """Remove a batch of the chains that expired as a whole; return how many responses."""
    rows = await tx.rows(
        "DELETE FROM responses WHERE (user_id, id) IN (SELECT r.user_id, r.id FROM responses r "
        "WHERE r.expires_at < :before AND NOT EXISTS (SELECT 1 FROM responses c WHERE c.user_id = r.user_id "
        "AND c.root_id = r.root_id AND (c.expires_at IS NULL OR c.expires_at >= :before)) "
        "ORDER BY r.expires_at LIMIT :limit) RETURNING 1",
        {"before": to_micros(before), "limit": PRUNE_BATCH},
    )
    return len(rows)


_IN_THREAD = "user_id = :user AND thread_id = :thread"


async def save_thread(tx: Tx, scope: Scope, thread: Thread) -> None:
    """Store a thread, or update it."""
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
            "expires": micros_or_none(thread.expires_at),
            "body": json.dumps(dict(thread.metadata)),
        },
    )


async def thread(tx: Tx, scope: Scope, id: str) -> Thread:
    """Return a thread; raise NotFound if it is unknown, of another user, or expired."""
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
        expires_at=time_or_none(row[3]),
        metadata=json.loads(row[4]),
    )


async def drop_thread(tx: Tx, scope: Scope, id: str) -> None:
    """Remove a thread with its items."""
    await lock_user(tx, scope.user)
    await thread(tx, scope, id)
    await tx.run(f"DELETE FROM thread_items WHERE {_IN_THREAD}", {"user": scope.user, "thread": id})
    await tx.run("DELETE FROM threads WHERE user_id = :user AND id = :id", {"user": scope.user, "id": id})


async def add_items(tx: Tx, scope: Scope, added: ThreadItems) -> None:
    """Add items to the end of a thread; raise Conflict if an id exists in it."""
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
    tx: Tx, scope: Scope, thread_id: str, *, after: str = "", newest_first: bool = False, limit: int | None = None
) -> list[Plain]:
    """Return the items of a thread in order, from the one after the item `after` on."""
    await thread(tx, scope, thread_id)
    params = {"user": scope.user, "thread": thread_id}
    rows = await tx.rows(f"SELECT id FROM thread_items WHERE {_IN_THREAD} ORDER BY position", params)
    ids = [row[0] for row in (reversed(rows) if newest_first else rows)]
    if after:
        ids = ids[ids.index(after) + 1 :] if after in ids else []
    page = ids[:limit]
    body_rows = await tx.rows(
        f"SELECT id, body FROM thread_items WHERE {_IN_THREAD} AND {tx.dialect.among('id', 'ids')}",
        {**params, "ids": page},
    )
    bodies = dict(map(tuple, body_rows))
    return [json.loads(bodies[id]) for id in page]


async def thread_item(tx: Tx, scope: Scope, thread_id: str, id: str) -> Plain:
    """Return one item of a thread."""
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


async def drop_item(tx: Tx, scope: Scope, thread_id: str, id: str) -> None:
    """Remove one item of a thread."""
    await lock_user(tx, scope.user)
    await thread_item(tx, scope, thread_id, id)
    await tx.run(
        f"DELETE FROM thread_items WHERE {_IN_THREAD} AND id = :id",
        {"user": scope.user, "thread": thread_id, "id": id},
    )


async def prune_threads(tx: Tx, before: datetime) -> int:
    """Remove a batch of expired threads; return how many."""
    rows = await tx.rows(
        "DELETE FROM threads WHERE (user_id, id) IN (SELECT user_id, id FROM threads WHERE expires_at < :before "
        "ORDER BY expires_at LIMIT :limit) RETURNING user_id, id",
        {"before": to_micros(before), "limit": PRUNE_BATCH},
    )
    await tx.many(f"DELETE FROM thread_items WHERE {_IN_THREAD}", [{"user": user, "thread": id} for user, id in rows])
    return len(rows)
