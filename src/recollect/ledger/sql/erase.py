"""Erasing for good: `recollect.ledger.cascade` decides what goes, and it is removed from every table."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from recollect.errors import Conflict
from recollect.frozen_dataclass import frozen_dataclass
from recollect.ledger.cascade import (
    Cascade,
    MemoryLink,
    build_link,
    cascade,
    check_exists,
    erasure_seeds,
    mentions_any,
    with_older_versions,
)
from recollect.ledger.sql.changes import Owner, apply, lock_user
from recollect.ledger.sql.conversations import SESSION_TEST, session_params
from recollect.ledger.sql.full_text import index_words
from recollect.ledger.sql.jobs import UNLEASED, lock_jobs, set_queue
from recollect.ledger.sql.responses import drop_responses
from recollect.ledger.sql.tombstones import add_for_erased, add_for_user
from recollect.ledger.sql.tx import LOG, ScrubResult, Tx, fetch_one
from recollect.ledger.sql.vectors import NOT_TOKEN_VECTORS
from recollect.model.change import Author, Change, Forget, Restore, Update
from recollect.model.erasure import Erasure, ErasureRequest, Receipt, Remade, StoreErasure, Target, user_digest
from recollect.model.ids import new_id
from recollect.model.memory import Category
from recollect.model.scope import Scope
from recollect.model.times import from_micros, now, to_micros

# Every table with rows of a user, and what a receipt calls them; empty for those it does not count.
_USER_TABLES: Mapping[str, str] = {
    "vectors": "vectors",
    "evidence": "",
    "mentions": "",
    "history": "history",
    "turns": "turns",
    "memories": "memories",
    "conversations": "conversations",
    "job_users": "",
    "job_queues": "",
    "chores": "",
    "jobs": "jobs",
    "responses": "responses",
    "threads": "threads",
    "thread_items": "items",
    "idempotency": "replies",
    "api_keys": "keys",
    "usage": "usage",
    "fed": "",
}
# Every table that can have held something of what is erased.
TABLES = ("terms", *_USER_TABLES, "users")
# What a receipt calls the parts of the database, and the tables of each; the log is no table.
_PARTS = {
    "memories and turns": ("memories", "evidence", "mentions", "turns", "conversations", "users"),
    "full text": ("terms",),
    "vectors": ("vectors",),
    "history": ("history",),
    "jobs": ("jobs", "job_users", "job_queues", "chores", "fed"),
    "replies, keys and usage": ("responses", "idempotency", "api_keys", "usage"),
    "database log": (LOG,),
}
# For how long an incomplete erasure is retried.
_RETRY_WINDOW = timedelta(days=7)
# How many users a purge looks at in one transaction.
_USERS_PER_PURGE = 20
_PAGE = 1000
# Up to here it is cheaper to remove rows from the full text one by one.
_MAX_SINGLE_DROPS = 500


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
        """Return the receipt, given what each store reports."""
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


@frozen_dataclass
class _Part:
    """A part of a user's data to erase."""

    scope: Scope
    target: Target
    ids: tuple[str, ...]
    hide: tuple[str, ...] = ()

    @property
    def is_named(self) -> bool:
        """Whether it is named by ids, and not by its project or session."""
        return self.target in (Target.TURN, Target.MEMORY)


async def erase(tx: Tx, scope: Scope, request: ErasureRequest, *, by: Author) -> ErasureOutcome:
    """Erase what is requested with all that was derived from it, and record the erasure."""
    request.check(scope)
    # No writer of this user is between reading and writing now: what they wrote is seen, what they would write later
    # finds that the epoch has moved.
    owner = await lock_user(tx, scope.user)
    outcome = ErasureOutcome(new_id(), now())
    if request.target is Target.USER:
        return await _erase_user(tx, owner, outcome)
    links = await _load_links(tx, owner.name)
    check_exists(links, request)
    ids = (request.id, *request.also) if request.id else ()
    part = _Part(scope, request.target, ids, request.hide)
    return await _erase_part(tx, owner, links, part, outcome, by=by)


async def replay(tx: Tx, erasure: Erasure, *, by: Author) -> tuple[Scope, ErasureOutcome] | None:
    """Repeat an erasure that this store has no record of; return None if there was nothing to do."""
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
        return scope, await _erase_user(tx, owner, outcome)
    part, links = _Part(scope, erasure.target, erasure.ids), await _load_links(tx, user)
    return scope, await _erase_part(tx, owner, links, part, outcome, by=by)


async def purge(tx: Tx, before: datetime) -> dict[str, int]:
    """Erase what a few users forgot before a time, with its older versions; return no counts once all is done."""
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
        removed = with_older_versions(await _load_links(tx, user), [id for (id,) in forgotten])
        await add_for_erased(tx, user, removed, purged=True)
        await _remove_memories(tx, owner, removed, counts)
        await _drop_mentions(tx, user, removed, counts)
        await _next_epoch(tx, owner)
    return counts


async def _erase_part(
    tx: Tx,
    owner: Owner,
    links: dict[str, MemoryLink],
    part: _Part,
    outcome: ErasureOutcome,
    *,
    by: Author,
) -> ErasureOutcome:
    seeds = erasure_seeds(links, part.scope, part.target, part.ids)
    result = cascade(links, seeds, with_older=part.target is Target.MEMORY, hide=part.hide)
    await add_for_erased(tx, owner.name, result.removed)
    await _remove_memories(tx, owner, result.removed, outcome.counts)
    if not part.is_named:
        await _drop_sessions(tx, part.scope, whole_project=part.target is Target.PROJECT, counts=outcome.counts)
    blanked = await _blank_summaries(tx, owner.name, result.sessions)
    outcome.remade = (*result.remade, *(Remade("conversation", scope) for scope in blanked))
    outcome.stays, outcome.hidden = result.stays if part.is_named else (), result.hidden
    await _reset_jobs(tx, owner.name)
    await _drop_mentions(tx, owner.name, result.removed, outcome.counts)
    await _close_gaps(tx, owner, result, by)
    await _next_epoch(tx, owner)
    derived_ids = sorted(result.removed.difference(part.ids)) if part.is_named else []
    await _record_erasure(tx, part.scope, part.target, outcome, ids=(*part.ids, *derived_ids))
    if owner.is_new:
        # A user without data is not created by an erasure.
        for table in ("chores", "job_users", "users"):
            await tx.run(f"DELETE FROM {table} WHERE user_id = :user", {"user": owner.name})
    return outcome


async def _erase_user(tx: Tx, owner: Owner, outcome: ErasureOutcome) -> ErasureOutcome:
    await add_for_user(tx, owner.name)
    await _drop_terms(tx, owner, None)
    params = {"user": owner.name}
    turns = await fetch_one(tx, "SELECT count(*) FROM turns WHERE user_id = :user", params)
    for table, kind in _USER_TABLES.items():
        deleted = await _delete(tx, table, "user_id = :user", params)
        if kind:
            outcome.counts[kind] = deleted
    # A turn is a memory as well; it is counted once.
    outcome.counts["memories"] -= turns[0] if turns else 0
    await _record_erasure(tx, Scope(owner.name), Target.USER, outcome, epoch=owner.epoch + 1)
    await tx.run("DELETE FROM users WHERE number = :number", {"number": owner.number})
    return outcome


async def _load_links(tx: Tx, user: str) -> dict[str, MemoryLink]:
    """Return the links between the user's memories, in the order they were made."""
    rows = await tx.rows(
        "SELECT id, project_id, session_id, category, status, body FROM memories WHERE user_id = :user ORDER BY row",
        {"user": user},
    )
    return {
        id: build_link(id, Scope(user, project, session), category, status, json.loads(body) if body != "{}" else {})
        for id, project, session, category, status, body in rows
    }


async def _delete(tx: Tx, table: str, test: str, params: Mapping[str, Any]) -> int:
    """Delete rows; return how many, token vectors not counted."""
    counts = await tx.rows(f"SELECT count(*) FROM {table} WHERE {test}{_uncounted(table)}", params)
    if counts[0][0] or table == "vectors":
        await tx.run(f"DELETE FROM {table} WHERE {test}", params)
    return int(counts[0][0])


def _uncounted(table: str) -> str:
    return f" AND {NOT_TOKEN_VECTORS}" if table == "vectors" else ""


async def _next_epoch(tx: Tx, owner: Owner) -> None:
    await tx.run("UPDATE users SET epoch = epoch + 1 WHERE number = :number", {"number": owner.number})


# Memories ------------------------------------------------------------------------------------------------


async def _remove_memories(tx: Tx, owner: Owner, ids: Collection[str], counts: dict[str, int]) -> None:
    """Remove memories from every table that holds anything of them; add to the counts."""
    for kind in ("memories", "turns", "vectors", "history"):
        counts.setdefault(kind, 0)
    await _drop_terms(tx, owner, ids)
    for page in _pages(ids):
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
            ("mentions", "row", "rows"),
            ("history", "memory_id", "ids"),
            ("turns", "id", "ids"),
            ("memories", "id", "ids"),
        ):
            among = tx.dialect.among_numbers if param == "rows" else tx.dialect.among
            test = f"user_id = :user AND {among(column, param)}"
            deleted = await _delete(tx, table, test, {"user": owner.name, param: params[param]})
            if table in ("vectors", "history"):
                counts[table] += deleted


def _pages(ids: Collection[str]) -> Iterator[list[str]]:
    ordered = sorted(ids)
    for start in range(0, len(ordered), _PAGE):
        yield ordered[start : start + _PAGE]


async def _drop_terms(tx: Tx, owner: Owner, ids: Collection[str] | None) -> None:
    """Remove the memories of these ids, or all of the user's, from the full text."""
    words = _indexed_words(tx, owner, ids)
    if ids is None or len(ids) > _MAX_SINGLE_DROPS:
        await tx.dialect.terms.drop_many(tx, words)
        return
    async for rows in words:
        await tx.dialect.terms.drop(tx, rows)


async def _indexed_words(tx: Tx, owner: Owner, ids: Collection[str] | None) -> AsyncIterator[dict[int, str]]:
    """Yield the words under which rows are indexed, page by page."""
    if ids is None:
        id_rows = await tx.rows("SELECT id FROM memories WHERE user_id = :user", {"user": owner.name})
        ids = [id for (id,) in id_rows]
    for page in _pages(ids):
        rows = await tx.rows(
            f"SELECT row, content FROM memories WHERE user_id = :user AND {tx.dialect.among('id', 'ids')}",
            {"user": owner.name, "ids": page},
        )
        yield {row: index_words(owner.number, content) for row, content in rows}


async def _close_gaps(tx: Tx, owner: Owner, result: Cascade, by: Author) -> None:
    """Restore or relink what was superseded by an erased memory; forget the turns to hide."""
    scope, relinked = Scope(owner.name), dict(result.relinked)
    for id in result.restored:
        try:
            await apply(tx, scope, [Restore(id)], by=by)
        except Conflict:
            # Another memory has the same text or key by now.
            relinked[id] = None
    changes: list[Change] = [Update(id, {"superseded_by": other}) for id, other in relinked.items()]
    changes += [Forget(id) for id in result.hidden]
    await apply(tx, scope, changes, by=by)


# Sessions, jobs and stored answers -----------------------------------------------------------------------


async def _drop_sessions(tx: Tx, scope: Scope, *, whole_project: bool, counts: dict[str, int]) -> None:
    """Remove the session, or all of the project's, with its jobs."""
    test = "user_id = :user AND project_id = :project" if whole_project else SESSION_TEST
    params = session_params(scope)
    if whole_project:
        del params["session"]
    await _delete(tx, "turns", test, params)
    counts["conversations"] = await _delete(tx, "conversations", test, params)
    counts["responses"] = await _delete(tx, "responses", test, params)
    of_threads = f"user_id = :user AND thread_id IN (SELECT id FROM threads WHERE {test})"
    counts["items"] = await _delete(tx, "thread_items", of_threads, params)
    counts["threads"] = await _delete(tx, "threads", test, params)
    if whole_project:
        await _delete(tx, "chores", test, params)
    await lock_jobs(tx, scope.user)
    counts["jobs"] = await _delete(tx, "jobs", test, params)


async def _blank_summaries(tx: Tx, user: str, sessions: Iterable[tuple[str, str]]) -> list[Scope]:
    """Remove what was derived from sessions that lost a turn; return those that had anything."""
    blanked = []
    for project, session in sorted(sessions):
        scope = Scope(user, project, session)
        for (text,) in await tx.rows(f"SELECT body FROM conversations WHERE {SESSION_TEST}", session_params(scope)):
            body = json.loads(text)
            if any([body.pop("summary", None), body.pop("invocations", None)]):
                blanked.append(scope)
            # The version moves in any case, so that a summary of what was there before is refused.
            await tx.run(
                f"UPDATE conversations SET body = :body, version = version + 1 WHERE {SESSION_TEST}",
                session_params(scope) | {"body": json.dumps(body, ensure_ascii=False)},
            )
    return blanked


async def _reset_jobs(tx: Tx, user: str) -> None:
    """Make running jobs of the user wait again, since they may have read what is gone, and remove their results."""
    lock = await lock_jobs(tx, user)
    await tx.run(
        f"UPDATE jobs SET state = 'waiting', tries = tries - 1, due_at = :now, next_at = :now, {UNLEASED} "
        "WHERE user_id = :user AND state = 'running'",
        {"user": user, "now": to_micros(now())},
    )
    await tx.run("UPDATE job_users SET busy_until = 0 WHERE user_id = :user", {"user": user})
    levels = await tx.rows(
        "SELECT priority FROM jobs WHERE user_id = :user UNION SELECT priority FROM job_queues WHERE user_id = :user",
        {"user": user},
    )
    for (level,) in levels:
        await set_queue(tx, lock, level)
    # A result or an error may quote anything the job had read.
    await tx.run(
        "UPDATE jobs SET result = NULL, error = NULL "
        "WHERE user_id = :user AND (result IS NOT NULL OR error IS NOT NULL)",
        {"user": user},
    )


async def _drop_mentions(tx: Tx, user: str, ids: Collection[str], counts: dict[str, int]) -> None:
    """Remove stored answers, responses and items that name what is gone."""
    removed, user_params = set(ids), {"user": user}
    rows = await tx.rows('SELECT "key", result FROM idempotency WHERE user_id = :user', user_params)
    replies = [key for key, text in rows if mentions_any(json.loads(text), removed)]
    await tx.many(
        'DELETE FROM idempotency WHERE user_id = :user AND "key" = :key',
        [{**user_params, "key": key} for key in replies],
    )
    rows = await tx.rows("SELECT id, names FROM responses WHERE user_id = :user AND names <> '[]'", user_params)
    responses = [id for id, text in rows if removed.intersection(json.loads(text))]
    await drop_responses(tx, user, responses)
    rows = await tx.rows(
        "SELECT thread_id, id, names FROM thread_items WHERE user_id = :user AND names <> '[]'", user_params
    )
    items = [(thread, id) for thread, id, text in rows if removed.intersection(json.loads(text))]
    await tx.many(
        "DELETE FROM thread_items WHERE user_id = :user AND thread_id = :thread AND id = :id",
        [{**user_params, "thread": thread, "id": id} for thread, id in items],
    )
    for kind, named in (("replies", replies), ("responses", responses), ("items", items)):
        counts[kind] = counts.get(kind, 0) + len(named)


# Records of erasures -------------------------------------------------------------------------------------


async def _record_erasure(
    tx: Tx,
    scope: Scope,
    target: Target,
    outcome: ErasureOutcome,
    *,
    ids: Sequence[str] = (),
    epoch: int | None = None,
) -> None:
    """Record what is needed to repeat the erasure; nothing else stays of a user who is erased as a whole."""
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
    """Return what was erased from the database, and which of its parts hold no bytes of it any more."""
    remaining = set(done.remaining) if done.remaining or done.is_complete else {*TABLES, LOG}
    parts = {part: remaining.isdisjoint(tables) for part, tables in _PARTS.items()}
    return StoreErasure("ledger", counts, done.is_complete, done.note, parts)


async def mark_finished(tx: Tx, at: datetime) -> None:
    """Record that of what was erased until then no bytes are left, or none that can be reached."""
    await tx.run(
        "UPDATE erasures SET finished_at = :now WHERE finished_at IS NULL AND requested_at <= :at",
        {"now": to_micros(now()), "at": to_micros(at)},
    )


async def has_unfinished(tx: Tx, *, ever: bool = False) -> bool:
    """Return whether an erasure, of the last days or `ever`, was interrupted or blocked by a reader."""
    since = {"since": 0 if ever else to_micros(now() - _RETRY_WINDOW)}
    return bool(
        await tx.rows("SELECT 1 FROM erasures WHERE finished_at IS NULL AND requested_at > :since LIMIT 1", since)
    )


async def erasures(tx: Tx, since: datetime | None = None, *, user: str | None = None) -> list[Erasure]:
    """Return the erasures since a time or ever, of all users or one, oldest first, for replay on an older backup."""
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
            user=digest,
            target=Target(target),
            project=project,
            session=session,
            ids=tuple(json.loads(ids)),
        )
        for id, at, digest, target, project, session, ids in rows
    ]
    return [each for each in result if each.is_replayable]
