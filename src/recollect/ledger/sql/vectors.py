"""Vectors of memories, one set for each model, in half precision; what indexes with their own store are fed from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recollect.ledger.codec import pack_vector
from recollect.ledger.sql.leases import lease_end
from recollect.ledger.sql.tx import Tx, fetch_one
from recollect.ledger.types import ChangedRow, FeedPosition, IndexLag, IndexRow, Revision, Unembedded
from recollect.model.change import Vector
from recollect.model.erasure import user_digest
from recollect.model.query import validate_limit
from recollect.model.times import now, to_micros
from recollect.models.embedding import TOKEN_MODEL, EmbeddingModel

# Vectors of embedding models: token vectors come and go in the background, so nothing counts them.
NOT_TOKEN_VECTORS = f"model NOT IN (SELECT number FROM models WHERE name = '{TOKEN_MODEL.name}')"


async def model_number(tx: Tx, model: EmbeddingModel) -> int | None:
    """Return the number that the ledger gave the model, if it has one."""
    row = await fetch_one(
        tx,
        "SELECT number FROM models WHERE name = :name AND dimensions = :dimensions",
        {"name": model.name, "dimensions": model.dimensions},
    )
    return row[0] if row else None


async def ensure_model_number(tx: Tx, model: EmbeddingModel) -> int:
    """Return the number of the model, which gets one if it has none."""
    if (number := await model_number(tx, model)) is None:
        await tx.run(
            "INSERT INTO models (name, dimensions, created_at) VALUES (:name, :dimensions, :at) "
            "ON CONFLICT (name, dimensions) DO NOTHING",
            {"name": model.name, "dimensions": model.dimensions, "at": to_micros(now())},
        )
        number = await model_number(tx, model)
    assert number is not None
    return number


async def put_vectors(tx: Tx, model: EmbeddingModel, vectors: Mapping[tuple[str, int], Vector]) -> None:
    """Store vectors by user and row; replace those of the same model."""
    await _put_packed(tx, model, {key: pack_vector(vector, model) for key, vector in vectors.items()})


async def add_vectors(tx: Tx, model: EmbeddingModel, vectors: Mapping[tuple[str, int], Vector]) -> None:
    """Store vectors of new rows, by user and row."""
    packed = {key: pack_vector(vector, model) for key, vector in vectors.items()}
    await _put_packed(tx, model, packed, on_conflict="")


_REPLACE = " ON CONFLICT (user_id, model, row) DO UPDATE SET vector = excluded.vector"


async def _put_packed(
    tx: Tx, model: EmbeddingModel, vectors: Mapping[tuple[str, int], bytes], *, on_conflict: str = _REPLACE
) -> None:
    if not vectors:
        return
    number = await ensure_model_number(tx, model)
    await tx.many(
        f"INSERT INTO vectors (user_id, model, row, vector) VALUES (:user, :model, :row, :vector){on_conflict}",
        [{"user": user, "model": number, "row": row, "vector": vector} for (user, row), vector in vectors.items()],
    )


async def drop_vectors(tx: Tx, user: str, rows: Sequence[int]) -> None:
    """Remove the vectors of rows, of every model."""
    if rows:
        await tx.run(
            # The key has the model before the row: without the models every vector of the user would be read.
            "DELETE FROM vectors WHERE user_id = :user AND model IN (SELECT number FROM models) "
            f"AND {tx.dialect.among_numbers('row', 'rows')}",
            {"user": user, "rows": list(rows)},
        )


async def embed(
    tx: Tx,
    model: EmbeddingModel,
    vectors: Mapping[int, Vector],
    *,
    user: str,
    versions: Mapping[int, int] | None = None,
) -> None:
    """Store vectors for rows of a user; with `versions`, only for memories still at that version.

    The rows count as changed, so that indexes take them up.
    """
    row = await fetch_one(
        tx, "UPDATE users SET revision = revision + 1 WHERE user_id = :user RETURNING revision", {"user": user}
    )
    if row is None:
        return
    accepted = await _still_current(tx, user, vectors, versions)
    await put_vectors(tx, model, {(user, row): vectors[row] for row in accepted})
    await tx.run(
        "UPDATE memories SET revision = :revision WHERE user_id = :user "
        f"AND {tx.dialect.among_numbers('row', 'rows')}",
        {"revision": row[0], "user": user, "rows": accepted},
    )


async def store_token_vectors(
    tx: Tx, model: EmbeddingModel, vectors: Mapping[int, bytes], *, user: str, versions: Mapping[int, int]
) -> None:
    """Store packed token vectors for rows of one user that are still at these versions.

    Indexes hold none of them, so the rows do not count as changed.
    """
    accepted = await _still_current(tx, user, vectors, versions)
    await _put_packed(tx, model, {(user, row): vectors[row] for row in accepted})


async def _still_current(tx: Tx, user: str, rows: Iterable[int], versions: Mapping[int, int] | None) -> list[int]:
    """Return the rows that exist, and whose text is that of the version given for them."""
    present = await tx.rows(
        f"SELECT row, version FROM memories WHERE user_id = :user AND {tx.dialect.among_numbers('row', 'rows')}",
        {"user": user, "rows": [int(row) for row in rows]},
    )
    return [row for row, version in present if versions is None or versions[row] == version]


async def revision(tx: Tx, user: str) -> Revision:
    """Return the user's current revision; called before every search."""
    row = await fetch_one(tx, "SELECT revision, epoch FROM users WHERE user_id = :user", {"user": user})
    if row and row[0]:
        return Revision(row[0], row[1])
    # The epoch of an erased user is in the record of the erasure.
    erased = await fetch_one(
        tx, "SELECT max(epoch) FROM erasures WHERE user_id = :digest", {"digest": user_digest(user)}
    )
    return Revision(0, max(row[1] if row else 0, (erased[0] if erased else 0) or 0))


INDEX_COLUMNS = (
    "m.row, m.place, m.status, m.session_id, m.speaker, m.traits, "
    "COALESCE(m.occurred_at, m.created_at), m.valid_from, "
    "CASE WHEN m.valid_to < m.expires_at THEN m.valid_to ELSE COALESCE(m.expires_at, m.valid_to) END"
)
WITH_VECTORS = (
    "FROM memories m LEFT JOIN vectors v ON v.user_id = m.user_id AND v.model = :model AND v.row = m.row "
    "WHERE m.user_id = :user"
)


async def index_rows(
    tx: Tx, user: str, *, model: EmbeddingModel, after: int, vectors: bool = True, max_rows: int | None = None
) -> tuple[Revision, list[IndexRow]]:
    """Return the current revision and the rows that changed since `after`, or `max_rows` of them.

    Without `vectors`, empty bytes stand for each vector.
    """
    current = await revision(tx, user)
    rows = await tx.rows(
        f"SELECT {INDEX_COLUMNS}, {'v.vector' if vectors else 'v.row'} {WITH_VECTORS} "
        f"AND m.revision > :after{'' if max_rows is None else f' LIMIT {max_rows:d}'}",
        {"user": user, "model": await model_number(tx, model) or 0, "after": after},
    )
    if vectors:
        return current, [IndexRow(*row) for row in rows]
    return current, [IndexRow(*(*row[:9], None if row[9] is None else b"")) for row in rows]


async def unembedded(
    tx: Tx,
    model: EmbeddingModel,
    *,
    limit: int,
    after: int = 0,
    user: str | None = None,
    rows: Sequence[int] | None = None,
    changed_after: int = 0,
) -> list[Unembedded]:
    """Return memories without a vector of this model in order of their rows: of a user, of all, or of `rows`.

    With `changed_after`, a revision of the user, those that changed since.
    """
    params: dict[str, Any] = {
        "model": await model_number(tx, model) or 0,
        "after": after,
        "limit": validate_limit(limit),
    }
    condition, by_row = "", ""
    if user is not None:
        params["user"], condition = user, "m.user_id = :user AND "
    if changed_after:
        params["changed_after"], condition = changed_after, f"{condition}m.revision > :changed_after AND "
    if rows is not None:
        params["rows"], condition = list(rows), f"{condition}{tx.dialect.among_numbers('m.row', 'rows')} AND "
        by_row = tx.dialect.fragments["by_row"]
    found = await tx.rows(
        f"SELECT m.row, m.user_id, m.content, m.version, m.speaker FROM memories m {by_row} "
        f"WHERE {condition}m.row > :after AND NOT EXISTS "
        "(SELECT 1 FROM vectors v WHERE v.user_id = m.user_id AND v.model = :model AND v.row = m.row) "
        "ORDER BY m.row LIMIT :limit",
        params,
    )
    return [Unembedded(*row) for row in found]


async def vectors(tx: Tx, user: str, ids: Sequence[str], *, model: EmbeddingModel) -> dict[str, bytes]:
    """Return the packed vectors of a user's memories by id; those without one are left out."""
    rows = await tx.rows(
        "SELECT m.id, v.vector FROM memories m JOIN vectors v "
        "ON v.user_id = m.user_id AND v.row = m.row AND v.model = :model "
        f"WHERE m.user_id = :user AND {tx.dialect.among('m.id', 'ids')}",
        {"user": user, "ids": list(ids), "model": await model_number(tx, model) or 0},
    )
    return {row[0]: bytes(row[1]) for row in rows}


async def models(tx: Tx) -> dict[EmbeddingModel, int]:
    """Return the number of vectors of each model."""
    rows = await tx.rows(
        "SELECT m.name, m.dimensions, count(*) FROM models m JOIN vectors v ON v.model = m.number "
        "GROUP BY m.number, m.name, m.dimensions ORDER BY m.number",
        {},
    )
    return {EmbeddingModel(name, dimensions): count for name, dimensions, count in rows}


async def drop_of_users(tx: Tx, model: EmbeddingModel, users: Sequence[str]) -> None:
    """Remove the vectors of a model of some users."""
    await tx.run(
        f"DELETE FROM vectors WHERE {tx.dialect.among('user_id', 'users')} AND model = :model",
        {"users": list(users), "model": await model_number(tx, model) or 0},
    )


async def drop_model(tx: Tx, model: EmbeddingModel) -> None:
    """Remove a model without vectors, unless it was ever searched."""
    await tx.run(
        "DELETE FROM models WHERE number = :model AND NOT EXISTS (SELECT 1 FROM model_states WHERE model = number)",
        {"model": await model_number(tx, model) or 0},
    )


async def row_count(tx: Tx, user: str, *, max_count: int, after: int = 0) -> int:
    """Return how many memories of a user changed since a revision, at most `max_count`."""
    rows = await tx.rows(
        "SELECT count(*) FROM (SELECT 1 AS one FROM memories WHERE user_id = :user AND revision > :after "
        "LIMIT :most) counted",
        {"user": user, "after": after, "most": max_count},
    )
    return int(rows[0][0])


async def vectors_of(tx: Tx, user: str, rows: Sequence[int], *, model: EmbeddingModel) -> dict[int, bytes]:
    """Return the packed vectors of those of the rows that are the user's and have one."""
    if not rows:
        return {}
    vector_rows = await tx.rows(
        f"SELECT row, vector FROM vectors WHERE user_id = :user AND model = :model "
        f"AND {tx.dialect.among_numbers('row', 'rows')}",
        {"user": user, "model": await model_number(tx, model) or 0, "rows": [int(row) for row in rows]},
    )
    return {row: bytes(vector) for row, vector in vector_rows}


async def changed_rows(
    tx: Tx, user: str, *, model: EmbeddingModel, after: tuple[int, int], limit: int
) -> list[ChangedRow]:
    """Return rows in the order they were last changed, after a revision and a row."""
    rows = await tx.rows(
        f"SELECT m.revision, {INDEX_COLUMNS}, v.vector {WITH_VECTORS} "
        "AND (m.revision, m.row) > (:after, :row) ORDER BY m.revision, m.row LIMIT :limit",
        {
            "user": user,
            "model": await model_number(tx, model) or 0,
            "after": after[0],
            "row": after[1],
            "limit": validate_limit(limit),
        },
    )
    return [ChangedRow(row[0], IndexRow(*row[1:])) for row in rows]


async def feed_position(tx: Tx, user: str, *, index: str) -> FeedPosition:
    """Return how far the index was fed with the user's rows; a revision of 0 if never."""
    return (await _load_positions(tx, index, [user])).get(user, FeedPosition())


async def lagging_users(tx: Tx, index: str, *, limit: int, after: str = "") -> list[IndexLag]:
    """Return users, in order, of whom something changed or was erased since the index was fed."""
    rows = await tx.rows(
        "SELECT u.user_id, u.revision, u.epoch, COALESCE(f.revision, 0), COALESCE(f.epoch, 0) FROM users u "
        "LEFT JOIN fed f ON f.user_id = u.user_id AND f.index_name = :index "
        "WHERE u.user_id > :after AND u.revision > 0 "
        "AND (u.revision <> COALESCE(f.revision, 0) OR u.epoch <> COALESCE(f.epoch, 0)) "
        "ORDER BY u.user_id LIMIT :limit",
        {"index": index, "after": after, "limit": validate_limit(limit)},
    )
    return [IndexLag(row[0], Revision(row[1], row[2]), Revision(row[3], row[4])) for row in rows]


async def lease_feed(tx: Tx, index: str, *, feeder: str, lease_s: float, take: bool = False) -> bool:
    """Lease the feeding of an index, or renew the lease; return False while another feeder has it.

    With `take` it is taken from another feeder.
    """
    params: dict[str, Any] = {"index": index, "feeder": feeder, "now": to_micros(now()), "take": int(take)}
    await tx.run(
        "INSERT INTO feeders (index_name, feeder, leased_until) VALUES (:index, :feeder, :until) "
        "ON CONFLICT (index_name) DO UPDATE SET feeder = excluded.feeder, leased_until = excluded.leased_until "
        "WHERE feeders.feeder = excluded.feeder OR feeders.leased_until < :now OR :take = 1",
        params | {"until": to_micros(lease_end(lease_s))},
    )
    return await _is_feeder(tx, index, feeder)


async def save_feed_positions(
    tx: Tx, index: str, positions: Mapping[str, Revision], *, feeder: str, settles_s: float = 0.0
) -> bool:
    """Record how far the index is with these users, unless they were erased; searches see it after `settles_s`.

    Return False, and record nothing, if another feeder has the lease.
    """
    if not await _is_feeder(tx, index, feeder):
        return False
    before, at = await _load_positions(tx, index, list(positions)), to_micros(now())
    advanced = {
        user: before.get(user, FeedPosition()).advanced_to(revision, settles_s, at=at)
        for user, revision in positions.items()
    }
    await tx.many(
        "INSERT INTO fed (user_id, index_name, revision, epoch, noted_at, waiting, waiting_at, settled) "
        "SELECT user_id, :index, :revision, :epoch, :noted_at, :waiting, :waiting_at, :settled "
        "FROM users WHERE user_id = :user "
        "ON CONFLICT (user_id, index_name) DO UPDATE SET revision = excluded.revision, "
        "epoch = excluded.epoch, noted_at = excluded.noted_at, waiting = excluded.waiting, "
        "waiting_at = excluded.waiting_at, settled = excluded.settled",
        [
            {
                "index": index,
                "user": user,
                "revision": position.revision.number,
                "epoch": position.revision.epoch,
                "noted_at": position.noted_at,
                "waiting": position.waiting,
                "waiting_at": position.waiting_at,
                "settled": position.settled,
            }
            for user, position in advanced.items()
        ],
    )
    return True


async def reset_feed(tx: Tx, index: str) -> None:
    """Forget that the index was ever fed."""
    await tx.run("DELETE FROM fed WHERE index_name = :index", {"index": index})


async def _load_positions(tx: Tx, index: str, users: Sequence[str]) -> dict[str, FeedPosition]:
    rows = await tx.rows(
        "SELECT user_id, revision, epoch, noted_at, waiting, waiting_at, settled FROM fed "
        f"WHERE index_name = :index AND {tx.dialect.among('user_id', 'users')}",
        {"index": index, "users": list(users)},
    )
    return {row[0]: FeedPosition(Revision(row[1], row[2]), *row[3:]) for row in rows}


async def _is_feeder(tx: Tx, index: str, feeder: str) -> bool:
    row = await fetch_one(tx, "SELECT feeder FROM feeders WHERE index_name = :index", {"index": index})
    return row is not None and row[0] == feeder
