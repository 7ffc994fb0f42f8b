"""What a ledger promises of API keys: who holds one, and what it opens."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from recollect.model.key import ApiKey


class ApiKeyStore(Protocol):
    """The part of a ledger that keeps keys; of their text it knows the hash alone. They go with their user."""

    async def add_key(self, key: ApiKey) -> None:
        """Keep a key."""
        ...

    async def keys(self, user: str | None = None) -> list[ApiKey]:
        """All keys ever made, or those of one user, the oldest first; revoked and expired ones are among them."""
        ...

    async def find_key(self, hash: bytes) -> ApiKey:
        """The key of a hash, whether it still holds or not; NotFound if there is none."""
        ...

    async def has_keys(self) -> bool:
        """Whether any key was ever made and is still told of; cheap."""
        ...

    async def revoke_key(self, id: str, *, at: datetime) -> ApiKey:
        """Have a key open nothing from now on; one that was revoked before stays as it is. NotFound if unknown."""
        ...

    async def record_key_use(self, used: Mapping[str, datetime]) -> None:
        """Note when keys were last used; ids that are gone are left out, and no time goes back."""
        ...
