"""SqlReplies: the promise of `Replies`, kept by the body of SQL on some engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from recollect.ledger.replies import Held
from recollect.ledger.reused import reused
from recollect.ledger.sql.tx import Engine, Tx, one
from recollect.ledger.sql.vectors import revision
from recollect.model.change import Once
from recollect.model.times import now, to_micros

_KEY = 'user_id = :user AND "key" = :key'
# What a key holds before it holds an answer.
_BEGUN = "{}"


class SqlReplies:
    """Keys of requests and their answers on a SQL database."""

    _engine: Engine

    async def hold_key(self, user: str, once: Once, *, lost_before: datetime | None = None) -> Held:
        return await self._engine.write(lambda tx: _hold(tx, user, once, lost_before), of=user)

    async def keep_answer(
        self, user: str, once: Once, answer: Mapping[str, Any], *, since: int | None = None
    ) -> None:
        await self._engine.write(lambda tx: _keep(tx, user, once, answer, since), of=user)

    async def let_go_key(self, user: str, once: Once) -> None:
        await self._engine.write(lambda tx: _let_go(tx, user, once), of=user)


async def _hold(tx: Tx, user: str, once: Once, lost_before: datetime | None) -> Held:
    params = {"user": user, "key": once.key, "digest": once.digest, "at": to_micros(now()), "begun": _BEGUN}
    mine = await one(
        tx,
        'INSERT INTO idempotency (user_id, "key", digest, created_at, result) '
        'VALUES (:user, :key, :digest, :at, :begun) ON CONFLICT (user_id, "key") DO NOTHING RETURNING 1',
        params,
    )
    if mine is None:
        row = await one(tx, f"SELECT digest, result, created_at FROM idempotency WHERE {_KEY}", params)
        if row is None:
            # It was let go of between the two.
            return Held()
        if row[0] != once.digest:
            raise reused(once)
        if row[1] != _BEGUN:
            return Held(answer=json.loads(row[1])["answer"])
        if lost_before is None or row[2] >= to_micros(lost_before):
            return Held()
        mine = await one(
            tx,
            f"UPDATE idempotency SET created_at = :at WHERE {_KEY} AND created_at = :then RETURNING 1",
            {**params, "then": row[2]},
        )
    return Held(is_mine=mine is not None, epoch=(await revision(tx, user)).epoch)


async def _keep(tx: Tx, user: str, once: Once, answer: Mapping[str, Any], since: int | None) -> None:
    # Held until the end, so that no erasure comes between; whoever has nothing is not kept for having asked.
    row = await one(tx, "UPDATE users SET epoch = epoch WHERE user_id = :user RETURNING epoch", {"user": user})
    epoch = row[0] if row else (await revision(tx, user)).epoch
    if since is not None and epoch != since:
        await _let_go(tx, user, once)
        return
    result = json.dumps({"answer": answer}, ensure_ascii=False)
    await tx.run(
        f"UPDATE idempotency SET result = :result WHERE {_KEY}", {"user": user, "key": once.key, "result": result}
    )


async def _let_go(tx: Tx, user: str, once: Once) -> None:
    await tx.run(
        f"DELETE FROM idempotency WHERE {_KEY} AND digest = :digest AND result = :begun",
        {"user": user, "key": once.key, "digest": once.digest, "begun": _BEGUN},
    )
