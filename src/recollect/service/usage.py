"""LLM cost: recorded per user, reported, and checked against the daily limits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from recollect.ledger.ledger import Ledger, quota_exceeded_reason
from recollect.model.change import Author, ModelUsage
from recollect.model.scope import Scope
from recollect.model.usage import LlmQuota, Part, SpentToday, Usage


class UsageService:
    """Record and report LLM calls and tokens."""

    def __init__(self, ledger: Ledger, quota: LlmQuota) -> None:
        self._ledger, self._quota = ledger, quota

    async def refusal(self, user: str) -> str:
        """Return why the LLM may not be called for the user today, or an empty text."""
        return await quota_exceeded_reason(self._ledger, user, self._quota)

    async def record(self, spent: ModelUsage) -> None:
        """Record LLM calls made outside of the service, such as those of an agent."""
        await self._ledger.apply(Scope(spent.user), [], by=Author(spent.step), effects=[spent])

    async def report(
        self, user: str | None = None, *, since: datetime | None = None, by: Sequence[Part] = ("day", "model", "step")
    ) -> list[Usage]:
        """Return calls and tokens of a user or of all users, grouped by the parts."""
        return await self._ledger.usage(user, since=since, by=by)

    async def spent_today(self, user: str | None = None) -> SpentToday:
        """Return calls and tokens since midnight UTC."""
        return await self._ledger.spent_today(user)
