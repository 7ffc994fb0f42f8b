"""What of some records is new and can be kept: nothing that is said already, and no more than there is room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from recollect.ledger.plan import fingerprint_of, slot_of
from recollect.ledger.protocol import Ledger
from recollect.model.memory import MemoryRecord, Status
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.upkeep.transfer import Imported
from recollect.write.room import Room


@dataclass(slots=True)
class Fitted:
    """Those that are to be added, those for whom there is no room, and what is known not to be added."""

    new: list[MemoryRecord] = field(default_factory=list)
    over: list[MemoryRecord] = field(default_factory=list)
    told: Imported = field(default_factory=Imported)


class Fit:
    """Parts records as they come. A dry run remembers all it let through, for the ledger does not hear of it."""

    def __init__(self, ledger: Ledger, room: Room, *, dry_run: bool) -> None:
        self._ledger, self._room, self._dry_run = ledger, room, dry_run
        self._heard = _Heard()
        self._would: dict[str, int] = {}

    async def part(self, records: Sequence[MemoryRecord]) -> Fitted:
        """Part records that are not there yet, by their ids."""
        fitted = Fitted()
        by_user: dict[str, list[MemoryRecord]] = {}
        for record in records:
            by_user.setdefault(record.scope.user, []).append(record)
        for user, some in by_user.items():
            await self._part(user, some, fitted)
        return fitted

    async def _part(self, user: str, records: list[MemoryRecord], fitted: Fitted) -> None:
        would = self._would.get(user, 0)
        room = await self._room.left(user, would + len(records)) - would
        if room >= len(records) and not self._dry_run:
            # What says the same is found out when it is written.
            fitted.new += records
            return
        heard = self._heard if self._dry_run else _Heard()
        for holder in await self._ledger.holders(Scope(user), records):
            heard.hold(holder)
        for record in records:
            if heard.says(record):
                fitted.told += Imported(present=1)
            elif heard.is_surer_than(record):
                fitted.told += Imported(kept=1)
            elif room > 0:
                room -= 1
                would += 1
                heard.hold(record)
                fitted.new.append(record)
            else:
                fitted.over.append(record)
        if self._dry_run:
            self._would[user] = would


class _Heard:
    """What active memories say, and how sure the values of keys are; as marks, for there may be very many."""

    def __init__(self) -> None:
        self._said: set[bytes] = set()
        self._keys: dict[bytes, tuple[float, bytes | None]] = {}

    def hold(self, record: MemoryRecord) -> None:
        if record.status is not Status.ACTIVE or (record.expires_at is not None and record.expires_at <= now()):
            return
        said, key = _marks(record)
        if key:
            _, before = self._keys.get(key, (0.0, None))
            # What a new value takes the place of may be said again.
            self._said.discard(before or b"")
            self._keys[key] = record.confidence, said
        if said:
            self._said.add(said)

    def says(self, record: MemoryRecord) -> bool:
        return record.status is Status.ACTIVE and _marks(record)[0] in self._said

    def is_surer_than(self, record: MemoryRecord) -> bool:
        key = _marks(record)[1]
        if record.status is not Status.ACTIVE or key is None or key not in self._keys:
            return False
        return record.confidence < self._keys[key][0]


def _marks(record: MemoryRecord) -> tuple[bytes | None, bytes | None]:
    said, slot = fingerprint_of(record), slot_of(record)
    return _digest(record, said) if said else None, _digest(record, slot) if slot else None


def _digest(record: MemoryRecord, parts: tuple[str, ...]) -> bytes:
    return blake2b("\0".join((record.scope.user, *parts)).encode(), digest_size=16).digest()
