"""The timetable: chores by the hour and by the night, sessions that ended by themselves, clocks that went wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from upkeep_samples import ANN, ledger_in

from recollect.errors import InvalidInput
from recollect.model.job import JobKind, NewJob
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Conversation
from recollect.upkeep.report import Chore
from recollect.upkeep.schedule import HOURLY, Due, Timetable, due, last_runs

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
ALL = Timetable(chores=frozenset(Chore))
DONE_NOW = dict.fromkeys(Chore, NOON)


def talk(user: str = "ann", project: str = "", *, hours: float = 0.1, closed: bool = False) -> Conversation:
    said_at = NOON - timedelta(hours=hours)
    return Conversation(
        scope=Scope(user, project, f"talk {hours:g}"), last_turn_at=said_at, closed_at=said_at if closed else None
    )


def chores(found: Iterable[Due]) -> list[str]:
    return [str(each.job.payload["chore"]) for each in found if each.job.kind is not JobKind.CLOSE]


def asked(*said: Conversation, last: Any = None, now: datetime = NOON, timetable: Timetable = ALL) -> tuple[Due, ...]:
    return due(said, {} if last is None else {"ann": last}, now=now, timetable=timetable)


def test_a_new_user_has_everything_done_once() -> None:
    assert chores(asked(talk())) == [*Chore]


def test_by_default_only_what_costs_nothing_is_done() -> None:
    assert chores(asked(talk(), timetable=Timetable())) == [*HOURLY]


def test_hourly_chores_are_due_after_an_hour() -> None:
    just_before, after = (NOON + timedelta(minutes=minutes) for minutes in (59, 60))
    assert chores(asked(talk(), last=DONE_NOW, now=just_before)) == []
    assert chores(asked(talk(), last=DONE_NOW, now=after)) == ["expire", "quota"]


def test_nightly_chores_wait_for_the_night() -> None:
    last = dict.fromkeys(Chore, NOON - timedelta(hours=1))
    two, four = (NOON.replace(day=16, hour=hour) for hour in (2, 4))
    heard = talk()
    assert chores(asked(heard, last=last, now=two)) == ["expire", "quota"]
    assert chores(asked(heard, last=last, now=four)) == [*Chore]
    assert chores(asked(heard, last={**last, Chore.REFLECT: four}, now=four + timedelta(hours=1))) == [
        "expire", "quota", "prune", "consolidate",
    ]  # fmt: skip


def test_a_user_of_whom_nothing_was_heard_is_not_thought_about() -> None:
    last = dict.fromkeys(Chore, NOON - timedelta(days=3))
    assert chores(asked(last=last)) == ["expire", "quota"]
    assert chores(asked(talk(hours=24 * 4), last=last)) == ["expire", "quota"]
    assert chores(asked(talk(hours=24), last=last)) == [*Chore]


def test_a_run_in_a_future_that_never_came_is_no_reason_to_wait() -> None:
    ahead = dict.fromkeys(Chore, NOON + timedelta(days=3652))
    assert chores(asked(talk(), last=ahead)) == [*Chore]


def test_consolidating_and_reflecting_are_told_what_is_new() -> None:
    last = {**DONE_NOW, Chore.CONSOLIDATE: NOON - timedelta(days=2)}
    [job] = [each.job for each in asked(talk(), last=last)]
    assert (job.kind, job.payload["after"]) == (JobKind.CONSOLIDATE, "2026-11-13T12:00:00+00:00")


def test_each_project_is_reflected_on_by_itself() -> None:
    last = {chore: NOON for chore in Chore if chore is not Chore.REFLECT}
    found = asked(talk(), talk(project="work", hours=0.2), talk(project="home", hours=0.3), last=last)
    scopes = [(each.scope, each.job.key) for each in found]
    assert scopes == [
        (ANN, "reflect"),
        (Scope("ann", "home"), "reflect:home"),
        (Scope("ann", "work"), "reflect:work"),
    ]


def test_learning_comes_before_upkeep_and_users_do_not_all_come_at_once() -> None:
    found = due([talk(user) for user in ("ann", "bob", "eve")], {}, now=NOON, timetable=Timetable())
    assert all(each.job.priority < 0 for each in found)
    moments = {each.job.due_at for each in found}
    assert len(moments) == 3
    assert all(NOON <= (moment or NOON) <= NOON + timedelta(minutes=10) for moment in moments)


def test_a_session_ends_when_nothing_was_said_for_half_an_hour() -> None:
    idle, lively, closed = talk(hours=0.5), talk(hours=0.4), talk(hours=9, closed=True)
    silent = Conversation(scope=Scope("ann", "", "never"))
    found = asked(idle, lively, closed, silent, last=DONE_NOW)
    assert [(each.scope, each.job.kind) for each in found] == [(idle.scope, JobKind.CLOSE)]
    never = replace(ALL, idle_s=0)
    assert asked(idle, last=DONE_NOW, timetable=never) == ()


async def test_asking_twice_queues_one_job_and_what_was_done_is_known_again(tmp_path: Path) -> None:
    async with ledger_in(tmp_path) as ledger:
        for _ in range(2):
            for each in due([], {"ann": {}}, now=now(), timetable=Timetable(spread_s=0)):
                await ledger.enqueue(each.scope, [each.job])
        await ledger.enqueue(ANN, [NewJob(kind=JobKind.EXTRACT, priority=-100)])
        assert len(await ledger.jobs("ann")) == 3
        while taken := await ledger.lease(worker="w", limit=1, lease_s=60, kinds=[JobKind.UPKEEP]):
            await ledger.finish(taken[0])
        jobs = await ledger.jobs()
        ended = max(each.updated_at for each in jobs)
        done = last_runs(jobs, now=ended)
        assert done["ann"].keys() == {*HOURLY}
        assert due([], done, now=ended, timetable=Timetable()) == ()
        # By a clock that was put back, nothing of it has happened yet.
        assert last_runs(jobs, now=ended - timedelta(days=1)) == {}


@pytest.mark.parametrize("wrong", [{"night_hour": 24}, {"every_s": 0}, {"spread_s": -1}, {"idle_s": -1}])
def test_a_timetable_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Timetable(**wrong)
