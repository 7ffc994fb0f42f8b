"""Add many memories at once with their ids, times and states, from an export or another product."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, replace
from typing import Any

from recollect.aio.slices import run_off_loop
from recollect.errors import Conflict, InvalidInput
from recollect.frozen_dataclass import frozen_dataclass
from recollect.ledger.codec import from_plain
from recollect.ledger.ledger import Ledger
from recollect.model.change import Add, Author, ConversationUpdate, Vector
from recollect.model.ids import new_id
from recollect.model.job import NewJob
from recollect.model.memory import TYPE_OF_CATEGORY, Category, MemoryRecord, MemoryType
from recollect.model.scope import Scope
from recollect.model.text import validate_id, validate_text, validate_visible_text
from recollect.model.times import as_utc, now
from recollect.model.turn import Role, Turn
from recollect.models.embedding import Embedder
from recollect.quotes.quoted_text import with_earned_trust
from recollect.write.batch import with_skipped_range
from recollect.write.draft import validate_fields
from recollect.write.embed import embed
from recollect.write.redact import Redactor
from recollect.write.triggers import job_key
from recollect.write.write_quota import WriteQuota

# Scopes that are written concurrently.
_MAX_CONCURRENT = 64
# Retries if a session is written to concurrently.
_MAX_TRIES = 5
# The maximum of an integer column.
_MAX_COUNT = 2**31 - 1
_NOT_FIELDS = {
    "id", "memory", "user_id", "project_id", "session_id", "created_at", "updated_at", "version", "access_count",
    "last_accessed_at", "score", "scores", "why", "event", "redacted", "embedding",
}  # fmt: skip


@frozen_dataclass
class ImportCounts:
    """The result of an import; `kept` counts facts whose existing value has a higher confidence."""

    added: int = 0
    present: int = 0
    kept: int = 0
    redacted: int = 0

    def __add__(self, other: ImportCounts) -> ImportCounts:
        return ImportCounts(*(ours + theirs for ours, theirs in zip(astuple(self), astuple(other), strict=True)))


def parse_record(line: Mapping[str, Any], *, user: str | None = None) -> MemoryRecord:
    """Return the memory of a line of an export; `user` replaces the user that it names."""
    if not isinstance(line, Mapping):
        raise InvalidInput(f"a line is a JSON object, not {type(line).__name__}")
    owner = user or line.get("user_id")
    if not owner:
        raise InvalidInput("the line names no user_id; give the user it belongs to")
    scope = Scope(owner, line.get("project_id") or "", line.get("session_id") or "")
    fields = {name: value for name, value in line.items() if name not in _NOT_FIELDS and value is not None}
    fields = validate_fields(fields, exported=True)
    created_at = as_utc(line.get("created_at") or now(), name="created_at")
    times = from_plain({name: line.get(name) for name in ("updated_at", "last_accessed_at")})
    category = fields.pop("category", Category.FACT)
    if category is Category.TURN:
        detail = fields.get("detail", {})
        if detail.get("role", "user") not in tuple(Role):
            raise InvalidInput(f"the role of a turn is {' or '.join(Role)}, not {detail['role']!r}")
        if not isinstance(detail.get("name"), str | None):
            raise InvalidInput(f"the name of the speaker of a turn is a text, not {detail['name']!r}")
        parse_count(detail.get("position"), name="the position of a turn", minimum=0)
    # The text of a turn is not changed.
    content = (validate_text if category is Category.TURN else validate_visible_text)(
        line.get("memory"), name="memory"
    )
    level = scope.check_level(fields.pop("level", scope.default_level))
    return MemoryRecord(
        id=validate_id(line.get("id") or new_id(), name="id"),
        scope=scope,
        level=level,
        type=fields.pop("type", TYPE_OF_CATEGORY.get(category, MemoryType.SEMANTIC)),
        category=category,
        content=content,
        created_at=created_at,
        updated_at=times["updated_at"] or created_at,
        last_accessed_at=times["last_accessed_at"],
        access_count=parse_count(line.get("access_count"), name="access_count", minimum=0),
        version=parse_count(line.get("version"), name="version", minimum=1),
        **fields,
    )


def parse_count(value: object, *, name: str, minimum: int) -> int:
    """Return the number, or `minimum` if there is none."""
    if value is None:
        return minimum
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= _MAX_COUNT:
        raise InvalidInput(f"{name} is a whole number from {minimum} to {_MAX_COUNT}, not {value!r}")
    return value


@frozen_dataclass
class NewRecords:
    """The records that are not in the ledger, redacted, and the counts of existing and redacted ones."""

    new: tuple[MemoryRecord, ...]
    present: int
    redacted: int


@frozen_dataclass(kw_only=True)
class RecordWriter:
    """Adds records and sessions to a ledger as one author, without secrets and within the quota."""

    ledger: Ledger
    embedder: Embedder
    redactor: Redactor
    quota: WriteQuota
    by: Author

    async def drop_existing(self, records: Iterable[MemoryRecord]) -> NewRecords:
        """Drop the records whose ids exist, redact the rest, and lower the trust of those that quote instructions."""
        by_user: dict[str, dict[str, MemoryRecord]] = {}
        count = redacted = 0
        for record in records:
            count += 1
            by_user.setdefault(record.scope.user, {}).setdefault(record.id, record)
        new: list[MemoryRecord] = []
        for user, named in by_user.items():
            existing_ids = {record.id for record in await self.ledger.get(Scope(user), list(named))}
            for record in (record for id, record in named.items() if id not in existing_ids):
                screened, kinds = await self.redactor.redact_record(with_earned_trust(record))
                new.append(screened)
                redacted += bool(kinds)
        return NewRecords(tuple(new), count - len(new), redacted)

    async def add(
        self,
        records: Sequence[MemoryRecord],
        *,
        job: NewJob | None = None,
        vectors: Mapping[str, Vector] | None = None,
    ) -> ImportCounts:
        """Add new records, with a `job` for each session that has new turns.

        Without a job the turns count as learned from, since their memories are imported as well. Scopes are written
        concurrently, so that they share one sync to disk. `vectors` are known vectors by the ids of the memories.
        """
        for user, count in Counter(record.scope.user for record in records).items():
            await self.quota.reserve(user, count)
        all_vectors: dict[str, Vector | None] = dict(vectors or {})
        unembedded = [record for record in records if record.id not in all_vectors]
        if unembedded:
            made = await embed([record.content for record in unembedded], embedder=self.embedder)
            all_vectors |= {record.id: vector for record, vector in zip(unembedded, made, strict=True)}
        groups: dict[tuple[Scope, bool], list[MemoryRecord]] = {}
        for record in records:
            groups.setdefault((record.scope, record.category is Category.TURN), []).append(record)
        total, pending = ImportCounts(), list(groups.items())
        for start in range(0, len(pending), _MAX_CONCURRENT):
            writes = (
                self._append_turns(scope, batch, all_vectors, job)
                if are_turns
                else self._add(scope, batch, all_vectors)
                for (scope, are_turns), batch in pending[start : start + _MAX_CONCURRENT]
            )
            total = sum(await asyncio.gather(*writes), total)
        return total

    async def _add(
        self, scope: Scope, records: Sequence[MemoryRecord], vectors: Mapping[str, Vector | None]
    ) -> ImportCounts:
        changes = [Add(record, vectors[record.id]) for record in records]
        outcomes = (await self.ledger.apply(scope, changes, by=self.by)).outcomes
        added = sum(outcome.changed for outcome in outcomes)
        unchanged = [pair for pair in zip(outcomes, records, strict=True) if not pair[0].changed]
        # The others lost to a value of the same key with a higher confidence.
        same = await run_off_loop(
            lambda: sum(outcome.record.fingerprint == record.fingerprint for outcome, record in unchanged),
            chars=sum(len(record.content) for _, record in unchanged),
        )
        return ImportCounts(added, present=same, kept=len(records) - added - same)

    async def _append_turns(
        self,
        scope: Scope,
        records: Sequence[MemoryRecord],
        vectors: Mapping[str, Vector | None],
        job: NewJob | None,
    ) -> ImportCounts:
        turns = [
            Turn(
                id=record.id,
                scope=record.scope,
                role=Role(record.detail.get("role", "user")),
                content=record.content,
                said_at=record.occurred_at or record.created_at,
                name=record.detail.get("name"),
                exported_record=record,
            )
            for record in sorted(records, key=lambda record: record.detail.get("position") or 0)
        ]
        jobs = [] if job is None else [replace(job, key=job_key(scope))]
        await self.ledger.append(scope, turns, vectors=[vectors[turn.id] for turn in turns], by=self.by, jobs=jobs)
        if job is None:
            await self._count_as_learned(scope, len(turns))
        return ImportCounts(added=len(turns))

    async def _count_as_learned(self, scope: Scope, count: int) -> None:
        """Mark the last `count` turns of a session as learned from, but not the ones waiting before them."""
        for _ in range(_MAX_TRIES):
            session = await self.ledger.conversation(scope)
            fields: dict[str, Any] = {"learned_to": session.turn_count}
            if session.learned_to < (before := session.turn_count - count):
                fields["metadata"] = with_skipped_range(session, session.learned_to + 1, before)
            # On a conflict, the session was written to concurrently.
            with suppress(Conflict):
                await self.update_session(scope, fields, session.version)
                return

    async def update_session(self, scope: Scope, fields: Mapping[str, Any], version: int | None = None) -> None:
        """Set some fields of a session."""
        await self.ledger.apply(scope, [], by=self.by, effects=[ConversationUpdate(scope, fields, version)])
