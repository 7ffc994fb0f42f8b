"""What indexes with a store of their own are fed from, as the ledger in memory gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from recollect.ledger.feeds import Behind, Changed, Fed, Revision
from recollect.ledger.memory_rows import User, index_row
from recollect.model.query import checked_limit
from recollect.model.times import now, to_micros
from recollect.models.embedding import EmbeddingModel


class MemoryFeeds:
    """How far indexes are is kept with each user, and goes with them."""

    _users: dict[str, User]

    def __init__(self) -> None:
        self._feeders: dict[str, tuple[str, datetime]] = {}

    def _user(self, name: str) -> User:
        raise NotImplementedError

    def _check_open(self) -> None:
        raise NotImplementedError

    async def row_count(self, user: str, *, most: int, after: int = 0) -> int:
        return min(sum(row.revision > after for row in self._user(user).rows.values()), most)

    async def vectors_of(self, user: str, rows: Sequence[int], *, model: EmbeddingModel) -> Mapping[int, bytes]:
        wanted = {int(row) for row in rows}
        held = self._user(user).rows.values()
        return {row.number: row.vectors[model] for row in held if row.number in wanted and model in row.vectors}

    async def changed_rows(
        self, user: str, *, model: EmbeddingModel, after: tuple[int, int], limit: int
    ) -> list[Changed]:
        found = [row for row in self._user(user).rows.values() if (row.revision, row.number) > after]
        found.sort(key=lambda row: (row.revision, row.number))
        return [
            Changed(row.revision, index_row(row.number, row.record, row.vectors.get(model)))
            for row in found[: checked_limit(limit)]
        ]

    async def fed(self, user: str, *, index: str) -> Fed:
        return self._user(user).fed.get(index, Fed())

    async def behind(self, index: str, *, limit: int, after: str = "") -> list[Behind]:
        self._check_open()
        found = [
            Behind(name, Revision(user.revision, user.epoch), user.fed.get(index, Fed()).revision)
            for name, user in sorted(self._users.items())
            if name > after and user.revision
        ]
        return [each for each in found if each.now != each.fed][: checked_limit(limit)]

    async def lease_feeding(self, index: str, *, feeder: str, lease_s: float, take: bool = False) -> bool:
        self._check_open()
        holder, until = self._feeders.get(index, (feeder, now()))
        if not take and holder != feeder and until >= now():
            return False
        self._feeders[index] = (feeder, now() + timedelta(seconds=lease_s))
        return True

    async def note_fed(self, index: str, fed: Mapping[str, Revision], *, feeder: str, settles_s: float = 0.0) -> bool:
        self._check_open()
        if fed and self._feeders.get(index, ("", None))[0] != feeder:
            return False
        for name, revision in fed.items():
            if name in self._users:
                before = self._users[name].fed.get(index, Fed())
                self._users[name].fed[index] = before.noted(revision, settles_s, at=to_micros(now()))
        return True

    async def drop_fed(self, index: str) -> None:
        self._check_open()
        for user in self._users.values():
            user.fed.pop(index, None)
