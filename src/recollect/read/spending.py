"""What asking an LLM costs while something is recalled: within the day's limits, and put down behind the answer."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from recollect.errors import BrokenAnswer, RecollectError
from recollect.ledger.allowance import refusal
from recollect.ledger.protocol import Ledger
from recollect.model.change import By
from recollect.model.effect import Spent
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.usage import Allowance, day_number
from recollect.models.chat import Answer, AnsweringChat
from recollect.read.behind import WAIT_S, Behind

if TYPE_CHECKING:
    from recollect.models.chat import Chat, ChatMessage

_log = logging.getLogger("recollect")
_BY = By("recall")
# Sums of so many users, steps and models wait at most: a ledger that is away must not fill the memory.
_MOST_WAITING = 10_000

# User, day, step and model.
_Place: TypeAlias = tuple[str, int, str, str]


class Spending:
    """Knows what may be spent, collects what was, and writes it in one go; what cannot be written waits."""

    def __init__(self, ledger: Ledger, allowance: Allowance | None = None, *, wait_s: float = WAIT_S) -> None:
        self._ledger = ledger
        self._allowance = allowance or Allowance()
        self._waiting: dict[_Place, Spent] = {}
        self._being_written: dict[_Place, Spent] = {}
        self._failed = False
        self._behind = Behind(self._write, wait_s=wait_s)

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
            spent for held in (self._waiting, self._being_written) for at, spent in held.items() if at[1] == today
        ]
        return await refusal(
            self._ledger,
            user,
            self._allowance,
            unwritten=_tokens([spent for spent in unwritten if spent.user == user]),
            unwritten_by_all=_tokens(unwritten),
        )

    def note(self, spent: Spent) -> None:
        """So much was spent."""
        place = (spent.user, day_number(spent.at), spent.step, spent.model)
        if place not in self._waiting and len(self._waiting) >= _MOST_WAITING:
            _log.warning("the ledger has been away for long: what the LLM cost is not recorded any more")
            return
        before = self._waiting.get(place)
        self._waiting[place] = spent if before is None else _sum(before, spent)
        self._behind.nudge()

    async def close(self) -> None:
        """Write what waits."""
        await self._behind.close()
        if self._waiting:
            lost = list(self._waiting.values())
            _log.warning("%d calls to the LLM are not recorded: the ledger is away", sum(each.calls for each in lost))

    async def _write(self) -> bool:
        self._being_written, self._waiting = self._waiting, {}
        try:
            for user in sorted({place[0] for place in self._being_written}):
                await self._write_for(user)
        finally:
            # Whatever ended this: what is not in the ledger comes first the next time.
            for place, spent in self._being_written.items():
                later = self._waiting.get(place)
                self._waiting[place] = spent if later is None else _sum(spent, later)
            self._being_written = {}
        return bool(self._waiting)

    async def _write_for(self, user: str) -> None:
        places = [place for place in self._being_written if place[0] == user]
        try:
            await self._ledger.apply(
                Scope(user), [], by=_BY, effects=[self._being_written[place] for place in places]
            )
        except RecollectError as error:
            if not self._failed:
                _log.warning("could not record what the LLM cost: %s", error)
            self._failed = True
            if error.retryable:
                return
        else:
            self._failed = False
        for place in places:
            del self._being_written[place]


def _sum(one: Spent, other: Spent) -> Spent:
    return replace(
        one,
        calls=one.calls + other.calls,
        tokens_in=one.tokens_in + other.tokens_in,
        tokens_out=one.tokens_out + other.tokens_out,
    )


def _tokens(spent: Sequence[Spent]) -> int:
    return sum(each.tokens_in + each.tokens_out for each in spent)


@dataclass(frozen=True, slots=True)
class OnAccount:
    """A chat model that is asked for a user: within the day's limits, and every question is put down."""

    chat: Chat
    user: str
    spending: Spending

    async def refusal(self) -> str:
        """Why it may not be asked now; empty if it may."""
        return await self.spending.refusal(self.user)

    async def ask(
        self, step: str, messages: Sequence[ChatMessage], *, max_tokens: int, timeout_s: float | None
    ) -> str:
        """What the model answers, for a step of ours.

        A question without an answer counts as a call all the same: whoever waited no longer may have to pay for it.
        """
        cost = Answer(text="")
        try:
            if isinstance(self.chat, AnsweringChat):
                cost = await self.chat.answer(messages, max_tokens=max_tokens, timeout_s=timeout_s)
            else:
                text = await self.chat.complete(messages, max_tokens=max_tokens, timeout_s=timeout_s)
                cost = Answer(text=text)
        except BrokenAnswer as error:
            cost = Answer(text="", tokens_in=error.tokens_in, tokens_out=error.tokens_out)
            raise
        finally:
            self.spending.note(
                Spent(
                    user=self.user,
                    step=step,
                    model=self.chat.model,
                    tokens_in=cost.tokens_in,
                    tokens_out=cost.tokens_out,
                    at=now(),
                )
            )
        return cost.text
