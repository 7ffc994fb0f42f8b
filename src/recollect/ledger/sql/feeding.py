"""SqlFeeds: the promise of `Feeds`, kept by the body of SQL on some engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recollect.ledger.feeds import Behind, Changed, Fed, IndexRow, Revision
from recollect.ledger.sql.leases import until
from recollect.ledger.sql.tx import EVERYONE, NOBODY, Engine, Tx, one
from recollect.ledger.sql.vectors import INDEX_COLUMNS, WITH_VECTORS, model_number
from recollect.model.query import checked_limit
from recollect.model.times import now, to_micros
from recollect.models.embedding import EmbeddingModel

# So many rows found by their key take less time than handing the question to another thread.
_QUICK_ROWS = 512


class SqlFeeds:
    """What indexes with a store of their own are fed from, on a SQL database."""

    _engine: Engine

    async def row_count(self, user: str, *, most: int, after: int = 0) -> int:
        async def count(tx: Tx) -> int:
            row = await one(
                tx,
                "SELECT count(*) FROM (SELECT 1 AS one FROM memories WHERE user_id = :user AND revision > :after "
                "LIMIT :most) counted",
                {"user": user, "after": after, "most": most},
            )
            return int(row[0]) if row else 0

        return await self._engine.read(count, of=user, quick=True)

    async def vectors_of(self, user: str, rows: Sequence[int], *, model: EmbeddingModel) -> Mapping[int, bytes]:
        async def read(tx: Tx) -> dict[int, bytes]:
            found = await tx.rows(
                f"SELECT row, vector FROM vectors WHERE user_id = :user AND model = :model "
                f"AND {tx.dialect.among('row', 'rows')}",
                {"user": user, "model": await model_number(tx, model) or 0, "rows": [int(row) for row in rows]},
            )
            return {row: bytes(vector) for row, vector in found}

        return await self._engine.read(read, of=user, quick=len(rows) <= _QUICK_ROWS) if rows else {}

    async def changed_rows(
        self, user: str, *, model: EmbeddingModel, after: tuple[int, int], limit: int
    ) -> list[Changed]:
        async def read(tx: Tx) -> list[Changed]:
            rows = await tx.rows(
                f"SELECT m.revision, {INDEX_COLUMNS}, v.vector {WITH_VECTORS} "
                "AND (m.revision, m.row) > (:after, :row) ORDER BY m.revision, m.row LIMIT :limit",
                {
                    "user": user,
                    "model": await model_number(tx, model) or 0,
                    "after": after[0],
                    "row": after[1],
                    "limit": checked_limit(limit),
                },
            )
            return [Changed(row[0], IndexRow(*row[1:])) for row in rows]

        return await self._engine.read(read, of=user)

    async def fed(self, user: str, *, index: str) -> Fed:
        async def read(tx: Tx) -> Fed:
            return (await _fed(tx, index, [user])).get(user, Fed())

        return await self._engine.read(read, of=user, quick=True)

    async def behind(self, index: str, *, limit: int, after: str = "") -> list[Behind]:
        async def read(tx: Tx) -> list[Behind]:
            rows = await tx.rows(
                "SELECT u.user_id, u.revision, u.epoch, COALESCE(f.revision, 0), COALESCE(f.epoch, 0) FROM users u "
                "LEFT JOIN fed f ON f.user_id = u.user_id AND f.index_name = :index "
                "WHERE u.user_id > :after AND u.revision > 0 "
                "AND (u.revision <> COALESCE(f.revision, 0) OR u.epoch <> COALESCE(f.epoch, 0)) "
                "ORDER BY u.user_id LIMIT :limit",
                {"index": index, "after": after, "limit": checked_limit(limit)},
            )
            return [Behind(row[0], Revision(row[1], row[2]), Revision(row[3], row[4])) for row in rows]

        return await self._engine.read(read, of=EVERYONE)

    async def lease_feeding(self, index: str, *, feeder: str, lease_s: float, take: bool = False) -> bool:
        async def lease(tx: Tx) -> bool:
            params: dict[str, Any] = {"index": index, "feeder": feeder, "now": to_micros(now()), "take": int(take)}
            await tx.run(
                "INSERT INTO feeders (index_name, feeder, leased_until) VALUES (:index, :feeder, :until) "
                "ON CONFLICT (index_name) DO UPDATE "
                "SET feeder = excluded.feeder, leased_until = excluded.leased_until "
                "WHERE feeders.feeder = excluded.feeder OR feeders.leased_until < :now OR :take = 1",
                params | {"until": to_micros(until(lease_s))},
            )
            return await _is_feeder(tx, index, feeder)

        return await self._engine.write(lease, of=NOBODY)

    async def note_fed(self, index: str, fed: Mapping[str, Revision], *, feeder: str, settles_s: float = 0.0) -> bool:
        async def note(tx: Tx) -> bool:
            if not await _is_feeder(tx, index, feeder):
                return False
            before, at = await _fed(tx, index, list(fed)), to_micros(now())
            after = {user: before.get(user, Fed()).noted(each, settles_s, at=at) for user, each in fed.items()}
            await tx.many(
                "INSERT INTO fed (user_id, index_name, revision, epoch, noted_at, waiting, waiting_at, settled) "
                "SELECT user_id, :index, :revision, :epoch, :noted_at, :waiting, :waiting_at, :settled "
                "FROM users WHERE user_id = :user "
                "ON CONFLICT (user_id, index_name) DO UPDATE SET revision = excluded.revision, "
                "epoch = excluded.epoch, noted_at = excluded.noted_at, waiting = excluded.waiting, "
                "waiting_at = excluded.waiting_at, settled = excluded.settled",
                [_params(index, user, each) for user, each in after.items()],
            )
            return True

        return await self._engine.write(note, of=EVERYONE) if fed else True

    async def drop_fed(self, index: str) -> None:
        async def drop(tx: Tx) -> None:
            await tx.run("DELETE FROM fed WHERE index_name = :index", {"index": index})

        await self._engine.write(drop, of=EVERYONE)


async def _fed(tx: Tx, index: str, users: Sequence[str]) -> dict[str, Fed]:
    rows = await tx.rows(
        "SELECT user_id, revision, epoch, noted_at, waiting, waiting_at, settled FROM fed "
        f"WHERE index_name = :index AND {tx.dialect.among('user_id', 'users')}",
        {"index": index, "users": list(users)},
    )
    return {row[0]: Fed(Revision(row[1], row[2]), *row[3:]) for row in rows}


def _params(index: str, user: str, fed: Fed) -> dict[str, Any]:
    return {
        "index": index,
        "user": user,
        "revision": fed.revision.number,
        "epoch": fed.revision.epoch,
        "noted_at": fed.noted_at,
        "waiting": fed.waiting,
        "waiting_at": fed.waiting_at,
        "settled": fed.settled,
    }


async def _is_feeder(tx: Tx, index: str, feeder: str) -> bool:
    row = await one(tx, "SELECT feeder FROM feeders WHERE index_name = :index", {"index": index})
    return row is not None and row[0] == feeder
