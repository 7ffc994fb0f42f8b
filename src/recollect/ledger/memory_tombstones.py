"""Tombstones as the ledger in memory has them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime

from recollect.ledger.memory_rows import UserState
from recollect.ledger.plan import Plan
from recollect.ledger.tombstones import resent_turn_ids, role_and_text, tombstone_changes
from recollect.model.memory import Category
from recollect.model.times import now
from recollect.model.tombstone import TombstoneSet, id_digest, new_secret, text_digest, user_key
from recollect.model.turn import Turn


class MemoryTombstones:
    """Digests by user, with the time at which each was forgotten."""

    def __init__(self) -> None:
        self._secret = new_secret()
        self._tombstones: defaultdict[str, dict[str, datetime]] = defaultdict(dict)
        self._imported_keys: defaultdict[str, set[str]] = defaultdict(set)

    async def tombstoned(self, user: str, messages: Collection[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        forgotten_at, keys = self._tombstones.get(user, {}), self._tombstone_keys(user)
        return frozenset(each for each in messages if any(text_digest(key, *each) in forgotten_at for key in keys))

    async def has_tombstones(self, user: str) -> bool:
        return bool(self._tombstones.get(user))

    async def tombstones(self, user: str) -> TombstoneSet:
        forgotten_at = self._tombstones.get(user)
        return TombstoneSet(tuple(self._tombstone_keys(user)), dict(forgotten_at)) if forgotten_at else TombstoneSet()

    async def put_tombstones(self, user: str, incoming: TombstoneSet) -> None:
        self._imported_keys[user] |= set(incoming.keys) - {user_key(self._secret, user)}
        self._tombstones[user] |= incoming.digests

    def _write_tombstones(self, user: str, planned: Plan) -> None:
        """Add the tombstones of turns that a plan forgets, and remove those of turns that it makes active."""
        changes, key = tombstone_changes(planned), user_key(self._secret, user)
        for message in changes.removed if self._tombstones.get(user) else ():
            for each in self._tombstone_keys(user):
                self._tombstones[user].pop(text_digest(each, *message), None)
        for message in changes.added:
            self._tombstones[user][text_digest(key, *message)] = planned.at

    def _add_for_erased(self, name: str, user: UserState, ids: Collection[str], *, purged: bool = False) -> None:
        """Add the tombstones of turns that are about to be erased; the texts of purged ones have theirs."""
        key, at = user_key(self._secret, name), now()
        for id in ids:
            if id in user.rows and user.rows[id].record.category is Category.TURN:
                text = () if purged else (text_digest(key, *role_and_text(user.rows[id].record)),)
                self._tombstones[name] |= dict.fromkeys((*text, id_digest(key, id)), at)

    def _resent_turns(self, user: str, turns: Sequence[Turn], received_at: datetime) -> set[str]:
        forgotten_at = self._tombstones.get(user, {})
        return (
            resent_turn_ids(turns, self._tombstone_keys(user), forgotten_at, received_at=received_at)
            if forgotten_at
            else set()
        )

    def _tombstone_keys(self, user: str) -> list[str]:
        return [user_key(self._secret, user), *sorted(self._imported_keys[user])]
