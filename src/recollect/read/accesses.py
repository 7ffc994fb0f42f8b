"""Count which memories are recalled, behind the answer: nobody waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from recollect.errors import RecollectError
from recollect.ledger.protocol import Ledger
from recollect.model.scope import Scope
from recollect.model.times import now

_log = logging.getLogger("recollect")
_WAIT_S = 2.0
# Beyond this, counting stops until the next write: a ledger that is away must not fill the memory.
_MOST_WAITING = 10_000


class Accesses:
    """Collects what was recalled for a moment, and writes it in one go."""

    def __init__(self, ledger: Ledger, *, wait_s: float = _WAIT_S) -> None:
        self._ledger = ledger
        self._wait_s = wait_s
        self._waiting: dict[str, set[str]] = {}
        self._count = 0
        self._task: asyncio.Task[None] | None = None
        self._asleep = False

    def note(self, scope: Scope, ids: Iterable[str]) -> None:
        """These memories of the user were recalled."""
        fresh = set(ids) - self._waiting.get(scope.user, set())
        if not fresh or self._count + len(fresh) > _MOST_WAITING:
            return
        self._waiting.setdefault(scope.user, set()).update(fresh)
        self._count += len(fresh)
        if not self._is_under_way():
            self._task = asyncio.create_task(self._write_later())

    def _is_under_way(self) -> bool:
        """Whether a task of this loop will write; one of a loop that was left behind will not."""
        task = self._task
        return task is not None and not task.done() and task.get_loop() is asyncio.get_running_loop()

    async def close(self) -> None:
        """Write what waits."""
        if self._task is not None and self._is_under_way():
            # What it is writing it has to write to the end: nobody else has that any more.
            if self._asleep:
                self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._write()

    async def _write_later(self) -> None:
        # What is noted while it writes comes after, without anyone having to note more.
        while self._waiting:
            self._asleep = True
            try:
                await asyncio.sleep(self._wait_s)
            finally:
                self._asleep = False
            await self._write()

    async def _write(self) -> None:
        waiting, self._waiting, self._count = self._waiting, {}, 0
        for user, ids in waiting.items():
            try:
                await self._ledger.touch(Scope(user), sorted(ids), at=now())
            except RecollectError as error:
                _log.warning("could not count which memories were recalled: %s", error)
