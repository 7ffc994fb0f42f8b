"""What asking an LLM costs while something is recalled: within the day's limits, and put down behind the answer."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from recollect.aio.deferred_writer import WAIT_S, DeferredWriter
from recollect.errors import BrokenAnswer, RecollectError
from recollect.ledger.ledger import Ledger
from recollect.ledger.llm_quota import quota_exceeded_reason
from recollect.model.change import Author, ModelUsage
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.usage import LlmQuota, day_number
from recollect.models.chat import AnsweringChat, ModelAnswer

if TYPE_CHECKING:
    from recollect.models.chat import Chat, ChatMessage


_log = logging.getLogger("recollect")
_BY = Author("recall")
# Sums of so many users, steps and models wait at most: a ledger that is away must not fill the memory.
_MAX_PENDING = 10_000

# User, day, step and model.
_UsageKey: TypeAlias = tuple[str, int, str, str]


class LlmBudget:
    """Knows what may be spent, collects what was, and writes it in one go; what cannot be written waits."""

    def __init__(self, ledger: Ledger, allowance: LlmQuota | None = None, *, wait_s: float = WAIT_S) -> None:
        self._ledger = ledger
        self._allowance = allowance or LlmQuota()
        self._pending: dict[_UsageKey, ModelUsage] = {}
        self._in_flight: dict[_UsageKey, ModelUsage] = {}
        self._has_failed = False
        self._writer = DeferredWriter(self._write, wait_s=wait_s)

    async def refusal(self, user: str) -> str:
        """Why no LLM is to be asked for the user now; empty if one may be.

        Where nothing is kept of a user there is nothing to find, and nobody on whose account it could be put.
        """
        if not (await self._ledger.revision(user)).number:
            return "nothing is kept of this user"
        if not self._allowance.user and not self._allowance.everyone:
            return ""
        today = day_number(now())
        unwritten = [
            spent for batch in (self._pending, self._in_flight) for key, spent in batch.items() if key[1] == today
        ]
        return await quota_exceeded_reason(
            self._ledger,
            user,
            self._allowance,
            unrecorded=_tokens([spent for spent in unwritten if spent.user == user]),
            unrecorded_total=_tokens(unwritten),
        )

    def record(self, spent: ModelUsage) -> None:
        """So much was spent."""
        key = (spent.user, day_number(spent.at), spent.step, spent.model)
        if key not in self._pending and len(self._pending) >= _MAX_PENDING:
            _log.warning("the ledger has been away for long: what the LLM cost is not recorded any more")
            return
        previous = self._pending.get(key)
        self._pending[key] = spent if previous is None else _add_usage(previous, spent)
        self._writer.schedule()

    async def close(self) -> None:
        """Write what waits."""
        await self._writer.close()
        if self._pending:
            lost = list(self._pending.values())
            _log.warning("%d calls to the LLM are not recorded: the ledger is away", sum(each.calls for each in lost))

    async def _write(self) -> bool:
        self._in_flight, self._pending = self._pending, {}
        try:
            for user in sorted({key[0] for key in self._in_flight}):
                await self._write_for(user)
        finally:
            # Whatever ended this: what is not in the ledger comes first the next time.
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
                _log.warning("could not record what the LLM cost: %s", error)
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


@dataclass(frozen=True, slots=True)
class MeteredChat:
    """A chat model that is asked for a user: within the day's limits, and every question is put down."""

    chat: Chat
    user: str
    budget: LlmBudget

    async def refusal(self) -> str:
        """Why it may not be asked now; empty if it may."""
        return await self.budget.refusal(self.user)

    async def ask(
        self, step: str, messages: Sequence[ChatMessage], *, max_tokens: int, timeout_s: float | None
    ) -> str:
        """What the model answers, for a step of ours.

        A question without an answer counts as a call all the same: whoever waited no longer may have to pay for it.
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
