"""Keys of requests and their answers as the ledger in memory keeps them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from recollect.ledger.cascade import mentions
from recollect.ledger.memory_rows import User, plain_copy
from recollect.ledger.replies import Held
from recollect.ledger.reused import reused
from recollect.model.change import Once
from recollect.model.times import now


class MemoryReplies:
    """A key holds nothing while its request is done, and then the answer."""

    def __init__(self) -> None:
        self._replies: dict[tuple[str, str], tuple[Once, dict[str, Any] | None, datetime]] = {}

    def _user(self, name: str) -> User:
        raise NotImplementedError

    async def hold_key(self, user: str, once: Once, *, lost_before: datetime | None = None) -> Held:
        owner = self._user(user)
        place = (user, once.key)
        if once.key in owner.done:
            raise reused(once)
        if place in self._replies:
            first, answer, at = self._replies[place]
            if first.digest != once.digest:
                raise reused(once)
            if answer is not None:
                return Held(answer=plain_copy(answer))
            if lost_before is None or at >= lost_before:
                return Held()
        self._replies[place] = (once, None, now())
        return Held(is_mine=True, epoch=owner.epoch)

    async def keep_answer(
        self, user: str, once: Once, answer: Mapping[str, Any], *, since: int | None = None
    ) -> None:
        if since is not None and self._user(user).epoch != since:
            await self.let_go_key(user, once)
        elif (user, once.key) in self._replies:
            self._replies[user, once.key] = (once, plain_copy(answer), self._replies[user, once.key][2])

    async def let_go_key(self, user: str, once: Once) -> None:
        held = self._replies.get((user, once.key))
        if held is not None and held[0] == once and held[1] is None:
            del self._replies[user, once.key]

    def _check_key(self, user: str, once: Once) -> None:
        """Raise if the key was taken for a request of another kind."""
        if (user, once.key) in self._replies:
            raise reused(once)

    def _drop_answers(self, user: str, ids: Collection[str] | None = None) -> int:
        """Drop the answers of a user that name one of these, or all; gives how many."""
        mine = {place: answer for place, (_, answer, _) in self._replies.items() if place[0] == user}
        return self._drop([place for place, answer in mine.items() if ids is None or mentions(answer, ids)])

    def _drop_old(self, before: datetime) -> int:
        return self._drop([place for place, (_, _, at) in self._replies.items() if at < before])

    def _drop(self, gone: list[tuple[str, str]]) -> int:
        for place in gone:
            del self._replies[place]
        return len(gone)
