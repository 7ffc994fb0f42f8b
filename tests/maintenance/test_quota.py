"""Quotas of users, projects and sessions forget the weakest memories first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recollect.config.fields import QuotaSettings
from recollect.ledger.ledger import Ledger
from recollect.maintenance.forgetting import enforce_quotas
from recollect.maintenance.tasks import MaintenanceReport
from recollect.model.change import Author
from recollect.model.memory import Category, Status
from recollect.model.scope import Level, Scope
from tests.support.maintenance_samples import (
    ANN,
    contents,
    days,
    keep,
    ledger_in,
    memory,
    reported_contents,
    run,
    snapshot,
    undo,
)


def quota(**limits: Any) -> QuotaSettings:
    return QuotaSettings(**{f"quota_{name}": value for name, value in limits.items()})


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    async with ledger_in(tmp_path) as ledger:
        yield ledger


async def keep_to(ledger: Ledger, **limits: Any) -> MaintenanceReport:
    return await enforce_quotas(ANN, ledger=ledger, run=run(), quotas=quota(**limits))


async def test_a_session_quota_forgets_the_oldest(ledger: Ledger) -> None:
    talk, other = Scope("ann", "", "talk"), Scope("ann", "", "other")
    await keep(ledger, *(memory(f"talk {n}", scope=talk, age_days=60 - n) for n in range(53)))
    await keep(ledger, *(memory(f"other {n}", scope=other) for n in range(50)), memory("of the user"))
    report = await keep_to(ledger, session=50, order="oldest")
    assert reported_contents(report) == {"talk 0", "talk 1", "talk 2"}
    assert len(await contents(ledger)) == 101


async def test_a_user_quota_exempts_summaries(ledger: Ledger) -> None:
    await keep(ledger, memory("what it was all about", category=Category.SUMMARY, age_days=900))
    await keep(ledger, *(memory(f"entry {n}", age_days=600 - n, importance=1.0 - n / 1000) for n in range(502)))
    report = await keep_to(ledger, user=500, order="oldest")
    assert reported_contents(report) == {"entry 0", "entry 1"}
    assert "what it was all about" in await contents(ledger)


async def test_the_weakest_are_forgotten_first(ledger: Ledger) -> None:
    await keep(
        ledger,
        memory("trivial", importance=0.1, age_days=10),
        memory("trivial but recalled daily", importance=0.1, age_days=10, access_count=30, last_accessed_at=days(0)),
        memory("vital", importance=1.0, age_days=300),
        memory("middling and new", importance=0.5),
        memory("middling and old", importance=0.5, age_days=400),
    )
    assert [step.content for step in (await keep_to(ledger, user=3)).steps] == ["middling and old", "trivial"]


async def test_new_memories_are_spared(ledger: Ledger) -> None:
    await keep(
        ledger,
        *(memory(f"vital {n}", importance=0.9, age_days=5) for n in range(3)),
        memory("old and trivial", importance=0.1, age_days=9),
        memory("new and trivial", importance=0.1, age_days=0),
        memory("newer and trivial", importance=0.1, age_days=-0.001),
    )
    just = replace(run(), since=days(1))
    going = {
        step.content for step in (await enforce_quotas(ANN, ledger=ledger, run=just, quotas=quota(user=4))).steps
    }
    assert going == {"old and trivial", "vital 0"}


async def test_without_new_memories_the_weakest_are_forgotten(ledger: Ledger) -> None:
    await keep(ledger, memory("vital", importance=0.9, age_days=5), memory("trivial", importance=0.1, age_days=4))
    just = replace(run(), since=days(1))
    assert reported_contents(await enforce_quotas(ANN, ledger=ledger, run=just, quotas=quota(user=1))) == {"trivial"}


async def test_new_memories_are_spared_up_to_the_quota(ledger: Ledger) -> None:
    await keep(ledger, *(memory(f"new {n}", importance=0.1 * n) for n in range(1, 6)))
    just = replace(run(), since=days(1))
    assert len(reported_contents(await enforce_quotas(ANN, ledger=ledger, run=just, quotas=quota(user=2)))) == 3


async def test_lasting_memories_are_forgotten_last(ledger: Ledger) -> None:
    await keep(
        ledger,
        memory("allergic to peanuts", category=Category.CONSTRAINT, importance=0.6, age_days=2000),
        memory("saw a film", importance=0.9),
    )
    assert reported_contents(await keep_to(ledger, user=1)) == {"saw a film"}


async def test_a_project_quota_counts_its_sessions(ledger: Ledger) -> None:
    work, talk = Scope("ann", "work"), Scope("ann", "work", "talk")
    await keep(
        ledger,
        memory("project, oldest", scope=work, age_days=9),
        memory("session", scope=talk, level=Level.SESSION, age_days=8),
        memory("project, newest", scope=work, age_days=7),
        memory("user, oldest", age_days=99),
        memory("user", age_days=6),
    )
    assert reported_contents(await keep_to(ledger, project=2, order="oldest")) == {"project, oldest"}
    assert reported_contents(await keep_to(ledger, project=2, user=3, order="oldest")) == {"user, oldest"}


async def test_overlapping_quotas_forget_no_more_than_needed(ledger: Ledger) -> None:
    work = Scope("ann", "work")
    await keep(ledger, *(memory(f"p{n}", scope=work, age_days=9 - n) for n in range(4)), memory("u", age_days=99))
    # Two of the project go for its own sake; three are left, and that is what the user may have.
    assert reported_contents(await keep_to(ledger, project=2, user=3, order="oldest")) == {"p0", "p1"}


async def test_turns_do_not_count(ledger: Ledger) -> None:
    await keep(ledger, *(memory(f"said {n}", category=Category.TURN) for n in range(5)), memory("a fact"))
    assert not (await keep_to(ledger, user=2)).steps


async def test_only_active_memories_count(ledger: Ledger) -> None:
    await keep(
        ledger, memory("active"), memory("waits", status=Status.REVIEW), memory("gone", status=Status.FORGOTTEN)
    )
    assert not (await keep_to(ledger, user=1)).steps


async def test_quota_is_the_reason_in_history_and_one_undo_restores_all(ledger: Ledger) -> None:
    await keep(ledger, *(memory(f"note {n}") for n in range(5)))
    before = await snapshot(ledger)
    report = await enforce_quotas(ANN, ledger=ledger, run=run(by=Author("hourly")), quotas=quota(user=1))
    [line] = await ledger.history(ANN, limit=1)
    assert (line.by.who, line.by.why) == ("hourly", "quota")
    await undo(ledger, report)
    assert await snapshot(ledger) == before


async def test_a_dry_run_and_a_limited_run(ledger: Ledger) -> None:
    await keep(ledger, *(memory(f"note {n}") for n in range(5)))
    dry = await enforce_quotas(ANN, ledger=ledger, run=run(dry_run=True), quotas=quota(user=1))
    assert (len(dry.steps), len(await contents(ledger))) == (4, 5)
    bound = await enforce_quotas(ANN, ledger=ledger, run=run(max_changes=3), quotas=quota(user=1))
    assert (len(bound.steps), bound.more, len(await contents(ledger))) == (3, True, 2)


async def test_without_quotas_nothing_is_counted(ledger: Ledger) -> None:
    await keep(ledger, memory("note"))
    assert (await keep_to(ledger)).looked_at == 0


async def test_memories_of_other_users_stay(ledger: Ledger) -> None:
    await keep(ledger, *(memory(f"note {n}", scope=Scope("bob")) for n in range(5)), memory("ann's"))
    assert not (await keep_to(ledger, user=1)).steps
