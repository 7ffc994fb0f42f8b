"""The protocols of chat models, the values they return, and the model of a learning job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol, Required, TypeAlias, TypedDict, Unpack, runtime_checkable

from recollect.aio.breaker import Breaker
from recollect.errors import ModelUnavailable, RecollectError
from recollect.frozen_dataclass import frozen_dataclass

# {"role": "system" | "user" | "assistant", "content": "..."}
ChatMessage: TypeAlias = Mapping[str, str]

# How a model is made to answer in JSON: by the server, as the arguments of a function, or by asking for it.
Form: TypeAlias = Literal["schema", "tool", "prompt"]


@frozen_dataclass(kw_only=True)
class ModelAnswer:
    """An answer without its reasoning; tokens are 0 if the server does not count them."""

    text: str
    tokens_in: int = 0
    tokens_out: int = 0
    cut_off: bool = False


@frozen_dataclass(kw_only=True)
class ToolRequest:
    """A function call by the model; `arguments` is the text it wrote, JSON or not."""

    id: str
    name: str
    arguments: str


@frozen_dataclass(kw_only=True)
class ChatReply:
    """A text, which may be empty, and function calls; tokens are 0 if the server does not count them."""

    text: str = ""
    tool_requests: tuple[ToolRequest, ...] = ()
    tokens_in: int = 0
    tokens_out: int = 0
    cut_off: bool = False


class SamplingOptions(TypedDict, total=False):
    """The limits of one call; without `timeout_s` the model's own holds."""

    max_tokens: Required[int]
    temperature: float
    timeout_s: float | None


class CompleteOptions(SamplingOptions, total=False):
    """With a JSON `schema` the model is told to keep to it. It may still not: what it says must be checked."""

    schema: Mapping[str, Any] | None


class AnswerOptions(CompleteOptions, total=False):
    """The form in which an answer with a `schema` is requested: "schema" unless given."""

    form: Form


class ConverseOptions(SamplingOptions, total=False):
    """The tools that the model may call."""

    tools: Sequence[Mapping[str, Any]]


class Chat(Protocol):
    """Answers messages with a text."""

    @property
    def model(self) -> str: ...

    async def complete(self, messages: Sequence[ChatMessage], **options: Unpack[CompleteOptions]) -> str:
        """Return the answer without its reasoning; raise `ModelUnavailable` if there is none."""

    async def close(self) -> None: ...


@runtime_checkable
class AnsweringChat(Chat, Protocol):
    """A chat that also reports tokens, and supports JSON in several forms."""

    # The best form its server was found to understand; whoever finds out that it must be another one sets it.
    form: Form

    async def answer(self, messages: Sequence[ChatMessage], **options: Unpack[AnswerOptions]) -> ModelAnswer:
        """Return the answer with its cost; raise `BrokenAnswer` if it is empty.

        With a `schema`, the answer is asked for in that form. In the form "prompt" the schema is not sent: the
        messages must say what is wanted.
        """


@runtime_checkable
class GuardedChat(Chat, Protocol):
    """A chat behind a circuit breaker."""

    @property
    def breaker(self) -> Breaker: ...


class CompletionMixin:
    """Implements `complete` for a chat that has `answer`."""

    async def complete(
        self: AnsweringChat, messages: Sequence[ChatMessage], **options: Unpack[CompleteOptions]
    ) -> str:
        """Return the answer without its reasoning; raise `ModelUnavailable` if there is none."""
        return (await self.answer(messages, **options)).text


@runtime_checkable
class ConversingChat(Chat, Protocol):
    """A chat that supports tools, with messages in OpenAI's format."""

    async def converse(self, messages: Sequence[Mapping[str, Any]], **options: Unpack[ConverseOptions]) -> ChatReply:
        """Return the next message of the model and the tool calls in it.

        A server that does not know tools, or this request, is an InvalidInput; one that says nothing at all a
        BrokenAnswer.
        """


# Used where the server does not count tokens: a daily limit must hold there as well.
_CHARS_PER_TOKEN = 4


class LearningChat(CompletionMixin):
    """The model of one learning job.

    Until it `is_proven`, it is not asked twice: a server that answers every request with the same sentence would
    otherwise get two questions for each job. `error` is what a request last failed with, and `rejected` the answer
    that ended its use.
    """

    def __init__(self, chat: AnsweringChat, *, is_proven: bool = False, is_small: bool = False) -> None:
        self._chat = chat
        self.is_proven = is_proven
        self.is_small = is_small
        self.calls = 0
        self.error: RecollectError | None = None
        self.rejected: ModelAnswer | None = None

    @property
    def model(self) -> str:
        return self._chat.model

    @property
    def form(self) -> Form:
        """The best output format that its server is known to support."""
        return self._chat.form

    @form.setter
    def form(self, form: Form) -> None:
        self._chat.form = form

    async def answer(self, messages: Sequence[ChatMessage], **options: Unpack[AnswerOptions]) -> ModelAnswer:
        """Return the model's answer and its cost, estimated where the server does not count tokens."""
        self.calls += 1
        self.error = None
        try:
            answer = await self._chat.answer(messages, **options)
        except RecollectError as error:
            self.error = error
            raise
        answer = _with_cost(answer, messages)
        if (
            options.get("schema") is not None
            and not self.is_proven
            and "{" not in answer.text
            and "[" not in answer.text
        ):
            self.rejected = answer
            self.error = ModelUnavailable(f"{self.model} answered without JSON")
            raise self.error
        return answer

    async def close(self) -> None:
        """Do nothing: the model is shared by many jobs, and closed by its owner."""


def _with_cost(answer: ModelAnswer, messages: Sequence[ChatMessage]) -> ModelAnswer:
    if answer.tokens_in or answer.tokens_out:
        return answer
    input_chars = sum(len(message["content"]) for message in messages)
    return replace(
        answer, tokens_in=input_chars // _CHARS_PER_TOKEN + 1, tokens_out=len(answer.text) // _CHARS_PER_TOKEN + 1
    )
