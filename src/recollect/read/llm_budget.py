"""Meter LLM calls during recall: enforce the daily quota, and record usage in the background."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from recollect.aio.background import WAIT_S, DeferredWriter
from recollect.errors import BrokenAnswer, RecollectError
from recollect.frozen_dataclass import frozen_dataclass
from recollect.ledger.ledger import Ledger, quota_exceeded_reason
from recollect.model.change import Author, ModelUsage
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.usage import LlmQuota, day_number
from recollect.models.chat import AnsweringChat, ModelAnswer

if TYPE_CHECKING:
    from recollect.models.chat import Chat, ChatMessage


_log = logging.getLogger("recollect")
_BY = Author("recall")
# Maximum number of pending sums: an unavailable ledger must not fill the memory.
_MAX_PENDING = 10_000

# User, day, step and model.
_UsageKey: TypeAlias = tuple[str, int, str, str]


class LlmBudget:
    """Checks the quota, collects usage and writes it in batches; usage that cannot be written is retried."""

    def __init__(self, ledger: Ledger, quota: LlmQuota | None = None, *, wait_s: float = WAIT_S) -> None:
        self._ledger = ledger
        self._quota = quota or LlmQuota()
        self._pending: dict[_UsageKey, ModelUsage] = {}
        self._in_flight: dict[_UsageKey, ModelUsage] = {}
        self._has_failed = False
        self._writer = DeferredWriter(self._write, wait_s=wait_s)

    async def refusal(self, user: str) -> str:
        """Return why no LLM may be called for the user now; empty if it may.

        Without any record of the user there is nothing to search, and no account for the cost.
        """
        if not (await self._ledger.revision(user)).number:
            return "the user has no memories"
        if not self._quota.user and not self._quota.everyone:
            return ""
        today = day_number(now())
        unwritten = [
            spent for batch in (self._pending, self._in_flight) for key, spent in batch.items() if key[1] == today
        ]
        return await quota_exceeded_reason(
            self._ledger,
            user,
            self._quota,
            unrecorded=_tokens([spent for spent in unwritten if spent.user == user]),
            unrecorded_total=_tokens(unwritten),
        )

    def record(self, spent: ModelUsage) -> None:
        """Add usage to the next write."""
        key = (spent.user, day_number(spent.at), spent.step, spent.model)
        if key not in self._pending and len(self._pending) >= _MAX_PENDING:
            _log.warning("LLM usage is no longer recorded: the ledger has been unavailable for too long")
            return
        previous = self._pending.get(key)
        self._pending[key] = spent if previous is None else _add_usage(previous, spent)
        self._writer.schedule()

    async def close(self) -> None:
        """Write pending usage."""
        await self._writer.close()
        if self._pending:
            lost = list(self._pending.values())
            _log.warning("%d LLM calls are not recorded: the ledger is unavailable", sum(each.calls for each in lost))

    async def _write(self) -> bool:
        self._in_flight, self._pending = self._pending, {}
        try:
            for user in sorted({key[0] for key in self._in_flight}):
                await self._write_for(user)
        finally:
            # After any failure: usage that is not in the ledger is written first the next time.
            for key, spent in self._in_flight.items():
                later = self._pending.get(key)
                self._pending[key] = spent if later is None else _add_usage(spent, later)
            self._in_flight = {}
        return bool(self._pending)

    async def _write_for(self, user: str) -> None:
        keys = [key for key in self._in_flight if key[0] == user]
        try:
            await self._ledger.apply(Scope(user), [], by=_BY, effects=[self._in_flight[key] for key in keys])
        except RecollectError as error:
            if not self._has_failed:
                _log.warning("LLM usage could not be recorded: %s", error)
            self._has_failed = True
            if error.retryable:
                return
        else:
            self._has_failed = False
        for key in keys:
            del self._in_flight[key]


def _add_usage(one: ModelUsage, other: ModelUsage) -> ModelUsage:
    return replace(
        one,
        calls=one.calls + other.calls,
        tokens_in=one.tokens_in + other.tokens_in,
        tokens_out=one.tokens_out + other.tokens_out,
    )


def _tokens(spent: Sequence[ModelUsage]) -> int:
    return sum(each.tokens_in + each.tokens_out for each in spent)


@frozen_dataclass
class MeteredChat:
    """A chat model for one user whose calls are checked against the quota and recorded."""

    chat: Chat
    user: str
    budget: LlmBudget

    async def refusal(self) -> str:
        """Return why the model may not be called now; empty if it may."""
        return await self.budget.refusal(self.user)

    async def ask(
        self, step: str, messages: Sequence[ChatMessage], *, max_tokens: int, timeout_s: float | None
    ) -> str:
        """Return the answer of the model to a step.

        A call that fails or times out is recorded too, because the provider may charge for it.
        """
        answer = ModelAnswer(text="")
        try:
            if isinstance(self.chat, AnsweringChat):
                answer = await self.chat.answer(messages, max_tokens=max_tokens, timeout_s=timeout_s)
            else:
                text = await self.chat.complete(messages, max_tokens=max_tokens, timeout_s=timeout_s)
                answer = ModelAnswer(text=text)
        except BrokenAnswer as error:
            answer = ModelAnswer(text="", tokens_in=error.tokens_in, tokens_out=error.tokens_out)
            raise
        finally:
            self.budget.record(
                ModelUsage(
                    user=self.user,
                    step=step,
                    model=self.chat.model,
                    tokens_in=answer.tokens_in,
                    tokens_out=answer.tokens_out,
                    at=now(),
                )
            )
        return answer.text
