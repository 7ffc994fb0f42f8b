"""Memory's part in a chat: recall before it, keep what the user says while it is under way, keep the answer after.

Nothing here raises because memory is in trouble: a chat goes on whatever becomes of it, and its status says what did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.conversation.thread import Placed, Threads
from recollect.http.proxy.hits import shown
from recollect.http.proxy.safekeeping import Degraded, Safekeeping, reason_of
from recollect.http.proxy.steering import Steering
from recollect.http.standing import Standing
from recollect.http.upstream.protocol import Known
from recollect.model.ids import new_id
from recollect.model.outcome import RecallOutcome
from recollect.model.result import Hit, Recalled
from recollect.model.times import now
from recollect.model.turn import Role
from recollect.recall import Recall
from recollect.service import Service


@dataclass(slots=True)
class Exchange:
    """One request and its answer, and what memory made of them so far."""

    steering: Steering
    messages: Sequence[Mapping[str, Any]]
    placed: Placed
    threads: Threads | None = None
    recalled: Recalled | None = None
    turn_id: str = ""
    trouble: str = ""
    # What is wrong with memory at large, though not with this exchange.
    standing: str = ""

    @property
    def status(self) -> str:
        """What is told of memory: ok, off, or degraded and why; and what the caller may not do."""
        if self.trouble or self.standing:
            return f"degraded; reason={self.trouble or self.standing}"
        status = "ok" if self.steering.reads or self.steering.writes else "off"
        return f"{status}; {self.steering.barred}" if self.steering.barred else status

    @property
    def known(self) -> Known | None:
        """What an upstream that answers from memory alone may go by."""
        if not self.steering.reads and not self.steering.writes:
            return None
        return Known(hits=self.hits, keeps=self.steering.writes, trouble=self.trouble)

    @property
    def hits(self) -> Sequence[Hit]:
        """The memories that went into the prompt, best first."""
        return shown(self.recalled)


class ChatMemory:
    """Takes part in chats; one for all of them."""

    def __init__(
        self, keeper: Safekeeping, *, limit: int, min_score: float, standing: Standing | None = None
    ) -> None:
        self._standing = standing
        self._keeper = keeper
        self._limit = limit
        self._min_score = min_score
        # Held here, or they could be collected before they are done.
        self._tasks: set[asyncio.Task[Any]] = set()

    async def begin(self, steering: Steering, messages: Sequence[Mapping[str, Any]]) -> Exchange:
        """Recall what helps with the last message, and find out where the conversation goes on."""
        exchange = Exchange(steering, messages, Placed(scope=steering.scope))
        if not steering.reads and not steering.writes:
            return exchange
        exchange.standing = self._standing.reason if self._standing else ""
        found = await self._keeper.read(lambda service: self._look(service, steering, messages))
        if isinstance(found, Degraded):
            exchange.trouble = found.reason
            exchange.placed = Threads.guess(steering.scope, messages)
            return exchange
        exchange.threads, exchange.placed, exchange.recalled = found
        exchange.turn_id = exchange.placed.turn_id
        if exchange.recalled is not None:
            exchange.messages = exchange.recalled.messages if exchange.recalled.context.text else messages
            # Found by words alone, while the embedder is away.
            exchange.trouble = reason_of(exchange.recalled.failure) if exchange.recalled.failure else ""
        return exchange

    async def _look(
        self, service: Service, steering: Steering, messages: Sequence[Mapping[str, Any]]
    ) -> tuple[Threads, Placed, Recalled | None]:
        placed = await service.care.threads.place(steering.scope, messages)
        if not steering.reads:
            return service.care.threads, placed, None
        asked = Recall(
            messages=messages,
            at=now(),
            limit=self._limit if steering.limit is None else steering.limit,
            min_score=self._min_score if steering.min_score is None else steering.min_score,
            filter=steering.filter,
            recency_weight=steering.recency_weight,
        )
        recalled = await service.recall(placed.scope, asked)
        if recalled.failure is not None and recalled.outcome is RecallOutcome.UNAVAILABLE:
            # A recall does not raise what went wrong, but it counts.
            raise recalled.failure
        return service.care.threads, placed, recalled

    async def keep_said(self, exchange: Exchange) -> None:
        """Keep what the user says that was not kept before; it is on disk when this returns without trouble."""
        placed = exchange.placed
        if not exchange.steering.writes or not placed.new:
            return
        ids = [new_id() for _ in placed.new]
        messages = [{**each.message, "turn_id": id} for each, id in zip(placed.new, ids, strict=True)]
        # Whoever waited for memory in vain does not wait a second time.
        within_s = 0.0 if exchange.trouble == "timeout" else None
        kept = await self._keeper.write(placed.scope, messages, within_s=within_s, model=exchange.steering.model)
        exchange.trouble = exchange.trouble or kept.reason or ""
        if exchange.threads is not None:
            exchange.threads.note(placed, [each.mark for each in placed.new], kept.turns)
        said = [id for id, each in zip(ids, placed.new, strict=True) if each.role == Role.USER]
        exchange.turn_id = said[-1] if said and kept.safe else ""

    async def keep_answer(self, exchange: Exchange, text: str) -> str:
        """Keep what the assistant said, as far as it came; gives the id of the turn, if there is a new one."""
        text = text.strip()
        placed = exchange.placed.answered(text) if text and exchange.steering.writes else None
        if placed is None:
            return ""
        message = {"role": Role.ASSISTANT, "content": text, "turn_id": (id := new_id())}
        kept = await self._keeper.write(placed.scope, [message], model=exchange.steering.model)
        if exchange.threads is not None:
            exchange.threads.note(placed, [placed.last], kept.turns)
        return id if kept.safe else ""

    def behind(self, doing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do it whoever goes away meanwhile; `close` waits for it."""
        task = asyncio.get_running_loop().create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Wait for what is under way."""
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
