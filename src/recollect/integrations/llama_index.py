"""Memory for LlamaIndex: a chat memory that recalls before each model call and learns from what is put into it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from recollect.errors import MissingExtra
from recollect.integrations.common import AnyMemory, RunMemory

try:
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.core.memory import BaseMemoryBlock, InsertMethod, Memory
    from pydantic import Field
except ImportError as error:
    raise MissingExtra("memory for LlamaIndex", "llama-index") from error

BY = "llama-index"
_ROLES = ("user", "assistant")


class RecollectBlock(BaseMemoryBlock[str]):
    """A memory block with what is known about the user; messages put into it are learned from."""

    name: str = "recollect"
    run: RunMemory = Field(exclude=True)

    async def _aget(self, messages: list[ChatMessage] | None = None, **_: Any) -> str:
        chat = chat_messages(messages or ())
        result = await self.run.recall(chat) if chat else None
        return result.context.text if result is not None else ""

    async def _aput(self, messages: list[ChatMessage]) -> None:
        await self.run.remember(chat_messages(messages))


class RecollectMemory(Memory):
    """The `Memory` of one conversation of a user; the session is its `session_id`.

    A block of a plain `Memory` learns only from messages that no longer fit into the context, so that this one hands
    every message to its block at once. Recalled memories are inserted into the user's message: they must not have the
    authority of a system prompt.
    """

    @classmethod
    def from_defaults(  # type: ignore[override]
        cls, *, memory: AnyMemory, user_id: str, project_id: str | None = None, **options: Any
    ) -> RecollectMemory:
        """Create a memory; the options are those of LlamaIndex's `Memory`."""
        made = cast("RecollectMemory", super().from_defaults(**{"insert_method": InsertMethod.USER, **options}))
        run = RunMemory.of(memory, by=BY, user_id=user_id, project_id=project_id, session_id=made.session_id)
        made.memory_blocks = [RecollectBlock(run=run, accept_short_term_memory=False), *made.memory_blocks]
        return made

    async def aput(self, message: ChatMessage) -> None:
        """Append a message and learn from it."""
        await super().aput(message)
        await self._learn([message])

    async def aput_messages(self, messages: list[ChatMessage]) -> None:
        """Append messages and learn from them."""
        await super().aput_messages(messages)
        await self._learn(messages)

    async def _learn(self, messages: list[ChatMessage]) -> None:
        for block in self.memory_blocks:
            if isinstance(block, RecollectBlock):
                await block.aput(messages)


def chat_messages(messages: Sequence[ChatMessage]) -> list[dict[str, str]]:
    """Return the text of user and model as chat messages, without images and tools."""
    texts = [(each.role.value, each.content or "") for each in messages if each.role.value in _ROLES]
    return [{"role": role, "content": text} for role, text in texts if text.strip()]
