"""The read flow: from the messages of a chat to the memories in its prompt.

decide -> result cache -> rewrite -> search and pinned facts -> policy -> format -> inject.
Each step is a file in `read/`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from recollect.config.fields import RankingSettings, RecallSettings
from recollect.errors import InvalidInput, RecollectError
from recollect.model.memory import Category
from recollect.model.messages import message_text
from recollect.model.query import EVERYTHING, And, Filter, Not, Op, Where, both
from recollect.model.result import Hit, PromptBlock, ReadTrace, RecallOutcome, RecallResult, TracedCandidate
from recollect.model.scope import Scope
from recollect.model.text import head_and_tail
from recollect.model.turn import Role, Turn
from recollect.observability.tracing import describe_error, format_traceback
from recollect.read.as_of_queries import pinned_facts_as_of
from recollect.read.conversation_history import invocation_lines
from recollect.read.decide import decide
from recollect.read.format import format_context
from recollect.read.inject import inject
from recollect.read.pinned_facts import merge_facts
from recollect.read.policy import exclude_tagged
from recollect.read.result_cache import CachedAnswer, CacheLookup, ResultCache, request_key
from recollect.read.rewrite import RewrittenQuery, last_question, rewrite
from recollect.read.select import normalize_words
from recollect.read.telemetry import StepTimer
from recollect.search import SearchDeps, SearchRequest, search
from recollect.sessions.step_output import has_history, recent_turns
from recollect.text.time_expressions import parse_time_filter

if TYPE_CHECKING:
    from recollect.read.llm_budget import MeteredChat


_log = logging.getLogger("recollect")
_TIME_BUCKET_S = 300
# How much is read of a conversation, and of a message: a longer search query is truncated as well.
_MAX_READ_CHARS = 1 << 18
_MAX_QUESTION_CHARS = 8_000
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


async def recall(
    scope: Scope,
    request: RecallRequest,
    config: RecallSettings,
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
        async with asyncio.timeout(config.recall_timeout_s):
            return await _recall(scope, request, config, deps, llm, result_cache, clock)
    except InvalidInput:
        raise
    except TimeoutError as error:
        return _unavailable_result(request, clock, f"recall took more than {config.recall_timeout_s:g} s", error)
    except RecollectError as error:
        return _unavailable_result(request, clock, str(error), error)
    except Exception as error:
        # A bug here or in a part of the caller: report it, and let the chat continue.
        _log.error("recall failed. %s", format_traceback(error))
        return _unavailable_result(request, clock, f"recall failed: {describe_error(error)}", error)


async def _recall(
    scope: Scope,
    request: RecallRequest,
    config: RecallSettings,
    deps: SearchDeps,
    llm: MeteredChat | None,
    result_cache: ResultCache | None,
    clock: StepTimer,
) -> RecallResult:
    original = request.messages
    request = replace(request, messages=readable_messages(original))
    question = last_question(request.messages)
    if not question:
        return _empty_result(request, clock, RecallOutcome.IGNORED, "the last user message has no text")
    decision = decide(question, is_fact=request.is_fact, requires_tool=request.requires_tool)
    clock.mark("decide")
    if config.recall_decide and not decision.search:
        trace = ReadTrace(searched=False, decision=decision.reason, question=question) if request.trace else None
        return replace(_empty_result(request, clock, RecallOutcome.IGNORED, decision.reason), trace=trace)
    lookup = await _look_up(scope, request, config, result_cache)
    if lookup is not None:
        clock.mark("again")
        if lookup.answer is not None:
            request = replace(request, messages=original)
            return _build_result(request, config, lookup.answer, _ConversationText(request.summary), clock)
    rewritten = await rewrite(
        request.messages, mode=config.rewrite, llm=llm, timeout_s=_rewrite_timeout_s(request, config)
    )
    clock.mark("rewrite")
    search_request = _search_request(scope, request, config, rewritten, question)
    run_search = partial(search, scope, search_request, _ranking(request, config), deps)
    # Reads of a local ledger hardly wait, and a task waits for its turn in the event loop.
    search_task = None if deps.ledger.is_local else asyncio.create_task(run_search())
    try:
        facts = await _pinned_facts(scope, request, config, deps)
        conversation = await _conversation_text(scope, request, config, deps)
        result = await (run_search() if search_task is None else search_task)
    finally:
        # Without effect if it is done; if another step failed, its result is not needed.
        if search_task is not None:
            search_task.cancel()
    clock.steps_us.update(result.steps_us)
    clock.skip()
    hits = merge_facts(facts, result.hits, per_source=config.hits_per_source, tokens=config.context_tokens)
    notes = (f"searched: {decision.reason}", rewritten.note, *result.notes)
    answer = CachedAnswer(rewritten.query, tuple(hits), tuple(filter(None, notes)))
    if result_cache is not None and lookup is not None and not result.notes and not rewritten.llm_failed:
        result_cache.store(lookup, answer)
    recalled = _build_result(replace(request, messages=original), config, answer, conversation, clock)
    recalled = replace(recalled, failure=result.failure)
    if result.trace is None:
        return recalled
    trace = replace(
        result.trace,
        decision=decision.reason,
        question=question,
        rewrite=rewritten.method,
        hypothetical=rewritten.hypothetical,
        inferred_terms=rewritten.inferred_terms,
        budget_tokens=config.context_tokens,
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


def readable_messages(messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the last messages, and the beginning and the end of long ones: what a question can refer to."""
    readable: list[Mapping[str, Any]] = []
    chars_left, is_cut = _MAX_READ_CHARS, False
    for message in reversed(messages):
        text = message_text(message.get("content")) if isinstance(message, Mapping) else ""
        if len(text) > _MAX_QUESTION_CHARS:
            text, is_cut = head_and_tail(text, _MAX_QUESTION_CHARS), True
            message = {**message, "content": text}
        chars_left -= len(text)
        if chars_left < 0:
            break
        readable.append(message)
    return readable[::-1] if is_cut or len(readable) < len(messages) else messages


def _build_result(
    request: RecallRequest,
    config: RecallSettings,
    answer: CachedAnswer,
    conversation: _ConversationText,
    clock: StepTimer,
) -> RecallResult:
    """Return the result with the prompt block and the changed messages."""
    hits, withheld = exclude_tagged(answer.hits, config.excluded_tags)
    context = format_context(
        config.context_format,
        hits,
        budget_tokens=config.context_tokens,
        now=request.at,
        summary=conversation.summary,
        invocations=conversation.invocations,
        conversation=[turn.as_memory() for turn in conversation.turns],
    )
    clock.mark("format")
    messages = inject(request.messages, context.text, place=config.context_place)
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
    scope: Scope, request: RecallRequest, config: RecallSettings, result_cache: ResultCache | None
) -> CacheLookup | None:
    """Look up the result cache; return None if the request is not cacheable: traces, past states, conversations."""
    uses_summary = config.context_summary and request.summary is None
    uses_conversation = scope.session and (uses_summary or config.context_invocations)
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


async def _pinned_facts(scope: Scope, request: RecallRequest, config: RecallSettings, deps: SearchDeps) -> list[Hit]:
    return await pinned_facts_as_of(
        scope,
        request.filter,
        ledger=deps.ledger,
        limit=config.recall_facts,
        min_importance=config.recall_facts_min_importance,
        as_of=request.as_of,
    )


@dataclass(frozen=True, slots=True)
class _ConversationText:
    """The text of the current conversation for the prompt: its summary, its invocations and its last turns."""

    summary: str | None = None
    invocations: tuple[str, ...] = ()
    turns: Sequence[Turn] = ()


async def _conversation_text(
    scope: Scope, request: RecallRequest, config: RecallSettings, deps: SearchDeps
) -> _ConversationText:
    """Return the configured parts; the caller's summary has priority over the stored one."""
    uses_summary = config.context_summary and request.summary is None
    # What is stored covers later turns too, so it does not fit a past state.
    if not scope.session or request.as_of is not None or not (uses_summary or config.context_invocations):
        return _ConversationText(request.summary, turns=await _last_turns(scope, request, config, deps))
    conversation = await deps.ledger.conversation(scope)
    return _ConversationText(
        conversation.summary if uses_summary else request.summary,
        invocation_lines(conversation, _message_texts(request.messages)) if config.context_invocations else (),
        await _last_turns(scope, request, config, deps),
    )


def _uses_turns(scope: Scope, request: RecallRequest, config: RecallSettings) -> bool:
    """Return whether the turns of the session are inserted: configured, and the client sends none."""
    # Of a past state it is not known which turns were the last.
    if not config.recall_conversation or not scope.session or request.as_of is not None:
        return False
    return not has_history(request.messages)


async def _last_turns(
    scope: Scope, request: RecallRequest, config: RecallSettings, deps: SearchDeps
) -> Sequence[Turn]:
    """Return the last turns of the session without the question itself, which is stored if the client retries."""
    if not _uses_turns(scope, request, config):
        return ()
    turns = await recent_turns(scope, ledger=deps.ledger, limit=config.recall_conversation)
    if (
        turns
        and turns[-1].role is Role.USER
        and normalize_words(turns[-1].content) in _message_texts(request.messages)
    ):
        return turns[:-1]
    return turns


def _search_request(
    scope: Scope, request: RecallRequest, config: RecallSettings, rewritten: RewrittenQuery, question: str
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
        turns=config.recall_turns,
        for_prompt=True,
        exclude_texts=_message_texts(request.messages),
    )


def _rewrite_timeout_s(request: RecallRequest, config: RecallSettings) -> float:
    if request.rewrite_timeout_s is None:
        return config.rewrite_timeout_s
    return min(request.rewrite_timeout_s, config.rewrite_timeout_s)


def _recall_filter(scope: Scope, request: RecallRequest, config: RecallSettings) -> Filter:
    if not config.context_invocations:
        return request.filter
    # Next to the current conversation, summaries of others would be taken for parts of it.
    others = And((_SUMMARIES, Not(Where("session_id", Op.EQ, scope.session))))
    return both(request.filter, Not(others))


def _ranking(request: RecallRequest, config: RecallSettings) -> RankingSettings:
    if request.recency_weight is None:
        return config
    return config.model_copy(update={"recency_weight": request.recency_weight})


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
