"""Ask an LLM for a text or for JSON, and record the cost even if the answer is unusable or a later step fails."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Generic, TypeVar

from recollect.errors import BrokenAnswer, InvalidInput, InvalidSettings, ModelUnavailable, RecollectError
from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern
from recollect.ledger.ledger import Ledger
from recollect.model.change import Author, Effect, ModelUsage
from recollect.model.scope import Scope
from recollect.model.text import normalise_invisible
from recollect.model.times import now
from recollect.models.chat import AnsweringChat, Chat, ChatMessage, ModelAnswer
from recollect.models.structured import Partial, Structured, ask_json
from recollect.write.redact import redact

T = TypeVar("T")
_log = logging.getLogger("recollect")
# Enough for a model that reasons first; after a cut-off answer the limit is raised by the factor.
MAX_TEXT_TOKENS = 1_024
RETRY_TOKENS_FACTOR = 4
_MAX_REPEATED_CHARS = 2_000
_RETRY_PROMPT = "That cannot be used: {why}. Write it once more, and nothing else."
_LABEL = lazy_pattern(r"\A[#*_ ]{0,6}(?:updated |new )?summary(?:[*_ ]{0,4}:[*_ ]{0,4}|[*_ ]{0,4}\n)", re.IGNORECASE)
_FENCE = lazy_pattern(r"\A```[a-z]{0,20}\n|\n```\Z")


@frozen_dataclass
class LlmCost:
    """Calls of an LLM and the tokens they used."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    model: str = ""

    def __add__(self, other: LlmCost) -> LlmCost:
        return LlmCost(
            self.calls + other.calls,
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.model or other.model,
        )

    def usage(self, user: str, step: str, *, at: datetime | None = None) -> list[ModelUsage]:
        """Return the usage to record for a user; empty if there was no call."""
        if not self.calls:
            return []
        return [
            ModelUsage(
                user=user,
                step=step,
                model=self.model,
                calls=self.calls,
                tokens_in=self.tokens_in,
                tokens_out=self.tokens_out,
                at=at or now(),
            )
        ]


NO_COST = LlmCost()


@asynccontextmanager
async def record_cost_on_error(
    ledger: Ledger, scope: Scope, list_costs: Callable[[], Sequence[Effect]], *, by: Author
) -> AsyncIterator[None]:
    """Record the costs on their own if the block fails, since the write that would include them fails with it."""
    try:
        yield
    except Exception:
        if costs := list_costs():
            try:
                await ledger.apply(scope, [], by=by, effects=costs)
            except RecollectError as error:
                _log.warning("LLM cost could not be recorded: %s", error)
        raise


@frozen_dataclass
class LlmAnswer(Generic[T]):
    """A checked answer and its cost; `error` is why there is no usable value, `complaints` are about its parts."""

    value: T | None
    cost: LlmCost
    error: RecollectError | None = None
    complaints: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """Return why there is no usable value; empty if there is one."""
        if isinstance(self.error, InvalidInput):
            return f"the model rejected the request: {self.error}"
        return str(self.error or "")


async def ask_for_json(
    chat: Chat,
    prompt: str | Sequence[ChatMessage],
    *,
    schema: Mapping[str, Any],
    check: Callable[[object], T | Partial[T]],
    max_tokens: int,
    timeout_s: float | None = None,
) -> LlmAnswer[T]:
    """Ask for JSON that `check` accepts, with at most one corrective question.

    Raise ModelUnavailable if the model cannot be reached, and InvalidSettings if it is set up wrongly.
    """
    messages: Sequence[ChatMessage] = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    try:
        answer: Structured[T] = await ask_json(
            chat, messages, schema=schema, max_tokens=max_tokens, timeout_s=timeout_s, check=check
        )
    except BrokenAnswer as error:
        return LlmAnswer(None, LlmCost(error.calls, error.tokens_in, error.tokens_out, chat.model), error)
    except InvalidSettings:
        raise
    except InvalidInput as error:
        return LlmAnswer(None, LlmCost(model=chat.model), error)
    cost = LlmCost(answer.calls, answer.tokens_in, answer.tokens_out, answer.model)
    return LlmAnswer(answer.value, cost, complaints=answer.complaints)


async def ask_for_text(
    chat: Chat, prompt: str, *, check: Callable[[str], str], timeout_s: float | None = None
) -> LlmAnswer[str]:
    """Ask for a text, with at most one corrective question; `check` returns what is wrong with a text.

    Raise ModelUnavailable if the model cannot be reached, and InvalidSettings if it is set up wrongly.
    """
    messages: list[ChatMessage] = [{"role": "user", "content": prompt}]
    cost, reason, max_tokens = LlmCost(model=chat.model), "", MAX_TEXT_TOKENS
    for attempt in range(2):
        try:
            answer = await _answer(chat, messages, max_tokens=max_tokens, timeout_s=timeout_s)
        except BrokenAnswer as error:
            cost += LlmCost(error.calls, error.tokens_in, error.tokens_out)
            answer = ModelAnswer(text="", cut_off=error.cut_off)
        except InvalidSettings:
            raise
        except InvalidInput as error:
            # The server rejects this request: a retry cannot help.
            return LlmAnswer(None, cost, error)
        except ModelUnavailable:
            if not attempt:
                raise
            break
        else:
            cost += LlmCost(1, answer.tokens_in, answer.tokens_out)
        text = clean_answer(answer.text)
        reason = "it was cut off" if answer.cut_off else check(text)
        if not reason:
            return LlmAnswer(text, cost)
        max_tokens = MAX_TEXT_TOKENS * (RETRY_TOKENS_FACTOR if answer.cut_off else 1)
        messages = [
            messages[0],
            {"role": "assistant", "content": answer.text[:_MAX_REPEATED_CHARS].strip() or "(no answer)"},
            {"role": "user", "content": _RETRY_PROMPT.format(why=reason)},
        ]
    return LlmAnswer(None, cost, BrokenAnswer(reason))


async def _answer(
    chat: Chat, messages: Sequence[ChatMessage], *, max_tokens: int, timeout_s: float | None
) -> ModelAnswer:
    if isinstance(chat, AnsweringChat):
        return await chat.answer(messages, max_tokens=max_tokens, timeout_s=timeout_s)
    return ModelAnswer(text=await chat.complete(messages, max_tokens=max_tokens, timeout_s=timeout_s))


def clean_answer(text: str) -> str:
    """Return the text without secrets and without a fence, heading or quotation marks around it."""
    text = _FENCE.sub("", normalise_invisible(text).strip()).strip()
    text = _LABEL.sub("", text, count=1).strip()
    if len(text) > 1 and text[0] == text[-1] == '"' and '"' not in text[1:-1]:
        text = text[1:-1].strip()
    return redact(text).text
