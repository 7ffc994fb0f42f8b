"""The audit log: who looked at whose memories, and by which route."""

from __future__ import annotations

from typing import Any

from recollect.ledger.sql.tx import Tx
from recollect.ledger.types import AccessRow

_COLUMNS = "minute, who, user_digest, route"


async def record_access(tx: Tx, access: AccessRow) -> None:
    """Record an access once."""
    await tx.run(
        f"INSERT INTO audit ({_COLUMNS}) VALUES (:minute, :who, :user_digest, :route) ON CONFLICT DO NOTHING",
        access._asdict(),
    )


async def accesses(
    tx: Tx, *, user_digest: str | None = None, before: AccessRow | None = None, limit: int
) -> list[AccessRow]:
    """Return accesses to all users or to one, newest first, after the last one of the previous page."""
    params: dict[str, Any] = {"limit": limit}
    tests = ["1 = 1"]
    if user_digest is not None:
        params["of_user"] = user_digest
        tests.append("user_digest = :of_user")
    if before is not None:
        params |= before._asdict()
        tests.append(f"({_COLUMNS}) < (:minute, :who, :user_digest, :route)")
    rows = await tx.rows(
        f"SELECT {_COLUMNS} FROM audit WHERE {' AND '.join(tests)} "
        "ORDER BY minute DESC, who DESC, user_digest DESC, route DESC LIMIT :limit",
        params,
    )
    return [AccessRow(*row) for row in rows]
