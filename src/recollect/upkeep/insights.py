"""Parse and check the insights that an LLM finds in memories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from recollect.ledger.terms import terms_of
from recollect.model.extracted import FactOp
from recollect.model.memory import Category, MemoryRecord, MemoryType
from recollect.models.structured import Partial
from recollect.text.grounding import missing_names, missing_numbers
from recollect.text.normalize import normalize
from recollect.upkeep.contract import operations_schema
from recollect.write.operations import Operation, OperationParser
from recollect.write.screening.imperatives import find_instruction
from recollect.write.screening.screen import is_refusal
from recollect.write.screening.written import clean_model_text, is_only_secret

MAX_INSIGHT_CHARS = 500
MIN_EVIDENCE = 2
# A model's view of a user is never certain.
MAX_CONFIDENCE = 0.8

SCHEMA = operations_schema("op", "lines", "content", "type", "importance", "confidence")


@dataclass(frozen=True, slots=True, kw_only=True)
class Insight:
    """A statement that several memories support; a reason for `review` means that a person must approve it."""

    content: str
    category: Category
    evidence: tuple[str, ...]
    importance: float
    confidence: float
    review: str = ""


def parse_insights(answer: object, memories: Sequence[MemoryRecord]) -> Partial[tuple[Insight, ...]]:
    """Return the insights that their memories support, and what is wrong with the others."""
    parsed = OperationParser(len(memories), len(memories)).parse(answer)
    insights: list[Insight] = []
    complaints = list(parsed.complaints)
    for operation in parsed.value:
        if operation.op is None:
            continue
        content = clean_model_text(operation.content)
        cited = [memories[line - 1] for line in operation.lines if 1 <= line <= len(memories)]
        if reason := _objection(operation, content, cited):
            complaints.append(f"{reason}: {content[:100]}")
        else:
            insights.append(_build_insight(operation, content, cited))
    return Partial(tuple(insights), tuple(complaints), score=len(insights))


def _build_insight(operation: Operation, content: str, cited: Sequence[MemoryRecord]) -> Insight:
    order = find_instruction(content)
    return Insight(
        content=content,
        category=Category.LESSON if operation.type is MemoryType.PROCEDURAL else Category.INSIGHT,
        evidence=tuple(each.id for each in cited),
        importance=operation.importance,
        confidence=min(operation.confidence, MAX_CONFIDENCE),
        review=f"it tells what to do ('{order}'), and the user did not say it" if order else "",
    )


def _objection(operation: Operation, content: str, cited: Sequence[MemoryRecord]) -> str:
    """Return why the operation is no insight; empty if it is one."""
    if operation.op is not FactOp.ADD:
        return "only new insights can be added"
    if len(cited) < max(MIN_EVIDENCE, len(operation.lines)):
        return f"it must cite at least {MIN_EVIDENCE} of the memories"
    if len(content) > MAX_INSIGHT_CHARS or is_only_secret(content):
        return f"content must be one sentence of at most {MAX_INSIGHT_CHARS} characters"
    if is_refusal(content):
        return "it is a refusal"
    sources = "\n".join(f"{each.occurred_at or each.created_at:%Y} {each.content}" for each in cited)
    for token, values in missing_numbers(content, sources).items():
        # It may count the memories that it cites.
        if Decimal(len(cited)) not in values:
            return f"none of its memories has the number {token}"
    if names := missing_names(content, sources):
        return f"none of its memories has the name {names[0]}"
    if not set(terms_of(content)) & set(terms_of(sources)):
        return "its memories do not mention that"
    if normalize(content) in {normalize(each.content) for each in cited}:
        return "it repeats one of its memories"
    return ""
