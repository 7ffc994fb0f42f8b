"""The state of conversations: read, listed and updated."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Literal

from recollect.errors import Conflict
from recollect.ledger.sql.tx import Row, Tx, fetch_one
from recollect.model.change import ConversationUpdate
from recollect.model.query import validate_limit
from recollect.model.scope import Scope
from recollect.model.times import micros_or_none, time_or_none, to_micros
from recollect.model.turn import Conversation

SESSION_TEST = "user_id = :user AND project_id = :project AND session_id = :session"
_COLUMNS = "turn_count, started_at, last_turn_at, closed_at, version, body"
# The order of listings, and the position that a page continues from.
_SORT_COLUMNS = ("COALESCE(last_turn_at, 0)", "user_id", "project_id", "session_id")


def session_params(scope: Scope) -> dict[str, Any]:
    """Return the parameters of `SESSION_TEST`."""
    return {"user": scope.user, "project": scope.project, "session": scope.session}


async def conversation(tx: Tx, scope: Scope) -> Conversation:
    """Return the state of the scope's session; one that does not exist is at version 0."""
    row = await fetch_one(tx, f"SELECT {_COLUMNS} FROM conversations WHERE {SESSION_TEST}", session_params(scope))
    return Conversation(scope=scope) if row is None else _from_row(scope, row)


def _from_row(scope: Scope, row: Row) -> Conversation:
    body = json.loads(row[5])
    return Conversation(
        scope=scope,
        turn_count=row[0],
        started_at=time_or_none(row[1]),
        last_turn_at=time_or_none(row[2]),
        closed_at=time_or_none(row[3]),
        version=row[4],
        summary=body.get("summary", ""),
        invocations=tuple(body.get("invocations", ())),
        learned_to=body.get("learned_to", 0),
        metadata=body.get("metadata", {}),
    )


async def conversations(
    tx: Tx,
    user: str | None = None,
    *,
    session: str | None = None,
    open: bool | None = None,
    idle_before: datetime | None = None,
    order: Literal["oldest", "newest"] = "oldest",
    limit: int = 100,
    after: Conversation | None = None,
) -> list[Conversation]:
    """Return sessions of a user or of all in order of their last turn; `after` ended the previous page.

    They can be limited to those with an id, which each project may have, to open or closed ones, and to those without
    a turn since a time.
    """
    params: dict[str, Any] = {"limit": validate_limit(limit)}
    tests = ["1 = 1"]
    if user is not None:
        params["user"] = user
        tests.append("user_id = :user")
    if session is not None:
        params["session"] = session
        tests.append("session_id = :session")
    if open is not None:
        tests.append(f"closed_at IS {'' if open else 'NOT '}NULL")
    if idle_before is not None:
        params["idle"] = to_micros(idle_before)
        tests.append(f"last_turn_at IS NOT NULL AND {_SORT_COLUMNS[0]} < :idle")
    if after is not None:
        last = 0 if after.last_turn_at is None else to_micros(after.last_turn_at)
        params |= {"at": last, "after": after.scope.user, "p": after.scope.project, "s": after.scope.session}
        sign = ">" if order == "oldest" else "<"
        # The first condition is redundant, but lets the database use an index.
        tests += [f"{_SORT_COLUMNS[0]} {sign}= :at", f"({', '.join(_SORT_COLUMNS)}) {sign} (:at, :after, :p, :s)"]
    ordered = ", ".join(part if order == "oldest" else f"{part} DESC" for part in _SORT_COLUMNS)
    rows = await tx.rows(
        f"SELECT {_COLUMNS}, user_id, project_id, session_id FROM conversations WHERE {' AND '.join(tests)} "
        f"ORDER BY {ordered} LIMIT :limit",
        params,
    )
    return [_from_row(Scope(*row[6:]), row) for row in rows]


async def apply_note(tx: Tx, note: ConversationUpdate, *, existing_only: bool = False) -> None:
    """Update fields of a conversation, with `existing_only` only if it exists; the caller has locked the user."""
    row = await fetch_one(
        tx, f"SELECT {_COLUMNS} FROM conversations WHERE {SESSION_TEST}", session_params(note.scope)
    )
    if row is None and existing_only:
        return
    current = Conversation(scope=note.scope) if row is None else _from_row(note.scope, row)
    if note.expected_version is not None and current.version != note.expected_version:
        raise Conflict(
            f"the conversation is at version {current.version}, not {note.expected_version}: read it again and retry"
        )
    values = {
        "summary": current.summary,
        "invocations": current.invocations,
        "learned_to": current.learned_to,
        "metadata": current.metadata,
        "closed_at": current.closed_at,
        **note.fields,
    }
    closed_at = values.pop("closed_at")
    values["invocations"] = [dict(each) for each in values["invocations"]]
    values["metadata"] = dict(values["metadata"])
    await tx.run(
        "INSERT INTO conversations (user_id, project_id, session_id, turn_count, closed_at, version, body) "
        "VALUES (:user, :project, :session, 0, :closed_at, 1, :body) "
        "ON CONFLICT (user_id, project_id, session_id) DO UPDATE SET closed_at = excluded.closed_at, "
        "version = conversations.version + 1, body = excluded.body",
        {
            **session_params(note.scope),
            "closed_at": micros_or_none(closed_at),
            "body": json.dumps({name: value for name, value in values.items() if value}),
        },
    )
