"""Idempotency keys of requests, and the answers stored under them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from recollect.errors import IdempotencyReuse
from recollect.ledger.sql.tx import Tx, fetch_one
from recollect.ledger.sql.vectors import revision
from recollect.ledger.types import KeyClaim
from recollect.model.change import IdempotencyToken
from recollect.model.times import now, to_micros

_KEY = 'user_id = :user AND "key" = :key'
# The value of a key without an answer.
_PENDING = "{}"


async def claim_key(tx: Tx, user: str, once: IdempotencyToken, *, stale_before: datetime | None = None) -> KeyClaim:
    """Claim a key that is free, or was claimed before `stale_before` and never answered.

    Raise IdempotencyReuse if it was used for a different request.
    """
    params = {"user": user, "key": once.key, "digest": once.digest, "at": to_micros(now()), "begun": _PENDING}
    claimed = await fetch_one(
        tx,
        'INSERT INTO idempotency (user_id, "key", digest, created_at, result) '
        'VALUES (:user, :key, :digest, :at, :begun) ON CONFLICT (user_id, "key") DO NOTHING RETURNING 1',
        params,
    )
    if claimed is None:
        row = await fetch_one(tx, f"SELECT digest, result, created_at FROM idempotency WHERE {_KEY}", params)
        if row is None:
            # It was released between the two statements.
            return KeyClaim()
        if row[0] != once.digest:
            raise key_reuse_error(once)
        if row[1] != _PENDING:
            return KeyClaim(answer=json.loads(row[1])["answer"])
        if stale_before is None or row[2] >= to_micros(stale_before):
            return KeyClaim()
        claimed = await fetch_one(
            tx,
            f"UPDATE idempotency SET created_at = :at WHERE {_KEY} AND created_at = :then RETURNING 1",
            {**params, "then": row[2]},
        )
    return KeyClaim(is_owner=claimed is not None, epoch=(await revision(tx, user)).epoch)


async def store_answer(
    tx: Tx, user: str, once: IdempotencyToken, answer: Mapping[str, Any], *, since: int | None = None
) -> None:
    """Store the answer of a request; nothing is stored if anything was erased since the epoch `since`."""
    # Locks the user, so that no erasure comes between; a user without data is not created.
    row = await fetch_one(tx, "UPDATE users SET epoch = epoch WHERE user_id = :user RETURNING epoch", {"user": user})
    epoch = row[0] if row else (await revision(tx, user)).epoch
    if since is not None and epoch != since:
        await release_key(tx, user, once)
        return
    result = json.dumps({"answer": answer}, ensure_ascii=False)
    await tx.run(
        f"UPDATE idempotency SET result = :result WHERE {_KEY}", {"user": user, "key": once.key, "result": result}
    )


async def release_key(tx: Tx, user: str, once: IdempotencyToken, *, answered: bool = False) -> None:
    """Free the key of a request that failed; one that has its answer stays, unless it is `answered` in error."""
    pending = "" if answered else " AND result = :begun"
    params = {"user": user, "key": once.key, "digest": once.digest} | ({} if answered else {"begun": _PENDING})
    await tx.run(f"DELETE FROM idempotency WHERE {_KEY} AND digest = :digest{pending}", params)


def key_reuse_error(once: IdempotencyToken) -> IdempotencyReuse:
    """Return the error for a key that was used for a different request."""
    return IdempotencyReuse(f"idempotency key {once.key!r} was used for another request; take a new key")
