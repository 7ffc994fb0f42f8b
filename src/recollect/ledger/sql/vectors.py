"""Vectors beside the memories: half precision on disk, one set for each model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from recollect.ledger.codec import pack_vector
from recollect.ledger.model_states import EmbeddingProgress, ModelOrigin, ModelState, current_model_state
from recollect.ledger.protocol import IndexRow, Revision, Unembedded
from recollect.ledger.sql.tx import ALL_TENANTS, NO_TENANT, SqlEngine, Tx, fetch_one
from recollect.model.erasure import user_digest
from recollect.model.query import validate_limit
from recollect.model.times import from_micros, now, to_micros
from recollect.models.embedding import TOKEN_MODEL, EmbeddingModel

if TYPE_CHECKING:
    from recollect.model.change import Vector


# Vectors of embedding models: token vectors come and go in the background, so nothing counts them.
NOT_TOKEN_VECTORS = f"model NOT IN (SELECT number FROM models WHERE name = '{TOKEN_MODEL.name}')"


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


async def store_token_vectors(
    tx: Tx, model: EmbeddingModel, user: str, vectors: Mapping[int, bytes], versions: Mapping[int, int]
) -> None:
    """Store token vectors; indexes hold none of them, so the rows do not count as changed."""
    present = await tx.rows(
        f"SELECT row, version FROM memories WHERE user_id = :user AND {tx.dialect.among('row', 'rows')}",
        {"user": user, "rows": list(vectors)},
    )
    number = await ensure_model_number(tx, model)
    await tx.many(
        "INSERT INTO vectors (user_id, model, row, vector) VALUES (:user, :model, :row, :vector) "
        "ON CONFLICT (user_id, model, row) DO UPDATE SET vector = excluded.vector",
        [
            {"user": user, "model": number, "row": row, "vector": vectors[row]}
            for row, version in present
            if versions[row] == version
        ],
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


async def unembedded(
    tx: Tx, model: EmbeddingModel, limit: int, after: int, user: str | None, rows: Sequence[int] | None = None
) -> list[Unembedded]:
    """Rows without a vector of the model, of one user or of all, or those of the given rows."""
    params: dict[str, Any] = {
        "model": await model_number(tx, model) or 0,
        "after": after,
        "limit": validate_limit(limit),
    }
    condition = ""
    if user is not None:
        params["user"], condition = user, "m.user_id = :user AND "
    if rows is not None:
        params["rows"], condition = list(rows), f"{condition}{tx.dialect.among('m.row', 'rows')} AND "
    found = await tx.rows(
        "SELECT m.row, m.user_id, m.content, m.version, m.speaker FROM memories m "
        f"WHERE {condition}m.row > :after AND NOT EXISTS "
        "(SELECT 1 FROM vectors v WHERE v.user_id = m.user_id AND v.model = :model AND v.row = m.row) "
        "ORDER BY m.row LIMIT :limit",
        params,
    )
    return [Unembedded(*row) for row in found]


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


class SqlModelStateStore:
    """The promise of `ModelStateStore`, kept by the body of SQL on some engine."""

    _engine: SqlEngine

    async def model_states(self) -> list[ModelState]:
        return await self._engine.read(load_states, tenant=NO_TENANT, quick=True)

    async def make_current(
        self, model: EmbeddingModel, origin: ModelOrigin, *, replacing: EmbeddingModel | None
    ) -> ModelState:
        return await self._engine.write(lambda tx: make_current(tx, model, origin, replacing), tenant=NO_TENANT)

    async def lease_model(
        self,
        model: EmbeddingModel,
        origin: ModelOrigin,
        *,
        owner: str,
        lease_s: float,
        progress: EmbeddingProgress | None = None,
    ) -> bool:
        return await self._engine.write(
            lambda tx: lease(tx, model, origin, owner, lease_s, progress), tenant=NO_TENANT
        )

    async def count_embedded(self, model: EmbeddingModel) -> EmbeddingProgress:
        return await self._engine.read(lambda tx: count_embedded(tx, model), tenant=ALL_TENANTS)


async def load_states(tx: Tx) -> list[ModelState]:
    """Every model with a row of its own."""
    rows = await tx.rows(
        "SELECT s.model, m.name, m.dimensions, s.spec, s.url, s.asked_dimensions, s.current_at, s.retired_at, "
        "s.embedded, s.to_embed, s.held_until, c.model FROM model_states s JOIN models m ON m.number = s.model "
        "LEFT JOIN current_model c ON c.model = s.model ORDER BY s.model",
        {},
    )
    return [
        ModelState(
            model=EmbeddingModel(name, dimensions),
            origin=ModelOrigin(spec, url, requested_dimensions),
            is_current=number == current,
            current_at=None if since is None else from_micros(since),
            retired_at=None if until is None else from_micros(until),
            embedded=embedded,
            to_embed=to_embed,
            lease_expires_at=from_micros(lease_end) if lease_end else None,
        )
        for (
            number,
            name,
            dimensions,
            spec,
            url,
            requested_dimensions,
            since,
            until,
            embedded,
            to_embed,
            lease_end,
            current,
        ) in rows
    ]


async def make_current(
    tx: Tx, model: EmbeddingModel, origin: ModelOrigin, replacing: EmbeddingModel | None
) -> ModelState:
    """Move the one row that says which model is searched."""
    number = await _ensure_state_row(tx, model)
    before = None if replacing is None else await model_number(tx, replacing)
    if await _claim_first(tx, number):
        await _mark_current(tx, number)
        await _put_origin(tx, number, origin)
    elif before is not None and await _move_current(tx, number, before):
        if before != number:
            await tx.run(
                "UPDATE model_states SET retired_at = :at WHERE model = :before",
                {"at": to_micros(now()), "before": before},
            )
            await _mark_current(tx, number)
        await _put_origin(tx, number, origin)
    current = current_model_state(await load_states(tx))
    assert current is not None
    return current


async def _claim_first(tx: Tx, number: int) -> bool:
    """Whether no model was searched before; of two who try at once, one is told so."""
    first = await fetch_one(
        tx,
        "INSERT INTO current_model (only_row, model) VALUES (1, :model) "
        "ON CONFLICT (only_row) DO NOTHING RETURNING model",
        {"model": number},
    )
    return first is not None


async def _mark_current(tx: Tx, number: int) -> None:
    await tx.run(
        "UPDATE model_states SET current_at = :at, retired_at = NULL WHERE model = :model",
        {"at": to_micros(now()), "model": number},
    )


async def _move_current(tx: Tx, number: int, before: int) -> bool:
    """Whether the model of that number was searched, and now this one is."""
    moved = await fetch_one(
        tx,
        "UPDATE current_model SET model = :model WHERE model = :before RETURNING model",
        {"model": number, "before": before},
    )
    return moved is not None


async def lease(
    tx: Tx, model: EmbeddingModel, origin: ModelOrigin, owner: str, lease_s: float, progress: EmbeddingProgress | None
) -> bool:
    """Take or renew the lease of a model."""
    number = await _ensure_state_row(tx, model)
    moment = now()
    params: dict[str, Any] = {
        "model": number,
        "who": owner,
        "now": to_micros(moment),
        "until": to_micros(moment + timedelta(seconds=lease_s)),
    }
    count = ""
    if progress is not None:
        params |= {"done": progress.done, "total": progress.total}
        count = ", embedded = :done, to_embed = :total"
    leased = await fetch_one(
        tx,
        f"UPDATE model_states SET held_by = :who, held_until = :until{count} "
        "WHERE model = :model AND (held_by = :who OR held_until <= :now) RETURNING model",
        params,
    )
    if leased is not None and origin.spec:
        await _put_origin(tx, number, origin)
    return leased is not None


async def _put_origin(tx: Tx, number: int, origin: ModelOrigin) -> None:
    await tx.run(
        "UPDATE model_states SET spec = :spec, url = :url, asked_dimensions = :dimensions WHERE model = :model",
        {"spec": origin.spec, "url": origin.url, "dimensions": origin.dimensions, "model": number},
    )


async def _ensure_state_row(tx: Tx, model: EmbeddingModel) -> int:
    number = await ensure_model_number(tx, model)
    await tx.run("INSERT INTO model_states (model) VALUES (:model) ON CONFLICT (model) DO NOTHING", {"model": number})
    return number


async def count_embedded(tx: Tx, model: EmbeddingModel) -> EmbeddingProgress:
    """Count memories, and those of them without a vector."""
    row = await fetch_one(
        tx,
        "SELECT count(*), count(v.row) FROM memories m "
        "LEFT JOIN vectors v ON v.user_id = m.user_id AND v.model = :model AND v.row = m.row",
        {"model": await model_number(tx, model) or 0},
    )
    total, done = row or (0, 0)
    return EmbeddingProgress(done, total)
