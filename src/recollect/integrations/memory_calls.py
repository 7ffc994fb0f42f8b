"""What a model may do with its user's memories: recall, store, correct and forget, told in words.

Whatever goes wrong is told as well: the model reads it like any result of a tool, and the run goes on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from recollect.api import AsyncMemory
from recollect.errors import RecollectError
from recollect.integrations.asking import AnyMemory, ask
from recollect.model.given import Fields
from recollect.model.memory import Trust
from recollect.model.result import Hit
from recollect.read.dictated import dictates
from recollect.read.visible import one_line
from recollect.write.screening.imperatives import WAITS, WHY_IT_WAITS, imperative_in

# Not instructions: what a model was made to store must not command the next one.
Kind: TypeAlias = Literal["fact", "preference", "identity", "constraint", "event"]
MOST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCalls:
    """The memories of one user, as a model gets at them; `by` stands in history."""

    memory: AnyMemory
    user_id: str
    project_id: str | None = None
    session_id: str | None = None
    by: str = "agent"

    async def recall(self, query: str, limit: int = 5) -> str:
        """The memories that fit, as JSON with the ids to correct or forget them by."""
        most = min(max(limit, 1), MOST)

        async def search(memory: AsyncMemory) -> str:
            found = await memory.search(
                query, user_id=self.user_id, project_id=self.project_id, session_id=self.session_id, limit=most
            )
            shown = [_shown(hit) for hit in found if not dictates(hit.record)]
            return json.dumps(shown, ensure_ascii=False) if shown else "Nothing is known."

        return await self._told(search)

    async def store(self, content: str, kind: Kind = "fact") -> str:
        """Keep something; what is known already is not kept twice, and what commands waits for a person."""

        async def add(memory: AsyncMemory) -> str:
            if phrase := imperative_in(content):
                return await self._proposed(memory, content, phrase, {"category": kind})
            kept = await memory.add(
                content,
                user_id=self.user_id,
                project_id=self.project_id,
                session_id=self.session_id,
                category=kind,
                source="tool",
                trust=Trust.LOW,
                by=self.by,
            )
            secrets = f", without its secrets ({', '.join(kept.redacted)})" if kept.redacted else ""
            return f"Stored as {kept.id}{secrets}." if kept.changed else f"Known already, as {kept.id}."

        return await self._told(add)

    async def correct(self, memory_id: str, content: str) -> str:
        """Say something else in a memory; history keeps what it said."""

        async def update(memory: AsyncMemory) -> str:
            if phrase := imperative_in(content):
                return await self._proposed(memory, content, phrase, {"detail": {"corrects": memory_id}})
            # The words are a model's now.
            await memory.update(
                memory_id, content, user_id=self.user_id, trust=Trust.LOW, by=self.by, why="corrected by the agent"
            )
            return f"Corrected {memory_id}."

        return await self._told(update)

    async def forget(self, memory_id: str) -> str:
        """Forget a memory; undo brings it back."""

        async def delete(memory: AsyncMemory) -> str:
            await memory.delete(memory_id, user_id=self.user_id, by=self.by, why="forgotten by the agent")
            return f"Forgot {memory_id}."

        return await self._told(delete)

    async def _proposed(self, memory: AsyncMemory, content: str, phrase: str, fields: Fields) -> str:
        told: Fields = {**fields, "source": "tool", "trust": Trust.LOW}
        await memory.propose(
            content,
            user_id=self.user_id,
            project_id=self.project_id,
            session_id=self.session_id,
            by=self.by,
            why=WHY_IT_WAITS.format(phrase=phrase),
            **told,
        )
        return WAITS

    async def _told(self, call: Callable[[AsyncMemory], Coroutine[Any, Any, str]]) -> str:
        try:
            return await ask(self.memory, call)
        except RecollectError as error:
            return f"Not done: {error}"


def _shown(hit: Hit) -> dict[str, str]:
    record = hit.record
    day = (record.occurred_at or record.created_at).date().isoformat()
    return {"id": record.id, "memory": one_line(record.content), "date": day}
