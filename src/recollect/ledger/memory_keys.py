"""API keys as the ledger in memory keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from recollect.errors import NotFound
from recollect.model.key import ApiKey


class MemoryApiKeys:
    """The plainest reading of `Keys`."""

    def __init__(self) -> None:
        self._keys: dict[str, ApiKey] = {}

    def _check_open(self) -> None:
        raise NotImplementedError

    async def add_key(self, key: ApiKey) -> None:
        self._check_open()
        self._keys[key.id] = key

    async def keys(self, user: str | None = None) -> list[ApiKey]:
        self._check_open()
        return [key for _, key in sorted(self._keys.items()) if user in (None, key.user)]

    async def find_key(self, hash: bytes) -> ApiKey:
        self._check_open()
        for key in self._keys.values():
            if key.hash == hash:
                return key
        raise NotFound("no such key")

    async def has_keys(self) -> bool:
        self._check_open()
        return bool(self._keys)

    async def revoke_key(self, id: str, *, at: datetime) -> ApiKey:
        self._check_open()
        if id not in self._keys:
            raise NotFound(f"no key {id!r}")
        if self._keys[id].revoked_at is None:
            self._keys[id] = replace(self._keys[id], revoked_at=at)
        return self._keys[id]

    async def record_key_use(self, used: Mapping[str, datetime]) -> None:
        self._check_open()
        for id, at in used.items():
            key = self._keys.get(id)
            if key is not None and (key.last_used_at is None or key.last_used_at < at):
                self._keys[id] = replace(key, last_used_at=at)
