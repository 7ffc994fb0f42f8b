"""Workers that are killed while they run jobs; the effects of each job can be counted afterwards."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from recollect.errors import Conflict
from recollect.ledger.ledger import Ledger
from recollect.model.change import Add, Change, ConversationUpdate, FinishJob, ModelUsage
from recollect.model.ids import new_id
from recollect.model.job import Job, JobKind, NewJob
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Role, Turn
from tests.drills.stores import open_store
from tests.drills.writers import BY, record

LEASE_S = 0.3
MAX_POLLS = 100


async def do_jobs(
    ledger: Ledger, *, until_idle_s: float | None = None, slow: bool = True, apart: bool = False
) -> int:
    """Lease and run jobs, for ever or until idle for so long; return how many were done."""
    done, idle_since, in_vain = 0, now(), 0
    # Only looking in vain counts as idle, not time in which the process was suspended.
    while until_idle_s is None or (now() - idle_since).total_seconds() < until_idle_s or in_vain < MAX_POLLS:
        in_vain += 1
        for job in await ledger.lease(worker="drill", limit=4, lease_s=LEASE_S):
            idle_since, in_vain = now(), 0
            # Like a call of a model: long enough to be killed while the job is leased.
            await asyncio.sleep(random.uniform(0, 0.02) if slow else 0)
            try:
                await learn(ledger, job, apart=apart)
                done += 1
            except Conflict:
                pass  # Another has taken it over.
        await asyncio.sleep(0.002)
    return done


async def learn(ledger: Ledger, job: Job, *, apart: bool) -> None:
    """Write down one thing for each turn that nothing was learned from yet, and finish the job, in one write.

    Broken on purpose, it takes two writes, a moment `apart`.
    """
    state = await ledger.conversation(job.scope)
    turns = await ledger.turns(job.scope, after=state.learned_to, limit=1000)
    scope = Scope(job.scope.user)
    assert job.lease is not None
    changes: list[Change] = [Add(record(scope, new_id(), f"{new_id()} learned from {turn.id}")) for turn in turns]
    effects = [
        FinishJob(job.id, job.lease, {"learned": len(turns)}),
        ConversationUpdate(job.scope, {"learned_to": max([state.learned_to, *(turn.position for turn in turns)])}),
        ModelUsage(user=scope.user, step="extract", model="drill", calls=1, tokens_in=len(turns), at=now()),
    ]
    if apart:
        await ledger.apply(scope, changes, by=BY)
        changes = []
        await asyncio.sleep(0.01)
    await ledger.apply(scope, changes, by=BY, effects=effects)


async def talk(ledger: Ledger, notes: Path, number: int) -> None:
    """Append turns for ever, each with a job, and note each that was acknowledged."""
    scope = Scope(f"user {number}", "", "s")
    with notes.open("a") as stored:
        while True:
            text = Turn(id=new_id(), scope=scope, role=Role.USER, content=new_id(), said_at=now())
            job = NewJob(kind=JobKind.EXTRACT, key="s")
            await ledger.append(scope, [text], vectors=[None], by=BY, jobs=[job])
            stored.write(f"{text.id}\n")
            stored.flush()
            await asyncio.sleep(random.uniform(0, 0.02))


async def talk_and_work(address: str, notes: Path, number: int, apart: bool) -> None:
    """Append turns and run jobs until the process is killed."""
    ledger = await open_store(address)
    talkers = (talk(ledger, notes / f"{number}-{n}", n) for n in range(4))
    await asyncio.gather(*talkers, *(do_jobs(ledger, apart=apart) for _ in range(2)))


async def do_some(address: str, meet: object, answers: object) -> None:
    """Run jobs concurrently with other processes until none is left; put the count into the queue."""
    ledger = await open_store(address)
    meet.wait()  # type: ignore[attr-defined]
    done = await do_jobs(ledger, until_idle_s=4 * LEASE_S, slow=False)
    await ledger.close()
    answers.put(done)  # type: ignore[attr-defined]
