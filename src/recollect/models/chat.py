"""What a chat model is: messages in, one text out; and, of those that can, what the answer cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

# {"role": "system" | "user" | "assistant", "content": "..."}
ChatMessage: TypeAlias = Mapping[str, str]

# How a model is made to answer in JSON: by the server, as the arguments of a function, or by asking for it.
Form: TypeAlias = Literal["schema", "tool", "prompt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """What a model answered, without its thinking; tokens are 0 where the server does not count them."""

    text: str
    tokens_in: int = 0
    tokens_out: int = 0
    cut_off: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRequest:
    """A function the model wants called; `arguments` are the text it wrote, JSON or not."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReply:
    """What a model said, which may be nothing, and what it wants called; tokens are 0 where nobody counts them."""

    text: str = ""
    tool_requests: tuple[ToolRequest, ...] = ()
    tokens_in: int = 0
    tokens_out: int = 0
    cut_off: bool = False


class Chat(Protocol):
    """Answers messages with a text."""

    @property
    def model(self) -> str: ...

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        timeout_s: float | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> str:
        """What the model answers, without its thinking; never empty, for no answer is a ModelUnavailable.

        With a JSON `schema` the model is told to keep to it. It may still not: what it says must be checked.
        """
        ...

    async def close(self) -> None: ...


@runtime_checkable
class AnsweringChat(Chat, Protocol):
    """A chat that also tells what an answer cost, and can be asked for JSON in several forms."""

    # The best form its server was found to understand; whoever finds out that it must be another one sets it.
    form: Form

    async def answer(
        self,
        messages: Sequence[ChatMessage],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        timeout_s: float | None = None,
        schema: Mapping[str, Any] | None = None,
        form: Form = "schema",
    ) -> ModelAnswer:
        """What `complete` gives, and what it cost; an answer that says nothing is a BrokenAnswer.

        With a `schema`, the answer is asked for in that form. In the form "prompt" the schema is not sent: the
        messages must say what is wanted.
        """
        ...


class CompletionMixin:
    """What `complete` is for a chat that tells what its answers cost."""

    async def complete(
        self: AnsweringChat,
        messages: Sequence[ChatMessage],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        timeout_s: float | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> str:
        """What the model answers, without its thinking; no answer is a ModelUnavailable."""
        answer = await self.answer(
            messages, max_tokens=max_tokens, temperature=temperature, timeout_s=timeout_s, schema=schema
        )
        return answer.text


@runtime_checkable
class ConversingChat(Chat, Protocol):
    """A chat that can be given tools, and takes messages as OpenAI's API has them."""

    async def converse(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        max_tokens: int,
        temperature: float = 0.0,
        timeout_s: float | None = None,
    ) -> ChatReply:
        """What the model says next, and which tools it wants called.

        A server that does not know tools, or this request, is an InvalidInput; one that says nothing at all a
        BrokenAnswer.
        """
        ...
