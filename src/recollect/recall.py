"""The read flow: from what is being said to the memories in the prompt.

decide -> again -> rewrite -> when -> search, with the keyed facts beside it -> withhold -> fit the budget -> inject.
Every step is a file in `read/`; this one only conducts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from recollect.errors import InvalidInput, RecollectError
from recollect.language.when import TimeWords, spoken_of
from recollect.model.context import Context
from recollect.model.faults import told_fault, traced_fault
from recollect.model.message import text_of
from recollect.model.outcome import RecallOutcome
from recollect.model.query import EVERYTHING, Filter, both
from recollect.model.result import Hit, Recalled
from recollect.model.scope import Scope
from recollect.read.again import Again, Found, Look, told
from recollect.read.decide import decide
from recollect.read.facts import facts_first
from recollect.read.format import format_context
from recollect.read.inject import Place, inject
from recollect.read.past import keyed_then
from recollect.read.past import search_then as search
from recollect.read.rewrite import Mode, Rewritten, question_of, rewrite
from recollect.read.search import Finders, Search, Taste
from recollect.read.select import same_words
from recollect.read.trace import Clock
from recollect.read.withhold import withhold

if TYPE_CHECKING:
    from recollect.read.spending import OnAccount

_log = logging.getLogger("recollect")
_SAME_MOMENT_S = 300

__all__ = ["Finders", "Habits", "Recall", "Search", "Taste", "recall", "search"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """What is being said, and how memory is to help with it."""

    messages: Sequence[Mapping[str, Any]]
    at: datetime
    limit: int
    min_score: float
    filter: Filter = EVERYTHING
    as_of: datetime | None = None
    is_fact: bool | None = None
    requires_tool: bool | None = None
    summary: str | None = None
    recency_weight: float | None = None
    trace: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How recall goes about it, whatever is asked."""

    timeout_s: float = 5.0
    decides: bool = True
    rewrite: Mode = "auto"
    rewrite_timeout_s: float = 2.0
    time_words: TimeWords = "prefer"
    facts: int = 20
    facts_importance: float = 0.5
    tokens: int = 2048
    style: str = "recollect"
    place: Place = "before-question"
    summary: bool = False
    turns: bool = True
    withhold: frozenset[str] = frozenset()
    taste: Taste = field(default_factory=lambda: Taste(diversity=0.7))


async def recall(
    scope: Scope,
    asked: Recall,
    habits: Habits,
    finders: Finders,
    *,
    llm: OnAccount | None = None,
    again: Again | None = None,
) -> Recalled:
    """The memories that help to answer, and the messages with them in their place.

    Whatever fails or takes too long is an outcome, not an error: the chat goes on without memories.
    """
    clock = Clock()
    if asked.limit < 1:
        return _without(asked, clock, RecallOutcome.DISABLED, "no memories were asked for")
    try:
        async with asyncio.timeout(habits.timeout_s):
            return await _recall(scope, asked, habits, finders, llm, again, clock)
    except InvalidInput:
        raise
    except TimeoutError as error:
        return _unavailable(asked, clock, f"it took more than {habits.timeout_s:g} s", error)
    except RecollectError as error:
        return _unavailable(asked, clock, str(error), error)
    except Exception as error:
        # A fault of ours, or of a part the caller gave: it is told, and the chat goes on.
        _log.error("recall failed. %s", traced_fault(error))
        return _unavailable(asked, clock, f"recall failed: {told_fault(error)}", error)


async def _recall(
    scope: Scope,
    asked: Recall,
    habits: Habits,
    finders: Finders,
    llm: OnAccount | None,
    again: Again | None,
    clock: Clock,
) -> Recalled:
    """The steps, one after the other."""
    question = question_of(asked.messages)
    if not question:
        return _without(asked, clock, RecallOutcome.IGNORED, "the last user message has no text")
    decision = decide(question, is_fact=asked.is_fact, requires_tool=asked.requires_tool)
    clock.mark("decide")
    if habits.decides and not decision.search:
        return _without(asked, clock, RecallOutcome.IGNORED, decision.reason)
    look = await _look(scope, asked, habits, again)
    if look is not None:
        clock.mark("again")
        if look.found is not None:
            return _answered(asked, habits, look.found, asked.summary, clock)
    rewritten = await rewrite(asked.messages, mode=habits.rewrite, llm=llm, timeout_s=habits.rewrite_timeout_s)
    clock.mark("rewrite")
    wanted = _search(asked, habits, rewritten, question)
    searching = asyncio.create_task(search(scope, wanted, _taste(asked, habits), finders))
    try:
        facts = await _facts(scope, asked, habits, finders)
        summary = await _summary(scope, asked, habits, finders)
        found = await searching
    finally:
        # Where one failed, nobody waits for the other.
        searching.cancel()
    clock.steps_us.update(found.steps_us)
    clock.skip()
    fitting = facts_first(facts, found.hits, per_source=habits.taste.per_source, tokens=habits.tokens)
    notes = (f"searched: {decision.reason}", rewritten.note, *found.notes)
    answer = Found(rewritten.query, tuple(fitting), tuple(filter(None, notes)))
    if again is not None and look is not None and not found.notes and not rewritten.failed:
        again.keep(look, answer)
    answered = _answered(asked, habits, answer, summary, clock)
    return replace(answered, candidates=found.candidates, failure=found.failure)


def _answered(asked: Recall, habits: Habits, found: Found, summary: str | None, clock: Clock) -> Recalled:
    """What was found, as the prompt takes it."""
    hits, withheld = withhold(found.hits, habits.withhold)
    context = format_context(habits.style, hits, budget_tokens=habits.tokens, now=asked.at, summary=summary)
    clock.mark("format")
    messages = inject(asked.messages, context.text, place=habits.place)
    clock.mark("inject")
    return Recalled(
        outcome=_outcome(context, withheld),
        reason=_told(context, withheld),
        query=found.query,
        hits=hits,
        context=context,
        messages=tuple(messages),
        steps_us=clock.steps_us,
        notes=(*found.notes, *filter(None, [withheld])),
    )


async def _look(scope: Scope, asked: Recall, habits: Habits, again: Again | None) -> Look | None:
    """Whether this was asked before; None for what is not to be given again: a trace, the past, a summary."""
    summed = habits.summary and scope.session and asked.summary is None
    if again is None or asked.trace or asked.as_of is not None or summed:
        return None
    # Words for times mean others a little later.
    moment = int(asked.at.timestamp()) // _SAME_MOMENT_S
    question = told(
        asked.messages, moment, asked.at.utcoffset(), asked.limit, asked.min_score, asked.filter, asked.is_fact,
        asked.requires_tool, asked.recency_weight,
    )  # fmt: skip
    return await again.look(scope, f"recall {question}") if question else None


async def _facts(scope: Scope, asked: Recall, habits: Habits, finders: Finders) -> list[Hit]:
    return await keyed_then(
        scope,
        asked.filter,
        ledger=finders.ledger,
        limit=habits.facts,
        least=habits.facts_importance,
        as_of=asked.as_of,
    )


async def _summary(scope: Scope, asked: Recall, habits: Habits, finders: Finders) -> str | None:
    """What the conversation came to so far, where it is wanted: as the caller says, or as it was kept."""
    # What is kept sums up all that was said, later things too.
    if asked.summary is not None or not habits.summary or not scope.session or asked.as_of is not None:
        return asked.summary
    return (await finders.ledger.conversation(scope)).summary


def _search(asked: Recall, habits: Habits, rewritten: Rewritten, question: str) -> Search:
    # Terms of earlier messages say what is spoken of, not when.
    said = rewritten.query if rewritten.how == "llm" else question
    times = spoken_of(said, at=asked.at, mode=habits.time_words)
    return Search(
        query=rewritten.query,
        meaning=rewritten.extra,
        guessed=rewritten.guessed,
        limit=asked.limit,
        min_score=asked.min_score,
        filter=both(asked.filter, times.filter),
        as_of=asked.as_of,
        periods=times.periods,
        explain=asked.trace,
        trace=asked.trace,
        turns=habits.turns,
        for_prompt=True,
        said=_said(asked.messages),
    )


def _taste(asked: Recall, habits: Habits) -> Taste:
    if asked.recency_weight is None:
        return habits.taste
    return replace(habits.taste, weights=replace(habits.taste.weights, recency=asked.recency_weight))


def _said(messages: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """What stands in the messages already; memory need not say it again."""
    return frozenset(same_words(text_of(each.get("content"))) for each in messages if isinstance(each, Mapping))


def _outcome(context: Context, withheld: str) -> RecallOutcome:
    if context.text:
        return RecallOutcome.USED
    return RecallOutcome.POLICY_BLOCKED if withheld else RecallOutcome.MISSING


def _told(context: Context, withheld: str) -> str:
    if not context.text:
        return f"nothing may be shown: {withheld}" if withheld else "nothing that was kept fits the question"
    return "1 memory" if len(context.used) == 1 else f"{len(context.used)} memories"


def _without(asked: Recall, clock: Clock, outcome: RecallOutcome, reason: str) -> Recalled:
    return Recalled(outcome=outcome, reason=reason, messages=tuple(asked.messages), steps_us=clock.steps_us)


def _unavailable(asked: Recall, clock: Clock, reason: str, error: Exception) -> Recalled:
    return replace(_without(asked, clock, RecallOutcome.UNAVAILABLE, reason), failure=error)
