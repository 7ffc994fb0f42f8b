"""What a batch of changes comes to, worked out before anything is written.

Pure: every ledger loads what the batch touches, asks `plan`, and writes the plan in one transaction. So all of
them agree on versions, on what counts as the same memory, and on what history says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

from recollect.errors import Conflict, InvalidInput, NotFound, StaleVersion
from recollect.ledger.fields import UPDATABLE, check_storable, from_plain
from recollect.model.change import Add, Change, Forget, Outcome, Restore, Supersede, Update, Verb
from recollect.model.effect import Effect, Spent
from recollect.model.memory import MemoryRecord, Status
from recollect.model.scope import Scope

if TYPE_CHECKING:
    from recollect.ledger.protocol import Revision
    from recollect.model.change import Vector

Fingerprint: TypeAlias = tuple[str, str]
Slot: TypeAlias = tuple[str, str, str]


@dataclass(slots=True)
class Known:
    """What the ledger holds of what the batch touches; the plan keeps it up to date as it goes."""

    by_id: dict[str, MemoryRecord] = field(default_factory=dict)
    by_fingerprint: dict[Fingerprint, MemoryRecord] = field(default_factory=dict)
    by_slot: dict[Slot, MemoryRecord] = field(default_factory=dict)

    def hold(self, record: MemoryRecord) -> None:
        """Take in a memory of the ledger, with the words and the key it keeps from others."""
        self.by_id[record.id] = record
        if record.status is Status.ACTIVE:
            if mark := fingerprint_of(record):
                self.by_fingerprint[mark] = record
            if slot := slot_of(record):
                self.by_slot[slot] = record


@dataclass(frozen=True, slots=True)
class Revert:
    """Give fields the values they had before a line of history."""

    id: str
    fields: Mapping[str, Any]
    undoes: int


@dataclass(frozen=True, slots=True)
class Line:
    """A line of history to be written."""

    memory_id: str
    verb: Verb
    version: int
    before: Mapping[str, Any] | None
    after: Mapping[str, Any]
    undoes: int | None = None


@dataclass(slots=True)
class Plan:
    """What to write: new records, changed ones, vectors, lines of history; and what to tell the caller."""

    at: datetime
    known: Known
    added: dict[str, MemoryRecord] = field(default_factory=dict)
    changed: dict[str, MemoryRecord] = field(default_factory=dict)
    originals: dict[str, MemoryRecord] = field(default_factory=dict)
    vectors: dict[str, Vector] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self.lines


def fingerprint_of(record: MemoryRecord) -> Fingerprint | None:
    """What no two active memories of a user may share: the same words in the same place."""
    mark = record.fingerprint
    return (record.place, mark) if mark else None


def slot_of(record: MemoryRecord) -> Slot | None:
    """Where a keyed fact lives; it has one active value."""
    return (record.place, str(record.category), record.key) if record.key is not None else None


def holders_of(records: Sequence[MemoryRecord], known: Known) -> list[MemoryRecord]:
    """The active memories that have the words or the key of one of the records, each once."""
    found: dict[str, MemoryRecord] = {}
    for record in records:
        mark, slot = fingerprint_of(record), slot_of(record)
        said = known.by_fingerprint.get(mark) if mark else None
        keyed = known.by_slot.get(slot) if slot else None
        found |= {holder.id: holder for holder in (said, keyed) if holder is not None}
    return list(found.values())


def check_owner(scope: Scope, changes: Sequence[Change | Revert]) -> None:
    """Raise an InvalidInput if a change brings in a memory of someone else."""
    for change in changes:
        if isinstance(change, (Add, Supersede)) and change.record.scope.user != scope.user:
            raise InvalidInput(f"memory {change.record.id} belongs to another user than the scope it is written in")


def check_unerased(epoch: int, since: Revision | None) -> None:
    """Raise a Conflict if anything of the user was erased since a revision."""
    if since is not None and epoch != since.epoch:
        raise Conflict("something of this user was erased since it was read: read again what is left, and retry")


def is_bill_only(changes: Sequence[Change | Revert], effects: Sequence[Effect]) -> bool:
    """Whether nothing is written but what a model was asked: no reason to keep a user who is not there."""
    return not changes and bool(effects) and all(isinstance(effect, Spent) for effect in effects)


def takers(changes: Sequence[Change | Revert], by_id: Mapping[str, MemoryRecord]) -> list[MemoryRecord]:
    """Memories as the changes would make them, where that may take words or a key that another one holds."""
    current, found = dict(by_id), []
    for change in changes:
        record = change.record if isinstance(change, (Add, Supersede)) else current.get(change.id)
        # What cannot be done is for `plan` to refuse, when its turn comes.
        if record is None:
            break
        try:
            if isinstance(change, (Update, Revert)):
                record = replace(record, **from_plain(_updatable(change.fields)))
            check_storable(record)
        except InvalidInput:
            break
        current[record.id] = record
        if not isinstance(change, Forget):
            found.append(record)
    return found


def plan(changes: Sequence[Change | Revert], known: Known, *, at: datetime) -> Plan:
    """Work out the changes in order against what is known."""
    result = Plan(at=at, known=known)
    for change in changes:
        result.outcomes.append(_step(result, change))
    return result


def _step(plan: Plan, change: Change | Revert) -> Outcome:
    match change:
        case Add():
            if change.first and (holder := _holder(plan.known, change.record)) is not None:
                raise Conflict(f"memory {holder.id} is there already")
            return _add(plan, change.record, change.vector, correction=change.correction)
        case Update():
            fields = from_plain(_updatable(change.fields))
            return _edit(plan, change.id, fields, Verb.UPDATE, expected=change.expected_version, vector=change.vector)
        case Forget():
            return _edit(plan, change.id, {"status": Status.FORGOTTEN}, Verb.FORGET, expected=change.expected_version)
        case Restore():
            return _restore(plan, change)
        case Supersede():
            return _supersede(plan, change)
        case Revert():
            return _edit(plan, change.id, from_plain(change.fields), Verb.UNDO, undoes=change.undoes)
        case _:
            assert_never(change)


def _updatable(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    wrong = set(fields) - UPDATABLE
    if wrong:
        raise InvalidInput(f"cannot update {', '.join(sorted(wrong))}; these can be: {', '.join(sorted(UPDATABLE))}")
    return fields


def _add(plan: Plan, record: MemoryRecord, vector: Vector | None, *, correction: bool = False) -> Outcome:
    check_storable(record)
    same = plan.known.by_id.get(record.id)
    if same is not None:
        return Outcome(Verb.ADD, same, changed=False)
    holder = _holder(plan.known, record)
    if holder is not None:
        if _stays(holder, record, correction=correction, at=plan.at):
            return Outcome(Verb.ADD, holder, changed=False)
        return _supersede(plan, Supersede(holder.id, record, vector=vector))
    plan.added[record.id] = record
    if vector is not None:
        plan.vectors[record.id] = vector
    _remember(plan.known, record)
    plan.lines.append(Line(record.id, Verb.ADD, record.version, None, {"status": record.status}))
    return Outcome(Verb.ADD, record)


def _holder(known: Known, record: MemoryRecord) -> MemoryRecord | None:
    """The active memory that already says the same, or holds the same key."""
    if record.status is not Status.ACTIVE:
        return None
    mark, slot = fingerprint_of(record), slot_of(record)
    said = known.by_fingerprint.get(mark) if mark else None
    return said or (known.by_slot.get(slot) if slot else None)


def _stays(holder: MemoryRecord, record: MemoryRecord, *, correction: bool, at: datetime) -> bool:
    """Whether what is held stays: it has not expired, and the new one is neither surer nor a correction."""
    if holder.expires_at is not None and holder.expires_at <= at:
        return False
    if record.fingerprint and holder.fingerprint == record.fingerprint:
        # The same words; a correction may still be about how they are written.
        return not correction or (holder.content, holder.value) == (record.content, record.value)
    return not correction and record.confidence < holder.confidence


def _edit(
    plan: Plan,
    id: str,
    fields: Mapping[str, Any],
    verb: Verb,
    *,
    expected: int | None = None,
    vector: Vector | None = None,
    undoes: int | None = None,
) -> Outcome:
    record = _current(plan.known, id, expected)
    after = {name: value for name, value in fields.items() if getattr(record, name) != value}
    if not after:
        return Outcome(verb, record, changed=False)
    before = {name: getattr(record, name) for name in after}
    edited = replace(record, **after, updated_at=plan.at, version=record.version + 1)
    check_storable(edited)
    _forget_marks(plan.known, record)
    _remember(plan.known, edited)
    if id in plan.added:
        plan.added[id] = edited
    else:
        plan.originals.setdefault(id, record)
        plan.changed[id] = edited
    if vector is not None:
        plan.vectors[id] = vector
    elif "content" in after:
        plan.vectors.pop(id, None)
    plan.lines.append(Line(id, verb, edited.version, before, after, undoes))
    return Outcome(verb, edited)


def _restore(plan: Plan, change: Restore) -> Outcome:
    fields: dict[str, Any] = {"status": Status.ACTIVE}
    record = _current(plan.known, change.id, change.expected_version)
    if record.status is Status.REVIEW:
        raise Conflict(f"memory {change.id} waits for review: approve it, or reject it")
    if record.status is Status.SUPERSEDED:
        # Its validity was ended by what took its place, not by anyone who said so.
        fields |= {"superseded_by": None, "valid_to": None}
    return _edit(plan, change.id, fields, Verb.RESTORE)


def _supersede(plan: Plan, change: Supersede) -> Outcome:
    old = _current(plan.known, change.id, change.expected_version)
    # The old one steps aside first: a key can have one active value at any moment.
    ending = {"status": Status.SUPERSEDED, "valid_to": _end(old, change.record.valid_from or plan.at)}
    _forget_marks(plan.known, old)
    new = _add(plan, change.record, change.vector).record
    if new.id == old.id:
        raise Conflict(f"memory {old.id} cannot supersede itself")
    _edit(plan, old.id, {**ending, "superseded_by": new.id}, Verb.SUPERSEDE)
    return Outcome(Verb.SUPERSEDE, new)


def _end(old: MemoryRecord, moment: datetime) -> datetime:
    """When a superseded memory ended: no later than something took its place, and earlier if that was said."""
    return moment if old.valid_to is None else min(old.valid_to, moment)


def _current(known: Known, id: str, expected: int | None) -> MemoryRecord:
    record = known.by_id.get(id)
    if record is None:
        raise NotFound(f"no memory {id}")
    if expected is not None and record.version != expected:
        raise StaleVersion(f"memory {id} is at version {record.version}, not {expected}: read it again and retry")
    return record


def _remember(known: Known, record: MemoryRecord) -> None:
    known.by_id[record.id] = record
    if record.status is not Status.ACTIVE:
        return
    mark, slot = fingerprint_of(record), slot_of(record)
    if mark and known.by_fingerprint.setdefault(mark, record).id != record.id:
        raise Conflict(f"memory {known.by_fingerprint[mark].id} already says the same; forget it first")
    if slot and known.by_slot.setdefault(slot, record).id != record.id:
        raise Conflict(f"memory {known.by_slot[slot].id} already holds {record.key!r}; forget it first")


def _forget_marks(known: Known, record: MemoryRecord) -> None:
    for marks, mark in ((known.by_fingerprint, fingerprint_of(record)), (known.by_slot, slot_of(record))):
        if mark and mark in marks and marks[mark].id == record.id:  # type: ignore[index]
            del marks[mark]  # type: ignore[arg-type]
