"""The changes of one batch as they are decided: each memory changes once, whoever has a say in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from recollect.model.change import Add, Change, Forget, Supersede, Update
from recollect.model.ids import new_id
from recollect.model.learned import Learned
from recollect.model.memory import MemoryRecord, Status, Trust
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.write.settling.resolution import Decision, Did, Limits, Resolution, Undecided, level_of
from recollect.write.settling.same import Text, ready

SOURCE = "extraction"
UNRECONCILED = "unreconciled"
# As many texts as a list of a memory may hold.
_MAX_EVIDENCE = 256
_RANKS = {Trust.NONE: 0, Trust.LOW: 1, Trust.HIGH: 2}


@dataclass(slots=True)
class Settlement:
    """Decisions so far; `done` makes a Resolution of them."""

    scope: Scope
    limits: Limits
    prompt_digest: str | None = None
    added: dict[str, Add | Supersede] = field(default_factory=dict)
    updates: dict[str, Update] = field(default_factory=dict)
    forgets: dict[str, Forget] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    undecided: list[Undecided] = field(default_factory=list)
    _texts: dict[str, Text] = field(default_factory=dict)

    @classmethod
    def reopened(cls, scope: Scope, settled: Resolution, *, limits: Limits, prompt_digest: str | None) -> Settlement:
        """A settlement that goes on where another ended; what was undecided is to be decided now."""
        again = cls(scope, limits, prompt_digest)
        for change in settled.changes:
            if isinstance(change, (Add, Supersede)):
                again.added[change.record.id] = change
            elif isinstance(change, Update):
                again.updates[change.id] = change
            elif isinstance(change, Forget):
                again.forgets[change.id] = change
        again.decisions = [each for each in settled.decisions if each.did is not Did.UNDECIDED]
        return again

    def text(self, content: str) -> Text:
        """A text made ready to be compared, once for the whole batch."""
        found = self._texts.get(content)
        if found is None:
            found = self._texts[content] = ready(content)
        return found

    @property
    def taken_back(self) -> int:
        """How many memories this batch takes back, by forgetting them or by saying that they no longer hold."""
        said = sum(each.did is Did.SUPERSEDED and each.learned.retraction for each in self.decisions)
        return len(self.forgets) + said

    @property
    def ended(self) -> set[str]:
        """The memories that this batch ends; nothing more can be done to them."""
        return {change.id for change in self.added.values() if isinstance(change, Supersede)} | self.forgets.keys()

    def current(self, record: MemoryRecord) -> MemoryRecord:
        """A memory as this batch has left it so far."""
        update = self.updates.get(record.id)
        return replace(record, **update.fields) if update else record

    def add(self, learned: Learned, reason: str, *, unreconciled: bool = False) -> None:
        """Keep it as a memory of its own; what waits for review is not active until then."""
        if learned.over:
            # That it is over says nothing where nothing is known of it; that it was so would be wrong.
            self.ignore(learned, None, f"nothing is known that it ends; {reason}")
            return
        detail: dict[str, Any] = {UNRECONCILED: True} if unreconciled else {}
        record = self._record(learned, detail=detail)
        if learned.review:
            record = replace(record, status=Status.REVIEW, detail={**detail, "review": learned.review})
        self.added[record.id] = Add(record, correction=learned.correction)
        self._note(learned, Did.ADDED, reason, record.id)

    def take_key(self, learned: Learned, holder: MemoryRecord, reason: str) -> None:
        """Give a key its new value; the ledger ends the old one, even if another writer was faster."""
        level = holder.level if learned.correction else level_of(self.scope, self.limits)
        record = replace(self._record(learned), level=level)
        self.updates.pop(holder.id, None)
        self.added[record.id] = Add(record, correction=learned.correction)
        self._note(learned, Did.SUPERSEDED, reason, record.id)

    def supersede(self, learned: Learned, old: MemoryRecord, reason: str, *, content: str | None = None) -> None:
        """Put it in the place of a memory, which stays in history with its validity."""
        if old.id in self.added:
            # Both are of this batch: the first is kept, so that history tells both.
            expected: int | None = None
        else:
            expected = old.version
        record = replace(self._record(learned), level=old.level, content=content or learned.content)
        if old.key is not None and record.key is None and (content or not learned.retraction):
            value = content or learned.value or record.content
            record = replace(record, key=old.key, value=value, category=old.category)
        self.updates.pop(old.id, None)
        self.added[record.id] = Supersede(old.id, record, expected_version=expected)
        self._note(learned, Did.SUPERSEDED, reason, record.id)

    def forget(self, learned: Learned, old: MemoryRecord, reason: str) -> None:
        """Take a memory out of recall; it can be restored."""
        self.updates.pop(old.id, None)
        self.forgets[old.id] = Forget(old.id, expected_version=old.version)
        self._note(learned, Did.FORGOT, reason, old.id)

    def merge(self, learned: Learned, old: MemoryRecord, reason: str, *, content: str | None = None) -> None:
        """It was said again: the fuller wording stays, importance rises, what it rests on is joined."""
        current = self.current(old)
        raised = min(1.0, max(current.importance, learned.importance) + self.limits.raises)
        fields: dict[str, Any] = {"importance": raised} | self._joined(learned, current)
        if self.may_reword(current, learned):
            fields["content"] = content or self._fuller(learned.content, current.content)
        self._change(old, fields)
        self._note(learned, Did.MERGED, reason, old.id)

    def may_reword(self, record: MemoryRecord, learned: Learned) -> bool:
        """Whether its words are ours: not those of a person, of another program or of a keyed fact."""
        return record.source in (SOURCE, learned.source or SOURCE) and record.key is None

    def known(self, learned: Learned, old: MemoryRecord, reason: str) -> None:
        """Nothing new; only that it was said again is noted."""
        current = self.current(old)
        self._change(
            old, {"importance": max(current.importance, learned.importance)} | self._joined(learned, current)
        )
        self._note(learned, Did.KNOWN, reason, old.id)

    def ignore(self, learned: Learned, old: MemoryRecord | None, reason: str) -> None:
        """Leave everything as it is, and say why."""
        self._note(learned, Did.IGNORED, reason, old.id if old else None)

    def leave_open(self, undecided: Undecided, reason: str) -> None:
        """Leave it to be decided by someone who understands it."""
        self.undecided.append(undecided)
        self._note(undecided.learned, Did.UNDECIDED, reason, None)

    def done(self) -> Resolution:
        """Everything decided, as changes in the order in which they must be applied."""
        changes: list[Change] = [*self.updates.values(), *self.forgets.values(), *self.added.values()]
        return Resolution(changes=tuple(changes), decisions=tuple(self.decisions), undecided=tuple(self.undecided))

    def _record(self, learned: Learned, *, detail: Mapping[str, Any] | None = None) -> MemoryRecord:
        # It is as old as the words it was learned from, whenever that was; nothing was said in the future.
        at = min(learned.said_at or now(), now())
        return MemoryRecord(
            id=new_id(),
            scope=self.scope,
            level=level_of(self.scope, self.limits),
            type=learned.kind,
            category=learned.category,
            content=learned.content,
            created_at=at,
            updated_at=at,
            # What is taken back no longer holds its key.
            key=None if learned.retraction else learned.key,
            value=None if learned.retraction else learned.value,
            importance=min(1.0, max(0.0, learned.importance)),
            confidence=min(1.0, max(0.0, learned.confidence)),
            source=learned.source or SOURCE,
            trust=learned.trust,
            evidence=learned.evidence[-_MAX_EVIDENCE:],
            occurred_at=learned.occurred_at,
            valid_from=at if learned.said_at else None,
            prompt_digest=self.prompt_digest,
            detail=dict(detail or {}),
        )

    def _joined(self, learned: Learned, current: MemoryRecord) -> dict[str, Any]:
        evidence = tuple(dict.fromkeys((*current.evidence, *learned.evidence)))[-_MAX_EVIDENCE:]
        fields: dict[str, Any] = {"evidence": evidence, "confidence": max(current.confidence, learned.confidence)}
        if current.occurred_at is None and learned.occurred_at is not None:
            fields["occurred_at"] = learned.occurred_at
        return fields

    def _fuller(self, new: str, old: str) -> str:
        """The wording that holds more; of equals the newer."""
        held = [0 if (reading := self.text(each).reading) is None else len(reading.words) for each in (new, old)]
        return new if held[0] >= held[1] else old

    def _change(self, old: MemoryRecord, fields: Mapping[str, Any]) -> None:
        current = self.current(old)
        own = self.added.get(old.id)
        if own is not None:
            self.added[old.id] = replace(own, record=replace(own.record, **fields))
            return
        before = self.updates.get(old.id)
        changed = {name: value for name, value in fields.items() if getattr(current, name) != value}
        if changed:
            self.updates[old.id] = Update(old.id, {**(before.fields if before else {}), **changed}, old.version)

    def _note(self, learned: Learned, did: Did, reason: str, memory_id: str | None) -> None:
        self.decisions.append(Decision(learned, did, reason, memory_id))


def outranks(learned: Learned, record: MemoryRecord) -> bool:
    """Whether words of that trust may change what the memory says."""
    return _RANKS[learned.trust] >= _RANKS[record.trust]
