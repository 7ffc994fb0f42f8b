"""API keys: a row each, found by the hash of the key's text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from recollect.errors import NotFound
from recollect.ledger.sql.tx import Tx, fetch_one
from recollect.model.key import ApiKey
from recollect.model.text import is_storable
from recollect.model.times import from_micros, micros_or_none, time_or_none, to_micros

_COLUMNS = "id, hash, name, user_id, project_id, rights, created_at, expires_at, revoked_at, last_used_at"


async def add_key(tx: Tx, key: ApiKey) -> None:
    """Insert a key."""
    await tx.run(
        f"INSERT INTO api_keys ({_COLUMNS}) VALUES (:id, :hash, :name, :user, :project, :rights, "
        ":created, :expires, :revoked, :used)",
        {
            "id": key.id,
            "hash": key.hash,
            "name": key.name,
            "user": key.user,
            "project": key.project,
            "rights": key.rights,
            "created": to_micros(key.created_at),
            "expires": micros_or_none(key.expires_at),
            "revoked": micros_or_none(key.revoked_at),
            "used": micros_or_none(key.last_used_at),
        },
    )


async def keys(tx: Tx, user: str | None = None) -> list[ApiKey]:
    """Return all keys ever made, or those of one user, oldest first, revoked and expired ones included."""
    test, params = ("user_id = :user", {"user": user}) if user is not None else ("1 = 1", {})
    return [_key(row) for row in await tx.rows(f"SELECT {_COLUMNS} FROM api_keys WHERE {test} ORDER BY id", params)]


async def find_key(tx: Tx, hash: bytes) -> ApiKey:
    """Return the key of a hash, whether it is still valid or not; raise NotFound if there is none."""
    return await _load(tx, "hash", hash)


async def _load(tx: Tx, column: str, value: str | bytes) -> ApiKey:
    row = await fetch_one(tx, f"SELECT {_COLUMNS} FROM api_keys WHERE {column} = :value", {"value": value})
    if row is None:
        raise NotFound("no such key" if column == "hash" else f"no key {value!r}")
    return _key(row)


async def has_keys(tx: Tx) -> bool:
    """Return whether any key exists."""
    return await fetch_one(tx, "SELECT 1 FROM api_keys LIMIT 1", {}) is not None


async def revoke_key(tx: Tx, id: str, *, at: datetime) -> ApiKey:
    """Revoke a key; one that is revoked already stays as it is. Raise NotFound if it is unknown."""
    if not is_storable(id):
        raise NotFound(f"no key {id!r}")
    await tx.run(
        "UPDATE api_keys SET revoked_at = :at WHERE id = :id AND revoked_at IS NULL", {"id": id, "at": to_micros(at)}
    )
    return await _load(tx, "id", id)


async def record_key_use(tx: Tx, used: Mapping[str, datetime]) -> None:
    """Record when keys were last used; unknown ids are ignored, and no time moves back."""
    await tx.many(
        "UPDATE api_keys SET last_used_at = :at WHERE id = :id AND COALESCE(last_used_at, 0) < :at",
        # In a fixed order, to prevent deadlocks.
        [{"id": id, "at": to_micros(at)} for id, at in sorted(used.items())],
    )


def _key(row: Sequence[Any]) -> ApiKey:
    id, hash, name, user, project, rights, created, expires, revoked, used = row
    granted = rights.split()
    return ApiKey(
        id=id,
        hash=bytes(hash),
        name=name,
        user=user,
        project=project,
        admin="admin" in granted,
        reads="read" in granted,
        writes="write" in granted,
        created_at=from_micros(created),
        expires_at=time_or_none(expires),
        revoked_at=time_or_none(revoked),
        last_used_at=time_or_none(used),
    )
