"""The schedule: hourly and nightly tasks, idle sessions, and wrong clocks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from recollect.config.fields import QuotaSettings
from recollect.ledger.types import MaintenanceState, TaskRun
from recollect.maintenance.forgetting import enforce_quotas, expire, prune
from recollect.maintenance.scheduler import HOURLY, MaintenanceSchedule, due_jobs, ended_sessions
from recollect.maintenance.tasks import MaintenanceReport, MaintenanceRun, MaintenanceStep, MaintenanceTask
from recollect.model.change import Author, ChangeKind, EnqueueJob, FinishJob
from recollect.model.job import JobKind, JobState, MaintenancePayload, NewJob
from recollect.model.scope import Scope
from recollect.model.turn import Conversation
from tests.support.maintenance_samples import ANN, days, keep, ledger_in, memory, run

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
ALL = MaintenanceSchedule(tasks=frozenset(MaintenanceTask))
DONE_NOW = dict.fromkeys(MaintenanceTask, NOON)


def talk(user: str = "ann", project: str = "", *, hours: float = 0.1, closed: bool = False) -> Conversation:
    said_at = NOON - timedelta(hours=hours)
    return Conversation(
        scope=Scope(user, project, f"talk {hours:g}"), last_turn_at=said_at, closed_at=said_at if closed else None
    )


def who(
    user: str = "ann", *, hours: float | None = 0.1, last: Any = None, projects: tuple[str, ...] = ()
) -> MaintenanceState:
    """Return a user who was active `hours` ago, with the last runs of tasks."""
    started = {
        ("", str(task)): at if isinstance(at, TaskRun) else TaskRun(at, at) for task, at in (last or {}).items()
    }
    active_at = None if hours is None else NOON - timedelta(hours=hours)
    return MaintenanceState(user=user, last_active_at=active_at, projects=projects, tasks=started)


def task_names(results: Iterable[EnqueueJob]) -> list[str]:
    return [payload_of(each.job).chore for each in results]


def payload_of(job: NewJob) -> MaintenancePayload:
    assert isinstance(job.payload, MaintenancePayload)
    return job.payload


def due_for(
    *users: MaintenanceState, now: datetime = NOON, schedule: MaintenanceSchedule = ALL
) -> tuple[EnqueueJob, ...]:
    return due_jobs(users, now=now, schedule=schedule)


def test_all_tasks_are_due_for_a_new_user() -> None:
    assert task_names(due_for(who())) == [*MaintenanceTask]


def test_by_default_only_hourly_tasks_run() -> None:
    assert task_names(due_for(who(), schedule=MaintenanceSchedule())) == [*HOURLY]


def test_hourly_tasks_are_due_after_an_hour() -> None:
    just_before, after = (NOON + timedelta(minutes=minutes) for minutes in (59, 60))
    assert task_names(due_for(who(last=DONE_NOW), now=just_before)) == []
    assert task_names(due_for(who(last=DONE_NOW), now=after)) == ["expire", "quota"]


def test_nightly_tasks_wait_for_the_night() -> None:
    last = dict.fromkeys(MaintenanceTask, NOON - timedelta(hours=1))
    two, four = (NOON.replace(day=16, hour=hour) for hour in (2, 4))
    assert task_names(due_for(who(last=last), now=two)) == ["expire", "quota"]
    assert task_names(due_for(who(last=last), now=four)) == [*MaintenanceTask]
    assert task_names(due_for(who(last={**last, MaintenanceTask.REFLECT: four}), now=four + timedelta(hours=1))) == [
        "expire", "quota", "prune", "consolidate",
    ]  # fmt: skip


def test_nightly_tasks_skip_inactive_users() -> None:
    last = dict.fromkeys(MaintenanceTask, NOON - timedelta(days=3))
    assert task_names(due_for(who(hours=None, last=last))) == ["expire", "quota"]
    assert task_names(due_for(who(hours=24 * 4, last=last))) == ["expire", "quota"]
    assert task_names(due_for(who(hours=24, last=last))) == [*MaintenanceTask]


def test_a_run_recorded_in_the_future_is_ignored() -> None:
    ahead = dict.fromkeys(MaintenanceTask, NOON + timedelta(days=3652))
    results = due_for(who(last=ahead))
    assert task_names(results) == [*MaintenanceTask]
    assert {payload_of(each.job).after for each in results} == {None}


def test_a_task_considers_changes_since_the_start_of_the_last_run() -> None:
    began = TaskRun(NOON - timedelta(days=1), NOON - timedelta(days=2))
    [job] = [each.job for each in due_for(who(last={**DONE_NOW, MaintenanceTask.CONSOLIDATE: began}))]
    assert (job.kind, payload_of(job).after) == (JobKind.CONSOLIDATE, NOON - timedelta(days=2))


def test_a_failed_task_is_repeated_the_next_night_for_all_changes() -> None:
    failed = TaskRun(NOON - timedelta(days=1))
    [job] = [each.job for each in due_for(who(hours=24 * 9, last={**DONE_NOW, MaintenanceTask.CONSOLIDATE: failed}))]
    assert (job.kind, payload_of(job).after) == (JobKind.CONSOLIDATE, None)
    tonight = TaskRun(NOON - timedelta(hours=1))
    assert due_for(who(last={**DONE_NOW, MaintenanceTask.CONSOLIDATE: tonight})) == ()


def test_each_project_has_its_own_reflection() -> None:
    last = {task: NOON for task in MaintenanceTask if task is not MaintenanceTask.REFLECT}
    results = due_for(who(last=last, projects=("", "home", "work")))
    scopes = [(each.scope, each.job.key) for each in results]
    assert scopes == [
        (ANN, "reflect"),
        (Scope("ann", "home"), "reflect:home"),
        (Scope("ann", "work"), "reflect:work"),
    ]


def test_maintenance_has_a_low_priority_and_is_spread_over_time() -> None:
    results = due_for(*map(who, ("ann", "bob", "eve")), schedule=MaintenanceSchedule())
    assert all(each.job.priority < 0 for each in results)
    moments = {each.job.due_at for each in results}
    assert len(moments) == 3
    assert all(NOON <= (moment or NOON) <= NOON + timedelta(minutes=10) for moment in moments)


def test_a_session_ends_after_the_idle_time() -> None:
    idle, lively, closed = talk(hours=0.5), talk(hours=0.4), talk(hours=9, closed=True)
    silent = Conversation(scope=Scope("ann", "", "never"))
    results = ended_sessions([idle, lively, closed, silent], now=NOON, schedule=ALL)
    assert [(each.scope, each.job.kind) for each in results] == [(idle.scope, JobKind.CLOSE)]
    assert ended_sessions([idle], now=NOON, schedule=replace(ALL, idle_s=0)) == ()


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


def test_every_run_has_its_own_batch() -> None:
    batches = {
        MaintenanceRun().by.batch,
        MaintenanceRun().by.batch,
        MaintenanceRun(by=Author("me")).by.batch,
        MaintenanceRun(by=Author("me", batch="given")).by.batch,
    }
    assert len(batches) == 4
    assert "given" in batches
    assert None not in batches


async def test_a_task_finishes_its_job_even_without_changes(tmp_path: Path) -> None:
    async with ledger_in(tmp_path) as ledger:
        await keep(ledger, memory("parked", age_days=2, expires_at=days(1)))
        for task in (
            lambda each: expire(ANN, ledger=ledger, run=each),
            lambda each: prune(ANN, ledger=ledger, run=each),
            lambda each: enforce_quotas(ANN, ledger=ledger, run=each, quotas=QuotaSettings(quota_user=5)),
        ):
            await ledger.enqueue(ANN, [NewJob(kind=JobKind.UPKEEP)])
            [job] = await ledger.lease(worker="w", limit=1, lease_s=60)
            await task(run(effects=(FinishJob(job.id, job.lease or ""),)))
            assert (await ledger.job("ann", job.id)).state is JobState.DONE
