"""Maintenance of the store: counts, checks, access counts, and rebuilding the full text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from recollect.ledger.sql import mentions
from recollect.ledger.sql.full_text import count_words, index_words
from recollect.ledger.sql.history import add_evidence
from recollect.ledger.sql.memories import MEMORY_COLUMNS, record_from_row
from recollect.ledger.sql.migrate import meta, set_meta
from recollect.ledger.sql.tx import Tx, fetch_one
from recollect.ledger.sql.vectors import NOT_TOKEN_VECTORS
from recollect.ledger.tokenizer import TERMS_RULES
from recollect.model.scope import Scope
from recollect.model.text import is_storable
from recollect.model.times import to_micros
from recollect.models.traits import compute_traits, speaker_name

_REBUILD_ROWS = 1000
_LISTED_BACKUPS = 50
_SELECTED = ", ".join(f"m.{name}" for name in MEMORY_COLUMNS)


async def users(tx: Tx) -> list[str]:
    """Return all users who have ever written, in order."""
    return [row[0] for row in await tx.rows("SELECT user_id FROM users ORDER BY user_id", {})]


async def touch(tx: Tx, scope: Scope, ids: Sequence[str], *, at: datetime) -> None:
    """Count an access of each memory, without history or a new version."""
    ids = [id for id in ids if is_storable(id)]
    await tx.run(
        "UPDATE memories SET access_count = access_count + 1, last_accessed_at = :at "
        f"WHERE user_id = :user AND {tx.dialect.among('id', 'ids')}",
        {"user": scope.user, "ids": ids, "at": to_micros(at)},
    )


async def stats(tx: Tx, user: str | None = None) -> dict[str, int]:
    """Return counts of one user or of all: memories by status, turns, conversations, history, jobs, vectors."""
    params: dict[str, Any] = {} if user is None else {"user": user}
    of_user = "" if user is None else " WHERE user_id = :user"
    counts: dict[str, int] = dict.fromkeys(("memories", "turns", "superseded", "review", "forgotten"), 0)
    rows = await tx.rows(f"SELECT status, category = 'turn', count(*) FROM memories{of_user} GROUP BY 1, 2", params)
    for status, is_turn, number in rows:
        counts[("turns" if is_turn else "memories") if status == "active" else status] += number
    for table in ("users", "conversations", "history", "jobs", "vectors"):
        test = of_user
        if table == "vectors":
            test = f"{of_user} AND {NOT_TOKEN_VECTORS}" if of_user else f" WHERE {NOT_TOKEN_VECTORS}"
        row = await fetch_one(tx, f"SELECT count(*) FROM {table}{test}", params)
        counts[table] = row[0] if row else 0
    return counts


async def check(tx: Tx) -> list[str]:
    """Return the invariants that are violated, a sentence each."""
    broken = []
    for sql, sentence in (
        (
            "SELECT count(*) FROM vectors v WHERE NOT EXISTS (SELECT 1 FROM memories m WHERE m.row = v.row)",
            "{} vectors belong to no memory; run: recollect doctor --mend",
        ),
        (
            "SELECT count(*) FROM evidence e WHERE NOT EXISTS (SELECT 1 FROM memories m WHERE m.row = e.row)",
            "{} pieces of evidence belong to no memory; run: recollect doctor --mend",
        ),
        (
            "SELECT count(*) FROM mentions n WHERE NOT EXISTS (SELECT 1 FROM memories m WHERE m.row = n.row)",
            "{} mentions of names belong to no memory; run: recollect doctor --mend",
        ),
        (
            "SELECT count(*) FROM turns t WHERE NOT EXISTS "
            "(SELECT 1 FROM memories m WHERE m.user_id = t.user_id AND m.id = t.id)",
            "{} turns have lost their text",
        ),
    ):
        row = await fetch_one(tx, sql, {})
        if row and row[0]:
            broken.append(sentence.format(row[0]))
    memories, indexed = (await tx.rows("SELECT count(*) FROM memories", {}))[0][0], await tx.dialect.terms.count(tx)
    if memories != indexed:
        broken.append(f"the full text has {indexed} of {memories} memories; run: recollect doctor --mend")
    return broken


async def backups(tx: Tx) -> list[dict[str, Any]]:
    """Return the descriptions of the newest backups, newest first."""
    listed: list[dict[str, Any]] = json.loads(await meta(tx, "backups") or "[]")
    return listed


async def note_backup(tx: Tx, description: Mapping[str, Any]) -> None:
    """Add a backup to the list."""
    await set_meta(tx, "backups", json.dumps([description, *(await backups(tx))][:_LISTED_BACKUPS]))


async def terms_version(tx: Tx) -> str | None:
    """Return the rules the full text was made with; None for a new ledger."""
    return await meta(tx, "terms")


async def rebuild_terms(tx: Tx, progress: Callable[[int], None] = lambda done: None) -> None:
    """Rebuild full text, traits, evidence and mentions in one transaction: concurrent readers see the old ones whole.

    `progress` receives the number of rows done.
    """
    await tx.dialect.terms.clear(tx)
    await tx.run("DELETE FROM evidence", {})
    after, done = 0, 0
    while rows := await tx.rows(
        f"SELECT m.row, u.number, {_SELECTED} FROM memories m JOIN users u ON u.user_id = m.user_id "
        "WHERE m.row > :after ORDER BY m.row LIMIT :limit",
        {"after": after, "limit": _REBUILD_ROWS},
    ):
        records = {row: record_from_row(columns) for row, _, *columns in rows}
        words = {row: index_words(number, records[row].content) for row, number, *_ in rows}
        await tx.dialect.terms.put(tx, words)
        await add_evidence(tx, records)
        await tx.many(
            "UPDATE memories SET term_count = :count, traits = :traits, speaker = :speaker WHERE row = :row",
            [
                {
                    "row": row,
                    "count": count_words(words[row]),
                    "traits": compute_traits(record),
                    "speaker": speaker_name(record),
                }
                for row, record in records.items()
            ],
        )
        after, done = rows[-1][0], done + len(rows)
        progress(done)
    await mentions.fill(tx)
    await tx.run("DELETE FROM vectors WHERE NOT EXISTS (SELECT 1 FROM memories m WHERE m.row = vectors.row)", {})
    # Caches of lengths and rows are read again.
    await tx.run("UPDATE users SET epoch = epoch + 1", {})
    await set_meta(tx, "terms", TERMS_RULES)
