"""Tombstones: digests by which forgotten and erased turns are recognised when they are sent again.

Their `user_id` is a digest too, so that they outlive the erasure of a user without the name.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from recollect.ledger.plan import Plan
from recollect.ledger.sql.migrate import meta, set_meta
from recollect.ledger.sql.tx import Tx
from recollect.model.erasure import TombstoneSet, digests_of, id_digest, text_digest, user_digest, user_key
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.times import from_micros, now, to_micros
from recollect.model.turn import Role, Turn

_META_NAME = "tombstone_secret"
_FILLED = "tombstones_filled"
_PAGE = 1000


async def write_tombstones(tx: Tx, user: str, plan: Plan) -> None:
    """Add the tombstones of turns that a plan forgets, and remove those of turns that it makes active."""
    added, removed = _changed_messages(plan)
    if removed and (keys := await _keys(tx, user)):
        digests = [text_digest(key, *message) for message in removed for key in keys]
        await tx.run(
            f"DELETE FROM tombstones WHERE user_id = :user AND {tx.dialect.among('digest', 'digests')}",
            {"user": user_digest(user), "digests": digests},
        )
    if added:
        key = await _own_key(tx, user)
        await _put(tx, user, [text_digest(key, *message) for message in added], plan.at)


def _changed_messages(plan: Plan) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the (role, text) of turns that get a tombstone, forgotten ones and former wordings, and that lose it.

    An evicted turn gets none until it is forgotten on request: old history may bring it back. A turn that is appended
    anew keeps the tombstone of its text: the older history can still be sent again.
    """
    added = [
        _role_and_text(record)
        for record in plan.added.values()
        if record.category is Category.TURN and record.status is Status.FORGOTTEN
    ]
    added += map(_role_and_text, plan.forgotten_again)
    removed = []
    for id, record in plan.changed.items():
        before = plan.originals[id]
        if record.category is not Category.TURN:
            continue
        if record.content != before.content and before.status is Status.ACTIVE:
            added.append(_role_and_text(before))
        if (record.status, record.content) == (before.status, before.content):
            continue
        if record.status is Status.FORGOTTEN:
            added += [_role_and_text(record)] if id not in plan.evicted else []
        elif record.status is Status.ACTIVE:
            removed.append(_role_and_text(record))
    return added, removed


def _role_and_text(record: MemoryRecord) -> tuple[str, str]:
    return str(record.detail.get("role", Role.USER)), record.content


async def add_for_erased(tx: Tx, user: str, ids: Collection[str], *, purged: bool = False) -> None:
    """Add the tombstones of turns that are about to be erased: of their ids and, unless purged, of their texts.

    The texts of purged turns have theirs since they were forgotten.
    """
    key, at, ordered = await _own_key(tx, user), now(), sorted(ids)
    for start in range(0, len(ordered), _PAGE):
        rows = await tx.rows(
            "SELECT t.id, t.role, m.content FROM turns t JOIN memories m ON m.user_id = t.user_id AND m.id = t.id "
            f"WHERE t.user_id = :user AND {tx.dialect.among('t.id', 'ids')}",
            {"user": user, "ids": ordered[start : start + _PAGE]},
        )
        texts = [] if purged else [text_digest(key, role, content) for _, role, content in rows]
        await _put(tx, user, [*texts, *(id_digest(key, id) for id, _, _ in rows)], at)


async def add_for_user(tx: Tx, user: str) -> None:
    """Add the tombstones of all turns of a user who is about to be erased."""
    rows = await tx.rows("SELECT id FROM turns WHERE user_id = :user", {"user": user})
    await add_for_erased(tx, user, [id for (id,) in rows])


async def add_for_forgotten(tx: Tx) -> None:
    """Add the tombstones of turns that were forgotten before tombstones existed, once for a ledger."""
    rows = await tx.rows(
        "SELECT t.user_id, t.role, m.content, m.updated_at FROM turns t "
        "JOIN memories m ON m.user_id = t.user_id AND m.id = t.id WHERE m.status = 'forgotten'",
        {},
    )
    for user, role, content, at in rows:
        await _put(tx, user, [text_digest(await _own_key(tx, user), role, content)], from_micros(at))
    await set_meta(tx, _FILLED, "yes")


async def is_filled(tx: Tx) -> bool:
    """Return whether `add_for_forgotten` has run."""
    return await meta(tx, _FILLED) is not None


async def resent_turns(tx: Tx, user: str, turns: Sequence[Turn], received_at: datetime) -> set[str]:
    """Return the ids of turns received before the same text was forgotten, or that name an erased turn."""
    keys = await _keys(tx, user)
    if not keys:
        return set()
    digests = {turn.id: digests_of(keys, turn) for turn in turns}
    every_digest = {digest for parts in digests.values() for part in parts for digest in part}
    forgotten_at = await _find_times(tx, user, every_digest)
    return {
        id
        for id, (texts, ids) in digests.items()
        if any(forgotten_at[text] > received_at for text in texts & forgotten_at.keys()) or ids & forgotten_at.keys()
    }


async def tombstoned(tx: Tx, user: str, messages: Collection[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """Return the messages, as (role, text), that match a forgotten or erased turn of the user."""
    keys = await _keys(tx, user)
    digests = {each: {text_digest(key, *each) for key in keys} for each in messages} if keys else {}
    matches = await _find_times(tx, user, set().union(*digests.values())) if digests else {}
    return frozenset(each for each, own_digests in digests.items() if own_digests & matches.keys())


async def has_tombstones(tx: Tx, user: str) -> bool:
    """Return whether any turn of the user was ever forgotten or erased; called with every chat."""
    return bool(await tx.rows("SELECT 1 FROM tombstones WHERE user_id = :user LIMIT 1", {"user": user_digest(user)}))


async def tombstones(tx: Tx, user: str) -> TombstoneSet:
    """Return all tombstones of the user with their keys, to be put into another ledger."""
    rows = await tx.rows(
        "SELECT digest, forgotten_at FROM tombstones WHERE user_id = :user ORDER BY digest",
        {"user": user_digest(user)},
    )
    return TombstoneSet(tuple(await _keys(tx, user)), {digest: from_micros(at) for digest, at in rows})


async def put_tombstones(tx: Tx, user: str, incoming: TombstoneSet) -> None:
    """Add tombstones of another ledger, and the keys they were made with."""
    own_key = await _own_key(tx, user)
    await tx.many(
        'INSERT INTO tombstone_keys (user_id, "key") VALUES (:user, :key) ON CONFLICT (user_id, "key") DO NOTHING',
        [{"user": user_digest(user), "key": key} for key in incoming.keys if key != own_key],
    )
    for digest, at in incoming.digests.items():
        await _put(tx, user, [digest], at)


async def prune_tombstones(tx: Tx, before: datetime) -> int:
    """Remove a batch of the tombstones of texts and turns that were forgotten before a time; return how many."""
    rows = await tx.rows(
        "DELETE FROM tombstones WHERE (user_id, digest) IN (SELECT user_id, digest FROM tombstones "
        "WHERE forgotten_at < :before LIMIT :limit) RETURNING 1",
        {"before": to_micros(before), "limit": _PAGE},
    )
    return len(rows)


async def _find_times(tx: Tx, user: str, digests: Collection[str]) -> dict[str, datetime]:
    rows = await tx.rows(
        "SELECT digest, forgotten_at FROM tombstones "
        f"WHERE user_id = :user AND {tx.dialect.among('digest', 'digests')}",
        {"user": user_digest(user), "digests": list(digests)},
    )
    return {digest: from_micros(at) for digest, at in rows}


async def _keys(tx: Tx, user: str) -> list[str]:
    """Return the keys of the user's tombstones, the ledger's own first; none for a user without tombstones."""
    rows = await tx.rows(
        "SELECT 0, value FROM meta WHERE name = :secret AND EXISTS (SELECT 1 FROM tombstones WHERE user_id = :user) "
        'UNION ALL SELECT 1, "key" FROM tombstone_keys WHERE user_id = :user ORDER BY 1',
        {"secret": _META_NAME, "user": user_digest(user)},
    )
    return [value if imported else user_key(value, user) for imported, value in rows]


async def _own_key(tx: Tx, user: str) -> str:
    rows = await tx.rows("SELECT value FROM meta WHERE name = :secret", {"secret": _META_NAME})
    return user_key(rows[0][0], user)


async def _put(tx: Tx, user: str, digests: Collection[str], at: datetime) -> None:
    await tx.many(
        "INSERT INTO tombstones (user_id, digest, forgotten_at) VALUES (:user, :digest, :at) "
        "ON CONFLICT (user_id, digest) DO UPDATE SET forgotten_at = excluded.forgotten_at",
        [{"user": user_digest(user), "digest": digest, "at": to_micros(at)} for digest in sorted(set(digests))],
    )
