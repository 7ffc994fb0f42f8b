"""Erasing for good: what goes is worked out by `recollect.ledger.cascade`, and removed from every table."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from recollect.errors import Conflict
from recollect.ledger.cascade import Cascade, Link, cascade, check_found, link, older_than, seeds_of
from recollect.ledger.sql import erase_beside as beside
from recollect.ledger.sql.changes import Owner, Writer, apply, lock_user
from recollect.ledger.sql.erase_terms import drop_terms, pages
from recollect.ledger.sql.tombstones import add_for_erased, add_for_user
from recollect.ledger.sql.tx import LOG, Scrubbed, Tx, one
from recollect.model.change import By, Change, Forget, Restore, Update
from recollect.model.erase import Cleared, Erase, Erasure, Receipt, Remade, Target, user_digest
from recollect.model.ids import new_id
from recollect.model.memory import Category
from recollect.model.scope import Scope
from recollect.model.times import from_micros, now, to_micros

# Where something of what is erased can have stood.
TABLES = ("terms", *beside.OF_USER, "users")
# What a receipt calls the parts of the database, and which tables each of them is; the log is no table.
_PARTS = {
    "memories and turns": ("memories", "evidence", "turns", "conversations", "users"),
    "full text": ("terms",),
    "vectors": ("vectors",),
    "history": ("history",),
    "jobs": ("jobs", "job_users", "job_queues", "chores", "fed"),
    "replies, keys and usage": ("responses", "idempotency", "api_keys", "usage"),
    "database log": (LOG,),
}
# For how long it is tried again to reach what an erasure did not; its receipt has said what is left then.
_PATIENCE = timedelta(days=7)
# How many users a purge looks at in one transaction.
_USERS = 20


@dataclass(slots=True)
class Erased:
    """What one erasure removed."""

    id: str
    at: datetime
    counts: dict[str, int] = field(default_factory=dict)
    remade: tuple[Remade, ...] = ()
    stays: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()

    def receipt(self, scope: Scope, what: Erase, *cleared: Cleared) -> Receipt:
        """The receipt, with what became of the bytes."""
        return Receipt(
            id=self.id,
            at=self.at,
            scope=scope,
            what=what,
            stores=cleared,
            remade=self.remade,
            stays=self.stays,
            hidden=self.hidden,
        )


async def erase(tx: Tx, writer: Writer, scope: Scope, what: Erase, *, by: By) -> Erased:
    """Remove it with all that was derived from it, and note that it was."""
    what.check(scope)
    # Nobody of this user's writers is between reading and writing now: what they wrote is seen, what they would write
    # later finds that the epoch has moved.
    owner = await lock_user(tx, scope.user)
    if what.target is Target.USER:
        return await _erase_user(tx, writer, owner, Erased(new_id(), now()))
    links = await _links(tx, owner.name)
    check_found(links, what)
    ids = (what.id, *what.also) if what.id else ()
    part = _Part(scope, what.target, ids, Erased(new_id(), now()), what.hide)
    return await _erase_some(tx, writer, owner, links, part, by)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of what a user has, to be erased."""

    scope: Scope
    target: Target
    ids: tuple[str, ...]
    erased: Erased
    hide: tuple[str, ...] = ()


async def _erase_some(tx: Tx, writer: Writer, owner: Owner, links: dict[str, Link], part: _Part, by: By) -> Erased:
    seeds, erased = seeds_of(links, part.scope, part.target, part.ids), part.erased
    result = cascade(links, seeds, with_older=part.target is Target.MEMORY, hide=part.hide)
    await add_for_erased(tx, owner.name, result.gone)
    await _remove(tx, writer, owner, result.gone, erased.counts)
    named = part.target in (Target.TURN, Target.MEMORY)
    if not named:
        whole_project = part.target is Target.PROJECT
        await beside.drop_sessions(tx, part.scope, whole_project=whole_project, counts=erased.counts)
        await beside.drop_jobs(tx, part.scope, whole_project=whole_project, counts=erased.counts)
    blanked = await beside.blank_summaries(tx, owner.name, result.sessions)
    erased.remade = (*result.remade, *(Remade("conversation", scope) for scope in blanked))
    erased.stays, erased.hidden = result.stays if named else (), result.hidden
    await beside.void_jobs(tx, owner.name, result.gone)
    await beside.drop_mentions(tx, owner.name, result.gone, erased.counts)
    await _close_gaps(tx, writer, owner, result, by)
    await tx.run("UPDATE users SET epoch = epoch + 1 WHERE number = :number", {"number": owner.number})
    others = sorted(result.gone.difference(part.ids)) if named else []
    await _note(tx, part.scope, part.target, erased, ids=(*part.ids, *others))
    if owner.is_new:
        # Whoever had nothing is not kept for having asked.
        for table in ("chores", "job_users", "users"):
            await tx.run(f"DELETE FROM {table} WHERE user_id = :user", {"user": owner.name})
    return erased


async def _erase_user(tx: Tx, writer: Writer, owner: Owner, erased: Erased) -> Erased:
    await add_for_user(tx, owner.name)
    await drop_terms(tx, writer, owner, None)
    params = {"user": owner.name}
    turns = await one(tx, "SELECT count(*) FROM turns WHERE user_id = :user", params)
    for table, kind in beside.OF_USER.items():
        done = await beside.delete(tx, table, "user_id = :user", params)
        if kind:
            erased.counts[kind] = done
    # A turn is a memory as well; it is told of once.
    erased.counts["memories"] -= turns[0] if turns else 0
    await _note(tx, Scope(owner.name), Target.USER, erased, epoch=owner.epoch + 1)
    await tx.run("DELETE FROM users WHERE number = :number", {"number": owner.number})
    return erased


async def _links(tx: Tx, user: str) -> dict[str, Link]:
    """How the user's memories hang together, in the order they were made."""
    rows = await tx.rows(
        "SELECT id, project_id, session_id, category, status, body FROM memories WHERE user_id = :user ORDER BY row",
        {"user": user},
    )
    links = {}
    for id, project, session, category, status, text in rows:
        body = json.loads(text) if text != "{}" else {}
        links[id] = link(
            id,
            Scope(user, project, session),
            category=category,
            status=status,
            body=body,
            superseded_by=body.get("superseded_by"),
        )
    return links


async def _remove(tx: Tx, writer: Writer, owner: Owner, ids: Collection[str], counts: dict[str, int]) -> None:
    """Remove memories from everything that holds anything of them."""
    counts |= dict.fromkeys(("memories", "turns", "vectors", "history"), 0)
    await drop_terms(tx, writer, owner, ids)
    for page in pages(ids):
        params: dict[str, Any] = {"user": owner.name, "ids": page}
        rows = await tx.rows(
            f"SELECT row, category FROM memories WHERE user_id = :user AND {tx.dialect.among('id', 'ids')}",
            params,
        )
        params["rows"] = [row for row, _ in rows]
        turns = sum(category == Category.TURN for _, category in rows)
        counts["memories"] += len(rows) - turns
        counts["turns"] += turns
        for table, column, given in (
            ("vectors", "row", "rows"),
            ("evidence", "row", "rows"),
            ("history", "memory_id", "ids"),
            ("turns", "id", "ids"),
            ("memories", "id", "ids"),
        ):
            test = f"user_id = :user AND {tx.dialect.among(column, given)}"
            done = await beside.delete(tx, table, test, {"user": owner.name, given: params[given]})
            if table in ("vectors", "history"):
                counts[table] += done


async def _close_gaps(tx: Tx, writer: Writer, owner: Owner, result: Cascade, by: By) -> None:
    """Bring back what was superseded by something that is gone, or say what supersedes it now; hide what says it."""
    scope, relinked = Scope(owner.name), dict(result.relinked)
    for id in result.restored:
        try:
            await apply(tx, writer, scope, [Restore(id)], by=by)
        except Conflict:
            # Something else says the same or holds the key by now.
            relinked[id] = None
    changes: list[Change] = [Update(id, {"superseded_by": other}) for id, other in relinked.items()]
    changes += [Forget(id) for id in result.hidden]
    await apply(tx, writer, scope, changes, by=by)


async def purge(tx: Tx, writer: Writer, before: datetime) -> dict[str, int]:
    """Remove what was forgotten before a time, of a few users, with its older versions; nothing once all is done."""
    counts: dict[str, int] = {}
    rows = await tx.rows(
        "SELECT DISTINCT user_id FROM memories WHERE status = 'forgotten' AND updated_at < :before "
        "ORDER BY user_id LIMIT :limit",
        {"before": to_micros(before), "limit": _USERS},
    )
    for (user,) in rows:
        await tx.only(user)
        owner = await lock_user(tx, user)
        forgotten = await tx.rows(
            "SELECT id FROM memories WHERE user_id = :user AND status = 'forgotten' AND updated_at < :before",
            {"user": user, "before": to_micros(before)},
        )
        gone = older_than(await _links(tx, user), [id for (id,) in forgotten])
        found: dict[str, int] = {}
        await add_for_erased(tx, user, gone, purged=True)
        await _remove(tx, writer, owner, gone, found)
        await beside.drop_mentions(tx, user, gone, found)
        await tx.run("UPDATE users SET epoch = epoch + 1 WHERE number = :number", {"number": owner.number})
        counts = {kind: counts.get(kind, 0) + found.get(kind, 0) for kind in {**counts, **found}}
    return counts


async def _note(
    tx: Tx, scope: Scope, target: Target, erased: Erased, *, ids: Sequence[str] = (), epoch: int | None = None
) -> None:
    """Keep what it takes to do it again; of a user who is gone as a whole nothing else stays."""
    digest = user_digest(scope.user)
    if target is Target.USER:
        await tx.run(
            "UPDATE erasures SET project_id = '', session_id = '', ids = '[]' WHERE user_id = :user", {"user": digest}
        )
    await tx.run(
        "INSERT INTO erasures (id, user_id, target, project_id, session_id, ids, counts, epoch, requested_at) "
        "VALUES (:id, :user, :target, :project, :session, :ids, :counts, :epoch, :at)",
        {
            "id": erased.id,
            "user": digest,
            "target": str(target),
            "project": scope.project if target in (Target.PROJECT, Target.SESSION) else "",
            "session": scope.session if target is Target.SESSION else "",
            "ids": json.dumps(list(ids)),
            "counts": json.dumps(erased.counts),
            "epoch": epoch,
            "at": to_micros(erased.at),
        },
    )


def cleared(counts: Mapping[str, int], done: Scrubbed) -> Cleared:
    """What went from the database, and which of its parts hold no bytes of it any more."""
    left = set(done.left) if done.left or done.reached else {*TABLES, LOG}
    parts = {part: left.isdisjoint(tables) for part, tables in _PARTS.items()}
    return Cleared("ledger", counts, done.reached, done.note, parts)


async def finished(tx: Tx, at: datetime) -> None:
    """Note that of what was erased until then no bytes are left, or none that we can reach."""
    await tx.run(
        "UPDATE erasures SET finished_at = :now WHERE finished_at IS NULL AND requested_at <= :at",
        {"now": to_micros(now()), "at": to_micros(at)},
    )


async def has_unfinished(tx: Tx, *, ever: bool = False) -> bool:
    """Whether an erasure was broken off, or kept from its end by someone who was reading, and not too long ago."""
    since = {"since": 0 if ever else to_micros(now() - _PATIENCE)}
    return bool(
        await tx.rows("SELECT 1 FROM erasures WHERE finished_at IS NULL AND requested_at > :since LIMIT 1", since)
    )


async def erasures(tx: Tx, since: datetime | None, *, user: str | None = None) -> list[Erasure]:
    """What was erased, of all or of one user, oldest first; what went before all of its user did is part of that."""
    params: dict[str, Any] = {"since": 0 if since is None else to_micros(since)}
    if user is not None:
        params["user"] = user_digest(user)
    rows = await tx.rows(
        "SELECT id, requested_at, user_id, target, project_id, session_id, ids FROM erasures "
        f"WHERE requested_at >= :since {'' if user is None else 'AND user_id = :user '}ORDER BY requested_at, id",
        params,
    )
    found = [
        Erasure(
            id=id,
            at=from_micros(at),
            user=user,
            target=Target(target),
            project=project,
            session=session,
            ids=tuple(json.loads(ids)),
        )
        for id, at, user, target, project, session, ids in rows
    ]
    return [each for each in found if each.names_something]


async def replay(tx: Tx, writer: Writer, erasure: Erasure, *, by: By) -> tuple[Scope, Erased] | None:
    """Do an erasure again, unless this store knows of it; gives nothing if there was nothing to do."""
    known = await tx.rows("SELECT 1 FROM erasures WHERE id = :id", {"id": erasure.id})
    if known or not erasure.names_something:
        return None
    names = (name for (name,) in await tx.rows("SELECT user_id FROM users", {}))
    user = next((name for name in names if user_digest(name) == erasure.user), None)
    if user is None:
        return None
    await tx.only(user)
    owner, erased = await lock_user(tx, user), Erased(erasure.id, erasure.at)
    scope = Scope(user, erasure.project, erasure.session)
    if erasure.target is Target.USER:
        return scope, await _erase_user(tx, writer, owner, erased)
    part = _Part(scope, erasure.target, erasure.ids, erased)
    return scope, await _erase_some(tx, writer, owner, await _links(tx, user), part, by)
