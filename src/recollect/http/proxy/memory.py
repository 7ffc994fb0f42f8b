"""Memory's part in a chat: recall before it, keep what the user says while it is under way, keep the answer after.

Nothing here raises because memory is in trouble: a chat goes on whatever becomes of it, and its status says what did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from recollect.conversation.thread import Placed, Spoken, spoken
from recollect.http.proxy.steering import Steering
from recollect.model.ids import new_id
from recollect.model.outcome import RecallOutcome
from recollect.model.result import Recalled
from recollect.model.times import now
from recollect.model.turn import Role, Turn
from recollect.recall import Recall
from recollect.service import Service

# What a search says that had to do without the embedder begins like this.
_BY_WORDS = "found by words alone"


class Safekeeping(Protocol):
    """Asks memory without waiting for it longer than a chat may, and keeps what it cannot take now."""

    async def read(self, looking: Coroutine[Any, Any, None]) -> str:
        """Run it within its time; gives what went wrong, or nothing."""
        ...

    async def write(self, scope: Any, messages: Sequence[Mapping[str, Any]]) -> tuple[tuple[Turn, ...], str]:
        """Keep the messages, whose turns have their ids already; gives the turns, and what went wrong."""
        ...


@dataclass(slots=True)
class Exchange:
    """One request and its answer, and what memory made of them so far."""

    steering: Steering
    messages: Sequence[Mapping[str, Any]]
    placed: Placed
    recalled: Recalled | None = None
    turn_id: str = ""
    trouble: str = ""

    @property
    def status(self) -> str:
        """What is told of memory: ok, off, or degraded and why; and what the caller may not do."""
        if self.trouble:
            return f"degraded; reason={self.trouble}"
        status = "ok" if self.steering.reads or self.steering.writes else "off"
        return f"{status}; {self.steering.barred}" if self.steering.barred else status

    @property
    def hits(self) -> int:
        """How many memories went into the prompt."""
        return len(self.recalled.context.used) if self.recalled else 0


class ChatMemory:
    """Takes part in chats; one for all of them."""

    def __init__(self, service: Service, keeper: Safekeeping, *, limit: int, min_score: float) -> None:
        self._service = service
        self._keeper = keeper
        self._limit = limit
        self._min_score = min_score
        # Held here, or they could be collected before they are done.
        self._tasks: set[asyncio.Task[Any]] = set()

    async def begin(self, steering: Steering, messages: Sequence[Mapping[str, Any]]) -> Exchange:
        """Recall what helps with the last message, and find out where the conversation goes on."""
        exchange = Exchange(steering, messages, Placed(scope=steering.scope))
        if steering.reads or steering.writes:
            exchange.trouble = await self._keeper.read(self._look(exchange))
        return exchange

    async def _look(self, exchange: Exchange) -> None:
        steering = exchange.steering
        # Until more is known, what the user says last is new.
        exchange.placed = replace(exchange.placed, new=_last_words(exchange.messages))
        exchange.placed = await self._service.threads.place(steering.scope, exchange.messages)
        if not steering.reads:
            return
        asked = Recall(
            messages=exchange.messages,
            at=now(),
            limit=self._limit if steering.limit is None else steering.limit,
            min_score=self._min_score if steering.min_score is None else steering.min_score,
            filter=steering.filter,
            recency_weight=steering.recency_weight,
        )
        recalled = await self._service.recall(exchange.placed.scope, asked)
        exchange.recalled, exchange.messages = recalled, recalled.messages
        if recalled.outcome is RecallOutcome.UNAVAILABLE:
            raise recalled.error or RuntimeError(recalled.reason)
        if any(note.startswith(_BY_WORDS) for note in recalled.notes):
            exchange.trouble = "embedder_unavailable"

    async def keep_said(self, exchange: Exchange) -> None:
        """Keep what the user says that was not kept before; it is on disk when this returns without trouble."""
        placed = exchange.placed
        exchange.turn_id = placed.turn_id
        if not exchange.steering.writes or not placed.new:
            return
        ids = [new_id() for _ in placed.new]
        messages = [{**each.message, "turn_id": id} for each, id in zip(placed.new, ids, strict=True)]
        turns, trouble = await self._keeper.write(placed.scope, messages)
        exchange.trouble = exchange.trouble or trouble
        self._service.threads.note(placed, [each.mark for each in placed.new], turns)
        said = [id for id, each in zip(ids, placed.new, strict=True) if each.role == Role.USER]
        exchange.turn_id = said[-1] if said else ""

    async def keep_answer(self, exchange: Exchange, text: str) -> None:
        """Keep what the assistant said, as far as it came."""
        text = text.strip()
        placed = exchange.placed.answered(text) if text and exchange.steering.writes else None
        if placed is None:
            return
        message = {"role": Role.ASSISTANT, "content": text, "turn_id": new_id()}
        turns, _ = await self._keeper.write(placed.scope, [message])
        self._service.threads.note(placed, [placed.last], turns)

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


def _last_words(messages: Sequence[object]) -> tuple[Spoken, ...]:
    """What the user says after the last answer."""
    said = spoken(messages)
    last = next((at + 1 for at in range(len(said) - 1, -1, -1) if said[at].role == Role.ASSISTANT), 0)
    return said[last:]
