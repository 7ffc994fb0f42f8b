"""Add insights that an LLM finds in memories, after checking that the memories support them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

from recollect.deps import Deps
from recollect.frozen_dataclass import frozen_dataclass
from recollect.ledger.ledger import Ledger
from recollect.ledger.tokenizer import terms_of
from recollect.maintenance.tasks import MaintenanceReport, MaintenanceRun, MaintenanceStep, MaintenanceTask, finish
from recollect.model.change import Add, ChangeKind, Vector
from recollect.model.ids import new_id
from recollect.model.memory import MODEL, PROPOSED_BY, Category, MemoryRecord, MemoryType, Status, Trust, is_valid_now
from recollect.model.query import Filter, Listing, Not, any_of
from recollect.model.scope import Level, Scope
from recollect.models.chat import Chat
from recollect.models.embedding import Embedder
from recollect.models.structured import Partial
from recollect.prompts import prompt
from recollect.prompts.rendering import json_line, new_delimiter, shorten
from recollect.text.instruction_rule import instruction_reason
from recollect.text.normalize import normalize
from recollect.text.numbers import missing_names, missing_numbers
from recollect.write.ask_llm import LlmAnswer, ask_for_json, record_cost_on_error
from recollect.write.embed import embed
from recollect.write.operations import FactOp, Operation, OperationParser, memory_rows, operations_schema
from recollect.write.redact import clean_model_text, is_only_secret
from recollect.write.screen import is_refusal

MAX_INSIGHT_CHARS = 500
MIN_EVIDENCE = 2
# A model's view of a user is never certain.
MAX_CONFIDENCE = 0.8

SCHEMA = operations_schema("op", "lines", "content", "type", "importance", "confidence")


@frozen_dataclass(kw_only=True)
class Insight:
    """A statement that several memories support; a reason for `review` means that a person must approve it."""

    content: str
    category: Category
    evidence: tuple[str, ...]
    importance: float
    confidence: float
    review: str = ""


def parse_insights(answer: object, memories: Sequence[MemoryRecord]) -> Partial[tuple[Insight, ...]]:
    """Return the insights that their memories support, and the objections to the others."""
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
    return Insight(
        content=content,
        category=Category.LESSON if operation.type is MemoryType.PROCEDURAL else Category.INSIGHT,
        evidence=tuple(each.id for each in cited),
        importance=operation.importance,
        confidence=min(operation.confidence, MAX_CONFIDENCE),
        review=instruction_reason(content),
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


REFLECTION_SOURCE = "reflection"
MAX_PROMPT_CHARS = 300
_REFLECTIVE = (Category.INSIGHT, Category.LESSON)
_INPUT_FILTER: Filter = Not(any_of("category", [str(each) for each in (Category.TURN, Category.FILE, *_REFLECTIVE)]))
_MAX_EXISTING = 200
_MAX_EXISTING_IN_PROMPT = 20
_MAX_VERSIONS = 20
# From this cosine on an insight with the same numbers and names repeats a known one.
_SAME_MEANING = 0.9
_MAX_MEMORIES = 100
_MIN_MEMORIES = 5
MAX_INSIGHTS = 5
_MAX_TOKENS = 2048


async def reflect(
    scope: Scope, *, deps: Deps, run: MaintenanceRun, after: datetime | None = None
) -> MaintenanceReport:
    """Add insights into the memories that the scope sees; never one that exists or existed, forgotten or not.

    An insight lives where its evidence does: one that cites a project's memory stays in that project. Insights whose
    evidence no longer holds are reported as stale; nothing else is done without a chat model, or if no memory changed
    since `after`.
    """
    ledger, chat = deps.ledger, deps.chat
    since = await ledger.revision(scope.user)
    page = await ledger.find(scope, Listing(filter=_INPUT_FILTER, visible=True, limit=_MAX_MEMORIES))
    memories = [each for each in page if is_valid_now(each, run.at)]
    existing = await _existing_insights(scope, ledger)
    stale = await _stale(scope, existing, ledger)
    if why := _reason_to_skip(memories, after, chat):
        await finish(scope, run, ledger)
        report = run.report(MaintenanceTask.REFLECT, scope, (), left=[why], looked_at=len(memories))
        return replace(report, stale=stale)
    assert chat is not None
    answer, digest = await _ask(memories, existing, chat)
    spent = answer.cost.usage(scope.user, str(MaintenanceTask.REFLECT), at=run.at)
    async with record_cost_on_error(ledger, scope, lambda: spent, by=run.by):
        if answer.error is not None:
            raise answer.error
        new, repeated = await _drop_repeated(answer.value or (), existing, embedder=deps.embedder)
        changes = [
            Add(_build_record(scope, each, memories, at=run.at, digest=digest, model=answer.cost.model), vector)
            for each, vector in new
        ]
        changes.sort(key=lambda each: -each.record.importance)
        surplus = [f"more than the {MAX_INSIGHTS} of a run: {each.record.content}" for each in changes[MAX_INSIGHTS:]]
        del changes[MAX_INSIGHTS:]
        applied = () if run.dry_run else tuple(changes)
        await ledger.apply(
            scope, applied, by=run.author_for("reflected"), effects=[*spent, *run.effects], since=since
        )
    steps = [_step(each.record) for each in changes]
    left = [*(f"salvaged: {each}" for each in answer.complaints), *repeated, *surplus]
    report = run.report(MaintenanceTask.REFLECT, scope, steps, left=left, looked_at=len(memories))
    cost = answer.cost
    return replace(report, stale=stale, calls=cost.calls, tokens_in=cost.tokens_in, tokens_out=cost.tokens_out)


def _reason_to_skip(memories: Sequence[MemoryRecord], after: datetime | None, chat: Chat | None) -> str:
    if chat is None:
        return "insights need an LLM, and none is configured or available"
    if len(memories) < _MIN_MEMORIES:
        return f"{len(memories)} memories are too few; {_MIN_MEMORIES} are needed"
    if after is not None and not any(each.updated_at > after for each in memories):
        return "nothing is new since the last run"
    return ""


async def _existing_insights(scope: Scope, ledger: Ledger) -> tuple[MemoryRecord, ...]:
    """Return the insights that the scope sees, of any status: a forgotten one must not come back."""
    only = any_of("category", [str(each) for each in _REFLECTIVE])
    listing = Listing(filter=only, statuses=tuple(Status), visible=True, limit=_MAX_EXISTING)
    return tuple((await ledger.find(scope, listing)).records)


async def _stale(scope: Scope, insights: Sequence[MemoryRecord], ledger: Ledger) -> tuple[str, ...]:
    """Return the active insights that cite a memory which is neither active nor superseded by an active one."""
    mine = [each for each in insights if each.status is Status.ACTIVE and each.source == REFLECTION_SOURCE]
    records: dict[str, MemoryRecord] = {}
    missing_ids = {id for each in mine for id in each.evidence}
    for _ in range(_MAX_VERSIONS):
        if not missing_ids:
            break
        fetched = await ledger.get(scope, sorted(missing_ids))
        records |= {each.id: each for each in fetched}
        missing_ids = {each.superseded_by for each in fetched if each.superseded_by} - records.keys()

    def holds(id: str) -> bool:
        for _ in range(_MAX_VERSIONS):
            record = records.get(id)
            if record is None or record.status is Status.ACTIVE or not record.superseded_by:
                break
            id = record.superseded_by
        return id in records and records[id].status is Status.ACTIVE

    return tuple(each.id for each in mine if not all(map(holds, each.evidence)))


async def _ask(
    memories: Sequence[MemoryRecord], existing: Sequence[MemoryRecord], chat: Chat
) -> tuple[LlmAnswer[tuple[Insight, ...]], str]:
    active = [each for each in existing if each.status is Status.ACTIVE][:_MAX_EXISTING_IN_PROMPT]
    template = prompt("reflect")
    text = template.fill(
        fence=new_delimiter(),
        known="\n".join(json_line({"known": shorten(each.content, MAX_PROMPT_CHARS)}) for each in active),
        memories=memory_rows(memories, MAX_PROMPT_CHARS),
        most=str(MAX_INSIGHTS),
    )
    answer: LlmAnswer[tuple[Insight, ...]] = await ask_for_json(
        chat,
        text,
        schema=SCHEMA,
        check=lambda value: parse_insights(value, memories),
        max_tokens=_MAX_TOKENS,
    )
    return answer, template.digest


async def _drop_repeated(
    insights: Sequence[Insight], existing: Sequence[MemoryRecord], *, embedder: Embedder
) -> tuple[list[tuple[Insight, Vector | None]], list[str]]:
    """Return the insights that are not known yet, with their vectors, and the reasons for leaving the others."""
    if not insights:
        return [], []
    texts = [*(each.content for each in existing), *(each.content for each in insights)]
    vectors = await embed(texts, embedder=embedder)
    compared = list(zip(texts, vectors, strict=True))[: len(existing)]
    new: list[tuple[Insight, Vector | None]] = []
    left: list[str] = []
    for each, vector in zip(insights, vectors[len(existing) :], strict=True):
        if any(_is_repeated(each.content, vector, *other) for other in compared):
            left.append(f"known already: {each.content}")
            continue
        compared.append((each.content, vector))
        new.append((each, vector))
    return new, left


def _is_repeated(content: str, vector: Vector | None, other_content: str, other_vector: Vector | None) -> bool:
    """Return whether an insight has the words of a known one, or its meaning with the same numbers and names."""
    if normalize(content) == normalize(other_content):
        return True
    if vector is None or other_vector is None or float(vector @ other_vector) < _SAME_MEANING:
        return False
    return not any((*missing_numbers(content, other_content), *missing_names(content, other_content)))


def _build_record(
    scope: Scope, insight: Insight, memories: Sequence[MemoryRecord], *, at: datetime, digest: str, model: str
) -> MemoryRecord:
    """Return the insight as a memory at the narrowest level of its evidence."""
    evidence = [each for each in memories if each.id in insight.evidence]
    levels = {each.level for each in evidence}
    level = next(each for each in (Level.SESSION, Level.PROJECT, Level.USER) if each in levels)
    place = {Level.USER: Scope(scope.user), Level.PROJECT: replace(scope, session=""), Level.SESSION: scope}[level]
    review = {"review": insight.review, PROPOSED_BY: REFLECTION_SOURCE} if insight.review else {}
    return MemoryRecord(
        id=new_id(),
        scope=place,
        level=level,
        type=MemoryType.REFLECTIVE,
        category=insight.category,
        content=insight.content,
        created_at=at,
        updated_at=at,
        importance=insight.importance,
        confidence=insight.confidence,
        source=REFLECTION_SOURCE,
        # A model wrote it, whatever it read.
        trust=Trust.LOW,
        evidence=insight.evidence,
        detail={MODEL: model, **review},
        status=Status.REVIEW if insight.review else Status.ACTIVE,
        prompt_digest=digest,
    )


def _step(record: MemoryRecord) -> MaintenanceStep:
    why = record.detail.get("review") or f"{len(record.evidence)} memories show it"
    return MaintenanceStep(
        verb=ChangeKind.ADD, id=record.id, content=record.content, why=why, sources=record.evidence
    )
