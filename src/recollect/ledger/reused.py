"""What is said to whoever takes one key for two requests."""

from __future__ import annotations

from recollect.errors import IdempotencyReuse
from recollect.model.change import IdempotencyToken


def key_reuse_error(once: IdempotencyToken) -> IdempotencyReuse:
    """The error to raise."""
    return IdempotencyReuse(f"idempotency key {once.key!r} was used for another request; take a new key")
