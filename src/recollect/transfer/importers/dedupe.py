"""Separate new records from duplicates, and from those that exceed the quota."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from recollect.ledger.ledger import Ledger
from recollect.ledger.plan import fingerprint_of, slot_of
from recollect.model.memory import MemoryRecord, Status
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.transfer.import_ import ImportCounts
from recollect.write.write_quota import WriteQuota


@dataclass(slots=True)
class DedupeResult:
    """The records to add, those over the quota, and the counts of the others."""

    new: list[MemoryRecord] = field(default_factory=list)
    over_quota: list[MemoryRecord] = field(default_factory=list)
    counts: ImportCounts = field(default_factory=ImportCounts)


class ImportDeduper:
    """Deduplicates batches of records. A dry run remembers earlier batches, which are not in the ledger."""

    def __init__(self, ledger: Ledger, quota: WriteQuota, *, dry_run: bool) -> None:
        self._ledger, self._quota, self._dry_run = ledger, quota, dry_run
        self._fingerprints = _FingerprintSet()
        self._planned: dict[str, int] = {}

    async def dedupe(self, records: Sequence[MemoryRecord]) -> DedupeResult:
        """Deduplicate records whose ids are not in the ledger."""
        result = DedupeResult()
        by_user: dict[str, list[MemoryRecord]] = {}
        for record in records:
            by_user.setdefault(record.scope.user, []).append(record)
        for user, user_records in by_user.items():
            await self._dedupe_user(user, user_records, result)
        return result

    async def _dedupe_user(self, user: str, records: list[MemoryRecord], result: DedupeResult) -> None:
        planned = self._planned.get(user, 0)
        remaining = await self._quota.remaining(user, planned + len(records)) - planned
        if remaining >= len(records) and not self._dry_run:
            # The ledger deduplicates on write.
            result.new += records
            return
        fingerprints = self._fingerprints if self._dry_run else _FingerprintSet()
        for holder in await self._ledger.find_conflicting(Scope(user), records):
            fingerprints.add(holder)
        for record in records:
            if fingerprints.contains(record):
                result.counts += ImportCounts(present=1)
            elif fingerprints.has_surer_value(record):
                result.counts += ImportCounts(kept=1)
            elif remaining > 0:
                remaining -= 1
                planned += 1
                fingerprints.add(record)
                result.new.append(record)
            else:
                result.over_quota.append(record)
        if self._dry_run:
            self._planned[user] = planned


class _FingerprintSet:
    """Digests of the contents of active memories, and the confidence of keyed values."""

    def __init__(self) -> None:
        self._contents: set[bytes] = set()
        self._keys: dict[bytes, tuple[float, bytes | None]] = {}

    def add(self, record: MemoryRecord) -> None:
        if record.status is not Status.ACTIVE or (record.expires_at is not None and record.expires_at <= now()):
            return
        content, key = _record_fingerprints(record)
        if key:
            _, replaced = self._keys.get(key, (0.0, None))
            # A replaced value is no duplicate any more.
            self._contents.discard(replaced or b"")
            self._keys[key] = record.confidence, content
        if content:
            self._contents.add(content)

    def contains(self, record: MemoryRecord) -> bool:
        return record.status is Status.ACTIVE and _record_fingerprints(record)[0] in self._contents

    def has_surer_value(self, record: MemoryRecord) -> bool:
        key = _record_fingerprints(record)[1]
        if record.status is not Status.ACTIVE or key is None or key not in self._keys:
            return False
        return record.confidence < self._keys[key][0]


def _record_fingerprints(record: MemoryRecord) -> tuple[bytes | None, bytes | None]:
    content, slot = fingerprint_of(record), slot_of(record)
    return _digest(record, content) if content else None, _digest(record, slot) if slot else None


def _digest(record: MemoryRecord, parts: tuple[str, ...]) -> bytes:
    return blake2b("\0".join((record.scope.user, *parts)).encode(), digest_size=16).digest()
