"""Bring what was spilled to the ledger, once it answers again: in order, each turn once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from recollect.errors import Backlog, RecollectError, Unavailable
from recollect.http.proxy.journal import Journal
from recollect.model.change import By
from recollect.model.remembered import Remembered
from recollect.model.scope import Scope
from recollect.service import Service
from recollect.upkeep.spilled import Line, Spilled, as_given

_log = logging.getLogger("recollect")
BY = By("proxy", "chat")
# How often it is looked whether the ledger answers while something waits, and else for files left behind by others.
EVERY_S = 1.0
LOOK_AROUND_S = 10.0
_PING_S = 2.0
_APPEND_S = 15.0
_SESSIONS_AT_ONCE = 8
_TURNS_AT_ONCE = 100


class Replay:
    """A task that empties the journal into the ledger."""

    def __init__(self, journal: Journal, service: Callable[[], Service]) -> None:
        self._journal, self._service = journal, service
        self._task: asyncio.Task[None] | None = None
        self._at_once = asyncio.Semaphore(_SESSIONS_AT_ONCE)

    def start(self) -> None:
        """Begin, and go on until this is closed."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop; what is left waits on disk."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while True:
            pause_s = EVERY_S
            try:
                await self.bring_in()
            except (Unavailable, TimeoutError) as error:
                _log.debug("what was spilled goes on waiting: %s", error)
            except Exception:
                _log.exception("what was spilled could not be brought to the ledger")
                pause_s = LOOK_AROUND_S
            waited = 0.0
            # Others leave files behind seldom, and to look for them costs more than to look at our own.
            while self._journal.is_empty and waited < LOOK_AROUND_S:
                await asyncio.sleep(EVERY_S)
                waited += EVERY_S
            await asyncio.sleep(pause_s)

    async def bring_in(self) -> int:
        """Bring in all that waits and can be; gives how many turns that were, or raises why the ledger is away."""
        service = self._service()
        async with asyncio.timeout(_PING_S):
            await service.ping()
        count, behind = 0, set[Scope]()
        for path in await self._journal.take():
            count += await self._bring_in_file(path, service, behind)
        if count:
            _log.info("%d turns that were spilled are in the ledger", count)
        return count

    async def _bring_in_file(self, path: Path, service: Service, behind: set[Scope]) -> int:
        """Bring in a file, sessions side by side, but those of which something before it is still waiting."""
        sessions: dict[Scope, list[Line]] = {}
        for line in await self._journal.read(path):
            sessions.setdefault(line.spilled.scope, []).append(line)
        tried = [scope for scope in sessions if scope not in behind]
        ended = await asyncio.gather(
            *(self._bring_in_session(path, scope, sessions[scope], service) for scope in tried),
            return_exceptions=True,
        )
        through = [scope for scope in sessions if not self._journal.waits_in(path, scope)]
        if len(through) == len(sessions):
            await self._journal.remove(path)
        elif through:
            await self._journal.strike(path, (line for scope in through for line in sessions[scope]))
        behind.update(sessions.keys() - set(through))
        for end in ended:
            # What one user has too much of does not keep back what others said.
            if isinstance(end, BaseException) and not isinstance(end, Backlog):
                raise end
        return sum(end for end in ended if isinstance(end, int))

    async def _bring_in_session(self, path: Path, scope: Scope, lines: Sequence[Line], service: Service) -> int:
        count = 0
        async with self._at_once:
            for start in range(0, len(lines), _TURNS_AT_ONCE):
                some = [line.spilled for line in lines[start : start + _TURNS_AT_ONCE]]
                count += await self._bring_in_many(some, service) or await self._bring_in_each(path, some, service)
        self._journal.is_through(path, scope)
        return count

    async def _bring_in_many(self, some: Sequence[Spilled], service: Service) -> int:
        """Bring in turns in one go; gives 0 unless all of them are there: each must then be looked at by itself.

        They count as given when the first of them was. So none comes in that an erasure reached, but one that was
        given after the erasure may stay out.
        """
        messages, given_at = [each.message for each in some], min(each.given_at for each in some)
        try:
            kept = await self._remember(some[0].scope, messages, given_at, service)
        except (Unavailable, TimeoutError):
            raise
        except RecollectError:
            return 0
        return len(kept) if len(kept) == len(some) else 0

    async def _bring_in_each(self, path: Path, some: Sequence[Spilled], service: Service) -> int:
        count = 0
        for scope, given_at, messages in as_given(some):
            try:
                count += len(await self._remember(scope, messages, given_at, service))
            except (Unavailable, TimeoutError):
                raise
            except RecollectError as error:
                _log.error("%d turns are put aside, the ledger refuses them: %s", len(messages), error)
                await self._journal.refuse(path, (Spilled(scope, each, given_at) for each in messages))
        return count

    async def _remember(
        self, scope: Scope, messages: Sequence[Mapping[str, Any]], given_at: datetime, service: Service
    ) -> Remembered:
        async with asyncio.timeout(_APPEND_S):
            return await service.remember(scope, messages, by=BY, given_at=given_at)
