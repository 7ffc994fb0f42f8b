"""Decide what a batch of changes writes, before anything is written.

Pure: the ledger loads the records that the batch touches, calls `plan`, and writes the plan in one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

from recollect.errors import Conflict, InvalidInput, StaleVersion
from recollect.frozen_dataclass import frozen_dataclass
from recollect.ledger.codec import UPDATABLE_FIELDS, check_storable, from_plain
from recollect.model.change import (
    Add,
    Change,
    ChangeKind,
    Effect,
    Forget,
    HistoryEntry,
    ModelUsage,
    Outcome,
    Restore,
    Supersede,
    Update,
    Vector,
)
from recollect.model.ids import memory_not_found
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.scope import Scope
from recollect.text.instruction_rule import INSTRUCTING_FIELDS, hold_for_review

if TYPE_CHECKING:
    from recollect.ledger.types import Revision


Fingerprint: TypeAlias = tuple[str, str]
Slot: TypeAlias = tuple[str, str, str]


@dataclass(slots=True)
class ExistingRecords:
    """The records that a batch touches, updated while it is planned."""

    by_id: dict[str, MemoryRecord] = field(default_factory=dict)
    by_fingerprint: dict[Fingerprint, MemoryRecord] = field(default_factory=dict)
    by_slot: dict[Slot, MemoryRecord] = field(default_factory=dict)

    def add(self, record: MemoryRecord) -> None:
        """Add a record, with its fingerprint and key if it is active; raise Conflict if another one has them."""
        self.by_id[record.id] = record
        if record.status is not Status.ACTIVE:
            return
        mark, slot = fingerprint_of(record), slot_of(record)
        if mark and self.by_fingerprint.setdefault(mark, record).id != record.id:
            raise Conflict(f"memory {self.by_fingerprint[mark].id} already says the same; forget it first")
        if slot and self.by_slot.setdefault(slot, record).id != record.id:
            raise Conflict(f"memory {self.by_slot[slot].id} already holds {record.key!r}; forget it first")

    def release(self, record: MemoryRecord) -> None:
        """Free the fingerprint and the key of a record."""
        for marks, mark in ((self.by_fingerprint, fingerprint_of(record)), (self.by_slot, slot_of(record))):
            if mark and mark in marks and marks[mark].id == record.id:  # type: ignore[index]
                del marks[mark]  # type: ignore[arg-type]

    def same_text(self, record: MemoryRecord) -> MemoryRecord | None:
        """Return the active memory with the same text in the same place."""
        mark = fingerprint_of(record)
        return self.by_fingerprint.get(mark) if mark else None

    def same_key(self, record: MemoryRecord) -> MemoryRecord | None:
        """Return the active memory with the same key in the same place."""
        slot = slot_of(record)
        return self.by_slot.get(slot) if slot else None

    def conflicting(self, record: MemoryRecord) -> MemoryRecord | None:
        """Return the active memory with the same text or the same key as a new one."""
        return (self.same_text(record) or self.same_key(record)) if record.status is Status.ACTIVE else None


@frozen_dataclass
class Revert:
    """Restore the values that fields had before a history entry."""

    id: str
    fields: Mapping[str, Any]
    undoes: int


@frozen_dataclass
class HistoryLine:
    """A history entry to be written."""

    memory_id: str
    verb: ChangeKind
    version: int
    before: Mapping[str, Any] | None
    after: Mapping[str, Any]
    undoes: int | None = None


@dataclass(slots=True)
class Plan:
    """What to write (new and changed records, vectors, history entries), and the outcome of each change."""

    at: datetime
    existing: ExistingRecords
    added: dict[str, MemoryRecord] = field(default_factory=dict)
    changed: dict[str, MemoryRecord] = field(default_factory=dict)
    originals: dict[str, MemoryRecord] = field(default_factory=dict)
    vectors: dict[str, Vector] = field(default_factory=dict)
    lines: list[HistoryLine] = field(default_factory=list)
    evicted: set[str] = field(default_factory=set)
    # Turns that were forgotten before, maybe only to make room, and now on request.
    forgotten_again: list[MemoryRecord] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self.lines


def fingerprint_of(record: MemoryRecord) -> Fingerprint | None:
    """Return what no two active memories of a user may share: the same text in the same place."""
    mark = record.fingerprint
    return (record.visibility_key, mark) if mark else None


def slot_of(record: MemoryRecord) -> Slot | None:
    """Return the place of a keyed fact, which has one active value."""
    return (record.visibility_key, str(record.category), record.key) if record.key is not None else None


def conflicting_records(records: Sequence[MemoryRecord], existing: ExistingRecords) -> list[MemoryRecord]:
    """Return the active memories with the text or the key of one of the records, each once."""
    matches: dict[str, MemoryRecord] = {}
    for record in records:
        matches |= {each.id: each for each in (existing.same_text(record), existing.same_key(record)) if each}
    return list(matches.values())


def check_owner(scope: Scope, changes: Sequence[Change | Revert]) -> None:
    """Raise InvalidInput if a change adds a memory of another user."""
    for change in changes:
        if isinstance(change, (Add, Supersede)) and change.record.scope.user != scope.user:
            raise InvalidInput(f"memory {change.record.id} belongs to another user than the scope it is written in")


def check_not_erased(epoch: int, since: Revision | None) -> None:
    """Raise Conflict if anything of the user was erased since a revision."""
    if since is not None and epoch != since.epoch:
        raise Conflict("something of this user was erased since it was read: read again what is left, and retry")


def is_usage_only(changes: Sequence[Change | Revert], effects: Sequence[Effect]) -> bool:
    """Return whether only LLM usage is written, which is no reason to create a user."""
    return not changes and bool(effects) and all(isinstance(effect, ModelUsage) for effect in effects)


def claiming_records(changes: Sequence[Change | Revert], by_id: Mapping[str, MemoryRecord]) -> list[MemoryRecord]:
    """Return the memories as the changes would make them, where they may conflict with another one."""
    current, claiming = dict(by_id), []
    for change in changes:
        record = change.record if isinstance(change, (Add, Supersede)) else current.get(change.id)
        # Impossible changes are refused by `plan`, in their turn.
        if record is None:
            break
        try:
            if isinstance(change, (Update, Revert)):
                record = replace(record, **from_plain(_check_updatable(change.fields)))
            check_storable(record)
        except InvalidInput:
            break
        current[record.id] = record
        if not isinstance(change, Forget):
            claiming.append(record)
    return claiming


def plan(changes: Sequence[Change | Revert], existing: ExistingRecords, *, at: datetime) -> Plan:
    """Plan the changes in order against the existing records."""
    result = Plan(at=at, existing=existing)
    for change in changes:
        result.outcomes.append(_apply_change(result, change))
    return result


def _apply_change(plan: Plan, change: Change | Revert) -> Outcome:
    match change:
        case Add():
            if change.first and (current := plan.existing.conflicting(change.record)) is not None:
                raise Conflict(f"memory {current.id} is there already")
            return _add(plan, change.record, change.vector, correction=change.correction)
        case Update():
            fields = from_plain(_check_updatable(change.fields))
            return _edit(
                plan, change.id, fields, ChangeKind.UPDATE, expected=change.expected_version, vector=change.vector
            )
        case Forget():
            if change.evicted:
                plan.evicted.add(change.id)
            forgotten = _edit(
                plan, change.id, {"status": Status.FORGOTTEN}, ChangeKind.FORGET, expected=change.expected_version
            )
            if not forgotten.changed and not change.evicted and forgotten.record.category is Category.TURN:
                plan.forgotten_again.append(forgotten.record)
            return forgotten
        case Restore():
            return _restore(plan, change)
        case Supersede():
            return _supersede(plan, change)
        case Revert():
            return _edit(plan, change.id, from_plain(change.fields), ChangeKind.UNDO, undoes=change.undoes)
        case _:
            assert_never(change)


def _check_updatable(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    wrong = set(fields) - UPDATABLE_FIELDS
    if wrong:
        raise InvalidInput(
            f"cannot update {', '.join(sorted(wrong))}; these can be: {', '.join(sorted(UPDATABLE_FIELDS))}"
        )
    return fields


def _add(plan: Plan, record: MemoryRecord, vector: Vector | None, *, correction: bool = False) -> Outcome:
    record = hold_for_review(record)
    check_storable(record)
    same = plan.existing.by_id.get(record.id)
    if same is not None:
        return Outcome(ChangeKind.ADD, same, changed=False)
    current = plan.existing.conflicting(record)
    if current is not None:
        if is_retained(current, record, correction=correction, at=plan.at):
            return Outcome(ChangeKind.ADD, current, changed=False)
        return _supersede(plan, Supersede(current.id, record, vector=vector))
    plan.added[record.id] = record
    if vector is not None:
        plan.vectors[record.id] = vector
    plan.existing.add(record)
    plan.lines.append(HistoryLine(record.id, ChangeKind.ADD, record.version, None, {"status": record.status}))
    return Outcome(ChangeKind.ADD, record)


def is_retained(current: MemoryRecord, record: MemoryRecord, *, correction: bool = False, at: datetime) -> bool:
    """Return whether the current memory stays: not expired, and the new one neither surer nor a correction."""
    if current.expires_at is not None and current.expires_at <= at:
        return False
    if record.fingerprint and current.fingerprint == record.fingerprint:
        # The same text; a correction may still change its spelling.
        return not correction or (current.content, current.value) == (record.content, record.value)
    return not correction and record.confidence < current.confidence


def _edit(
    plan: Plan,
    id: str,
    fields: Mapping[str, Any],
    verb: ChangeKind,
    *,
    expected: int | None = None,
    vector: Vector | None = None,
    undoes: int | None = None,
) -> Outcome:
    record = _current(plan.existing, id, expected)
    after = {name: value for name, value in fields.items() if getattr(record, name) != value}
    if not after:
        return Outcome(verb, record, changed=False)
    edited = replace(record, **after)
    if not INSTRUCTING_FIELDS.isdisjoint(after) and (checked := hold_for_review(edited)) is not edited:
        edited, after = checked, {**after, "status": checked.status, "detail": checked.detail}
    before = {name: getattr(record, name) for name in after}
    edited = replace(edited, updated_at=plan.at, version=record.version + 1)
    check_storable(edited)
    plan.existing.release(record)
    plan.existing.add(edited)
    if id in plan.added:
        plan.added[id] = edited
    else:
        plan.originals.setdefault(id, record)
        plan.changed[id] = edited
    if vector is not None:
        plan.vectors[id] = vector
    elif "content" in after:
        plan.vectors.pop(id, None)
    plan.lines.append(HistoryLine(id, verb, edited.version, before, after, undoes))
    return Outcome(verb, edited)


def _restore(plan: Plan, change: Restore) -> Outcome:
    fields: dict[str, Any] = {"status": Status.ACTIVE}
    record = _current(plan.existing, change.id, change.expected_version)
    if record.status is Status.REVIEW:
        raise Conflict(f"memory {change.id} waits for review: approve it, or reject it")
    if record.status is Status.SUPERSEDED:
        # Its validity was ended by its successor, not by a statement of the user.
        fields |= {"superseded_by": None, "valid_to": None}
    return _edit(plan, change.id, fields, ChangeKind.RESTORE)


def _supersede(plan: Plan, change: Supersede) -> Outcome:
    old = _current(plan.existing, change.id, change.expected_version)
    if hold_for_review(change.record) is not change.record:
        # The old one holds until a person approves the new one.
        return _add(plan, change.record, change.vector)
    # The old one goes first: a key has one active value at any moment.
    ending = {"status": Status.SUPERSEDED, "valid_to": _superseded_at(old, change.record.valid_from or plan.at)}
    plan.existing.release(old)
    new = _add(plan, change.record, change.vector).record
    if new.id == old.id:
        raise Conflict(f"memory {old.id} cannot supersede itself")
    _edit(plan, old.id, {**ending, "superseded_by": new.id}, ChangeKind.SUPERSEDE)
    return Outcome(ChangeKind.SUPERSEDE, new)


def _superseded_at(old: MemoryRecord, moment: datetime) -> datetime:
    """Return when a superseded memory ended: when it was superseded, or earlier if that was stated."""
    return moment if old.valid_to is None else min(old.valid_to, moment)


def _current(existing: ExistingRecords, id: str, expected: int | None) -> MemoryRecord:
    record = existing.by_id.get(id)
    if record is None:
        raise memory_not_found(id)
    if expected is not None and record.version != expected:
        raise StaleVersion(f"memory {id} is at version {record.version}, not {expected}: read it again and retry")
    return record


def undone_line_ids(lines: Sequence[HistoryEntry]) -> set[int]:
    """Return the entries that were undone by a later entry which still stands."""
    undone: set[int] = set()
    for line in sorted(lines, key=lambda line: -line.id):
        if line.undoes is not None and line.id not in undone:
            undone.add(line.undoes)
    return undone


def plan_reverts(
    entry: HistoryEntry, batch: Sequence[HistoryEntry], records: Mapping[str, MemoryRecord], *, whole: bool = False
) -> list[Revert]:
    """Return the changes that undo a history entry, or the `whole` batch it belongs to.

    A superseding is always undone together with the memory it added, and an undo with all it undid.
    """
    lines = list(reversed(batch)) if whole or entry.verb is ChangeKind.UNDO else _related_lines(entry, batch)
    if entry.verb is not ChangeKind.UNDO:
        # Added memories go first, so that the old value finds its key free.
        lines.sort(key=lambda line: line.verb is not ChangeKind.ADD)
    current, result = dict(records), []
    for line in lines:
        revert = _revert(line, current)
        current[line.memory_id] = replace(current[line.memory_id], **from_plain(revert.fields))
        result.append(revert)
    return result


def _related_lines(entry: HistoryEntry, batch: Sequence[HistoryEntry]) -> list[HistoryEntry]:
    if entry.verb not in (ChangeKind.ADD, ChangeKind.SUPERSEDE):
        return [entry]
    replacement = entry.after.get("superseded_by") if entry.verb is ChangeKind.SUPERSEDE else entry.memory_id
    return [
        line
        for line in batch
        if line.id == entry.id
        or (line.verb is ChangeKind.ADD and line.memory_id == replacement)
        or (line.verb is ChangeKind.SUPERSEDE and line.after.get("superseded_by") == replacement)
    ]


def _revert(entry: HistoryEntry, records: Mapping[str, MemoryRecord]) -> Revert:
    record = records.get(entry.memory_id)
    if record is None:
        raise memory_not_found(entry.memory_id)
    before = {"status": Status.FORGOTTEN} if entry.before is None else entry.before
    for name, value in from_plain(entry.after).items():
        if getattr(record, name) != value:
            raise Conflict(
                f"change {entry.id} cannot be undone: {name} of memory {record.id} was changed again since; "
                f"undo the later change first (see its history)"
            )
    if record.status is Status.REVIEW and before.get("status") == Status.ACTIVE and record.version != entry.version:
        # It was approved with the content it had then.
        raise Conflict(f"memory {record.id} waits for review and was changed since: approve it, or reject it")
    return Revert(entry.memory_id, before, undoes=entry.id)
