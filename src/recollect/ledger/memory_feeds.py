"""What indexes with a store of their own are fed from, as the ledger in memory gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from recollect.ledger.feeds import ChangedRow, FeedPosition, IndexLag, Revision
from recollect.ledger.memory_rows import UserState, index_row
from recollect.model.query import validate_limit
from recollect.model.times import now, to_micros
from recollect.models.embedding import EmbeddingModel


class MemoryIndexFeed:
    """How far indexes are is kept with each user, and goes with them."""

    _users: dict[str, UserState]

    def __init__(self) -> None:
        self._feeders: dict[str, tuple[str, datetime]] = {}

    def _user(self, name: str) -> UserState:
        raise NotImplementedError

    def _check_open(self) -> None:
        raise NotImplementedError

    async def row_count(self, user: str, *, max_count: int, after: int = 0) -> int:
        return min(sum(row.revision > after for row in self._user(user).rows.values()), max_count)

    async def vectors_of(self, user: str, rows: Sequence[int], *, model: EmbeddingModel) -> Mapping[int, bytes]:
        row_numbers = {int(row) for row in rows}
        stored_rows = self._user(user).rows.values()
        return {
            row.number: row.vectors[model]
            for row in stored_rows
            if row.number in row_numbers and model in row.vectors
        }

    async def changed_rows(
        self, user: str, *, model: EmbeddingModel, after: tuple[int, int], limit: int
    ) -> list[ChangedRow]:
        changed = [row for row in self._user(user).rows.values() if (row.revision, row.number) > after]
        changed.sort(key=lambda row: (row.revision, row.number))
        return [
            ChangedRow(row.revision, index_row(row.number, row.record, row.vectors.get(model)))
            for row in changed[: validate_limit(limit)]
        ]

    async def feed_position(self, user: str, *, index: str) -> FeedPosition:
        return self._user(user).feed_positions.get(index, FeedPosition())

    async def lagging_users(self, index: str, *, limit: int, after: str = "") -> list[IndexLag]:
        self._check_open()
        lags = [
            IndexLag(
                name, Revision(user.revision, user.epoch), user.feed_positions.get(index, FeedPosition()).revision
            )
            for name, user in sorted(self._users.items())
            if name > after and user.revision
        ]
        return [each for each in lags if each.current != each.indexed][: validate_limit(limit)]

    async def lease_feed(self, index: str, *, feeder: str, lease_s: float, take: bool = False) -> bool:
        self._check_open()
        holder, until = self._feeders.get(index, (feeder, now()))
        if not take and holder != feeder and until >= now():
            return False
        self._feeders[index] = (feeder, now() + timedelta(seconds=lease_s))
        return True

    async def save_feed_positions(
        self, index: str, positions: Mapping[str, Revision], *, feeder: str, settles_s: float = 0.0
    ) -> bool:
        self._check_open()
        if positions and self._feeders.get(index, ("", None))[0] != feeder:
            return False
        for name, revision in positions.items():
            if name in self._users:
                before = self._users[name].feed_positions.get(index, FeedPosition())
                self._users[name].feed_positions[index] = before.advanced_to(revision, settles_s, at=to_micros(now()))
        return True

    async def reset_feed(self, index: str) -> None:
        self._check_open()
        for user in self._users.values():
            user.feed_positions.pop(index, None)
