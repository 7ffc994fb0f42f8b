"""Erasing for good: what goes is worked out by `recollect.ledger.cascade`, and removed from every table."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from recollect.errors import Conflict
from recollect.ledger.cascade import (
    Cascade,
    MemoryLink,
    build_link,
    cascade,
    check_exists,
    erasure_seeds,
    with_older_versions,
)
from recollect.ledger.sql import erase_related as beside
from recollect.ledger.sql.changes import Owner, WriteContext, apply, lock_user
from recollect.ledger.sql.erase_related import drop_terms, id_pages
from recollect.ledger.sql.tombstones import add_for_erased, add_for_user
from recollect.ledger.sql.tx import LOG, ScrubResult, Tx, fetch_one
from recollect.model.change import Author, Change, Forget, Restore, Update
from recollect.model.erasure import Erasure, ErasureRequest, Receipt, Remade, StoreErasure, Target, user_digest
from recollect.model.ids import new_id
from recollect.model.memory import Category
from recollect.model.scope import Scope
from recollect.model.times import from_micros, now, to_micros

# Where something of what is erased can have stood.
TABLES = ("terms", *beside.USER_TABLES, "users")
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
_RETRY_WINDOW = timedelta(days=7)
# How many users a purge looks at in one transaction.
_USERS_PER_PURGE = 20


@dataclass(slots=True)
class ErasureOutcome:
    """What one erasure removed."""

    id: str
    at: datetime
    counts: dict[str, int] = field(default_factory=dict)
    remade: tuple[Remade, ...] = ()
    stays: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()

    def receipt(self, scope: Scope, request: ErasureRequest, *stores: StoreErasure) -> Receipt:
        """The receipt, with what became of the bytes."""
        return Receipt(
            id=self.id,
            at=self.at,
            scope=scope,
            what=request,
            stores=stores,
            remade=self.remade,
            stays=self.stays,
            hidden=self.hidden,
        )


async def erase(
    tx: Tx, context: WriteContext, scope: Scope, request: ErasureRequest, *, by: Author
) -> ErasureOutcome:
    """Remove it with all that was derived from it, and note that it was."""
    request.check(scope)
    # Nobody of this user's writers is between reading and writing now: what they wrote is seen, what they would write
    # later finds that the epoch has moved.
    owner = await lock_user(tx, scope.user)
    if request.target is Target.USER:
        return await _erase_user(tx, context, owner, ErasureOutcome(new_id(), now()))
    links = await _links(tx, owner.name)
    check_exists(links, request)
    ids = (request.id, *request.also) if request.id else ()
    part = _Part(scope, request.target, ids, ErasureOutcome(new_id(), now()), request.hide)
    return await _erase_part(tx, context, owner, links, part, by)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of what a user has, to be erased."""

    scope: Scope
    target: Target
    ids: tuple[str, ...]
    outcome: ErasureOutcome
    hide: tuple[str, ...] = ()


async def _erase_part(
    tx: Tx, context: WriteContext, owner: Owner, links: dict[str, MemoryLink], part: _Part, by: Author
) -> ErasureOutcome:
    seeds, outcome = erasure_seeds(links, part.scope, part.target, part.ids), part.outcome
    result = cascade(links, seeds, with_older=part.target is Target.MEMORY, hide=part.hide)
    await add_for_erased(tx, owner.name, result.removed)
    await _remove(tx, context, owner, result.removed, outcome.counts)
    named = part.target in (Target.TURN, Target.MEMORY)
    if not named:
        whole_project = part.target is Target.PROJECT
        await beside.drop_sessions(tx, part.scope, whole_project=whole_project, counts=outcome.counts)
        await beside.drop_jobs(tx, part.scope, whole_project=whole_project, counts=outcome.counts)
    blanked = await beside.blank_summaries(tx, owner.name, result.sessions)
    outcome.remade = (*result.remade, *(Remade("conversation", scope) for scope in blanked))
    outcome.stays, outcome.hidden = result.stays if named else (), result.hidden
    await beside.reset_jobs(tx, owner.name, result.removed)
    await beside.drop_mentions(tx, owner.name, result.removed, outcome.counts)
    await _close_gaps(tx, context, owner, result, by)
    await tx.run("UPDATE users SET epoch = epoch + 1 WHERE number = :number", {"number": owner.number})
    derived_ids = sorted(result.removed.difference(part.ids)) if named else []
    await _record_erasure(tx, part.scope, part.target, outcome, ids=(*part.ids, *derived_ids))
    if owner.is_new:
        # Whoever had nothing is not kept for having asked.
        for table in ("chores", "job_users", "users"):
            await tx.run(f"DELETE FROM {table} WHERE user_id = :user", {"user": owner.name})
    return outcome


async def _erase_user(tx: Tx, context: WriteContext, owner: Owner, outcome: ErasureOutcome) -> ErasureOutcome:
    await add_for_user(tx, owner.name)
    await drop_terms(tx, context, owner, None)
    params = {"user": owner.name}
    turns = await fetch_one(tx, "SELECT count(*) FROM turns WHERE user_id = :user", params)
    for table, kind in beside.USER_TABLES.items():
        done = await beside.delete(tx, table, "user_id = :user", params)
        if kind:
            outcome.counts[kind] = done
    # A turn is a memory as well; it is told of once.
    outcome.counts["memories"] -= turns[0] if turns else 0
    await _record_erasure(tx, Scope(owner.name), Target.USER, outcome, epoch=owner.epoch + 1)
    await tx.run("DELETE FROM users WHERE number = :number", {"number": owner.number})
    return outcome


async def _links(tx: Tx, user: str) -> dict[str, MemoryLink]:
    """How the user's memories hang together, in the order they were made."""
    rows = await tx.rows(
        "SELECT id, project_id, session_id, category, status, body FROM memories WHERE user_id = :user ORDER BY row",
        {"user": user},
    )
    links = {}
    for id, project, session, category, status, text in rows:
        body = json.loads(text) if text != "{}" else {}
        links[id] = build_link(
            id,
            Scope(user, project, session),
            category=category,
            status=status,
            body=body,
            superseded_by=body.get("superseded_by"),
        )
    return links


async def _remove(tx: Tx, context: WriteContext, owner: Owner, ids: Collection[str], counts: dict[str, int]) -> None:
    """Remove memories from everything that holds anything of them."""
    counts |= dict.fromkeys(("memories", "turns", "vectors", "history"), 0)
    await drop_terms(tx, context, owner, ids)
    for page in id_pages(ids):
        params: dict[str, Any] = {"user": owner.name, "ids": page}
        rows = await tx.rows(
            f"SELECT row, category FROM memories WHERE user_id = :user AND {tx.dialect.among('id', 'ids')}",
            params,
        )
        params["rows"] = [row for row, _ in rows]
        turns = sum(category == Category.TURN for _, category in rows)
        counts["memories"] += len(rows) - turns
        counts["turns"] += turns
        for table, column, param in (
            ("vectors", "row", "rows"),
            ("evidence", "row", "rows"),
            ("history", "memory_id", "ids"),
            ("turns", "id", "ids"),
            ("memories", "id", "ids"),
        ):
            test = f"user_id = :user AND {tx.dialect.among(column, param)}"
            done = await beside.delete(tx, table, test, {"user": owner.name, param: params[param]})
            if table in ("vectors", "history"):
                counts[table] += done


async def _close_gaps(tx: Tx, context: WriteContext, owner: Owner, result: Cascade, by: Author) -> None:
    """Bring back what was superseded by something that is gone, or say what supersedes it now; hide what says it."""
    scope, relinked = Scope(owner.name), dict(result.relinked)
    for id in result.restored:
        try:
            await apply(tx, context, scope, [Restore(id)], by=by)
        except Conflict:
            # Something else says the same or holds the key by now.
            relinked[id] = None
    changes: list[Change] = [Update(id, {"superseded_by": other}) for id, other in relinked.items()]
    changes += [Forget(id) for id in result.hidden]
    await apply(tx, context, scope, changes, by=by)


async def purge(tx: Tx, context: WriteContext, before: datetime) -> dict[str, int]:
    """Remove what was forgotten before a time, of a few users, with its older versions; nothing once all is done."""
    counts: dict[str, int] = {}
    rows = await tx.rows(
        "SELECT DISTINCT user_id FROM memories WHERE status = 'forgotten' AND updated_at < :before "
        "ORDER BY user_id LIMIT :limit",
        {"before": to_micros(before), "limit": _USERS_PER_PURGE},
    )
    for (user,) in rows:
        await tx.restrict_to(user)
        owner = await lock_user(tx, user)
        forgotten = await tx.rows(
            "SELECT id FROM memories WHERE user_id = :user AND status = 'forgotten' AND updated_at < :before",
            {"user": user, "before": to_micros(before)},
        )
        removed = with_older_versions(await _links(tx, user), [id for (id,) in forgotten])
        user_counts: dict[str, int] = {}
        await add_for_erased(tx, user, removed, purged=True)
        await _remove(tx, context, owner, removed, user_counts)
        await beside.drop_mentions(tx, user, removed, user_counts)
        await tx.run("UPDATE users SET epoch = epoch + 1 WHERE number = :number", {"number": owner.number})
        counts = {kind: counts.get(kind, 0) + user_counts.get(kind, 0) for kind in {**counts, **user_counts}}
    return counts


async def _record_erasure(
    tx: Tx,
    scope: Scope,
    target: Target,
    outcome: ErasureOutcome,
    *,
    ids: Sequence[str] = (),
    epoch: int | None = None,
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
            "id": outcome.id,
            "user": digest,
            "target": str(target),
            "project": scope.project if target in (Target.PROJECT, Target.SESSION) else "",
            "session": scope.session if target is Target.SESSION else "",
            "ids": json.dumps(list(ids)),
            "counts": json.dumps(outcome.counts),
            "epoch": epoch,
            "at": to_micros(outcome.at),
        },
    )


def store_report(counts: Mapping[str, int], done: ScrubResult) -> StoreErasure:
    """What went from the database, and which of its parts hold no bytes of it any more."""
    remaining = set(done.remaining) if done.remaining or done.is_complete else {*TABLES, LOG}
    parts = {part: remaining.isdisjoint(tables) for part, tables in _PARTS.items()}
    return StoreErasure("ledger", counts, done.is_complete, done.note, parts)


async def mark_finished(tx: Tx, at: datetime) -> None:
    """Note that of what was erased until then no bytes are left, or none that we can reach."""
    await tx.run(
        "UPDATE erasures SET finished_at = :now WHERE finished_at IS NULL AND requested_at <= :at",
        {"now": to_micros(now()), "at": to_micros(at)},
    )


async def has_unfinished(tx: Tx, *, ever: bool = False) -> bool:
    """Whether an erasure was broken off, or kept from its end by someone who was reading, and not too long ago."""
    since = {"since": 0 if ever else to_micros(now() - _RETRY_WINDOW)}
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
    result = [
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
    return [each for each in result if each.is_replayable]


async def replay(
    tx: Tx, context: WriteContext, erasure: Erasure, *, by: Author
) -> tuple[Scope, ErasureOutcome] | None:
    """Do an erasure again, unless this store knows of it; gives nothing if there was nothing to do."""
    recorded = await tx.rows("SELECT 1 FROM erasures WHERE id = :id", {"id": erasure.id})
    if recorded or not erasure.is_replayable:
        return None
    names = (name for (name,) in await tx.rows("SELECT user_id FROM users", {}))
    user = next((name for name in names if user_digest(name) == erasure.user), None)
    if user is None:
        return None
    await tx.restrict_to(user)
    owner, outcome = await lock_user(tx, user), ErasureOutcome(erasure.id, erasure.at)
    scope = Scope(user, erasure.project, erasure.session)
    if erasure.target is Target.USER:
        return scope, await _erase_user(tx, context, owner, outcome)
    part = _Part(scope, erasure.target, erasure.ids, outcome)
    return scope, await _erase_part(tx, context, owner, await _links(tx, user), part, by)
