"""Count which memories are recalled, behind the answer: nobody waits for it."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from recollect.errors import RecollectError
from recollect.ledger.protocol import Ledger
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.read.behind import WAIT_S, Behind

_log = logging.getLogger("recollect")
# Beyond this, counting stops until the next write: a ledger that is away must not fill the memory.
_MOST_WAITING = 10_000


class Accesses:
    """Collects what was recalled for a moment, and writes it in one go."""

    def __init__(self, ledger: Ledger, *, wait_s: float = WAIT_S) -> None:
        self._ledger = ledger
        self._waiting: dict[str, set[str]] = {}
        self._count = 0
        self._behind = Behind(self._write, wait_s=wait_s)

    def note(self, scope: Scope, ids: Iterable[str]) -> None:
        """These memories of the user were recalled."""
        fresh = set(ids) - self._waiting.get(scope.user, set())
        if not fresh or self._count + len(fresh) > _MOST_WAITING:
            return
        self._waiting.setdefault(scope.user, set()).update(fresh)
        self._count += len(fresh)
        self._behind.nudge()

    async def close(self) -> None:
        """Write what waits."""
        await self._behind.close()

    async def _write(self) -> bool:
        waiting, self._waiting, self._count = self._waiting, {}, 0
        for user, ids in waiting.items():
            try:
                await self._ledger.touch(Scope(user), sorted(ids), at=now())
            except RecollectError as error:
                _log.warning("could not count which memories were recalled: %s", error)
        return bool(self._waiting)
