"""Upkeep of many users: what it takes to tell what is due, what is queued, and when the store was looked after."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from recollect.ledger.jobs import CHORES, UPKEEP, Begun, Tended
from recollect.ledger.sql.chore_rows import note_queued
from recollect.ledger.sql.job_rows import hold, put_job, slot_of
from recollect.ledger.sql.jobs import is_known, replay
from recollect.ledger.sql.tx import Tx, one
from recollect.model.job import NewJob
from recollect.model.query import checked_limit
from recollect.model.scope import Scope
from recollect.model.times import from_micros, now, to_micros

_LAST_HEARD = (
    "SELECT u.user_id, (SELECT h.at FROM history h WHERE h.user_id = u.user_id AND h.who <> :upkeep "
    "ORDER BY h.id DESC LIMIT 1) FROM users u WHERE u.user_id > :after ORDER BY u.user_id LIMIT :limit"
)


async def tended(tx: Tx, *, after: str, limit: int) -> list[Tended]:
    """Users in order, with when they were last heard of, their projects and their chores."""
    heard = await tx.rows(_LAST_HEARD, {"after": after, "limit": checked_limit(limit), "upkeep": UPKEEP})
    users = {"users": [user for user, _ in heard]}
    mine = tx.dialect.among("user_id", "users")
    projects: defaultdict[str, list[str]] = defaultdict(list)
    for user, project in await tx.rows(
        f"SELECT DISTINCT user_id, project_id FROM conversations WHERE {mine} ORDER BY user_id, project_id", users
    ):
        projects[user].append(project)
    chores: defaultdict[str, dict[tuple[str, str], Begun]] = defaultdict(dict)
    for user, project, chore, queued, started in await tx.rows(
        f"SELECT user_id, project_id, chore, queued_at, started_at FROM chores WHERE {mine}", users
    ):
        chores[user][project, chore] = Begun(from_micros(queued), None if started is None else from_micros(started))
    return [
        Tended(
            user=user,
            heard_at=None if at is None else from_micros(at),
            projects=tuple(projects[user]),
            chores=chores[user],
        )
        for user, at in heard
    ]


async def tend(tx: Tx, due: Sequence[tuple[Scope, NewJob]]) -> int:
    """Queue what is due, of those who are known."""
    queued = 0
    # In order, so that two who do the same do not wait for each other.
    for scope, new in sorted(due, key=lambda each: each[0].user):
        await tx.only(scope.user)
        if await is_known(tx, scope) and await _may_be_made(tx, scope, new):
            await put_job(tx, await hold(tx, scope.user), scope, new)
            await note_queued(tx, scope, new, now())
            queued += 1
    return queued


async def _may_be_made(tx: Tx, scope: Scope, new: NewJob) -> bool:
    """Whether no dead job stands in the way; a chore's is brought back to life, to be joined."""
    dead = await one(
        tx,
        "SELECT id, updated_at FROM jobs WHERE user_id = :user AND state = 'dead' AND slot = :slot "
        "ORDER BY id DESC LIMIT 1",
        {"user": scope.user, "slot": slot_of(new.kind, new.key)},
    )
    if dead is None:
        return True
    if new.kind in CHORES:
        await replay(tx, scope.user, [dead[0]])
        return True
    said = await one(
        tx,
        "SELECT last_turn_at FROM conversations "
        "WHERE user_id = :user AND project_id = :project AND session_id = :session",
        {"user": scope.user, "project": scope.project, "session": scope.session},
    )
    return said is not None and (said[0] or 0) > dead[1]


async def moments(tx: Tx) -> dict[str, datetime]:
    """When the store was looked after, and last written to."""
    rows = await tx.rows(
        "SELECT name, at FROM moments UNION ALL "
        "SELECT 'written', at FROM history WHERE id = (SELECT max(id) FROM history)",
        {},
    )
    return {name: from_micros(at) for name, at in rows}


async def note_moments(tx: Tx, moments: Mapping[str, datetime | None]) -> None:
    """Note when the store was looked after."""
    for name, at in moments.items():
        if at is None:
            await tx.run("DELETE FROM moments WHERE name = :name", {"name": name})
        else:
            await tx.run(
                "INSERT INTO moments (name, at) VALUES (:name, :at) "
                "ON CONFLICT (name) DO UPDATE SET at = excluded.at",
                {"name": name, "at": to_micros(at)},
            )
