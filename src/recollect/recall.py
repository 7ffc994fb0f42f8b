"""The read flow: from the messages of a chat to the memories in its prompt.

decide -> result cache -> rewrite -> search and pinned facts, concurrently -> policy -> format -> inject.
Each step is a file in `read/`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from recollect.errors import InvalidInput, RecollectError
from recollect.model.memory import Category
from recollect.model.messages import message_text
from recollect.model.query import EVERYTHING, And, Filter, Not, Op, Where, both
from recollect.model.result import Hit, PromptBlock, ReadTrace, RecallOutcome, RecallResult, TracedCandidate
from recollect.model.scope import Scope
from recollect.model.turn import Role, Turn
from recollect.observability.tracing import describe_error, format_traceback
from recollect.read.as_of_queries import keyed_facts_as_of
from recollect.read.conversation_history import invocation_lines
from recollect.read.decide import decide
from recollect.read.format import format_context
from recollect.read.inject import InjectPlace, inject
from recollect.read.pinned_facts import merge_facts
from recollect.read.policy import exclude_tagged
from recollect.read.result_cache import CachedAnswer, CacheLookup, ResultCache, request_key
from recollect.read.rewrite import RewriteMode, RewrittenQuery, last_question, rewrite
from recollect.read.select import normalize_words
from recollect.read.telemetry import StepTimer
from recollect.search import RankingConfig, SearchDeps, SearchRequest, search
from recollect.sessions.step_output import has_history, recent_turns
from recollect.text.time_expressions import TimeWords, parse_time_filter

if TYPE_CHECKING:
    from recollect.read.llm_budget import MeteredChat


_log = logging.getLogger("recollect")
_TIME_BUCKET_S = 300
_SUMMARIES: Filter = Where("category", Op.EQ, str(Category.SUMMARY))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallRequest:
    """The messages of a chat, and the parameters of the recall; `rewrite_timeout_s` shortens the configured one."""

    messages: Sequence[Mapping[str, Any]]
    at: datetime
    limit: int
    min_score: float
    filter: Filter = EVERYTHING
    as_of: datetime | None = None
    is_fact: bool | None = None
    requires_tool: bool | None = None
    rewrite_timeout_s: float | None = None
    summary: str | None = None
    recency_weight: float | None = None
    trace: bool = False
    traced_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallConfig:
    """The configuration of recall."""

    timeout_s: float = 5.0
    is_selective: bool = True
    rewrite: RewriteMode = "auto"
    rewrite_timeout_s: float = 2.0
    time_words: TimeWords = "prefer"
    facts: int = 20
    facts_importance: float = 0.5
    tokens: int = 2048
    style: str = "recollect"
    place: InjectPlace = "before-question"
    summary: bool = False
    invocations: bool = False
    conversation: int = 0
    turns: bool = True
    withhold: frozenset[str] = frozenset()
    ranking: RankingConfig = field(default_factory=lambda: RankingConfig(diversity=0.7))


async def recall(
    scope: Scope,
    request: RecallRequest,
    config: RecallConfig,
    deps: SearchDeps,
    *,
    llm: MeteredChat | None = None,
    result_cache: ResultCache | None = None,
) -> RecallResult:
    """Return the memories that help to answer, and the messages with them inserted.

    Failures and timeouts are outcomes, not errors: the chat continues without memories.
    """
    clock = StepTimer()
    if request.limit < 1:
        return _empty_result(request, clock, RecallOutcome.DISABLED, "`limit` is 0")
    try:
        async with asyncio.timeout(config.timeout_s):
            return await _recall(scope, request, config, deps, llm, result_cache, clock)
    except InvalidInput:
        raise
    except TimeoutError as error:
        return _unavailable_result(request, clock, f"recall took more than {config.timeout_s:g} s", error)
    except RecollectError as error:
        return _unavailable_result(request, clock, str(error), error)
    except Exception as error:
        # A bug here or in a part of the caller: report it, and let the chat continue.
        _log.error("recall failed. %s", format_traceback(error))
        return _unavailable_result(request, clock, f"recall failed: {describe_error(error)}", error)


async def _recall(
    scope: Scope,
    request: RecallRequest,
    config: RecallConfig,
    deps: SearchDeps,
    llm: MeteredChat | None,
    result_cache: ResultCache | None,
    clock: StepTimer,
) -> RecallResult:
    question = last_question(request.messages)
    if not question:
        return _empty_result(request, clock, RecallOutcome.IGNORED, "the last user message has no text")
    decision = decide(question, is_fact=request.is_fact, requires_tool=request.requires_tool)
    clock.mark("decide")
    if config.is_selective and not decision.search:
        trace = ReadTrace(searched=False, decision=decision.reason, question=question) if request.trace else None
        return replace(_empty_result(request, clock, RecallOutcome.IGNORED, decision.reason), trace=trace)
    lookup = await _look_up(scope, request, config, result_cache)
    if lookup is not None:
        clock.mark("again")
        if lookup.answer is not None:
            return _build_result(request, config, lookup.answer, _ConversationText(request.summary), clock)
    rewritten = await rewrite(
        request.messages, mode=config.rewrite, llm=llm, timeout_s=_rewrite_timeout_s(request, config)
    )
    clock.mark("rewrite")
    search_request = _search_request(scope, request, config, rewritten, question)
    search_task = asyncio.create_task(search(scope, search_request, _ranking_config(request, config), deps))
    try:
        facts = await _pinned_facts(scope, request, config, deps)
        conversation = await _conversation_text(scope, request, config, deps)
        result = await search_task
    finally:
        # Without effect if it is done; if another step failed, its result is not needed.
        search_task.cancel()
    clock.steps_us.update(result.steps_us)
    clock.skip()
    hits = merge_facts(facts, result.hits, per_source=config.ranking.per_source, tokens=config.tokens)
    notes = (f"searched: {decision.reason}", rewritten.note, *result.notes)
    answer = CachedAnswer(rewritten.query, tuple(hits), tuple(filter(None, notes)))
    if result_cache is not None and lookup is not None and not result.notes and not rewritten.llm_failed:
        result_cache.store(lookup, answer)
    recalled = replace(_build_result(request, config, answer, conversation, clock), failure=result.failure)
    if result.trace is None:
        return recalled
    trace = replace(
        result.trace,
        decision=decision.reason,
        question=question,
        rewrite=rewritten.method,
        hypothetical=rewritten.hypothetical,
        inferred_terms=rewritten.inferred_terms,
        budget_tokens=config.tokens,
    )
    return replace(recalled, candidates=_trace_prompt(result.candidates, recalled), trace=trace)


def _trace_prompt(candidates: Sequence[TracedCandidate], recalled: RecallResult) -> tuple[TracedCandidate, ...]:
    """Return the candidates with the reason why a selected one is not in the prompt."""
    used, dropped = set(recalled.context.used), recalled.context.dropped
    traced = []
    for each in candidates:
        decision = each.decision
        if each.is_selected and each.id not in used:
            decision = dropped.get(each.id, "it has a tag that is withheld, or a pinned fact says the same")
        traced.append(replace(each, decision=decision, in_prompt=each.id in used))
    return tuple(traced)


def _build_result(
    request: RecallRequest,
    config: RecallConfig,
    answer: CachedAnswer,
    conversation: _ConversationText,
    clock: StepTimer,
) -> RecallResult:
    """Return the result with the prompt block and the changed messages."""
    hits, withheld = exclude_tagged(answer.hits, config.withhold)
    context = format_context(
        config.style,
        hits,
        budget_tokens=config.tokens,
        now=request.at,
        summary=conversation.summary,
        invocations=conversation.invocations,
        conversation=[turn.as_memory() for turn in conversation.turns],
    )
    clock.mark("format")
    messages = inject(request.messages, context.text, place=config.place)
    clock.mark("inject")
    return RecallResult(
        outcome=_outcome(context, withheld),
        reason=_describe_result(context, withheld),
        query=answer.query,
        hits=hits,
        context=context,
        messages=tuple(messages),
        steps_us=clock.steps_us,
        notes=(*answer.notes, *filter(None, [withheld])),
    )


async def _look_up(
    scope: Scope, request: RecallRequest, config: RecallConfig, result_cache: ResultCache | None
) -> CacheLookup | None:
    """Look up the result cache; return None if the request is not cacheable: traces, past states, conversations."""
    uses_summary = config.summary and request.summary is None
    uses_conversation = scope.session and (uses_summary or config.invocations)
    uses_conversation = uses_conversation or _uses_turns(scope, request, config)
    if result_cache is None or request.trace or request.as_of is not None or uses_conversation:
        return None
    # The meaning of time expressions changes with the time of the request.
    moment = int(request.at.timestamp()) // _TIME_BUCKET_S
    question = request_key(
        request.messages, moment, request.at.utcoffset(), request.limit, request.min_score, request.filter,
        request.is_fact,
        request.requires_tool, request.recency_weight,
    )  # fmt: skip
    return await result_cache.look_up(scope, f"recall {question}") if question else None


async def _pinned_facts(scope: Scope, request: RecallRequest, config: RecallConfig, deps: SearchDeps) -> list[Hit]:
    return await keyed_facts_as_of(
        scope,
        request.filter,
        ledger=deps.ledger,
        limit=config.facts,
        min_importance=config.facts_importance,
        as_of=request.as_of,
    )


@dataclass(frozen=True, slots=True)
class _ConversationText:
    """The text of the current conversation for the prompt: its summary, its invocations and its last turns."""

    summary: str | None = None
    invocations: tuple[str, ...] = ()
    turns: Sequence[Turn] = ()


async def _conversation_text(
    scope: Scope, request: RecallRequest, config: RecallConfig, deps: SearchDeps
) -> _ConversationText:
    """Return the configured parts; the caller's summary has priority over the stored one."""
    uses_summary = config.summary and request.summary is None
    # What is stored covers later turns too, so it does not fit a past state.
    if not scope.session or request.as_of is not None or not (uses_summary or config.invocations):
        return _ConversationText(request.summary, turns=await _last_turns(scope, request, config, deps))
    conversation = await deps.ledger.conversation(scope)
    return _ConversationText(
        conversation.summary if uses_summary else request.summary,
        invocation_lines(conversation, _message_texts(request.messages)) if config.invocations else (),
        await _last_turns(scope, request, config, deps),
    )


def _uses_turns(scope: Scope, request: RecallRequest, config: RecallConfig) -> bool:
    """Return whether the turns of the session are inserted: configured, and the client sends none."""
    # Of a past state it is not known which turns were the last.
    if not config.conversation or not scope.session or request.as_of is not None:
        return False
    return not has_history(request.messages)


async def _last_turns(scope: Scope, request: RecallRequest, config: RecallConfig, deps: SearchDeps) -> Sequence[Turn]:
    """Return the last turns of the session without the question itself, which is stored if the client retries."""
    if not _uses_turns(scope, request, config):
        return ()
    turns = await recent_turns(scope, ledger=deps.ledger, limit=config.conversation)
    if (
        turns
        and turns[-1].role is Role.USER
        and normalize_words(turns[-1].content) in _message_texts(request.messages)
    ):
        return turns[:-1]
    return turns


def _search_request(
    scope: Scope, request: RecallRequest, config: RecallConfig, rewritten: RewrittenQuery, question: str
) -> SearchRequest:
    # Terms taken from earlier messages are about the topic, not about the time.
    time_text = rewritten.query if rewritten.method == "llm" else question
    times = parse_time_filter(time_text, at=request.at, mode=config.time_words)
    return SearchRequest(
        query=rewritten.query,
        embed_text=rewritten.hypothetical,
        inferred_terms=rewritten.inferred_terms,
        limit=request.limit,
        min_score=request.min_score,
        filter=both(_recall_filter(scope, request, config), times.filter),
        as_of=request.as_of,
        periods=times.periods,
        explain=request.trace,
        trace=request.trace,
        traced_id=request.traced_id,
        turns=config.turns,
        for_prompt=True,
        exclude_texts=_message_texts(request.messages),
    )


def _rewrite_timeout_s(request: RecallRequest, config: RecallConfig) -> float:
    if request.rewrite_timeout_s is None:
        return config.rewrite_timeout_s
    return min(request.rewrite_timeout_s, config.rewrite_timeout_s)


def _recall_filter(scope: Scope, request: RecallRequest, config: RecallConfig) -> Filter:
    if not config.invocations:
        return request.filter
    # Next to the current conversation, summaries of others would be taken for parts of it.
    others = And((_SUMMARIES, Not(Where("session_id", Op.EQ, scope.session))))
    return both(request.filter, Not(others))


def _ranking_config(request: RecallRequest, config: RecallConfig) -> RankingConfig:
    if request.recency_weight is None:
        return config.ranking
    return replace(config.ranking, weights=replace(config.ranking.weights, recency=request.recency_weight))


def _message_texts(messages: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Return the normalised texts of the messages, which need not be repeated by memories."""
    return frozenset(
        normalize_words(message_text(each.get("content"))) for each in messages if isinstance(each, Mapping)
    )


def _outcome(context: PromptBlock, withheld: str) -> RecallOutcome:
    if context.text:
        return RecallOutcome.USED
    return RecallOutcome.POLICY_BLOCKED if withheld else RecallOutcome.MISSING


def _describe_result(context: PromptBlock, withheld: str) -> str:
    if not context.text:
        return f"nothing may be shown: {withheld}" if withheld else "no memory matches the question"
    if not context.used:
        return "the recent conversation"
    return "1 memory" if len(context.used) == 1 else f"{len(context.used)} memories"


def _empty_result(request: RecallRequest, clock: StepTimer, outcome: RecallOutcome, reason: str) -> RecallResult:
    return RecallResult(outcome=outcome, reason=reason, messages=tuple(request.messages), steps_us=clock.steps_us)


def _unavailable_result(request: RecallRequest, clock: StepTimer, reason: str, error: Exception) -> RecallResult:
    return replace(_empty_result(request, clock, RecallOutcome.UNAVAILABLE, reason), failure=error)
