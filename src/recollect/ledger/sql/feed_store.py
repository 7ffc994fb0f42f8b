"""SqlFeeds: the promise of `IndexFeed`, kept by the body of SQL on some engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recollect.ledger.index_feed import ChangedRow, FeedPosition, IndexLag, IndexRow, Revision
from recollect.ledger.sql.leases import lease_end
from recollect.ledger.sql.tx import ALL_TENANTS, NO_TENANT, SqlEngine, Tx, fetch_one
from recollect.ledger.sql.vectors import INDEX_COLUMNS, WITH_VECTORS, model_number
from recollect.model.query import validate_limit
from recollect.model.times import now, to_micros
from recollect.models.embedding import EmbeddingModel

# So many rows found by their key take less time than handing the question to another thread.
_QUICK_ROWS = 512


class SqlIndexFeed:
    """What indexes with a store of their own are fed from, on a SQL database."""

    _engine: SqlEngine

    async def row_count(self, user: str, *, max_count: int, after: int = 0) -> int:
        async def count(tx: Tx) -> int:
            row = await fetch_one(
                tx,
                "SELECT count(*) FROM (SELECT 1 AS one FROM memories WHERE user_id = :user AND revision > :after "
                "LIMIT :most) counted",
                {"user": user, "after": after, "most": max_count},
            )
            return int(row[0]) if row else 0

        return await self._engine.read(count, tenant=user, quick=True)

    async def vectors_of(self, user: str, rows: Sequence[int], *, model: EmbeddingModel) -> Mapping[int, bytes]:
        async def read(tx: Tx) -> dict[int, bytes]:
            vector_rows = await tx.rows(
                f"SELECT row, vector FROM vectors WHERE user_id = :user AND model = :model "
                f"AND {tx.dialect.among('row', 'rows')}",
                {"user": user, "model": await model_number(tx, model) or 0, "rows": [int(row) for row in rows]},
            )
            return {row: bytes(vector) for row, vector in vector_rows}

        return await self._engine.read(read, tenant=user, quick=len(rows) <= _QUICK_ROWS) if rows else {}

    async def changed_rows(
        self, user: str, *, model: EmbeddingModel, after: tuple[int, int], limit: int
    ) -> list[ChangedRow]:
        async def read(tx: Tx) -> list[ChangedRow]:
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

        return await self._engine.read(read, tenant=user)

    async def feed_position(self, user: str, *, index: str) -> FeedPosition:
        async def read(tx: Tx) -> FeedPosition:
            return (await _load_positions(tx, index, [user])).get(user, FeedPosition())

        return await self._engine.read(read, tenant=user, quick=True)

    async def lagging_users(self, index: str, *, limit: int, after: str = "") -> list[IndexLag]:
        async def read(tx: Tx) -> list[IndexLag]:
            rows = await tx.rows(
                "SELECT u.user_id, u.revision, u.epoch, COALESCE(f.revision, 0), COALESCE(f.epoch, 0) FROM users u "
                "LEFT JOIN fed f ON f.user_id = u.user_id AND f.index_name = :index "
                "WHERE u.user_id > :after AND u.revision > 0 "
                "AND (u.revision <> COALESCE(f.revision, 0) OR u.epoch <> COALESCE(f.epoch, 0)) "
                "ORDER BY u.user_id LIMIT :limit",
                {"index": index, "after": after, "limit": validate_limit(limit)},
            )
            return [IndexLag(row[0], Revision(row[1], row[2]), Revision(row[3], row[4])) for row in rows]

        return await self._engine.read(read, tenant=ALL_TENANTS)

    async def lease_feed(self, index: str, *, feeder: str, lease_s: float, take: bool = False) -> bool:
        async def lease(tx: Tx) -> bool:
            params: dict[str, Any] = {"index": index, "feeder": feeder, "now": to_micros(now()), "take": int(take)}
            await tx.run(
                "INSERT INTO feeders (index_name, feeder, leased_until) VALUES (:index, :feeder, :until) "
                "ON CONFLICT (index_name) DO UPDATE "
                "SET feeder = excluded.feeder, leased_until = excluded.leased_until "
                "WHERE feeders.feeder = excluded.feeder OR feeders.leased_until < :now OR :take = 1",
                params | {"until": to_micros(lease_end(lease_s))},
            )
            return await _is_feeder(tx, index, feeder)

        return await self._engine.write(lease, tenant=NO_TENANT)

    async def save_feed_positions(
        self, index: str, positions: Mapping[str, Revision], *, feeder: str, settles_s: float = 0.0
    ) -> bool:
        async def note(tx: Tx) -> bool:
            if not await _is_feeder(tx, index, feeder):
                return False
            before, at = await _load_positions(tx, index, list(positions)), to_micros(now())
            after = {
                user: before.get(user, FeedPosition()).advanced_to(each, settles_s, at=at)
                for user, each in positions.items()
            }
            await tx.many(
                "INSERT INTO fed (user_id, index_name, revision, epoch, noted_at, waiting, waiting_at, settled) "
                "SELECT user_id, :index, :revision, :epoch, :noted_at, :waiting, :waiting_at, :settled "
                "FROM users WHERE user_id = :user "
                "ON CONFLICT (user_id, index_name) DO UPDATE SET revision = excluded.revision, "
                "epoch = excluded.epoch, noted_at = excluded.noted_at, waiting = excluded.waiting, "
                "waiting_at = excluded.waiting_at, settled = excluded.settled",
                [_position_params(index, user, each) for user, each in after.items()],
            )
            return True

        return await self._engine.write(note, tenant=ALL_TENANTS) if positions else True

    async def reset_feed(self, index: str) -> None:
        async def drop(tx: Tx) -> None:
            await tx.run("DELETE FROM fed WHERE index_name = :index", {"index": index})

        await self._engine.write(drop, tenant=ALL_TENANTS)


async def _load_positions(tx: Tx, index: str, users: Sequence[str]) -> dict[str, FeedPosition]:
    rows = await tx.rows(
        "SELECT user_id, revision, epoch, noted_at, waiting, waiting_at, settled FROM fed "
        f"WHERE index_name = :index AND {tx.dialect.among('user_id', 'users')}",
        {"index": index, "users": list(users)},
    )
    return {row[0]: FeedPosition(Revision(row[1], row[2]), *row[3:]) for row in rows}


def _position_params(index: str, user: str, position: FeedPosition) -> dict[str, Any]:
    return {
        "index": index,
        "user": user,
        "revision": position.revision.number,
        "epoch": position.revision.epoch,
        "noted_at": position.noted_at,
        "waiting": position.waiting,
        "waiting_at": position.waiting_at,
        "settled": position.settled,
    }


async def _is_feeder(tx: Tx, index: str, feeder: str) -> bool:
    row = await fetch_one(tx, "SELECT feeder FROM feeders WHERE index_name = :index", {"index": index})
    return row is not None and row[0] == feeder
