"""What a batch of changes brings about beside memories, in its transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from recollect.ledger.sql.conversations import apply_note
from recollect.ledger.sql.job_rows import lock_jobs, put_job
from recollect.ledger.sql.leases import finish
from recollect.ledger.sql.tx import Tx
from recollect.ledger.sql.usage import add_to_daily_total, add_usage
from recollect.model.effect import ConversationUpdate, Effect, EnqueueJob, FinishJob, ModelUsage
from recollect.model.scope import Scope


async def apply_effects(tx: Tx, scope: Scope, effects: Sequence[Effect]) -> None:
    """Bring them about in order; whoever calls holds the user."""
    # A job can outlive the session it was made for, which must not come back by it.
    from_job = any(isinstance(effect, FinishJob) for effect in effects)
    for effect in effects:
        match effect:
            case FinishJob():
                await finish(tx, scope.user, effect.job_id, effect.lease, result=effect.result)
            case ConversationUpdate():
                await apply_note(tx, effect, existing_only=from_job)
            case EnqueueJob():
                await put_job(tx, await lock_jobs(tx, scope.user), effect.scope, effect.job)
            case ModelUsage():
                await add_usage(tx, effect)
            case _:
                assert_never(effect)
    await add_to_totals(tx, effects)


async def add_to_totals(tx: Tx, effects: Sequence[Effect]) -> None:
    """Add what was spent to the sum of all users."""
    # In the order of days, which everyone keeps to: nobody waits in a circle.
    for spent in sorted((effect for effect in effects if isinstance(effect, ModelUsage)), key=lambda each: each.at):
        await add_to_daily_total(tx, spent)
