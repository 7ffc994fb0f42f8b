"""Replace turns whose facts no longer hold by the memories that do.

A turn stays in the log as it was said, while the memories learned from it are superseded or end. A search must not
offer the old turn as if it still held: the memories that superseded its facts take its place. A question about the
past keeps the turn, with the date on which its facts ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from recollect.ledger.protocol import Derived, Ledger, Numbered
from recollect.ledger.terms import terms_of
from recollect.model.filters import matches
from recollect.model.memory import Category, MemoryRecord, MemoryType, Status
from recollect.model.query import EVERYTHING
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.validity import holds_now
from recollect.read.candidate import Candidate
from recollect.read.fetch import parts_of
from recollect.read.gather import DICTATED, Gathered, Wanted
from recollect.read.select import same_words

# These sum up turns or think about them; they are no facts that a turn states.
_NO_FACTS = frozenset({Category.TURN, Category.SUMMARY, Category.EPISODE, Category.FILE, Category.LESSON})
# The part of a turn's relevance that a memory gets for a fact of it that is not the one nearest to the question.
_OTHER_FACT = 0.5
# Facts whose cosines to the question differ by less are equally near to it.
_AS_NEAR = 0.1
# A reply repeats what the user said if this part of its terms does; a longer one says more, and is marked as past.
_REPETITION = 0.2
# Of a turn and a memory that repeats part of it word for word, the turn is left out if the memory is so much of it.
_MOST_OF_TURN = 0.5

Facts = Mapping[str, Sequence[Derived]]


@dataclass(slots=True)
class _StaleTurn:
    """A turn of which some facts are past: these facts, when the last of them ended, and what holds instead."""

    turn: Candidate
    until: datetime
    # The rows of facts by the memory that holds in their place.
    heirs: dict[str, tuple[Numbered, list[int]]] = field(default_factory=dict)
    # The terms of facts that are past.
    past_terms: set[str] = field(default_factory=set)
    all_past: bool = True

    @property
    def stale_terms(self) -> set[str]:
        """The terms that no longer hold: those of the past facts, and of the turn if it has no other facts."""
        return self.past_terms | set(terms_of(self.turn.record.content)) if self.all_past else self.past_terms


@dataclass(frozen=True, slots=True)
class _Search:
    """The search that candidates belong to."""

    scope: Scope
    found: Gathered
    wanted: Wanted
    ledger: Ledger
    moment: datetime

    def shows(self, record: MemoryRecord) -> bool:
        """Whether a memory may be offered as one that holds now."""
        return (
            holds_now(record, self.moment)
            and self.scope.sees(record.place)
            and matches(record, self.wanted.filter)
            and record.category not in _NO_FACTS
        )

    @property
    def is_about_past(self) -> bool:
        """Whether the question asks for a time that is over, so that what held then is an answer."""
        periods = self.wanted.periods
        over = bool(periods) and all(each.end is not None and each.end <= self.moment for each in periods)
        return self.wanted.question.of_the_past or over


async def replace_stale_turns(
    scope: Scope, candidates: list[Candidate], found: Gathered, wanted: Wanted, *, ledger: Ledger
) -> tuple[list[Candidate], list[Candidate]]:
    """Return the candidates with stale turns replaced by memories that hold, best first, and those left out.

    A turn is stale if facts learned from it were superseded or ended. Where no memory holds in their place, or the
    question is about the past, the turn stays with the end of its facts in `valid_to`.
    """
    turns = {each.record.id: each for each in candidates if each.record.category is Category.TURN}
    if wanted.as_of is not None or not turns:
        return candidates, []
    search = _Search(scope, found, wanted, ledger, now())
    turns |= await _turns_before_replies(search, candidates)
    derived = await ledger.derived(scope, list(turns))
    facts = {turn: [each for each in known if _is_fact(each)] for turn, known in derived.items()}
    stale = await _stale_turns(search, candidates, turns, facts)
    left: list[Candidate] = []
    if stale:
        candidates, left = await _replace(search, candidates, stale)
    candidates, repeated = _without_repetitions(candidates, facts)
    return candidates, [*left, *repeated]


async def _turns_before_replies(search: _Search, candidates: Sequence[Candidate]) -> dict[str, Candidate]:
    """The turns that the assistant's turns among the candidates reply to, as far as they are no candidates."""
    replies = [each.row for each in candidates if each.record.detail.get("role") == "assistant"]
    if not replies:
        return {}
    before, _ = search.found.view.beside(np.array(replies, np.int64))
    missing = sorted(set(before.tolist()) - {-1} - {each.row for each in candidates})
    if not missing:
        return {}
    turns = await search.ledger.fetch(search.scope, missing, filter=EVERYTHING)
    return {each.record.id: Candidate(-1, each.row, each.record, 0.0) for each in turns}


def _is_fact(memory: Derived) -> bool:
    return memory.category not in _NO_FACTS and memory.type is not MemoryType.REFLECTIVE


def _is_past(memory: Derived, moment: datetime) -> bool:
    """Whether it no longer holds; what is to be superseded at a later time still does."""
    if memory.valid_to is not None:
        return memory.valid_to <= moment
    return memory.status is Status.SUPERSEDED


async def _stale_turns(
    search: _Search, candidates: Sequence[Candidate], turns: Mapping[str, Candidate], facts: Facts
) -> list[_StaleTurn]:
    past = {each.id for known in facts.values() for each in known if _is_past(each, search.moment)}
    corrected = await _corrections(search, candidates, turns, facts)
    if not past and not corrected:
        return []
    chains = await search.ledger.succession(search.scope, sorted(past))
    stale = []
    for id, turn in turns.items():
        known, corrections = facts.get(id, ()), corrected.get(id, {})
        if not any(each.id in past or each.id in corrections for each in known):
            continue
        found = _StaleTurn(turn, turn.record.created_at)
        holding = []
        for each in known:
            if each.id in past:
                _add_past(search, found, each, chains.get(each.id, ()))
            elif each.id in corrections:
                _add_corrected(found, each, corrections[each.id])
            else:
                holding.append(each)
        if holding:
            found.all_past = False
            await _add_holding(search, found, holding)
        stale.append(found)
    return stale


def _add_past(search: _Search, stale: _StaleTurn, fact: Derived, chain: Sequence[Numbered]) -> None:
    old = chain[0].record if chain else None
    ended = fact.valid_to or (old.updated_at if old else search.moment)
    stale.until = max(stale.until, ended)
    new = chain[-1] if len(chain) > 1 else None
    if old is not None:
        stale.past_terms |= set(terms_of(old.content))
    if new is not None and search.shows(new.record):
        stale.heirs.setdefault(new.record.id, (new, []))[1].append(fact.row)


def _add_corrected(stale: _StaleTurn, fact: Derived, memory: Candidate) -> None:
    record = memory.record
    stale.until = max(stale.until, record.updated_at)
    stale.past_terms |= set(terms_of(stale.turn.record.content)) - set(terms_of(record.content))
    stale.heirs.setdefault(record.id, (Numbered(memory.row, record), []))[1].append(fact.row)


async def _add_holding(search: _Search, stale: _StaleTurn, holding: Sequence[Derived]) -> None:
    rows = [each.row for each in holding]
    for each in await search.ledger.fetch(search.scope, rows, filter=search.wanted.filter):
        stale.heirs.setdefault(each.record.id, (each, []))[1].append(each.row)


async def _corrections(
    search: _Search, candidates: Sequence[Candidate], turns: Mapping[str, Candidate], facts: Facts
) -> dict[str, dict[str, Candidate]]:
    """Memories learned from several turns that say what only a later one says, by each earlier turn and their id.

    "The call is at 3", "no, at 4": one fact is learned from both turns, so nothing is superseded, and yet the second
    turn corrects the first.
    """
    pairs = [
        (turns[turn], each, each.record.evidence[-1])
        for each in candidates
        if len(each.record.evidence) > 1 and search.shows(each.record)
        for turn in dict.fromkeys(each.record.evidence[:-1])
        if turn in turns and any(each.record.id == fact.id for fact in facts.get(turn, ()))
    ]
    if not pairs:
        return {}
    unknown = {last for _, _, last in pairs if last not in turns}
    later = {id: turn.record for id, turn in turns.items()}
    later |= {each.id: each for each in await search.ledger.get(search.scope, sorted(unknown))} if unknown else {}
    corrected: dict[str, dict[str, Candidate]] = {}
    for turn, memory, last in pairs:
        if last in later and _corrects(memory.record, turn.record, later[last]):
            corrected.setdefault(turn.record.id, {})[memory.record.id] = memory
    return corrected


def _corrects(memory: MemoryRecord, earlier: MemoryRecord, later: MemoryRecord) -> bool:
    """Whether the memory has words of the later turn that the earlier one of the same speaker lacks."""
    if later.created_at < earlier.created_at or _speaker(later) != _speaker(earlier):
        return False
    new = set(terms_of(later.content)) - set(terms_of(earlier.content))
    return not new.isdisjoint(terms_of(memory.content))


def _speaker(turn: MemoryRecord) -> tuple[object, object]:
    return turn.detail.get("role", "user"), turn.detail.get("name")


async def _replace(
    search: _Search, candidates: Sequence[Candidate], stale: Sequence[_StaleTurn]
) -> tuple[list[Candidate], list[Candidate]]:
    by_id = {each.record.id: each for each in candidates}
    left: list[Candidate] = []
    for each in stale:
        heirs = [] if search.is_about_past else await _heirs(search, each, by_id)
        if heirs:
            each.turn.fate = "its facts were superseded"
            left += [each.turn] if each.turn.record.id in by_id else []
        elif each.all_past:
            _mark_as_past(each.turn, each.until)
        for reply in (candidate for candidate in candidates if _is_reply(candidate, each.turn)):
            said = set(terms_of(reply.record.content))
            shared = len(said & each.stale_terms)
            if heirs and shared and shared >= len(said) * _REPETITION:
                reply.fate = "it repeats what was superseded"
                left.append(reply)
            elif each.all_past and shared:
                _mark_as_past(reply, each.until)
        # A turn that is no candidate has no relevance to pass on.
        by_id |= {heir.record.id: heir for heir in heirs if heir.relevance > 0}
    gone = {turn.record.id for turn in left}
    kept = [each for each in by_id.values() if each.record.id not in gone]
    return sorted(kept, key=lambda each: -each.relevance), left


async def _heirs(search: _Search, stale: _StaleTurn, known: Mapping[str, Candidate]) -> list[Candidate]:
    """The memories that take a turn's place; the one for the fact nearest to the question gets all its relevance."""
    heirs = [(new, rows) for new, rows in stale.heirs.values()]
    if search.wanted.for_prompt and heirs:
        flags = search.found.view.traits(np.array([new.row for new, _ in heirs], np.int64)).flags
        heirs = [heir for heir, flag in zip(heirs, flags, strict=True) if flag & DICTATED != DICTATED]
    nearness = [await _nearness(search, [new.row, *rows]) for new, rows in heirs] if len(heirs) > 1 else [0.0]
    found = []
    for (new, _), near in zip(heirs, nearness, strict=False):
        share = 1.0 if near >= max(nearness) - _AS_NEAR else _OTHER_FACT
        heir = known.get(new.record.id) or _candidate(search, new, stale.turn)
        heir.relevance = max(heir.relevance, stale.turn.relevance * share)
        found.append(heir)
    return found


async def _nearness(search: _Search, rows: Sequence[int]) -> float:
    """How near the nearest of these rows is to the question."""
    return float(np.max(await search.found.view.similarity(search.wanted.vector, np.array(rows, np.int64))))


def _candidate(search: _Search, new: Numbered, turn: Candidate) -> Candidate:
    """A memory in a turn's place, with its own scores as far as it was among those that were found."""
    at = np.flatnonzero(search.found.pool.rows == new.row)
    if len(at):
        return Candidate(int(at[0]), new.row, new.record, 0.0, parts=parts_of(search.found, int(at[0])))
    return Candidate(turn.at, new.row, new.record, 0.0, parts=dict(turn.parts))


def _mark_as_past(turn: Candidate, until: datetime) -> None:
    turn.record = replace(turn.record, valid_to=until)


def _is_reply(candidate: Candidate, turn: Candidate) -> bool:
    """Whether it is what the assistant said right after the turn."""
    reply, said = candidate.record, turn.record
    if reply.category is not Category.TURN or reply.scope != said.scope or reply.detail.get("role") != "assistant":
        return False
    position, before = reply.detail.get("position"), said.detail.get("position")
    return isinstance(position, int) and isinstance(before, int) and position == before + 1


def _without_repetitions(candidates: list[Candidate], facts: Facts) -> tuple[list[Candidate], list[Candidate]]:
    """The candidates without what a turn and a memory learned from it both say, word for word."""
    by_id = {each.record.id: each for each in candidates}
    left = []
    for turn_id, known in facts.items():
        turn = by_id.get(turn_id)
        memories = [by_id[each.id] for each in known if each.id in by_id]
        if turn is None or not memories:
            continue
        words = same_words(turn.record.content)
        for memory in memories:
            part = same_words(memory.record.content)
            if part not in words:
                continue
            if memory.relevance < turn.relevance and part != words:
                memory.fate = "the turn it was learned from says it"
                left.append(memory)
            elif len(part) >= len(words) * _MOST_OF_TURN:
                memory.relevance = max(memory.relevance, turn.relevance)
                turn.fate = "a memory learned from it says it"
                left.append(turn)
                break
    if not left:
        return candidates, []
    gone = {each.record.id for each in left}
    return [each for each in candidates if each.record.id not in gone], left
