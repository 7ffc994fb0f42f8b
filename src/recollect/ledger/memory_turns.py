"""The log as the ledger in memory keeps it: turns, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from recollect.errors import Conflict
from recollect.ledger.again import dedupe_turns, turn_from_record
from recollect.ledger.memory_erase import MemoryErasure
from recollect.model.change import Add, Author
from recollect.model.erase import user_digest
from recollect.model.job import Appended, NewJob
from recollect.model.memory import Status
from recollect.model.query import validate_limit
from recollect.model.scope import Scope
from recollect.model.turn import Conversation, Turn

if TYPE_CHECKING:
    from recollect.model.change import Vector


class MemoryTurns(MemoryErasure):
    """Turns and the conversations they make up."""

    async def append(
        self,
        scope: Scope,
        turns: Sequence[Turn],
        *,
        vectors: Sequence[Vector | None],
        by: Author,
        jobs: Sequence[NewJob] = (),
        received_at: datetime | None = None,
    ) -> Appended:
        if not turns:
            return Appended((), await self.enqueue(scope, jobs))
        if len({turn.id for turn in turns}) < len(turns):
            raise Conflict("two turns have the same id; give each its own")
        if received_at is None:
            placed = self._insert_turns(scope, turns, vectors, by=by)
            return Appended(placed, await self.enqueue(scope, jobs))
        rows = self._user(scope.user).rows
        stored = {turn.id: rows[turn.id].record for turn in turns if turn.id in rows}
        recent_erasures = [each for each in await self.erasures(received_at) if each.user == user_digest(scope.user)]
        resent = self._resent_turns(scope.user, turns, received_at)
        deduped = dedupe_turns(scope, turns, stored=stored, erasures=recent_erasures, resent=resent)
        if not deduped.new_indexes:
            return Appended(tuple(deduped.existing.values()))
        placed = self._insert_turns(
            scope, [turns[n] for n in deduped.new_indexes], [vectors[n] for n in deduped.new_indexes], by=by
        )
        turns_by_id = {turn.id: turn for turn in placed} | dict(deduped.existing)
        appended = tuple(turns_by_id[turn.id] for turn in turns if turn.id in turns_by_id)
        return Appended(appended, await self.enqueue(scope, jobs))

    def _insert_turns(
        self, scope: Scope, turns: Sequence[Turn], vectors: Sequence[Vector | None], *, by: Author
    ) -> tuple[Turn, ...]:
        user = self._user(scope.user)
        ids = [turn.id for turn in turns]
        if any(id in user.rows for id in ids):
            raise Conflict("a turn of that id was appended before")
        session = (scope.project, scope.session)
        turn_ids = user.turn_ids.get(session, [])
        placed = tuple(replace(turn, scope=scope, position=len(turn_ids) + n) for n, turn in enumerate(turns, 1))
        changes = [Add(turn.as_memory(), vector) for turn, vector in zip(placed, vectors, strict=True)]
        self._write(scope, user, changes, by=by)
        user.turn_ids[session] = turn_ids + ids
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
        result = [
            turn_from_record(scope, user.rows[id].record, position)
            for position, id in enumerate(ids, 1)
            if position > after and id in user.rows and user.rows[id].record.status is Status.ACTIVE
        ]
        return result[: validate_limit(limit)]
