"""Vectors beside the memories: half precision on disk, one set for each model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from recollect.ledger.packing import pack_vector
from recollect.ledger.protocol import IndexRow, Revision, Unembedded
from recollect.ledger.sql.tx import Tx, fetch_one
from recollect.model.erase import user_digest
from recollect.model.query import validate_limit
from recollect.model.times import now, to_micros
from recollect.models.embedding import EmbeddingModel

if TYPE_CHECKING:
    from recollect.model.change import Vector


async def model_number(tx: Tx, model: EmbeddingModel) -> int | None:
    """The number the ledger gave the model, if it has any vectors of it."""
    row = await fetch_one(
        tx,
        "SELECT number FROM models WHERE name = :name AND dimensions = :dimensions",
        {"name": model.name, "dimensions": model.dimensions},
    )
    return row[0] if row else None


async def ensure_model_number(tx: Tx, model: EmbeddingModel) -> int:
    """The number of the model, which gets one if it has none."""
    if (number := await model_number(tx, model)) is None:
        await tx.run(
            "INSERT INTO models (name, dimensions, created_at) VALUES (:name, :dimensions, :at) "
            "ON CONFLICT (name, dimensions) DO NOTHING",
            {"name": model.name, "dimensions": model.dimensions, "at": to_micros(now())},
        )
        number = await model_number(tx, model)
    assert number is not None
    return number


async def put_vectors(tx: Tx, model: EmbeddingModel, user: str, vectors: Mapping[int, Vector]) -> None:
    """Keep vectors for rows of the user, in place of any there were."""
    if not vectors:
        return
    number = await ensure_model_number(tx, model)
    await tx.many(
        "INSERT INTO vectors (user_id, model, row, vector) VALUES (:user, :model, :row, :vector) "
        "ON CONFLICT (user_id, model, row) DO UPDATE SET vector = excluded.vector",
        [{"user": user, "model": number, "row": row, "vector": pack_vector(v, model)} for row, v in vectors.items()],
    )


async def drop_vectors(tx: Tx, user: str, rows: Sequence[int]) -> None:
    """Remove the vectors of rows, of every model."""
    if rows:
        await tx.run(
            # The models by name: their numbers come before the rows in the key, and without them every vector of the
            # user is looked at.
            "DELETE FROM vectors WHERE user_id = :user AND model IN (SELECT number FROM models) "
            f"AND {tx.dialect.among('row', 'rows')}",
            {"user": user, "rows": list(rows)},
        )


async def embed(
    tx: Tx, model: EmbeddingModel, user: str, vectors: Mapping[int, Vector], versions: Mapping[int, int] | None
) -> None:
    """Keep vectors made later; the rows count as changed, so that indexes take them up."""
    row = await fetch_one(
        tx, "UPDATE users SET revision = revision + 1 WHERE user_id = :user RETURNING revision", {"user": user}
    )
    if row is None:
        return
    # A row erased in the meantime gets no vector, and new words do not get the vector of the old.
    present = await tx.rows(
        f"SELECT row, version FROM memories WHERE user_id = :user AND {tx.dialect.among('row', 'rows')}",
        {"user": user, "rows": [int(number) for number in vectors]},
    )
    accepted = {
        number: vectors[number] for number, version in present if versions is None or versions[number] == version
    }
    await put_vectors(tx, model, user, accepted)
    await tx.run(
        f"UPDATE memories SET revision = :revision WHERE user_id = :user AND {tx.dialect.among('row', 'rows')}",
        {"revision": row[0], "user": user, "rows": list(accepted)},
    )


async def revision(tx: Tx, user: str) -> Revision:
    """The user's revision."""
    row = await fetch_one(tx, "SELECT revision, epoch FROM users WHERE user_id = :user", {"user": user})
    if row and row[0]:
        return Revision(row[0], row[1])
    # Whoever has nothing, because all of it was erased, is still known by the epoch that came of it.
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
    tx: Tx, user: str, model: EmbeddingModel, after: int, *, vectors: bool = True, max_rows: int | None = None
) -> tuple[Revision, list[IndexRow]]:
    """What changed for an index since a revision, or so much of it."""
    current = await revision(tx, user)
    rows = await tx.rows(
        f"SELECT {INDEX_COLUMNS}, {'v.vector' if vectors else 'v.row'} {WITH_VECTORS} "
        f"AND m.revision > :after{'' if max_rows is None else f' LIMIT {max_rows:d}'}",
        {"user": user, "model": await model_number(tx, model) or 0, "after": after},
    )
    if vectors:
        return current, [IndexRow(*row) for row in rows]
    return current, [IndexRow(*(*row[:9], None if row[9] is None else b"")) for row in rows]


async def unembedded(tx: Tx, model: EmbeddingModel, limit: int, after: int, user: str | None) -> list[Unembedded]:
    """Rows without a vector of the model, of one user or of all."""
    params: dict[str, Any] = {
        "model": await model_number(tx, model) or 0,
        "after": after,
        "limit": validate_limit(limit),
    }
    of_user = ""
    if user is not None:
        params["user"], of_user = user, "m.user_id = :user AND "
    rows = await tx.rows(
        f"SELECT m.row, m.user_id, m.content, m.version FROM memories m WHERE {of_user}m.row > :after AND NOT EXISTS "
        "(SELECT 1 FROM vectors v WHERE v.user_id = m.user_id AND v.model = :model AND v.row = m.row) "
        "ORDER BY m.row LIMIT :limit",
        params,
    )
    return [Unembedded(*row) for row in rows]


async def vectors(tx: Tx, user: str, ids: Sequence[str], model: EmbeddingModel) -> dict[str, bytes]:
    """The vectors of some memories, by their ids."""
    rows = await tx.rows(
        "SELECT m.id, v.vector FROM memories m JOIN vectors v "
        "ON v.user_id = m.user_id AND v.row = m.row AND v.model = :model "
        f"WHERE m.user_id = :user AND {tx.dialect.among('m.id', 'ids')}",
        {"user": user, "ids": list(ids), "model": await model_number(tx, model) or 0},
    )
    return {row[0]: bytes(row[1]) for row in rows}


async def models(tx: Tx) -> dict[EmbeddingModel, int]:
    """Which models there are vectors of, and how many."""
    rows = await tx.rows(
        "SELECT m.name, m.dimensions, count(*) FROM models m JOIN vectors v ON v.model = m.number "
        "GROUP BY m.number, m.name, m.dimensions ORDER BY m.number",
        {},
    )
    return {EmbeddingModel(name, dimensions): count for name, dimensions, count in rows}


async def drop_of_users(tx: Tx, model: EmbeddingModel, users: Sequence[str]) -> None:
    """Remove the vectors that some users have of a model."""
    await tx.run(
        f"DELETE FROM vectors WHERE {tx.dialect.among('user_id', 'users')} AND model = :model",
        {"users": list(users), "model": await model_number(tx, model) or 0},
    )


async def drop_model(tx: Tx, model: EmbeddingModel) -> None:
    """Remove a model that has no vectors any more, unless it is known for having been searched."""
    await tx.run(
        "DELETE FROM models WHERE number = :model AND NOT EXISTS (SELECT 1 FROM model_states WHERE model = number)",
        {"model": await model_number(tx, model) or 0},
    )
