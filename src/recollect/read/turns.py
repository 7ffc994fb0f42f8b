"""Turns of the event loop: many searches that could begin in the same one begin one after the other."""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """Gives one turn of the event loop to each who asks, so that what else is ready comes between them.

    A search works a few milliseconds before it waits for anything. Of a hundred chats that arrive together many could
    begin theirs in the same moment, and every stream that is open would wait for all of them.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        # The loop whose turn is taken; that of one which was closed meanwhile binds nobody.
        self._taken_in: asyncio.AbstractEventLoop | None = None

    async def take(self) -> None:
        """Go on at once where nobody did in this turn of the loop, else in a later one; first come, first served."""
        loop = asyncio.get_running_loop()
        if self._taken_in is not loop:
            self._taken_in = loop
            loop.call_soon(self._pass_on)
            return
        mine = loop.create_future()
        self._waiting.append(mine)
        await mine

    def _pass_on(self) -> None:
        while self._waiting:
            following = self._waiting.popleft()
            if not following.done():
                following.set_result(None)
                # Behind the one who was let in, so in the turn of the loop in which that one works.
                following.get_loop().call_soon(self._pass_on)
                return
        self._taken_in = None
