"""Tell with an answer which memories went into it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.errors import InvalidInput
from recollect.http.health_monitor import HealthMonitor
from recollect.http.proxy.body import parse_body
from recollect.http.proxy.memory_options import MemoryOptions
from recollect.http.proxy.resilience import Degraded, ResilientMemory, classify_failure
from recollect.http.upstream.protocol import RequestMemory
from recollect.model.ids import new_id
from recollect.model.result import Hit, RecallOutcome, RecallResult
from recollect.model.times import now
from recollect.model.turn import Role
from recollect.recall import RecallRequest
from recollect.service.service import Service
from recollect.sessions.resolve import SessionMatch, SessionResolver

HITS_FIELD = "memory_hits"


def add_hits(raw: bytes, hits: Sequence[Hit]) -> bytes | None:
    """The answer with the memories that were shown for it; None if it is no object to put them in."""
    try:
        body = parse_body(raw)
    except InvalidInput:
        return None
    encoded = json.dumps([hit_to_json(hit) for hit in hits])
    end = body.root.end - 1
    comma = ", " if body.root.items else ""
    return f'{body.text[:end].rstrip()}{comma}"{HITS_FIELD}": {encoded}{body.text[end:]}'.encode()


def used_hits(recalled: RecallResult | None) -> list[Hit]:
    """The hits that went into the prompt, best first."""
    if recalled is None:
        return []
    by_id = {hit.id: hit for hit in recalled.hits}
    return [by_id[id] for id in recalled.context.used if id in by_id]


def hit_to_json(hit: Hit) -> dict[str, Any]:
    """A hit as an answer tells of it."""
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
    """One request and its answer, and what memory made of them so far."""

    options: MemoryOptions
    messages: Sequence[Mapping[str, Any]]
    session_match: SessionMatch
    session_resolver: SessionResolver | None = None
    recall_result: RecallResult | None = None
    turn_id: str = ""
    degraded_reason: str = ""
    # What is wrong with memory at large, though not with this exchange.
    health_reason: str = ""

    @property
    def status(self) -> str:
        """What is told of memory: ok, off, or degraded and why; and what the caller may not do."""
        if self.degraded_reason or self.health_reason:
            return f"degraded; reason={self.degraded_reason or self.health_reason}"
        status = "ok" if self.options.reads or self.options.writes else "off"
        return f"{status}; {self.options.restriction}" if self.options.restriction else status

    @property
    def request_memory(self) -> RequestMemory | None:
        """What an upstream that answers from memory alone may go by."""
        if not self.options.reads and not self.options.writes:
            return None
        return RequestMemory(hits=self.hits, stores_turns=self.options.writes, degraded_reason=self.degraded_reason)

    @property
    def hits(self) -> Sequence[Hit]:
        """The memories that went into the prompt, best first."""
        return used_hits(self.recall_result)


class ChatMemory:
    """Takes part in chats; one for all of them."""

    def __init__(
        self, memory: ResilientMemory, *, limit: int, min_score: float, health: HealthMonitor | None = None
    ) -> None:
        self._health = health
        self._memory = memory
        self._limit = limit
        self._min_score = min_score
        # Held here, or they could be collected before they are done.
        self._tasks: set[asyncio.Task[Any]] = set()

    async def begin(self, options: MemoryOptions, messages: Sequence[Mapping[str, Any]]) -> ChatContext:
        """Recall what helps with the last message, and find out where the conversation goes on."""
        chat = ChatContext(options, messages, SessionMatch(scope=options.scope))
        if not options.reads and not options.writes:
            return chat
        chat.health_reason = self._health.reason if self._health else ""
        result = await self._memory.read(lambda service: self._recall(service, options, messages))
        if isinstance(result, Degraded):
            chat.degraded_reason = result.reason
            chat.session_match = SessionResolver.guess(options.scope, messages)
            return chat
        chat.session_resolver, chat.session_match, chat.recall_result = result
        chat.turn_id = chat.session_match.turn_id
        if chat.recall_result is not None:
            chat.messages = chat.recall_result.messages if chat.recall_result.context.text else messages
            # Found by words alone, while the embedder is away.
            chat.degraded_reason = classify_failure(chat.recall_result.failure) if chat.recall_result.failure else ""
        return chat

    async def _recall(
        self, service: Service, options: MemoryOptions, messages: Sequence[Mapping[str, Any]]
    ) -> tuple[SessionResolver, SessionMatch, RecallResult | None]:
        session_match = await service.sessions.resolver.resolve(options.scope, messages)
        if not options.reads:
            return service.sessions.resolver, session_match, None
        request = RecallRequest(
            messages=messages,
            at=now(),
            limit=self._limit if options.limit is None else options.limit,
            min_score=self._min_score if options.min_score is None else options.min_score,
            filter=options.filter,
            recency_weight=options.recency_weight,
        )
        recall_result = await service.recall(session_match.scope, request)
        if recall_result.failure is not None and recall_result.outcome is RecallOutcome.UNAVAILABLE:
            # A recall does not raise what went wrong, but it counts.
            raise recall_result.failure
        return service.sessions.resolver, session_match, recall_result

    async def store_user_turns(self, chat: ChatContext) -> None:
        """Keep what the user says that was not kept before; it is on disk when this returns without trouble."""
        session_match = chat.session_match
        if not chat.options.writes or not session_match.new:
            return
        ids = [new_id() for _ in session_match.new]
        messages = [{**each.message, "turn_id": id} for each, id in zip(session_match.new, ids, strict=True)]
        # Whoever waited for memory in vain does not wait a second time.
        within_s = 0.0 if chat.degraded_reason == "timeout" else None
        result = await self._memory.write(session_match.scope, messages, within_s=within_s, model=chat.options.model)
        chat.degraded_reason = chat.degraded_reason or result.reason or ""
        if chat.session_resolver is not None:
            chat.session_resolver.record(session_match, [each.mark for each in session_match.new], result.turns)
        user_turn_ids = [id for id, each in zip(ids, session_match.new, strict=True) if each.role == Role.USER]
        chat.turn_id = user_turn_ids[-1] if user_turn_ids and result.is_durable else ""

    async def store_answer(self, chat: ChatContext, text: str) -> str:
        """Keep what the assistant said, as far as it came; gives the id of the turn, if there is a new one."""
        text = text.strip()
        session_match = chat.session_match.with_answer(text) if text and chat.options.writes else None
        if session_match is None:
            return ""
        message = {"role": Role.ASSISTANT, "content": text, "turn_id": (id := new_id())}
        result = await self._memory.write(session_match.scope, [message], model=chat.options.model)
        if chat.session_resolver is not None:
            chat.session_resolver.record(session_match, [session_match.last], result.turns)
        return id if result.is_durable else ""

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do it whoever goes away meanwhile; `close` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Wait for what is under way."""
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
