"""Reconcile extracted facts with the stored memories: from facts to the changes that the ledger applies.

The extractor has decided what a fact does (the operation of an LLM, or a key). This is carried out, at most once per
memory; repetitions are merged, and every fact that changes nothing is reported with the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from recollect.ledger.tokenizer import terms_of
from recollect.model.change import Add, Change, Supersede, Update, Vector
from recollect.model.ids import new_id
from recollect.model.memory import MODEL, MemoryRecord, Status, Trust
from recollect.model.scope import Level, Scope
from recollect.model.times import now
from recollect.text.normalize import MAX_STATEMENT_CHARS, normalize
from recollect.text.numbers import number_values
from recollect.write.key_patterns import find_key
from recollect.write.operations import ExtractedFact, FactOp

if TYPE_CHECKING:
    from collections.abc import Mapping


EXTRACTION_SOURCE = "extraction"
# The maximum length of a list in a memory.
_MAX_EVIDENCE = 256
_TRUST_RANKS = {Trust.NONE: 0, Trust.LOW: 1, Trust.HIGH: 2}
# Below this cosine two statements without a word in common are about different things.
_MAX_UNRELATED_COSINE = 0.15
# An update below this share of its memory's length, and without a new word, has lost information.
_MIN_UPDATE_LENGTH = 0.5


class FactOutcome(StrEnum):
    """The effect of a fact on the stored memories."""

    ADDED = "added"
    UPDATED = "updated"
    ENDED = "ended"
    MERGED = "merged"
    REPEATED = "known"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileLimits:
    """Thresholds of merging, and the level of new memories.

    `text_similarity` is a normalised Levenshtein similarity, `vector_similarity` a cosine; 1 disables either. A merge
    raises the importance by `repetition_bonus`. One batch ends at most `max_ends` memories.
    """

    text_similarity: float = 1.0
    vector_similarity: float = 1.0
    repetition_bonus: float = 0.1
    max_ends: int = 3
    in_session: bool = False

    @property
    def merges_similar(self) -> bool:
        """Return whether memories in other words are merged."""
        return self.text_similarity < 1 or self.vector_similarity < 1


@dataclass(frozen=True, slots=True)
class FactDecision:
    """The outcome of a fact, and why."""

    fact: ExtractedFact
    outcome: FactOutcome
    reason: str

    @property
    def description(self) -> str:
        """Return the decision in words."""
        return f"{self.outcome}, {self.reason}: {self.fact.content[:100]}"


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    """Changes to apply together, in order, and a decision for each fact."""

    changes: tuple[Change, ...] = ()
    decisions: tuple[FactDecision, ...] = ()


def reconcile(
    scope: Scope,
    facts: Sequence[ExtractedFact],
    memories: Sequence[MemoryRecord],
    *,
    limits: ReconcileLimits,
    similarity: Mapping[tuple[str, str], float] | None = None,
    prompt_digest: str | None = None,
) -> ReconcileResult:
    """Return the changes of the facts to the given memories.

    `memories` must include those with the keys of the facts. `similarity` is the cosine of a fact's content and a
    memory, by content and memory id.
    """
    reconciliation = _Reconciliation(scope, list(memories), limits, similarity or {}, prompt_digest)
    for fact in _one_value_per_key(facts):
        reconciliation.apply(fact)
    return reconciliation.result()


def level_for(scope: Scope, limits: ReconcileLimits) -> Level:
    """Return the level of new memories."""
    return Level.SESSION if limits.in_session and scope.session else scope.default_level


def outranks(new: ExtractedFact | MemoryRecord, record: MemoryRecord) -> bool:
    """Return whether words of the new one's trust may change the memory."""
    return _TRUST_RANKS[new.trust] >= _TRUST_RANKS[record.trust]


def _one_value_per_key(facts: Sequence[ExtractedFact]) -> list[ExtractedFact]:
    """Keep each key of a category only on its latest value; on none if two were stated at the same moment."""
    result = list(facts)
    for slot in {(fact.category, fact.key) for fact in facts if fact.key}:
        holders = [
            at for at, fact in enumerate(result) if (fact.category, fact.key) == slot and fact.op is not FactOp.END
        ]
        last = max((stated_at for at in holders if (stated_at := result[at].said_at) is not None), default=None)
        latest = [at for at in holders if result[at].said_at == last]
        for at in holders if len(holders) > 1 else []:
            if latest != [at]:
                result[at] = replace(result[at], key=None, value=None)
    return result


@dataclass(slots=True)
class _Reconciliation:
    """The changes so far; each memory changes at most once."""

    scope: Scope
    memories: list[MemoryRecord]
    limits: ReconcileLimits
    similarity: Mapping[tuple[str, str], float]
    prompt_digest: str | None
    added: dict[str, Add | Supersede] = field(default_factory=dict)
    updates: dict[str, Update] = field(default_factory=dict)
    decisions: list[FactDecision] = field(default_factory=list)
    replaced: set[str] = field(default_factory=set)

    def apply(self, fact: ExtractedFact) -> None:
        """Add the changes of one fact."""
        if fact.review:
            self._add(fact, f"waits for review: {fact.review}")
            return
        target = fact.target
        if fact.op is not FactOp.ADD and target is not None and (refusal := self._refusal_reason(fact, target)):
            if refusal.startswith("not applied"):
                self._record_decision(fact, FactOutcome.REJECTED, refusal)
                return
            fact, target = replace(fact, op=FactOp.ADD, target=None), None
            self._add_or_merge(fact, refusal)
        elif fact.op is FactOp.END:
            self._end(fact, target)
        elif fact.op is FactOp.UPDATE and target is not None:
            self._update(fact, target)
        else:
            self._add_or_merge(fact, "no memory states it")

    def result(self) -> ReconcileResult:
        """Return the changes and decisions."""
        return ReconcileResult((*self.updates.values(), *self.added.values()), tuple(self.decisions))

    def _refusal_reason(self, fact: ExtractedFact, target: MemoryRecord) -> str:
        """Return why a fact cannot replace its target; with a reason that starts with "not applied" it is dropped."""
        if target.id in self.replaced:
            return "added, since its memory was changed already"
        if not outranks(fact, target):
            return "not applied: the memory rests on words of higher trust"
        if fact.op is FactOp.UPDATE and _only_shortens(fact.content, target.content):
            return "not applied: it says less than the memory and nothing new"
        if fact.op is FactOp.UPDATE and self._is_unrelated(fact, target):
            return "added, since the memory to update is about something else"
        return ""

    def _is_unrelated(self, fact: ExtractedFact, target: MemoryRecord) -> bool:
        if fact.key and fact.key == target.key:
            return False
        cosine = self.similarity.get((fact.content, target.id))
        shared = set(terms_of(fact.content)) & set(terms_of(target.content)) - _COMMON_TERMS
        return cosine is not None and cosine < _MAX_UNRELATED_COSINE and not shared

    def _update(self, fact: ExtractedFact, target: MemoryRecord) -> None:
        if normalize(fact.content) == normalize(target.content):
            self._merge_repeat(fact, target, "the memory states it already", FactOutcome.REPEATED)
            return
        record = replace(self._build_record(fact), level=target.level)
        if target.key is not None and record.key is None:
            record = replace(record, key=target.key, value=fact.value or fact.content, category=target.category)
        self._supersede(fact, target, record, FactOutcome.UPDATED, f"it replaces: {target.content[:100]}")

    def _end(self, fact: ExtractedFact, target: MemoryRecord | None) -> None:
        # What is over may be put into another category than it was stored in.
        target = target or self._key_holder(fact, in_any_category=True) or self._exact_match(fact)
        if target is not None and normalize(fact.content) == normalize(target.content):
            # In the same words, the new record would state what has ended.
            fact = replace(fact, content="")
        ended = sum(each.outcome is FactOutcome.ENDED for each in self.decisions)
        if target is None or ended >= self.limits.max_ends:
            reason = "no memory states what is over" if target is None else f"{ended} memories were ended already"
            if fact.content:
                # The end is worth remembering even if the beginning was never stored.
                self._add_or_merge(replace(fact, key=None, value=None), reason)
            else:
                self._record_decision(fact, FactOutcome.REJECTED, reason)
            return
        if not fact.content:
            at = self._stated_at(fact)
            self.replaced.add(target.id)
            self.updates[target.id] = Update(target.id, {"valid_to": at}, target.version)
            self._record_decision(fact, FactOutcome.ENDED, f"it no longer holds: {target.content[:100]}")
            return
        record = replace(self._build_record(replace(fact, key=None, value=None)), level=target.level)
        self._supersede(fact, target, record, FactOutcome.ENDED, f"it no longer holds: {target.content[:100]}")

    def _supersede(
        self, fact: ExtractedFact, target: MemoryRecord, record: MemoryRecord, outcome: FactOutcome, reason: str
    ) -> None:
        self.updates.pop(target.id, None)
        self.replaced.add(target.id)
        version = None if target.id in self.added else target.version
        self.added[record.id] = Supersede(target.id, record, expected_version=version)
        self.memories.append(record)
        self._record_decision(fact, outcome, reason)

    def _add_or_merge(self, fact: ExtractedFact, reason: str) -> None:
        """Add a fact, unless a memory has its key or states it already."""
        if (holder := self._key_holder(fact)) is not None:
            self._reconcile_key(fact, holder)
        elif (record := self._exact_match(fact)) is not None:
            self._merge_repeat(fact, record, "the memory states it already", FactOutcome.REPEATED)
        elif (similar := self._similar_match(fact)) is not None:
            record, explanation = similar
            self._merge_repeat(fact, record, explanation, FactOutcome.MERGED)
        else:
            self._add(fact, reason)

    def _reconcile_key(self, fact: ExtractedFact, holder: MemoryRecord) -> None:
        """Reconcile a keyed fact with the memory that has its key; the surer value, or a correction, wins."""
        expired = holder.expires_at is not None and holder.expires_at <= now()
        if normalize(fact.value or "") == normalize(holder.value or holder.content):
            self._merge_repeat(fact, holder, f"{fact.key} is known to be that", FactOutcome.REPEATED)
        elif not outranks(fact, holder):
            self._record_decision(fact, FactOutcome.REJECTED, f"{fact.key} is known from words of higher trust")
        elif fact.correction or expired or fact.confidence >= holder.confidence:
            record = replace(self._build_record(fact), level=holder.level)
            reason = f"{fact.key} was: {(holder.value or '')[:100]}"
            self._supersede(fact, holder, record, FactOutcome.UPDATED, reason)
            self._keep_rest(holder)
        else:
            comparison = f"confidence {fact.confidence:g} is below {holder.confidence:g}"
            self._record_decision(fact, FactOutcome.REJECTED, f"{fact.key} is known better, {comparison}")

    def _keep_rest(self, holder: MemoryRecord) -> None:
        """Add what a superseded statement says beside its value: "I live in Leeds with my partner Jo"."""
        keyed = find_key(holder.content)
        if keyed is None or not keyed.rest:
            return
        other = find_key(keyed.rest)
        rest = ExtractedFact(
            content=keyed.rest,
            category=holder.category,
            key=other.key if other else None,
            value=other.value if other else None,
            importance=holder.importance,
            confidence=holder.confidence,
            trust=holder.trust,
            said_at=holder.valid_from or holder.created_at,
            evidence=holder.evidence,
            source=holder.source,
            metadata=holder.metadata,
        )
        self._add_or_merge(rest, f"it was said beside {holder.value}")

    def _active(self) -> Iterator[MemoryRecord]:
        for record in self.memories:
            if record.status is Status.ACTIVE and record.id not in self.replaced:
                yield record

    @property
    def _visibility_key(self) -> str:
        return self.scope.visibility_key(level_for(self.scope, self.limits))

    def _key_holder(self, fact: ExtractedFact, *, in_any_category: bool = False) -> MemoryRecord | None:
        """Return the active memory with the fact's category and key: of its own level before one of a wider level.

        With `in_any_category`, one of another category if there is none of its own.
        """
        if fact.key is None:
            return None
        own = self._visibility_key
        visible = (own, self.scope.visibility_key(self.scope.default_level), "")
        same = [each for each in self._active() if each.key == fact.key and each.visibility_key in visible]
        holders = [each for each in same if each.category is fact.category] or (same if in_any_category else [])
        return max(holders, key=lambda each: (each.visibility_key == own, len(each.visibility_key)), default=None)

    def _exact_match(self, fact: ExtractedFact) -> MemoryRecord | None:
        """Return the active memory that states the fact in the same words."""
        plain, visible = normalize(fact.content), ("", self._visibility_key)
        same = (each for each in self._active() if each.visibility_key in visible)
        return next((each for each in same if normalize(each.content) == plain), None)

    def _similar_match(self, fact: ExtractedFact) -> tuple[MemoryRecord, str] | None:
        """Return a memory that is the same by the similarity of the limits, with equal numbers."""
        if not self.limits.merges_similar:
            return None
        return _find_similar(fact, list(self._active()), self.limits, self.similarity)

    def _merge_repeat(self, fact: ExtractedFact, record: MemoryRecord, reason: str, outcome: FactOutcome) -> None:
        """Record a repetition of a memory: join the evidence, raise confidence and importance."""
        self._record_decision(fact, outcome, reason)
        if not outranks(fact, record):
            return
        current = replace(record, **update.fields) if (update := self.updates.get(record.id)) else record
        bonus = self.limits.repetition_bonus if outcome is FactOutcome.MERGED else 0.0
        evidence = tuple(dict.fromkeys((*current.evidence, *fact.evidence)))[-_MAX_EVIDENCE:]
        # What holds on two branches belongs to neither.
        differing = {name for name, value in fact.metadata.items() if current.metadata.get(name, value) != value}
        fields: dict[str, Any] = {
            "evidence": evidence,
            "metadata": {name: value for name, value in current.metadata.items() if name not in differing},
            "importance": min(1.0, max(current.importance, fact.importance) + bonus),
            "confidence": max(current.confidence, fact.confidence),
        }
        if current.occurred_at is None and fact.occurred_at is not None:
            fields["occurred_at"] = fact.occurred_at
        if outcome is FactOutcome.MERGED and current.source in (EXTRACTION_SOURCE, fact.source):
            fields |= {"content": fact.content, "detail": _with_model(current.detail, fact.model)}
        if normalize(fields.get("content", current.content)) == normalize(fact.content):
            # These are now the words of the fact.
            fields["trust"] = fact.trust
        changed = {name: value for name, value in fields.items() if getattr(current, name) != value}
        pending = self.added.get(record.id)
        if pending is not None:
            self.added[record.id] = replace(pending, record=replace(pending.record, **changed))
        elif changed:
            previous = update.fields if update else {}
            self.updates[record.id] = Update(record.id, {**previous, **changed}, record.version)

    def _add(self, fact: ExtractedFact, reason: str) -> None:
        record = self._build_record(fact)
        if fact.review:
            record = replace(record, status=Status.REVIEW, detail={**record.detail, "review": fact.review})
        self.added[record.id] = Add(record, correction=fact.correction)
        self.memories.append(record)
        self._record_decision(fact, FactOutcome.ADDED, reason)

    def _build_record(self, fact: ExtractedFact) -> MemoryRecord:
        at = self._stated_at(fact)
        return MemoryRecord(
            id=new_id(),
            scope=self.scope,
            level=level_for(self.scope, self.limits),
            type=fact.memory_type,
            category=fact.category,
            content=fact.content,
            created_at=at,
            updated_at=at,
            key=fact.key,
            value=fact.value,
            importance=min(1.0, max(0.0, fact.importance)),
            confidence=min(1.0, max(0.0, fact.confidence)),
            source=fact.source or EXTRACTION_SOURCE,
            trust=fact.trust,
            evidence=fact.evidence[-_MAX_EVIDENCE:],
            occurred_at=fact.occurred_at,
            valid_from=at if fact.said_at else None,
            prompt_digest=self.prompt_digest,
            metadata=fact.metadata,
            detail=_with_model({"unverified": list(fact.doubts)} if fact.doubts else {}, fact.model),
        )

    @staticmethod
    def _stated_at(fact: ExtractedFact) -> datetime:
        """Return the time of the statement, at the latest now."""
        return min(fact.said_at or now(), now())

    def _record_decision(self, fact: ExtractedFact, outcome: FactOutcome, reason: str) -> None:
        self.decisions.append(FactDecision(fact, outcome, reason))


def _with_model(detail: Mapping[str, Any], model: str) -> dict[str, Any]:
    others = {name: value for name, value in detail.items() if name != MODEL}
    return {**others, MODEL: model} if model else others


def merge_added(
    new: Add, memories: Sequence[MemoryRecord], limits: ReconcileLimits, similarity: Mapping[tuple[str, str], float]
) -> Add | Update:
    """Return the update of the memory that an added one repeats in other words, or the addition unchanged.

    Memories of another type, lifetime or metadata stay apart.
    """
    added, plain = new.record, normalize(new.record.content)
    # The ledger itself skips one in the same words.
    if any(normalize(each.content) == plain for each in memories):
        return new
    alike = [each for each in memories if _merge_traits(each) == _merge_traits(added)]
    if (similar := _find_similar(added, alike, limits, similarity)) is None:
        return new
    record, _ = similar
    fields = {
        "content": added.content,
        "trust": added.trust,
        "importance": min(1.0, max(record.importance, added.importance) + limits.repetition_bonus),
        "confidence": max(record.confidence, added.confidence),
    }
    return Update(record.id, fields, record.version, new.vector)


def _merge_traits(record: MemoryRecord) -> tuple[object, ...]:
    return record.type, record.category, record.expires_at, dict(record.metadata)


def _find_similar(
    new: ExtractedFact | MemoryRecord,
    memories: Sequence[MemoryRecord],
    limits: ReconcileLimits,
    similarity: Mapping[tuple[str, str], float],
) -> tuple[MemoryRecord, str] | None:
    from rapidfuzz.distance import Levenshtein

    if len(new.content) > MAX_STATEMENT_CHARS:
        return None
    numbers = number_values(new.content)
    for record in memories:
        if len(record.content) > MAX_STATEMENT_CHARS:
            continue
        if record.key is not None or not outranks(new, record) or number_values(record.content) != numbers:
            continue
        letters = Levenshtein.normalized_similarity(new.content.casefold(), record.content.casefold())
        cosine = similarity.get((new.content, record.id), 0.0)
        if letters > limits.text_similarity:
            return record, f"the same by letters, {letters:.2f}"
        if cosine > limits.vector_similarity:
            return record, f"the same by meaning, {cosine:.2f}"
    return None


def _only_shortens(new: str, old: str) -> bool:
    return len(new) < _MIN_UPDATE_LENGTH * len(old) and set(terms_of(new)) <= set(terms_of(old))


_COMMON_TERMS = frozenset(terms_of("user users nutzer usuario utilisateur"))


def cosines(
    contents: Sequence[str], vectors: Sequence[Vector | None], stored: Mapping[str, Vector]
) -> dict[tuple[str, str], float]:
    """Return the cosine of each content with each stored memory, by content and memory id."""
    return {
        (content, id): float(vector @ other)
        for content, vector in zip(contents, vectors, strict=True)
        if vector is not None
        for id, other in stored.items()
    }


def drop_turn_evidence(change: Change, ids: Collection[str]) -> Change:
    """Return the change without these ids in its evidence."""
    if isinstance(change, (Add, Supersede)):
        evidence = tuple(id for id in change.record.evidence if id not in ids)
        return replace(change, record=replace(change.record, evidence=evidence))
    if isinstance(change, Update) and "evidence" in change.fields:
        cited = [id for id in change.fields["evidence"] if id not in ids]
        return replace(change, fields={**change.fields, "evidence": cited})
    return change
