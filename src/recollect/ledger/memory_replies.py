"""Keys of requests and their answers as the ledger in memory keeps them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from recollect.ledger.cascade import mentions_any
from recollect.ledger.memory_rows import UserState, plain_copy
from recollect.ledger.replies import KeyClaim
from recollect.ledger.reused import key_reuse_error
from recollect.model.change import IdempotencyToken
from recollect.model.times import now


class MemoryIdempotency:
    """A key holds nothing while its request is done, and then the answer."""

    def __init__(self) -> None:
        self._replies: dict[tuple[str, str], tuple[IdempotencyToken, dict[str, Any] | None, datetime]] = {}

    def _user(self, name: str) -> UserState:
        raise NotImplementedError

    async def claim_key(self, user: str, once: IdempotencyToken, *, stale_before: datetime | None = None) -> KeyClaim:
        owner = self._user(user)
        slot = (user, once.key)
        if once.key in owner.done:
            raise key_reuse_error(once)
        if slot in self._replies:
            first, answer, at = self._replies[slot]
            if first.digest != once.digest:
                raise key_reuse_error(once)
            if answer is not None:
                return KeyClaim(answer=plain_copy(answer))
            if stale_before is None or at >= stale_before:
                return KeyClaim()
        self._replies[slot] = (once, None, now())
        return KeyClaim(is_owner=True, epoch=owner.epoch)

    async def store_answer(
        self, user: str, once: IdempotencyToken, answer: Mapping[str, Any], *, since: int | None = None
    ) -> None:
        if since is not None and self._user(user).epoch != since:
            await self.release_key(user, once)
        elif (user, once.key) in self._replies:
            self._replies[user, once.key] = (once, plain_copy(answer), self._replies[user, once.key][2])

    async def release_key(self, user: str, once: IdempotencyToken) -> None:
        claim = self._replies.get((user, once.key))
        if claim is not None and claim[0] == once and claim[1] is None:
            del self._replies[user, once.key]

    def _check_key(self, user: str, once: IdempotencyToken) -> None:
        """Raise if the key was taken for a request of another kind."""
        if (user, once.key) in self._replies:
            raise key_reuse_error(once)

    def _drop_answers(self, user: str, ids: Collection[str] | None = None) -> int:
        """Drop the answers of a user that name one of these, or all; gives how many."""
        answers = {slot: answer for slot, (_, answer, _) in self._replies.items() if slot[0] == user}
        return self._drop([slot for slot, answer in answers.items() if ids is None or mentions_any(answer, ids)])

    def _drop_old(self, before: datetime) -> int:
        return self._drop([slot for slot, (_, _, at) in self._replies.items() if at < before])

    def _drop(self, slots: list[tuple[str, str]]) -> int:
        for slot in slots:
            del self._replies[slot]
        return len(slots)
