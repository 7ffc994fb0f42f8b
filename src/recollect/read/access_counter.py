"""Count which memories are recalled, in the background."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from recollect.aio.background import WAIT_S, DeferredWriter
from recollect.errors import RecollectError
from recollect.ledger.ledger import Ledger
from recollect.model.scope import Scope
from recollect.model.times import now

_log = logging.getLogger("recollect")
# Beyond this, counting stops until the next write: an unavailable ledger must not fill the memory.
_MAX_PENDING = 10_000


class AccessCounter:
    """Collects the ids of recalled memories and writes them in batches."""

    def __init__(self, ledger: Ledger, *, wait_s: float = WAIT_S) -> None:
        self._ledger = ledger
        self._pending: dict[str, set[str]] = {}
        self._count = 0
        self._writer = DeferredWriter(self._write, wait_s=wait_s)

    def record(self, scope: Scope, ids: Iterable[str]) -> None:
        """Count these memories of the user as recalled."""
        new_ids = set(ids) - self._pending.get(scope.user, set())
        if not new_ids or self._count + len(new_ids) > _MAX_PENDING:
            return
        self._pending.setdefault(scope.user, set()).update(new_ids)
        self._count += len(new_ids)
        self._writer.schedule()

    async def close(self) -> None:
        """Write pending counts."""
        await self._writer.close()

    async def _write(self) -> bool:
        pending, self._pending, self._count = self._pending, {}, 0
        for user, ids in pending.items():
            try:
                await self._ledger.touch(Scope(user), sorted(ids), at=now())
            except RecollectError as error:
                _log.warning("recalled memories could not be counted: %s", error)
        return bool(self._pending)
