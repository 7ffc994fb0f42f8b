"""The log as the ledger in memory keeps it: turns, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from recollect.errors import Conflict
from recollect.ledger.again import sift, turn_of
from recollect.ledger.memory_erase import MemoryErasing
from recollect.model.change import Add, By
from recollect.model.erase import user_digest
from recollect.model.job import Appended, NewJob
from recollect.model.memory import Status
from recollect.model.query import checked_limit
from recollect.model.scope import Scope
from recollect.model.turn import Conversation, Turn

if TYPE_CHECKING:
    from recollect.model.change import Vector


class MemoryTurns(MemoryErasing):
    """Turns and the conversations they make up."""

    async def append(
        self,
        scope: Scope,
        turns: Sequence[Turn],
        *,
        vectors: Sequence[Vector | None],
        by: By,
        jobs: Sequence[NewJob] = (),
        given_at: datetime | None = None,
    ) -> Appended:
        if not turns:
            return Appended((), await self.enqueue(scope, jobs))
        if len({turn.id for turn in turns}) < len(turns):
            raise Conflict("two turns have the same id; give each its own")
        if given_at is None:
            placed = self._placed(scope, turns, vectors, by=by)
            return Appended(placed, await self.enqueue(scope, jobs))
        rows = self._user(scope.user).rows
        known = {turn.id: rows[turn.id].record for turn in turns if turn.id in rows}
        erased = [each for each in await self.erasures(given_at) if each.user == user_digest(scope.user)]
        resent = self._resent_turns(scope.user, turns, given_at)
        sifted = sift(scope, turns, known=known, erasures=erased, resent=resent)
        if not sifted.new:
            return Appended(tuple(sifted.there.values()))
        placed = self._placed(scope, [turns[n] for n in sifted.new], [vectors[n] for n in sifted.new], by=by)
        kept = {turn.id: turn for turn in placed} | dict(sifted.there)
        appended = tuple(kept[turn.id] for turn in turns if turn.id in kept)
        return Appended(appended, await self.enqueue(scope, jobs))

    def _placed(
        self, scope: Scope, turns: Sequence[Turn], vectors: Sequence[Vector | None], *, by: By
    ) -> tuple[Turn, ...]:
        user = self._user(scope.user)
        ids = [turn.id for turn in turns]
        if any(id in user.rows for id in ids):
            raise Conflict("a turn of that id was appended before")
        session = (scope.project, scope.session)
        said = user.turn_ids.get(session, [])
        placed = tuple(replace(turn, scope=scope, position=len(said) + n) for n, turn in enumerate(turns, 1))
        changes = [Add(turn.as_memory(), vector) for turn, vector in zip(placed, vectors, strict=True)]
        self._write(scope, user, changes, by=by)
        user.turn_ids[session] = said + ids
        before = user.conversations.get(session, Conversation(scope=scope))
        times = [turn.said_at for turn in turns]
        user.conversations[session] = replace(
            before,
            turn_count=before.turn_count + len(turns),
            started_at=before.started_at or min(times),
            last_turn_at=max(filter(None, [before.last_turn_at, *times])),
            closed_at=None,
            version=before.version + 1,
        )
        return placed

    async def conversation(self, scope: Scope) -> Conversation:
        session = (scope.project, scope.session)
        return self._user(scope.user).conversations.get(session, Conversation(scope=scope))

    async def turns(self, scope: Scope, *, after: int = 0, limit: int = 100) -> list[Turn]:
        user = self._user(scope.user)
        ids = user.turn_ids.get((scope.project, scope.session), [])
        said = [
            turn_of(scope, user.rows[id].record, position)
            for position, id in enumerate(ids, 1)
            if position > after and id in user.rows and user.rows[id].record.status is Status.ACTIVE
        ]
        return said[: checked_limit(limit)]
