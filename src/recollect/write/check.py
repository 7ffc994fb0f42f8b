"""Light checks of what an LLM extracted: cited lines, numbers, names, trust by role, instructions.

A check never removes a fact. A number or name that occurs neither in the cited lines nor in the updated memory lowers
the confidence and is recorded on the memory; an instruction that the user did not give waits for review.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

from recollect.ledger.tokenizer import terms_of
from recollect.model.memory import Category, MemoryRecord, MemoryType, Trust
from recollect.model.turn import Role, Turn
from recollect.quotes.pasted_instructions import is_pasted_sentence
from recollect.quotes.quoted_text import user_text
from recollect.text.instruction_rule import review_reason
from recollect.text.instructions import find_instruction
from recollect.text.numbers import find_numbers, missing_names, number_values, without_dates
from recollect.write.batch import Batch
from recollect.write.operations import ExtractedFact, FactOp, Operation
from recollect.write.select import MAX_CONFIDENCE_ASSISTANT
from recollect.write.sentences import split_sentences

SOURCE = "conversation"
# The maximum confidence of a fact with an unverified number or name.
MAX_CONFIDENCE_NUMBER = 0.5
MAX_CONFIDENCE_NAME = 0.7
# Below this share of a fact's words in the user's own part of the cited turns, the fact is quoted or pasted.
_MIN_OWN_SHARE = 0.5
_USER_WORDS = ("user", "nutzer", "nutzerin")
_MAX_YEARS_AWAY = 200
_MAX_SPAN_YEARS = 120


def check_operations(
    operations: Sequence[Operation], batch: Batch, *, now: datetime
) -> tuple[list[ExtractedFact], list[str]]:
    """Return the checked facts of the operations, and the reasons why other operations are not used."""
    facts: list[ExtractedFact] = []
    rejected: list[str] = []
    for operation in operations:
        if operation.op is None and (repeated := _target_memory(operation, batch)) is not None:
            # A repetition adds evidence to the memory.
            operation = replace(operation, op=FactOp.ADD, content=repeated.content)
        elif operation.op is None:
            rejected.append(f"nothing new: {operation.content[:100]}")
            continue
        fact = _build_checked_fact(operation, batch, now)
        if fact.content or fact.target is not None:
            facts.append(fact)
        else:
            rejected.append("an end needs a text or a memory")
    return facts, rejected


def _build_checked_fact(operation: Operation, batch: Batch, now: datetime) -> ExtractedFact:
    target = _target_memory(operation, batch)
    op = operation.op or FactOp.ADD
    if op is FactOp.UPDATE and target is None:
        op = FactOp.ADD
    cited = _cited_turns(operation, batch)
    trust = _trust_level(operation, cited)
    day = _parse_day(operation.when)
    fact = ExtractedFact(
        content=operation.content,
        op=op,
        target=target if op is not FactOp.ADD else None,
        category=operation.category,
        type=operation.type,
        # A profile has only the user's own statements.
        key=operation.key or None if trust is Trust.HIGH else None,
        value=operation.value or None if trust is Trust.HIGH else None,
        importance=operation.importance,
        confidence=operation.confidence
        if trust is Trust.HIGH
        else min(operation.confidence, MAX_CONFIDENCE_ASSISTANT),
        said_at=max((turn.said_at for turn in cited), default=None),
        occurred_at=_occurred_at(day, now),
        trust=trust,
        evidence=tuple(turn.id for turn in cited),
        correction=trust is Trust.HIGH and (op is FactOp.UPDATE or operation.correction),
        source=SOURCE,
    )
    fact = _with_doubts(fact, cited, batch, day)
    if fact.trust is Trust.HIGH and not _is_user_statement(fact, cited):
        fact = replace(fact, trust=Trust.LOW, key=None, value=None, correction=False)
    review = review_reason(fact.trust, fact.category, fact.memory_type, fact.content, operation.value)
    return replace(fact, review=review)


def _target_memory(operation: Operation, batch: Batch) -> MemoryRecord | None:
    number = operation.memory
    return batch.memories[number - 1] if number is not None and 1 <= number <= len(batch.memories) else None


def _cited_turns(operation: Operation, batch: Batch) -> list[Turn]:
    """Return the turns that the operation cites, or the one that shares most words with it."""
    cited = [batch.turns[line - 1] for line in operation.lines if 1 <= line <= len(batch.turns)]
    if cited:
        return cited
    terms = set(terms_of(operation.content))
    return [max(batch.turns, key=lambda turn: (len(terms & set(terms_of(turn.content))), turn.role is Role.USER))]


def _trust_level(operation: Operation, cited: Sequence[Turn]) -> Trust:
    """Return high trust for the user's own words, low trust for words of an assistant and for quoted text."""
    users = [turn for turn in cited if turn.role is Role.USER]
    if operation.by_assistant or not users:
        return Trust.LOW
    terms = set(terms_of(operation.content))
    own_count = len(terms & set(terms_of(user_text(users))))
    total_count = len(terms & {term for turn in cited for term in terms_of(turn.content)})
    # Without a word in common with the turns there is nothing to compare.
    return Trust.HIGH if total_count == 0 or own_count >= _MIN_OWN_SHARE * total_count else Trust.LOW


def _with_doubts(fact: ExtractedFact, cited: Sequence[Turn], batch: Batch, day: date | None) -> ExtractedFact:
    """Lower the confidence of a fact with numbers or names that occur nowhere, and record which."""
    sources = [turn.content for turn in (*cited, *batch.context)] + [turn.name or "" for turn in cited]
    sources += [fact.target.content] if fact.target else []
    text = "\n".join(sources)
    number = _unverified_number(fact.content, text, cited, day)
    name = _unverified_name(fact.content, text)
    doubts = [f"number {number} was not said"] * bool(number) + [f"name {name} was not said"] * bool(name)
    limit = MAX_CONFIDENCE_NUMBER if number else MAX_CONFIDENCE_NAME if name else 1.0
    return replace(fact, confidence=min(fact.confidence, limit), doubts=tuple(doubts))


def _unverified_number(content: str, text: str, cited: Sequence[Turn], day: date | None) -> str:
    """Return the first number of the content that is neither in the text nor part of a nearby date; else empty."""
    stated = number_values(text)
    # "Two years ago" yields a year that does not occur in the text.
    spans = {0, 1, *(int(value) for value in stated if value < _MAX_SPAN_YEARS)}
    years = {turn.said_at.year + sign * span for turn in cited for span in spans for sign in (-1, 1)}
    stated |= {Decimal(year) for year in years | ({day.year, day.month, day.day} if day else set())}
    for token, values in find_numbers(without_dates(content)):
        if not values & stated and min(values) > 1:
            return token
    return ""


def _unverified_name(content: str, text: str) -> str:
    return next((name for name in missing_names(content, text) if name.casefold() not in _USER_WORDS), "")


def _is_user_statement(fact: ExtractedFact, cited: Sequence[Turn]) -> bool:
    """Return whether a fact gives no instruction, or one that user turns alone give in the user's own words.

    A memory that instructs is valuable to an attacker: a quoted page or an assistant may inform, not instruct.
    """
    is_instruction = fact.category is Category.INSTRUCTION or fact.type is MemoryType.PROCEDURAL
    instructs = find_instruction(fact.content) or find_instruction(fact.value or "")
    if not is_instruction and not instructs:
        return True
    if any(turn.role is not Role.USER for turn in cited) or _quotes(fact, cited):
        return False
    return not instructs or bool(find_instruction(user_text(cited)))


def _quotes(fact: ExtractedFact, cited: Sequence[Turn]) -> bool:
    """Return whether the sentence of the turns that shares most words with the fact was pasted."""
    terms = set(terms_of(fact.content))
    sentences = [(turn.content, each.text) for turn in cited for each in split_sentences(turn.content)]
    nearest = max(sentences, key=lambda each: len(terms & set(terms_of(each[1]))), default=None)
    return nearest is not None and is_pasted_sentence(*nearest)


def _parse_day(text: str) -> date | None:
    """Return the date, or the first day of the month, that a model wrote; None if it is invalid."""
    try:
        return date.fromisoformat(text[:10] if len(text) != 7 else f"{text}-01")
    except ValueError:
        return None


def _occurred_at(day: date | None, now: datetime) -> datetime | None:
    if day is None or abs(day.year - now.year) > _MAX_YEARS_AWAY:
        return None
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
