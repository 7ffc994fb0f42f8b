"""A chat model on probation: its cost is counted, and an answer without JSON ends its use at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from recollect.errors import ModelUnavailable, RecollectError
from recollect.models.chat import AnsweringChat, ChatMessage, CompletionMixin, Form, ModelAnswer

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
        """Return the model's answer and its cost, estimated where the server does not count tokens."""
        self.calls += 1
        self.error = None
        try:
            answer = await self._chat.answer(
                messages,
                max_tokens=max_tokens,
                temperature=temperature,
                timeout_s=timeout_s,
                schema=schema,
                form=form,
            )
        except RecollectError as error:
            self.error = error
            raise
        answer = _with_cost(answer, messages)
        if schema is not None and not self.is_proven and "{" not in answer.text and "[" not in answer.text:
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
