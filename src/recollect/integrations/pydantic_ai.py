"""Memory for Pydantic AI: tools for the model, and a capability that recalls before a run and remembers after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from recollect.errors import MissingExtra
from recollect.integrations.common import AnyMemory, IdSource, RunMemory, memory_functions

try:
    from pydantic_ai import FunctionToolset, RunContext
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextContent, TextPart, UserPromptPart
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.run import AgentRunResult
except ImportError as error:
    raise MissingExtra("memory for Pydantic AI", "pydantic-ai") from error

BY = "pydantic-ai"


def memory_tools(
    memory: AnyMemory, *, user_id: IdSource, project_id: IdSource | None = None, id: str = "recollect"
) -> FunctionToolset[Any]:
    """Return tools with which a model recalls, stores, corrects and forgets its user's memories."""

    def memory_of(ctx: RunContext[Any]) -> RunMemory:
        session = ctx.conversation_id
        return RunMemory.of(memory, by=BY, run=ctx, user_id=user_id, project_id=project_id, session_id=session)

    return FunctionToolset(memory_functions(memory_of, RunContext[Any]), id=id)


@dataclass
class Remembering(AbstractCapability[Any]):
    """Inserts memories before the user's question, and remembers the messages of the run.

    The memories are part of the requests only, not of the message history. If memory is unavailable, the run goes on
    without it. The session is the run's conversation, unless `session_id` names another.
    """

    memory: AnyMemory
    _: KW_ONLY
    user_id: IdSource
    project_id: IdSource | None = None
    session_id: IdSource | None = None
    recalls: bool = True
    remembers: bool = True
    _block: str | None = field(default=None, init=False, repr=False)

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """Return None: a memory cannot be serialised."""
        return None

    async def for_run(self, ctx: RunContext[Any]) -> Remembering:
        """Return a copy for a run, since runs of two users may be concurrent."""
        return replace(self)

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Insert memories before the question; they are recalled once per run."""
        if not self.recalls:
            return request_context
        if self._block is None:
            self._block = await self._recall(ctx, chat_messages(request_context.messages))
        if not self._block:
            return request_context
        return replace(request_context, messages=with_block(request_context.messages, self._block))

    async def after_run(self, ctx: RunContext[Any], *, result: AgentRunResult[Any]) -> AgentRunResult[Any]:
        """Remember the messages of the run; they are learned from in the background."""
        if self.remembers:
            messages = enumerate(chat_messages(result.new_messages()))
            # With ids, so that a replayed run stores its messages once.
            await self._memory_of(ctx).remember([{**each, "turn_id": f"{ctx.run_id}-{at}"} for at, each in messages])
        return result

    async def _recall(self, ctx: RunContext[Any], messages: Sequence[Mapping[str, str]]) -> str:
        result = await self._memory_of(ctx).recall(messages) if messages else None
        return result.context.text if result is not None else ""

    def _memory_of(self, ctx: RunContext[Any]) -> RunMemory:
        session = ctx.conversation_id if self.session_id is None else self.session_id
        project = self.project_id
        return RunMemory.of(self.memory, by=BY, run=ctx, user_id=self.user_id, project_id=project, session_id=session)


def chat_messages(messages: Sequence[ModelMessage]) -> list[dict[str, str]]:
    """Return the text of user and model as chat messages, without images, tools and thoughts."""
    result = []
    for message in messages:
        if isinstance(message, ModelResponse):
            text = "".join(part.content for part in message.parts if isinstance(part, TextPart))
            result.append({"role": "assistant", "content": text})
        else:
            prompts = [_text_of(part) for part in message.parts if isinstance(part, UserPromptPart)]
            result.append({"role": "user", "content": "\n".join(filter(None, prompts))})
    return [each for each in result if each["content"].strip()]


def with_block(messages: Sequence[ModelMessage], block: str) -> list[ModelMessage]:
    """Insert the block before the last prompt, in its request: never between a call and its result."""
    updated = list(messages)
    for at in range(len(updated) - 1, -1, -1):
        message = updated[at]
        if not isinstance(message, ModelRequest):
            continue
        parts = list(message.parts)
        prompts = [place for place, part in enumerate(parts) if isinstance(part, UserPromptPart)]
        if prompts:
            parts.insert(prompts[-1], UserPromptPart(block))
            updated[at] = replace(message, parts=parts)
            break
    return updated


def _text_of(prompt: UserPromptPart) -> str:
    if isinstance(prompt.content, str):
        return prompt.content
    texts = (part.content if isinstance(part, TextContent) else part for part in prompt.content)
    return "\n".join(text for text in texts if isinstance(text, str))
