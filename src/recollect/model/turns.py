"""Turns of the event loop: of many who could begin in the same one, a few do in each."""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """Lets a few begin in each turn of the event loop, so that what else is ready comes between them.

    A search works a few milliseconds before it waits for anything. Of a hundred chats that arrive together many could
    begin theirs in the same moment, and every stream that is open would wait for all of them.
    """

    def __init__(self, each: int = 1) -> None:
        self._each = each
        # How many more may begin in this turn.
        self._left = each
        self._waiting: deque[asyncio.Future[None]] = deque()
        # The loop whose turn is taken; that of one which was closed meanwhile binds nobody.
        self._taken_in: asyncio.AbstractEventLoop | None = None

    async def take(self) -> None:
        """Go on at once where few did in this turn of the loop, else in a later one; first come, first served."""
        loop = asyncio.get_running_loop()
        if self._taken_in is not loop:
            self._taken_in, self._left = loop, self._each
            loop.call_soon(self._pass_on)
        if self._left and not self._waiting:
            self._left -= 1
            return
        mine = loop.create_future()
        self._waiting.append(mine)
        await mine

    def _pass_on(self) -> None:
        """Begin the next turn: let in who waits, and come again behind them."""
        if self._taken_in is not (loop := asyncio.get_running_loop()):
            return
        self._left = self._each
        while self._waiting and self._left:
            following = self._waiting.popleft()
            if not following.done():
                following.set_result(None)
                self._left -= 1
        if self._left < self._each:
            loop.call_soon(self._pass_on)
        else:
            self._taken_in = None
