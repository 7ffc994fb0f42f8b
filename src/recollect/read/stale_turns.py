"""Replace turns whose facts are no longer valid by the memories that are.

A turn stays in the log as it was said, while the memories learned from it are superseded or end. A search must not
offer the old turn as if it still held: the memories that superseded its facts take its place. A question about the
past keeps the turn, with the date on which its facts ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from recollect.ledger.ledger import Ledger
from recollect.ledger.tokenizer import query_terms, terms_of
from recollect.ledger.types import Derived, NumberedRecord
from recollect.model.memory import Category, MemoryRecord, MemoryType, Status, is_valid_now
from recollect.model.query import EVERYTHING, matches
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.read.gather import ASSISTANT_INSTRUCTION, CandidateQuery, GatheredCandidates, score_parts
from recollect.read.rank import SearchCandidate
from recollect.read.select import normalize_words, statement_words

# These sum up turns or think about them; they are no facts that a turn states.
_NON_FACTS = frozenset({Category.TURN, Category.SUMMARY, Category.EPISODE, Category.FILE, Category.LESSON})
# The part of a turn's relevance that a memory gets for a fact of it that is not the one nearest to the question.
_OTHER_FACT = 0.5
# Facts whose nearness to the question differs by less are equally near to it. Nearness is the cosine, and more by
# this for a fact that has all terms of the question.
_EQUAL_MARGIN = 0.1
_ALL_TERMS = 0.2
# A reply repeats what the user said if this part of its terms does; a longer one says more, and is marked as past.
_REPETITION = 0.2
# Of a turn and memories that repeat parts of it word for word, the turn is left out if they are so much of it; of a
# short turn, the memories are.
_MIN_TURN_SHARE = 0.5
_SHORT_TURN_CHARS = 400

Facts = Mapping[str, Sequence[Derived]]


@dataclass(slots=True)
class _Successor:
    """A memory that holds in place of facts of a turn, the rows of these facts, and their terms."""

    memory: NumberedRecord
    rows: list[int] = field(default_factory=list)
    terms: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _StaleTurn:
    """A turn with facts that are past: when the last of them ended, and the memories that are valid instead."""

    turn: SearchCandidate
    until: datetime
    # By id, the memories that hold in place of its facts.
    successors: dict[str, _Successor] = field(default_factory=dict)
    # The terms of facts that are past.
    past_terms: set[str] = field(default_factory=set)
    all_past: bool = True

    def add_successor(self, memory: NumberedRecord, row: int, terms: Iterable[str]) -> None:
        """Add a memory that holds in place of the fact with this row and these terms."""
        successor = self.successors.setdefault(memory.record.id, _Successor(memory))
        successor.rows.append(row)
        successor.terms.update(terms)

    @property
    def stale_terms(self) -> set[str]:
        """The terms that are no longer valid: those of the past facts, and of the turn if it has no other facts."""
        return self.past_terms | set(terms_of(self.turn.record.content)) if self.all_past else self.past_terms


@dataclass(frozen=True, slots=True)
class _SearchContext:
    """The search that the candidates belong to."""

    scope: Scope
    gathered: GatheredCandidates
    query: CandidateQuery
    ledger: Ledger
    moment: datetime

    def is_visible(self, record: MemoryRecord) -> bool:
        """Return whether a memory may be shown as valid now."""
        return (
            is_valid_now(record, self.moment)
            and self.scope.can_see(record.visibility_key)
            and matches(record, self.query.filter)
            and record.category not in _NON_FACTS
        )

    @property
    def is_about_past(self) -> bool:
        """Whether the question is about a past time, so that past facts are answers."""
        periods = self.query.periods
        are_over = bool(periods) and all(each.end is not None and each.end <= self.moment for each in periods)
        return self.query.question.is_about_past or are_over


async def replace_stale_turns(
    scope: Scope,
    candidates: list[SearchCandidate],
    gathered: GatheredCandidates,
    query: CandidateQuery,
    *,
    ledger: Ledger,
) -> tuple[list[SearchCandidate], list[SearchCandidate]]:
    """Return the candidates with stale turns replaced by memories that hold, best first, and those left out.

    A turn is stale if facts learned from it were superseded or ended. Where no memory holds in their place, or the
    question is about the past, the turn stays with the end of its facts in `valid_to`.
    """
    turns = {each.record.id: each for each in candidates if each.record.category is Category.TURN}
    if query.as_of is not None or not turns:
        return candidates, []
    search = _SearchContext(scope, gathered, query, ledger, now())
    turns |= await _turns_before_replies(search, candidates)
    derived = await ledger.derived(scope, list(turns))
    facts = {turn: [each for each in memories if _is_fact(each)] for turn, memories in derived.items()}
    stale = await _stale_turns(search, candidates, turns, facts)
    dropped: list[SearchCandidate] = []
    if stale:
        candidates, dropped = await _replace_turns(search, candidates, stale)
    candidates, repeated = _without_repetitions(candidates, derived)
    return candidates, [*dropped, *repeated]


async def _turns_before_replies(
    search: _SearchContext, candidates: Sequence[SearchCandidate]
) -> dict[str, SearchCandidate]:
    """Return the turns that candidates by the assistant reply to, if they are not candidates themselves."""
    replies = [each.row for each in candidates if each.record.detail.get("role") == "assistant"]
    if not replies:
        return {}
    before, _ = search.gathered.view.neighbors(np.array(replies, np.int64))
    missing = sorted(set(before.tolist()) - {-1} - {each.row for each in candidates})
    if not missing:
        return {}
    turns = await search.ledger.fetch(search.scope, missing, filter=EVERYTHING)
    return {each.record.id: SearchCandidate(-1, each.row, each.record, 0.0) for each in turns}


def _is_fact(memory: Derived) -> bool:
    return memory.category not in _NON_FACTS and memory.type is not MemoryType.REFLECTIVE


def _is_past(memory: Derived, moment: datetime) -> bool:
    """Return whether the fact is no longer valid; one that will be superseded later still is."""
    if memory.valid_to is not None:
        return memory.valid_to <= moment
    return memory.status is Status.SUPERSEDED


async def _stale_turns(
    search: _SearchContext, candidates: Sequence[SearchCandidate], turns: Mapping[str, SearchCandidate], facts: Facts
) -> list[_StaleTurn]:
    past = {each.id for memories in facts.values() for each in memories if _is_past(each, search.moment)}
    corrected = await _corrections(search, candidates, turns, facts)
    if not past and not corrected:
        return []
    chains = await search.ledger.succession(search.scope, sorted(past))
    stale = []
    for id, turn in turns.items():
        memories, corrections = facts.get(id, ()), corrected.get(id, {})
        if not any(each.id in past or each.id in corrections for each in memories):
            continue
        stale_turn = _StaleTurn(turn, turn.record.created_at)
        holding = []
        for each in memories:
            if each.id in past:
                _add_past(search, stale_turn, each, chains.get(each.id, ()))
            elif each.id in corrections:
                _add_corrected(stale_turn, each, corrections[each.id])
            else:
                holding.append(each)
        if holding:
            stale_turn.all_past = False
            await _add_holding(search, stale_turn, holding)
        stale.append(stale_turn)
    return stale


def _add_past(search: _SearchContext, stale: _StaleTurn, fact: Derived, chain: Sequence[NumberedRecord]) -> None:
    old = chain[0].record if chain else None
    ended = fact.valid_to or (old.updated_at if old else search.moment)
    stale.until = max(stale.until, ended)
    new = chain[-1] if len(chain) > 1 else None
    if old is not None:
        stale.past_terms |= set(terms_of(old.content))
    if new is not None and search.is_visible(new.record):
        stale.add_successor(new, fact.row, terms_of(old.content) if old is not None else ())


def _add_corrected(stale: _StaleTurn, fact: Derived, memory: SearchCandidate) -> None:
    record = memory.record
    stale.until = max(stale.until, record.updated_at)
    stale.past_terms |= set(terms_of(stale.turn.record.content)) - set(terms_of(record.content))
    stale.add_successor(NumberedRecord(memory.row, record), fact.row, terms_of(record.content))


async def _add_holding(search: _SearchContext, stale: _StaleTurn, holding: Sequence[Derived]) -> None:
    rows = [each.row for each in holding]
    for each in await search.ledger.fetch(search.scope, rows, filter=search.query.filter):
        stale.add_successor(each, each.row, terms_of(each.record.content))


async def _corrections(
    search: _SearchContext, candidates: Sequence[SearchCandidate], turns: Mapping[str, SearchCandidate], facts: Facts
) -> dict[str, dict[str, SearchCandidate]]:
    """Return memories learned from several turns that match only a later one, by earlier turn and memory id.

    "The call is at 3", "no, at 4": one fact is learned from both turns, so nothing is superseded, and yet the second
    turn corrects the first.
    """
    pairs = [
        (turns[turn], each, each.record.evidence[-1])
        for each in candidates
        if len(each.record.evidence) > 1 and search.is_visible(each.record)
        for turn in dict.fromkeys(each.record.evidence[:-1])
        if turn in turns and any(each.record.id == fact.id for fact in facts.get(turn, ()))
    ]
    if not pairs:
        return {}
    unknown = {last for _, _, last in pairs if last not in turns}
    later = {id: turn.record for id, turn in turns.items()}
    later |= {each.id: each for each in await search.ledger.get(search.scope, sorted(unknown))} if unknown else {}
    corrected: dict[str, dict[str, SearchCandidate]] = {}
    for turn, memory, last in pairs:
        if last in later and _corrects(memory.record, turn.record, later[last]):
            corrected.setdefault(turn.record.id, {})[memory.record.id] = memory
    return corrected


def _corrects(memory: MemoryRecord, earlier: MemoryRecord, later: MemoryRecord) -> bool:
    """Return whether the memory has words of the later turn that the earlier one of the same speaker lacks."""
    if later.created_at < earlier.created_at or _speaker(later) != _speaker(earlier):
        return False
    new = set(terms_of(later.content)) - set(terms_of(earlier.content))
    return not new.isdisjoint(terms_of(memory.content))


def _speaker(turn: MemoryRecord) -> tuple[object, object]:
    return turn.detail.get("role", "user"), turn.detail.get("name")


async def _replace_turns(
    search: _SearchContext, candidates: Sequence[SearchCandidate], stale: Sequence[_StaleTurn]
) -> tuple[list[SearchCandidate], list[SearchCandidate]]:
    by_id = {each.record.id: each for each in candidates}
    dropped: list[SearchCandidate] = []
    for each in stale:
        successors = [] if search.is_about_past else await _find_successors(search, each, by_id)
        if successors:
            each.turn.decision = "its facts were superseded"
            dropped += [each.turn] if each.turn.record.id in by_id else []
        elif each.all_past:
            _mark_as_past(each.turn, each.until)
        for reply in (candidate for candidate in candidates if _is_reply(candidate, each.turn)):
            reply_terms = set(terms_of(reply.record.content))
            shared = len(reply_terms & each.stale_terms)
            if successors and shared and shared >= len(reply_terms) * _REPETITION:
                reply.decision = "it repeats what was superseded"
                dropped.append(reply)
            elif each.all_past and shared:
                _mark_as_past(reply, each.until)
        # A turn that is no candidate has no relevance to pass on.
        by_id |= {successor.record.id: successor for successor in successors if successor.relevance > 0}
    dropped_ids = {turn.record.id for turn in dropped}
    remaining = [each for each in by_id.values() if each.record.id not in dropped_ids]
    return sorted(remaining, key=lambda each: -each.relevance), dropped


async def _find_successors(
    search: _SearchContext, stale: _StaleTurn, candidates: Mapping[str, SearchCandidate]
) -> list[SearchCandidate]:
    """Return the memories that replace a turn; the one nearest to the question gets all its relevance."""
    successors = list(stale.successors.values())
    if search.query.for_prompt and successors:
        flags = search.gathered.view.traits(np.array([each.memory.row for each in successors], np.int64)).flags
        successors = [
            successor
            for successor, flag in zip(successors, flags, strict=True)
            if flag & ASSISTANT_INSTRUCTION != ASSISTANT_INSTRUCTION
        ]
    nearness = [await _nearness(search, each) for each in successors] if len(successors) > 1 else [0.0]
    result = []
    for each, value in zip(successors, nearness, strict=False):
        share = 1.0 if value >= max(nearness) - _EQUAL_MARGIN else _OTHER_FACT
        successor = candidates.get(each.memory.record.id) or _make_candidate(search, each.memory, stale.turn)
        successor.relevance = max(successor.relevance, stale.turn.relevance * share)
        result.append(successor)
    return result


async def _nearness(search: _SearchContext, successor: _Successor) -> float:
    """Return how near a memory, or a fact that it replaces, is to the question."""
    rows = np.array([successor.memory.row, *successor.rows], np.int64)
    asked = set(query_terms(search.query.question.text))
    share = len(asked & successor.terms) / max(len(asked), 1)
    return float(np.max(await search.gathered.view.similarity(search.query.vector, rows))) + _ALL_TERMS * share


def _make_candidate(search: _SearchContext, new: NumberedRecord, turn: SearchCandidate) -> SearchCandidate:
    """Return a candidate for a memory that replaces a turn, with its own scores if it was gathered."""
    at = np.flatnonzero(search.gathered.table.rows == new.row)
    if len(at):
        return SearchCandidate(int(at[0]), new.row, new.record, 0.0, parts=score_parts(search.gathered, int(at[0])))
    return SearchCandidate(turn.pool_index, new.row, new.record, 0.0, parts=dict(turn.parts))


def _mark_as_past(turn: SearchCandidate, until: datetime) -> None:
    turn.record = replace(turn.record, valid_to=until)


def _is_reply(candidate: SearchCandidate, turn: SearchCandidate) -> bool:
    """Return whether the candidate is the assistant's reply to the turn."""
    reply, original = candidate.record, turn.record
    if (
        reply.category is not Category.TURN
        or reply.scope != original.scope
        or reply.detail.get("role") != "assistant"
    ):
        return False
    position, before = reply.detail.get("position"), original.detail.get("position")
    return isinstance(position, int) and isinstance(before, int) and position == before + 1


def _without_repetitions(
    candidates: list[SearchCandidate], derived: Facts
) -> tuple[list[SearchCandidate], list[SearchCandidate]]:
    """Drop memories that quote a part of a turn, turns that memories quote, and episodes that quote a turn."""
    by_id = {each.record.id: each for each in candidates}
    dropped = []
    for turn_id, learned in derived.items():
        turn = by_id.get(turn_id)
        if turn is None:
            continue
        words = statement_words(turn.record.content)
        # A fact of another speaker than the user begins with the speaker.
        name = turn.record.detail.get("name") or turn.record.detail.get("role", "user")
        prefix = f"{normalize_words(str(name))}: "
        parts = {
            each.id: statement_words(by_id[each.id].record.content).removeprefix(prefix)
            for each in learned
            if each.id in by_id
        }
        facts = [each.id for each in learned if _is_fact(each) and each.id in parts]
        memories = [by_id[id] for id in facts if parts[id] in words]
        best = max(memories, key=lambda each: each.relevance, default=None)
        if best is not None and best.relevance >= turn.relevance:
            covered = sum(len(parts[each.record.id]) for each in memories)
            # What an assistant says around an outcome is of little use; what a user adds to a fact may change it.
            replaces = covered >= len(words) * _MIN_TURN_SHARE or turn.record.detail.get("role") == "assistant"
        else:
            replaces = best is not None and parts[best.record.id] == words
        if best is not None and replaces:
            best.relevance = max(best.relevance, turn.relevance)
            turn.decision = "a memory learned from it says it"
            dropped.append(turn)
            continue
        if best is not None and (best.relevance < turn.relevance or len(words) <= _SHORT_TURN_CHARS):
            turn.relevance = max(best.relevance, turn.relevance)
            for memory in memories:
                memory.decision = "the turn it was learned from says it"
            dropped += memories
        for episode in (by_id[each.id] for each in learned if each.category is Category.EPISODE and each.id in parts):
            # Without a model, the episode of a short session quotes it after its date.
            if words in parts[episode.record.id] and len(words) * 3 > len(parts[episode.record.id]):
                episode.decision = "the turn that it quotes says it"
                dropped.append(episode)
    if not dropped:
        return candidates, []
    dropped_ids = {each.record.id for each in dropped}
    return [each for each in candidates if each.record.id not in dropped_ids], dropped
