"""Taking what is erased out of the full text."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping
from typing import Any

from recollect.ledger.cascade import mentions_any, strip_ids
from recollect.ledger.sql.changes import Owner, WriteContext
from recollect.ledger.sql.full_text import index_words
from recollect.ledger.sql.jobs import UNLEASED, lock_jobs, set_queue
from recollect.ledger.sql.responses import drop_responses
from recollect.ledger.sql.tx import Tx
from recollect.model.scope import Scope
from recollect.model.times import now, to_micros

_PAGE = 1000
# Up to here it is cheaper to take rows out one by one.
_MAX_SINGLE_DROPS = 500


def id_pages(ids: Collection[str]) -> Iterator[list[str]]:
    """The ids in lists that a statement can take."""
    ordered = sorted(ids)
    for start in range(0, len(ordered), _PAGE):
        yield ordered[start : start + _PAGE]


async def drop_terms(tx: Tx, context: WriteContext, owner: Owner, ids: Collection[str] | None) -> None:
    """Take memories of these ids, or all of the user's, out of the full text."""
    is_small = ids is not None and len(ids) <= _MAX_SINGLE_DROPS
    words = _indexed_words(tx, owner, ids)
    if not is_small:
        await context.engine.terms.drop_many(tx, words)
        return
    async for rows in words:
        await context.engine.terms.drop(tx, rows)


async def _indexed_words(tx: Tx, owner: Owner, ids: Collection[str] | None) -> AsyncIterator[dict[int, str]]:
    """The words that rows are under in the full text, page by page."""
    if ids is None:
        id_rows = await tx.rows("SELECT id FROM memories WHERE user_id = :user", {"user": owner.name})
        ids = [id for (id,) in id_rows]
    for page in id_pages(ids):
        rows = await tx.rows(
            f"SELECT row, content FROM memories WHERE user_id = :user AND {tx.dialect.among('id', 'ids')}",
            {"user": owner.name, "ids": page},
        )
        yield {row: index_words(owner.number, content) for row, content in rows}


# Whatever has a user's name on it goes with the user: its table, and what a receipt calls it, if it tells of it.
USER_TABLES: Mapping[str, str] = {
    "vectors": "vectors",
    "evidence": "",
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


async def delete(tx: Tx, table: str, test: str, params: Mapping[str, Any]) -> int:
    """Delete rows; gives how many."""
    counts = await tx.rows(f"SELECT count(*) FROM {table} WHERE {test}", params)
    if counts[0][0]:
        await tx.run(f"DELETE FROM {table} WHERE {test}", params)
    return int(counts[0][0])


def _scope_condition(scope: Scope, *, whole_project: bool) -> tuple[str, dict[str, Any]]:
    test, params = "user_id = :user AND project_id = :project", {"user": scope.user, "project": scope.project}
    return (
        (test, params)
        if whole_project
        else (f"{test} AND session_id = :session", params | {"session": scope.session})
    )


async def drop_sessions(tx: Tx, scope: Scope, *, whole_project: bool, counts: dict[str, int]) -> None:
    """Remove the session, or all of the project's."""
    test, params = _scope_condition(scope, whole_project=whole_project)
    await delete(tx, "turns", test, params)
    counts["conversations"] = await delete(tx, "conversations", test, params)
    counts["responses"] = await delete(tx, "responses", test, params)
    of_threads = f"user_id = :user AND thread_id IN (SELECT id FROM threads WHERE {test})"
    counts["items"] = await delete(tx, "thread_items", of_threads, params)
    counts["threads"] = await delete(tx, "threads", test, params)
    if whole_project:
        await delete(tx, "chores", test, params)


async def drop_jobs(tx: Tx, scope: Scope, *, whole_project: bool, counts: dict[str, int]) -> None:
    """Remove the jobs of the session or the project: there is nothing left for them to do."""
    await lock_jobs(tx, scope.user)
    test, params = _scope_condition(scope, whole_project=whole_project)
    counts["jobs"] = await delete(tx, "jobs", test, params)


async def reset_jobs(tx: Tx, user: str, ids: Collection[str]) -> None:
    """Keep what runs for the user from having any effect, and jobs from naming or quoting what is gone.

    None is lost: one that runs may have read what is gone, so it waits again, to be done from what is left.
    """
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
    # What came of a job, or kept it from its end, may quote anything it had read.
    await tx.run(
        "UPDATE jobs SET result = NULL, error = NULL "
        "WHERE user_id = :user AND (result IS NOT NULL OR error IS NOT NULL)",
        {"user": user},
    )
    rows = await tx.rows("SELECT id, payload FROM jobs WHERE user_id = :user AND payload <> '{}'", {"user": user})
    removed = set(ids)
    for id, text in rows:
        payload = json.loads(text)
        stripped = strip_ids(payload, removed)
        if stripped != payload:
            await tx.run(
                "UPDATE jobs SET payload = :payload WHERE user_id = :user AND id = :id",
                {"user": user, "id": id, "payload": json.dumps(stripped, ensure_ascii=False)},
            )


async def blank_summaries(tx: Tx, user: str, sessions: Iterable[tuple[str, str]]) -> list[Scope]:
    """Take away what was made of sessions that lost a turn; gives those that had anything."""
    blanked = []
    for project, session in sorted(sessions):
        params = {"user": user, "project": project, "session": session}
        test = "user_id = :user AND project_id = :project AND session_id = :session"
        for (text,) in await tx.rows(f"SELECT body FROM conversations WHERE {test}", params):
            body = json.loads(text)
            if body.pop("summary", None) or body.pop("invocations", None):
                blanked.append(Scope(user, project, session))
            body.pop("invocations", None)
            # The version moves in any case: who worked out a summary from what was there cannot put it in.
            await tx.run(
                f"UPDATE conversations SET body = :body, version = version + 1 WHERE {test}",
                params | {"body": json.dumps(body, ensure_ascii=False)},
            )
    return blanked


async def drop_mentions(tx: Tx, user: str, ids: Collection[str], counts: dict[str, int]) -> None:
    """Remove replies, responses and items that name what is gone."""
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
