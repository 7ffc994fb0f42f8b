"""What a ledger promises of requests that come with a key: one effect, and the same answer whenever they come again.

The key is held while the request is done, by whichever process does it, and then holds its answer. An answer goes
with whatever it names that is erased, and all of them after a while.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from recollect.errors import IdempotencyReuse
from recollect.model.change import IdempotencyToken


@dataclass(frozen=True, slots=True)
class KeyClaim:
    """How the key of a request stands: held by this very caller, or by another one, or answered already.

    `epoch` is that of the user as the key was taken.
    """

    is_owner: bool = False
    answer: Mapping[str, Any] | None = None
    epoch: int = 0


class IdempotencyStore(Protocol):
    """The part of a ledger that requests with a key need."""

    async def claim_key(self, user: str, once: IdempotencyToken, *, stale_before: datetime | None = None) -> KeyClaim:
        """Take the key if nobody has; one that was taken before that time, and never answered, is taken over.

        An IdempotencyReuse if it came with another request.
        """
        ...

    async def store_answer(
        self, user: str, once: IdempotencyToken, answer: Mapping[str, Any], *, since: int | None = None
    ) -> None:
        """Have the key hold the answer. Where anything was erased since that epoch nothing of it stays."""
        ...

    async def release_key(self, user: str, once: IdempotencyToken) -> None:
        """Give up a key whose request came to nothing; one that has its answer stays."""
        ...


def key_reuse_error(once: IdempotencyToken) -> IdempotencyReuse:
    """The error to raise."""
    return IdempotencyReuse(f"idempotency key {once.key!r} was used for another request; take a new key")
