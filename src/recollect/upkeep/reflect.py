"""Reflect: insights and lessons that a user's memories show together, kept as memories that cite them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from recollect.errors import BrokenAnswer, InvalidInput
from recollect.ledger.protocol import Ledger
from recollect.model.change import Add, Verb
from recollect.model.filters import any_of
from recollect.model.ids import new_id
from recollect.model.memory import Category, MemoryRecord, MemoryType, Status, Trust
from recollect.model.query import Filter, Listing, Not
from recollect.model.scope import Level, Scope
from recollect.model.validity import holds_now
from recollect.models.chat import Chat
from recollect.models.embedding import Embedder
from recollect.models.structured import Structured, ask_json
from recollect.prompts import prompt
from recollect.prompts.data import new_fence
from recollect.upkeep.insights import SCHEMA, Insight, Known, insights_of
from recollect.upkeep.report import Chore, Report, Step, spent_by
from recollect.upkeep.review import PROPOSED_BY
from recollect.upkeep.run import Run, finish
from recollect.write.billed import billed
from recollect.write.embed import embed
from recollect.write.settling.same import ready

if TYPE_CHECKING:
    from recollect.model.change import Vector

SOURCE = "reflection"
MAX_SHOWN_CHARS = 300
_REFLECTIVE = (Category.INSIGHT, Category.LESSON)
_SEEN: Filter = Not(any_of("category", [str(each) for each in (Category.TURN, Category.FILE, *_REFLECTIVE)]))
_MOST_KNOWN = 200
_MOST_KNOWN_SHOWN = 20
_MOST_VERSIONS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """How much is thought about, how many insights come of it, and what asking may cost.

    Less than `least` memories, of which none is newer than `after`, are not worth asking about.
    """

    look: int = 100
    least: int = 5
    most: int = 5
    after: datetime | None = None
    max_tokens: int = 2048
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        if self.look < 2 or not 1 <= self.most <= 50:
            raise InvalidInput("reflecting takes two memories at least, and gives from 1 to 50 insights")


async def reflect(
    scope: Scope,
    *,
    ledger: Ledger,
    embedder: Embedder,
    chat: Chat | None,
    run: Run,
    thinking: Thinking | None = None,
) -> Report:
    """Add what the memories that the scope sees show together; never what was there before, forgotten or not.

    An insight lives where its evidence does: what rests on a project's memory stays in that project. Insights that
    rest on what is no longer remembered are told of as stale. Without a chat model nothing else is done.
    """
    thinking = thinking or Thinking()
    since = await ledger.revision(scope.user)
    page = await ledger.find(scope, Listing(filter=_SEEN, visible=True, limit=thinking.look))
    seen = [each for each in page if holds_now(each, run.at)]
    before = await _insights(scope, ledger)
    stale = await _stale(scope, before, ledger)
    report = Report(chore=Chore.REFLECT, user=scope.user, dry_run=run.dry_run, stale=stale, looked_at=len(seen))
    if why := _why_not(seen, thinking, chat):
        await finish(scope, run, ledger)
        return replace(report, left=(why,))
    assert chat is not None
    try:
        asked, digest = await _ask(seen, before, chat, thinking)
    except BrokenAnswer as error:
        spent = spent_by(scope.user, Chore.REFLECT, chat.model, error, at=run.at)
        await ledger.apply(scope, [], by=run.by, effects=[spent])
        raise
    spent = spent_by(scope.user, Chore.REFLECT, chat.model, asked, at=run.at)
    most = thinking.most
    async with billed(ledger, scope, lambda: [spent], by=run.by):
        new, known = await _new(asked.value, before, embedder=embedder)
        changes = [Add(_record(scope, each, seen, at=run.at, digest=digest), vector) for each, vector in new]
        changes.sort(key=lambda each: -each.record.importance)
        surplus = [f"more than the {most} of a run: {each.record.content}" for each in changes[most:]]
        del changes[most:]
        applied = () if run.dry_run else tuple(changes)
        await ledger.apply(scope, applied, by=run.by_for("reflected"), effects=[spent, *run.effects], since=since)
    run.progress(len(changes))
    return replace(
        report,
        batch=run.batch(bool(applied)),
        steps=tuple(_step(each.record) for each in changes),
        left=(*(f"salvaged: {each}" for each in asked.complaints), *known, *surplus),
        calls=spent.calls,
        tokens_in=spent.tokens_in,
        tokens_out=spent.tokens_out,
    )


def _why_not(seen: Sequence[MemoryRecord], thinking: Thinking, chat: Chat | None) -> str:
    if chat is None:
        return "no model is set up, or none may be asked now, and insights need one"
    if len(seen) < max(thinking.least, 2):
        return f"{len(seen)} memories are too few to show anything; {max(thinking.least, 2)} are needed"
    if thinking.after is not None and not any(each.updated_at > thinking.after for each in seen):
        return "nothing is new since the last time"
    return ""


async def _insights(scope: Scope, ledger: Ledger) -> tuple[MemoryRecord, ...]:
    """The insights the scope sees in whatever state: one that a person forgot must not come back."""
    only = any_of("category", [str(each) for each in _REFLECTIVE])
    listing = Listing(filter=only, statuses=tuple(Status), visible=True, limit=_MOST_KNOWN)
    return tuple((await ledger.find(scope, listing)).records)


async def _stale(scope: Scope, insights: Sequence[MemoryRecord], ledger: Ledger) -> tuple[str, ...]:
    """The active insights of ours that rest on a memory which neither holds nor was followed by one that does."""
    mine = [each for each in insights if each.status is Status.ACTIVE and each.source == SOURCE]
    known: dict[str, MemoryRecord] = {}
    wanted = {id for each in mine for id in each.evidence}
    for _ in range(_MOST_VERSIONS):
        if not wanted:
            break
        found = await ledger.get(scope, sorted(wanted))
        known |= {each.id: each for each in found}
        wanted = {each.superseded_by for each in found if each.superseded_by} - known.keys()

    def holds(id: str) -> bool:
        for _ in range(_MOST_VERSIONS):
            record = known.get(id)
            if record is None or record.status is Status.ACTIVE or not record.superseded_by:
                break
            id = record.superseded_by
        return id in known and known[id].status is Status.ACTIVE

    return tuple(each.id for each in mine if not all(map(holds, each.evidence)))


async def _ask(
    seen: Sequence[MemoryRecord], before: Sequence[MemoryRecord], chat: Chat, thinking: Thinking
) -> tuple[Structured[tuple[Insight, ...]], str]:
    known = [each for each in before if each.status is Status.ACTIVE][:_MOST_KNOWN_SHOWN]
    # A fresh secret each time, and one line of JSON a memory: nothing that was said can end the fence.
    fence = new_fence()
    said = prompt("reflect")
    text = said.fill(
        fence=fence,
        known="\n".join(_line("known", True, each) for each in known),
        memories="\n".join(_line("number", at, each) for at, each in enumerate(seen)),
        most=str(thinking.most),
    )
    answer: Structured[tuple[Insight, ...]] = await ask_json(
        chat,
        [{"role": "user", "content": text}],
        schema=SCHEMA,
        max_tokens=thinking.max_tokens,
        timeout_s=thinking.timeout_s,
        check=lambda told: insights_of(told, seen),
    )
    return answer, said.digest


def _line(mark: str, number: int | bool, record: MemoryRecord) -> str:
    return json.dumps({mark: number, "says": record.content[:MAX_SHOWN_CHARS]}, ensure_ascii=False)


async def _new(
    insights: Sequence[Insight], before: Sequence[MemoryRecord], *, embedder: Embedder
) -> tuple[list[tuple[Insight, Vector | None]], list[str]]:
    """Those that say something new, with their vectors, and what the others are."""
    if not insights:
        return [], []
    texts = [*(each.content for each in before), *(each.content for each in insights)]
    vectors = await embed(texts, embedder=embedder)
    known = Known(tuple(ready(each.content) for each in before), tuple(vectors[: len(before)]))
    new: list[tuple[Insight, Vector | None]] = []
    left: list[str] = []
    for each, vector in zip(insights, vectors[len(before) :], strict=True):
        if known.has(each.content, vector):
            left.append(f"known already: {each.content}")
            continue
        known = known.and_(each.content, vector)
        new.append((each, vector))
    return new, left


def _record(
    scope: Scope, insight: Insight, seen: Sequence[MemoryRecord], *, at: datetime, digest: str
) -> MemoryRecord:
    """The insight as a memory that lives where the narrowest of its evidence does."""
    evidence = [each for each in seen if each.id in insight.evidence]
    levels = {each.level for each in evidence}
    level = next(each for each in (Level.SESSION, Level.PROJECT, Level.USER) if each in levels)
    place = {Level.USER: Scope(scope.user), Level.PROJECT: replace(scope, session=""), Level.SESSION: scope}[level]
    detail = {"about": insight.about}
    if insight.review:
        detail |= {"review": insight.review, PROPOSED_BY: SOURCE}
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
        source=SOURCE,
        # They are a model's words, whatever it read.
        trust=Trust.LOW,
        evidence=insight.evidence,
        detail=detail,
        status=Status.REVIEW if insight.review else Status.ACTIVE,
        prompt_digest=digest,
    )


def _step(record: MemoryRecord) -> Step:
    why = record.detail.get("review") or f"{len(record.evidence)} memories show it"
    return Step(verb=Verb.ADD, id=record.id, content=record.content, why=why, sources=record.evidence)
