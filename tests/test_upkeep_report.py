"""Reports: what every chore tells in plain values, and what a run promises."""

from __future__ import annotations

import json
from pathlib import Path

from upkeep_samples import ANN, days, keep, ledger_in, memory, run

from recollect.model.change import Author, ChangeKind
from recollect.model.effect import FinishJob
from recollect.model.job import JobKind, JobState, NewJob
from recollect.upkeep.expire import expire
from recollect.upkeep.prune import prune
from recollect.upkeep.quota import Quotas, enforce_quotas
from recollect.upkeep.report import MaintenanceReport, MaintenanceStep, MaintenanceTask
from recollect.upkeep.run import MaintenanceRun


def test_a_report_is_plain_json() -> None:
    step = MaintenanceStep(
        verb=ChangeKind.ADD, id="m", content="one of two", why="they speak of the same", sources=("a", "b")
    )
    report = MaintenanceReport(
        chore=MaintenanceTask.CONSOLIDATE, user="ann", batch="b", steps=(step,), left=("c: no",), calls=1
    )
    plain = json.loads(json.dumps(report.to_dict()))
    assert plain["steps"] == [
        {"verb": "add", "id": "m", "memory": "one of two", "why": "they speak of the same", "sources": ["a", "b"]}
    ]
    assert (plain["chore"], plain["user_id"], plain["left"], plain["calls"]) == ("consolidate", "ann", ["c: no"], 1)


def test_every_run_is_a_batch_of_its_own() -> None:
    batches = {
        MaintenanceRun().by.batch,
        MaintenanceRun().by.batch,
        MaintenanceRun(by=Author("me")).by.batch,
        MaintenanceRun(by=Author("me", batch="given")).by.batch,
    }
    assert len(batches) == 4
    assert "given" in batches
    assert None not in batches


async def test_the_job_that_a_chore_is_ends_with_it_even_if_there_was_nothing_to_do(tmp_path: Path) -> None:
    async with ledger_in(tmp_path) as ledger:
        await keep(ledger, memory("parked", age_days=2, expires_at=days(1)))
        for task in (
            lambda each: expire(ANN, ledger=ledger, run=each),
            lambda each: prune(ANN, ledger=ledger, run=each),
            lambda each: enforce_quotas(ANN, ledger=ledger, run=each, quotas=Quotas(user=5)),
        ):
            await ledger.enqueue(ANN, [NewJob(kind=JobKind.UPKEEP)])
            [job] = await ledger.lease(worker="w", limit=1, lease_s=60)
            await task(run(effects=(FinishJob(job.id, job.lease or ""),)))
            assert (await ledger.job("ann", job.id)).state is JobState.DONE
