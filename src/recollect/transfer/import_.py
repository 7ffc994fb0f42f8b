"""Add many memories at once with their ids, times and states, from an export or another product."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from recollect.aio.slices import TimeSlice
from recollect.errors import Conflict, InvalidInput
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


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class NewRecords:
    """The records that are not in the ledger, redacted, and the counts of existing and redacted ones."""

    new: tuple[MemoryRecord, ...]
    present: int
    redacted: int


async def drop_existing(records: Iterable[MemoryRecord], *, ledger: Ledger, redactor: Redactor) -> NewRecords:
    """Drop the records whose ids exist, redact the rest, and lower the trust of those that quote instructions."""
    by_user: dict[str, dict[str, MemoryRecord]] = {}
    count = 0
    for record in records:
        count += 1
        by_user.setdefault(record.scope.user, {}).setdefault(record.id, record)
    new: list[MemoryRecord] = []
    redacted = 0
    for user, named in by_user.items():
        existing_ids = {record.id for record in await ledger.get(Scope(user), list(named))}
        for id, record in named.items():
            if id not in existing_ids:
                screened, kinds = await redactor.redact_record(with_earned_trust(record))
                new.append(screened)
                redacted += bool(kinds)
    return NewRecords(tuple(new), count - len(new), redacted)


async def add_records(
    records: Sequence[MemoryRecord],
    *,
    ledger: Ledger,
    embedder: Embedder,
    by: Author,
    quota: WriteQuota,
    job: NewJob | None = None,
    vectors: Mapping[str, Vector] | None = None,
) -> ImportCounts:
    """Add new records, with a `job` for each session that has new turns.

    Without a job the turns count as learned from, since their memories are imported as well. Scopes are written
    concurrently, so that they share one sync to disk. `vectors` are known vectors by the ids of the memories.
    """
    if not records:
        return ImportCounts()
    for user, count in Counter(record.scope.user for record in records).items():
        await quota.reserve(user, count)
    all_vectors: dict[str, Vector | None] = dict(vectors or {})
    unembedded = [record for record in records if record.id not in all_vectors]
    made = await embed([record.content for record in unembedded], embedder=embedder) if unembedded else []
    all_vectors |= {record.id: vector for record, vector in zip(unembedded, made, strict=True)}
    by_scope: dict[tuple[Scope, bool], list[MemoryRecord]] = {}
    for record in records:
        by_scope.setdefault((record.scope, record.category is Category.TURN), []).append(record)
    total = ImportCounts()
    groups = list(by_scope.items())
    for start in range(0, len(groups), _MAX_CONCURRENT):
        some = groups[start : start + _MAX_CONCURRENT]
        done = await asyncio.gather(
            *(
                _append_turns(scope, batch, all_vectors, ledger=ledger, by=by, job=job)
                if are_turns
                else _add_memories(scope, batch, all_vectors, ledger=ledger, by=by)
                for (scope, are_turns), batch in some
            )
        )
        total = sum(done, total)
    return total


async def _add_memories(
    scope: Scope, records: Sequence[MemoryRecord], vectors: Mapping[str, Vector | None], *, ledger: Ledger, by: Author
) -> ImportCounts:
    changes = [Add(record, vectors[record.id]) for record in records]
    outcomes = (await ledger.apply(scope, changes, by=by)).outcomes
    added = sum(outcome.changed for outcome in outcomes)
    # The others lost to a value of the same key with a higher confidence.
    same, time_slice = 0, TimeSlice()
    for outcome, record in zip(outcomes, records, strict=True):
        same += not outcome.changed and outcome.record.fingerprint == record.fingerprint
        await time_slice.pause()
    return ImportCounts(added, present=same, kept=len(records) - added - same)


async def _append_turns(
    scope: Scope,
    records: Sequence[MemoryRecord],
    vectors: Mapping[str, Vector | None],
    *,
    ledger: Ledger,
    by: Author,
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
    await ledger.append(scope, turns, vectors=[vectors[turn.id] for turn in turns], by=by, jobs=jobs)
    if job is None:
        await _count_as_learned(scope, len(turns), ledger=ledger, by=by)
    return ImportCounts(added=len(turns))


async def _count_as_learned(scope: Scope, count: int, *, ledger: Ledger, by: Author) -> None:
    """Mark the last `count` turns of a session as learned from, but not the ones waiting before them."""
    for _ in range(_MAX_TRIES):
        conversation = await ledger.conversation(scope)
        before = conversation.turn_count - count
        fields: dict[str, Any] = {"learned_to": conversation.turn_count}
        if conversation.learned_to < before:
            fields["metadata"] = with_skipped_range(conversation, conversation.learned_to + 1, before)
        try:
            await ledger.apply(scope, [], by=by, effects=[ConversationUpdate(scope, fields, conversation.version)])
        except Conflict:
            # The session was written to concurrently.
            continue
        return
