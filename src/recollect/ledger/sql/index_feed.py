"""What indexes with a store of their own are fed from: changed rows, how far each index is, and who feeds it.

Nothing is recorded when a memory changes: users whose revision is beyond that of the index are left to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recollect.ledger.sql.leases import lease_end
from recollect.ledger.sql.tx import Tx, fetch_one
from recollect.ledger.sql.vectors import INDEX_COLUMNS, WITH_VECTORS, model_number
from recollect.ledger.types import ChangedRow, FeedPosition, IndexLag, IndexRow, Revision
from recollect.model.query import validate_limit
from recollect.model.times import now, to_micros
from recollect.models.embedding import EmbeddingModel


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
        f"AND {tx.dialect.among('row', 'rows')}",
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
