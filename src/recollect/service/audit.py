"""The audit log of the page: every look of somebody with a key for several users at one user's memories."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from recollect.frozen_dataclass import frozen_dataclass
from recollect.ledger.ledger import Ledger
from recollect.ledger.types import AccessRow
from recollect.model.erasure import user_digest
from recollect.model.times import from_micros, now, to_micros

__all__ = ["AccessRow", "AuditLog", "MemoryAccess"]
_MINUTE_MICROS = 60_000_000
_MAX_REMEMBERED = 10_000


@frozen_dataclass
class MemoryAccess:
    """An entry of the log; `user` is None for a user who no longer exists."""

    at: datetime
    who: str
    user: str | None
    route: str
    row: AccessRow

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        at, digest = self.at.isoformat(), self.row.user_digest
        return {"at": at, "who": self.who, "user_id": self.user, "user_digest": digest, "route": self.route}


class AuditLog:
    """Records accesses, at most once a minute for each user and route."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._minute = 0
        self._recorded: set[AccessRow] = set()

    async def record(self, who: str, user: str, route: str) -> None:
        """Record an access; it is on disk when this returns."""
        minute = to_micros(now()) // _MINUTE_MICROS
        if minute != self._minute or len(self._recorded) >= _MAX_REMEMBERED:
            self._minute, self._recorded = minute, set()
        access = AccessRow(minute, who, user_digest(user), route)
        if access not in self._recorded:
            await self._ledger.record_access(access)
            self._recorded.add(access)

    async def list(
        self, *, user: str | None = None, before: AccessRow | None = None, limit: int
    ) -> list[MemoryAccess]:
        """Return accesses to all users or to one, newest first."""
        digest = None if user is None else user_digest(user)
        rows = await self._ledger.accesses(user_digest=digest, before=before, limit=limit)
        names = {user_digest(name): name for name in ([user] if user is not None else await self._ledger.users())}
        return [
            MemoryAccess(
                from_micros(row.minute * _MINUTE_MICROS), row.who, names.get(row.user_digest), row.route, row
            )
            for row in rows
        ]
