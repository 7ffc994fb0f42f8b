"""LLM usage by user, day, step and model; API keys; idempotency keys of requests with their answers."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from recollect.errors import IdempotencyReuse, NotFound
from recollect.ledger.sql.tx import Tx, fetch_one
from recollect.ledger.sql.vectors import revision
from recollect.ledger.types import KeyClaim
from recollect.model.change import IdempotencyToken, ModelUsage
from recollect.model.key import ApiKey
from recollect.model.text import is_storable, repair_text
from recollect.model.times import from_micros, micros_or_none, now, time_or_none, to_micros
from recollect.model.usage import Part, SpentToday, Usage, day_from_number, day_number, validate_parts

_COLUMN = {"user": "user_id", "day": "day", "model": "model", "step": "step"}
# The total of a day is spread over so many rows, so that many users can add to it concurrently.
_SLOTS = 16


async def add_usage(tx: Tx, spent: ModelUsage) -> None:
    """Add to what the user has spent."""
    await tx.run(
        "INSERT INTO usage (user_id, day, step, model, calls, input_tokens, output_tokens) "
        "VALUES (:user, :day, :step, :model, :calls, :tokens_in, :tokens_out) "
        "ON CONFLICT (user_id, day, step, model) DO UPDATE SET calls = usage.calls + excluded.calls, "
        "input_tokens = usage.input_tokens + excluded.input_tokens, "
        "output_tokens = usage.output_tokens + excluded.output_tokens",
        {
            "user": spent.user,
            "day": day_number(spent.at),
            "step": repair_text(spent.step),
            "model": repair_text(spent.model),
            "calls": spent.calls,
            "tokens_in": spent.tokens_in,
            "tokens_out": spent.tokens_out,
        },
    )


async def add_to_daily_total(tx: Tx, spent: ModelUsage) -> None:
    """Add to the total of all users, without a name; done last in a transaction, because it locks."""
    await tx.run(
        "INSERT INTO usage_of_all (day, slot, calls, tokens) VALUES (:day, :slot, :calls, :tokens) "
        "ON CONFLICT (day, slot) DO UPDATE SET calls = usage_of_all.calls + excluded.calls, "
        "tokens = usage_of_all.tokens + excluded.tokens",
        {
            "day": day_number(spent.at),
            # One slot per user: a second update in a transaction needs no further lock, so none can deadlock.
            "slot": zlib.crc32(spent.user.encode("utf-8", "surrogatepass")) % _SLOTS,
            "calls": spent.calls,
            "tokens": spent.tokens_in + spent.tokens_out,
        },
    )


async def usage(
    tx: Tx,
    user: str | None = None,
    *,
    since: datetime | None = None,
    by: Sequence[Part] = ("day", "model", "step"),
) -> list[Usage]:
    """Return the LLM usage grouped by these parts, in order; `since` counts from the beginning of its day."""
    parts = validate_parts(by)
    columns = "".join(f"{_COLUMN[part]}, " for part in parts)
    params: dict[str, Any] = {}
    tests = ["1 = 1"]
    if user is not None:
        params["user"] = user
        tests.append("user_id = :user")
    if since is not None:
        params["since"] = day_number(since)
        tests.append("day >= :since")
    grouped = f" GROUP BY {columns[:-2]} ORDER BY {columns[:-2]}" if parts else ""
    rows = await tx.rows(
        f"SELECT {columns}CAST(sum(calls) AS BIGINT), CAST(sum(input_tokens) AS BIGINT), "
        f"CAST(sum(output_tokens) AS BIGINT) FROM usage WHERE {' AND '.join(tests)}{grouped}",
        params,
    )
    # Without grouping, SQL returns a row even for no rows.
    return [_sum(parts, row) for row in rows if row[-1] is not None]


def _sum(parts: tuple[str, ...], row: Sequence[Any]) -> Usage:
    fields = dict(zip(parts, row, strict=False))
    if "day" in fields:
        fields["day"] = day_from_number(fields["day"])
    calls, tokens_in, tokens_out = row[-3:]
    return Usage(**fields, calls=calls, tokens_in=tokens_in, tokens_out=tokens_out)


async def spent_today(tx: Tx, user: str | None) -> SpentToday:
    """Return what the user has spent since midnight UTC; called before every LLM call.

    Without a user, the total of all, erased users included.
    """
    if user is None:
        rows = await tx.rows(
            "SELECT CAST(COALESCE(sum(tokens), 0) AS BIGINT), CAST(COALESCE(sum(calls), 0) AS BIGINT) "
            "FROM usage_of_all WHERE day = :day",
            {"day": day_number(now())},
        )
        return SpentToday(*rows[0])
    rows = await tx.rows(
        "SELECT CAST(COALESCE(sum(input_tokens + output_tokens), 0) AS BIGINT), "
        "CAST(COALESCE(sum(calls), 0) AS BIGINT) FROM usage WHERE user_id = :user AND day = :day",
        {"user": user, "day": day_number(now())},
    )
    return SpentToday(*rows[0])


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
        raise NotFound("no such key" if column == "hash" else f"no key {value!r}; the list of keys shows their ids")
    return _key(row)


async def has_keys(tx: Tx) -> bool:
    """Return whether any key exists."""
    return await fetch_one(tx, "SELECT 1 FROM api_keys LIMIT 1", {}) is not None


async def revoke_key(tx: Tx, id: str, *, at: datetime) -> ApiKey:
    """Revoke a key; one that is revoked already stays as it is. Raise NotFound if it is unknown."""
    if not is_storable(id):
        raise NotFound(f"no key {id!r}; the list of keys shows their ids")
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
        person="person" in granted,
        created_at=from_micros(created),
        expires_at=time_or_none(expires),
        revoked_at=time_or_none(revoked),
        last_used_at=time_or_none(used),
    )


_KEY = 'user_id = :user AND "key" = :key'
# The value of a key without an answer.
_PENDING = "{}"


async def claim_key(tx: Tx, user: str, once: IdempotencyToken, *, stale_before: datetime | None = None) -> KeyClaim:
    """Claim a key that is free, or was claimed before `stale_before` and never answered.

    Raise IdempotencyReuse if it was used for a different request.
    """
    params = {"user": user, "key": once.key_digest, "digest": once.digest, "at": to_micros(now()), "begun": _PENDING}
    claimed = await fetch_one(
        tx,
        'INSERT INTO idempotency (user_id, "key", digest, created_at, result) '
        'VALUES (:user, :key, :digest, :at, :begun) ON CONFLICT (user_id, "key") DO NOTHING RETURNING 1',
        params,
    )
    if claimed is None:
        row = await fetch_one(tx, f"SELECT digest, result, created_at FROM idempotency WHERE {_KEY}", params)
        if row is None:
            # It was released between the two statements.
            return KeyClaim()
        if row[0] != once.digest:
            raise key_reuse_error(once)
        if row[1] != _PENDING:
            return KeyClaim(answer=json.loads(row[1])["answer"])
        if stale_before is None or row[2] >= to_micros(stale_before):
            return KeyClaim()
        claimed = await fetch_one(
            tx,
            f"UPDATE idempotency SET created_at = :at WHERE {_KEY} AND created_at = :then RETURNING 1",
            {**params, "then": row[2]},
        )
    return KeyClaim(is_owner=claimed is not None, epoch=(await revision(tx, user)).epoch)


async def store_answer(
    tx: Tx, user: str, once: IdempotencyToken, answer: Mapping[str, Any], *, since: int | None = None
) -> None:
    """Store the answer of a request; nothing is stored if anything was erased since the epoch `since`."""
    # Locks the user, so that no erasure comes between; a user without data is not created.
    row = await fetch_one(tx, "UPDATE users SET epoch = epoch WHERE user_id = :user RETURNING epoch", {"user": user})
    epoch = row[0] if row else (await revision(tx, user)).epoch
    if since is not None and epoch != since:
        await release_key(tx, user, once)
        return
    result = json.dumps({"answer": answer}, ensure_ascii=False)
    await tx.run(
        f"UPDATE idempotency SET result = :result WHERE {_KEY}",
        {"user": user, "key": once.key_digest, "result": result},
    )


async def release_key(tx: Tx, user: str, once: IdempotencyToken, *, answered: bool = False) -> None:
    """Free the key of a request that failed; one that has its answer stays, unless it is `answered` in error."""
    pending = "" if answered else " AND result = :begun"
    params = {"user": user, "key": once.key_digest, "digest": once.digest} | ({} if answered else {"begun": _PENDING})
    await tx.run(f"DELETE FROM idempotency WHERE {_KEY} AND digest = :digest{pending}", params)


def key_reuse_error(once: IdempotencyToken) -> IdempotencyReuse:
    """Return the error for a key that was used for a different request."""
    return IdempotencyReuse(f"idempotency key {once.key!r} was used for another request; take a new key")
