"""Memory's part in a chat: recall before the upstream is asked, store the user's turns and the answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recollect.aio.background import TaskSet
from recollect.config.settings import Settings
from recollect.http.health import HealthMonitor
from recollect.http.proxy.memory_options import MemoryOptions
from recollect.http.proxy.resilience import Degraded, ResilientMemory, classify_failure
from recollect.model.ids import new_id
from recollect.model.memory import QUOTES_MEMORY
from recollect.model.messages import describe_excess
from recollect.model.result import Hit, RecallOutcome, RecallResult
from recollect.model.times import now
from recollect.model.turn import Role
from recollect.recall import RecallRequest
from recollect.service.extractive_answer import RequestMemory
from recollect.service.service import Service
from recollect.sessions.resolve import SessionMatch, SessionResolver
from recollect.sessions.step_output import DEFAULT_SESSION, has_history

_log = logging.getLogger("recollect")


def hit_to_json(hit: Hit) -> dict[str, Any]:
    record = hit.record
    return {
        "role": str(record.detail.get("role") or "memory"),
        "content": record.content,
        "created_at": record.created_at.isoformat(),
        "score": round(hit.score, 6),
        "id": record.id,
    }


@dataclass(slots=True)
class ChatContext:
    """One chat request: its options, its messages with the recalled ones, and the state of its memory."""

    options: MemoryOptions
    messages: Sequence[Mapping[str, Any]]
    session_match: SessionMatch
    session_resolver: SessionResolver | None = None
    recall_result: RecallResult | None = None
    turn_id: str = ""
    degraded_reason: str = ""
    # A problem of memory in general that did not affect this request.
    health_reason: str = ""

    @property
    def status(self) -> str:
        """The value of X-Memory-Status: ok, off, or degraded with the reason, and a restriction of the caller."""
        if self.degraded_reason or self.health_reason:
            return f"degraded; reason={self.degraded_reason or self.health_reason}"
        status = "ok" if self.options.reads or self.options.writes else "off"
        return f"{status}; {self.options.restriction}" if self.options.restriction else status

    @property
    def headers(self) -> dict[str, str]:
        headers = {"x-memory-status": self.status, "x-memory-hits": str(len(self.hits))}
        return headers | {"x-memory-turn": self.turn_id} if self.turn_id else headers

    @property
    def request_memory(self) -> RequestMemory | None:
        """Memory's part in the request for the built-in model; None if memory is off."""
        if not self.options.reads and not self.options.writes:
            return None
        return RequestMemory(hits=self.hits, stores_turns=self.options.writes, degraded_reason=self.degraded_reason)

    @property
    def hits(self) -> Sequence[Hit]:
        """The memories that are in the prompt, best first."""
        if self.recall_result is None:
            return []
        by_id = {hit.id: hit for hit in self.recall_result.hits}
        return [by_id[id] for id in self.recall_result.context.used if id in by_id]


class ChatMemory:
    """The memory of all chats; what they start in `tasks` continues after the client has left."""

    def __init__(self, memory: ResilientMemory, settings: Settings, *, health: HealthMonitor | None = None) -> None:
        self._memory, self._settings, self._health = memory, settings, health
        self.tasks = TaskSet()

    async def begin(self, options: MemoryOptions, messages: Sequence[Mapping[str, Any]]) -> ChatContext:
        """Recall memories for the last message, and find the session that the messages continue."""
        scope = options.scope
        if not scope.session and self._settings.recall_conversation and not has_history(messages):
            scope = replace(scope, session=DEFAULT_SESSION)
        chat = ChatContext(options, messages, SessionMatch(scope=scope))
        if not options.reads and not options.writes:
            return chat
        if excess := describe_excess(messages):
            _log.warning("a chat is forwarded without memory: it has %s", excess)
            chat.options = replace(options, reads=False, writes=False)
            chat.degraded_reason = "too_large"
            return chat
        chat.health_reason = self._health.reason if self._health else ""
        # A slow LLM must not take the time of the stores: they would seem to be down.
        rewrite_until = asyncio.get_running_loop().time() + self._memory.max_delay_s
        result = await self._memory.read(lambda service: self._recall(service, chat, rewrite_until))
        if isinstance(result, Degraded):
            chat.degraded_reason = result.reason
            chat.session_match = await SessionResolver.guess(scope, messages)
            return chat
        chat.session_resolver, chat.session_match, chat.recall_result = result
        chat.turn_id = chat.session_match.turn_id
        if chat.recall_result is not None:
            chat.messages = chat.recall_result.messages if chat.recall_result.context.text else messages
            # A failure with a result: without the embedder, memories are found by words alone.
            chat.degraded_reason = classify_failure(chat.recall_result.failure) if chat.recall_result.failure else ""
        return chat

    async def _recall(
        self, service: Service, chat: ChatContext, rewrite_until: float
    ) -> tuple[SessionResolver, SessionMatch, RecallResult | None]:
        options, resolver = chat.options, service.sessions.resolver
        session_match = await resolver.resolve(chat.session_match.scope, chat.messages)
        if not options.reads:
            return resolver, session_match, None
        request = RecallRequest(
            messages=chat.messages,
            at=now(),
            limit=self._settings.search_limit if options.limit is None else options.limit,
            min_score=self._settings.search_min_score if options.min_score is None else options.min_score,
            filter=options.filter,
            recency_weight=options.recency_weight,
            is_fact=options.is_fact,
            requires_tool=options.requires_tool,
            rewrite_timeout_s=rewrite_until - asyncio.get_running_loop().time(),
        )
        recall_result = await service.recall(session_match.scope, request)
        if recall_result.failure is not None and recall_result.outcome is RecallOutcome.UNAVAILABLE:
            # Recall reports failures instead of raising them; the breaker has to count this one.
            raise recall_result.failure
        return resolver, session_match, recall_result

    async def store_user_turns(self, chat: ChatContext) -> None:
        """Store the user's new turns in the ledger or on disk; `chat` reports what happened."""
        session_match = chat.session_match
        if not chat.options.writes or not session_match.new:
            return
        ids = [new_id() for _ in session_match.new]
        messages = [{**each.message, "turn_id": id} for each, id in zip(session_match.new, ids, strict=True)]
        # A request that waited for the read until its time was up does not wait a second time.
        within_s = 0.0 if chat.degraded_reason == "timeout" else None
        result = await self._memory.write(
            session_match.scope, messages, within_s=within_s, model=chat.options.model, mode=chat.options.mode
        )
        chat.degraded_reason = chat.degraded_reason or result.reason or ""
        if chat.session_resolver is not None:
            chat.session_resolver.record(session_match, [each.mark for each in session_match.new], result.turns)
        user_turn_ids = [id for id, each in zip(ids, session_match.new, strict=True) if each.role == Role.USER]
        chat.turn_id = user_turn_ids[-1] if user_turn_ids and result.is_durable else ""

    async def store_answer(self, chat: ChatContext, text: str, *, quotes_memory: bool = False) -> str:
        """Store the assistant's answer as far as it arrived; returns the id of the new turn, if there is one.

        An answer that only quotes memories is not searched: it would outlive them.
        """
        text = text.strip()
        session_match = chat.session_match.with_answer(text) if text and chat.options.writes else None
        if session_match is None:
            return ""
        message: dict[str, Any] = {"role": Role.ASSISTANT, "content": text, "turn_id": (id := new_id())}
        if quotes_memory:
            message["metadata"] = {QUOTES_MEMORY: True}
        result = await self._memory.write(
            session_match.scope, [message], model=chat.options.model, mode=chat.options.mode
        )
        if chat.session_resolver is not None:
            chat.session_resolver.record(session_match, [session_match.last], result.turns)
        return id if result.is_durable else ""
