"""What a batch of changes brings about beside memories, in its transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from recollect.ledger.sql.conversations import note
from recollect.ledger.sql.job_rows import hold, put_job
from recollect.ledger.sql.leases import finish
from recollect.ledger.sql.tx import Tx
from recollect.ledger.sql.usage import spend, spend_for_all
from recollect.model.effect import Effect, Finish, Note, Queue, Spent
from recollect.model.scope import Scope


async def take_effect(tx: Tx, scope: Scope, effects: Sequence[Effect]) -> None:
    """Bring them about in order; whoever calls holds the user."""
    # A job can outlive the session it was made for, which must not come back by it.
    from_job = any(isinstance(effect, Finish) for effect in effects)
    for effect in effects:
        match effect:
            case Finish():
                await finish(tx, scope.user, effect.job_id, effect.lease, result=effect.result)
            case Note():
                await note(tx, effect, known_only=from_job)
            case Queue():
                await put_job(tx, await hold(tx, scope.user), effect.scope, effect.job)
            case Spent():
                await spend(tx, effect)
            case _:
                assert_never(effect)
    await add_to_all(tx, effects)


async def add_to_all(tx: Tx, effects: Sequence[Effect]) -> None:
    """Add what was spent to the sum of all users."""
    # In the order of days, which everyone keeps to: nobody waits in a circle.
    for spent in sorted((effect for effect in effects if isinstance(effect, Spent)), key=lambda each: each.at):
        await spend_for_all(tx, spent)
