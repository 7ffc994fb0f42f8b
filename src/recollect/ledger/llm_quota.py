"""The daily LLM quota of a user and of all users."""

from __future__ import annotations

from recollect.ledger.ledger import Ledger
from recollect.model.usage import LlmQuota


async def quota_exceeded_reason(
    ledger: Ledger, user: str, allowance: LlmQuota, *, unrecorded: int = 0, unrecorded_total: int = 0
) -> str:
    """Return why no LLM may be called for the user any more today; empty if one may.

    Tokens that are not in the ledger yet count too. Without a limit the ledger is not read.
    """
    if allowance.refusal:
        return allowance.refusal
    if allowance.user:
        spent = (await ledger.spent_today(user)).tokens + unrecorded
        if spent >= allowance.user:
            return f"the LLM has used today's {allowance.user:,} tokens of this user"
    if allowance.everyone:
        spent = (await ledger.spent_today(None)).tokens + unrecorded_total
        if spent >= allowance.everyone:
            return f"the LLM has used today's {allowance.everyone:,} tokens of all users"
    return ""
