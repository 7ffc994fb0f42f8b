"""Expired memories are forgotten, but not because of a wrong clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from recollect.errors import InvalidInput
from recollect.ledger.ledger import Ledger
from recollect.maintenance.forgetting import MAX_GAP, SETTLE_TIME, expire
from recollect.maintenance.tasks import MaintenanceRun
from recollect.model.change import Author, Update
from recollect.model.memory import Status
from recollect.model.scope import Scope
from recollect.model.turn import Role, Turn
from tests.support.maintenance_samples import (
    ANN,
    BY,
    NOW,
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

YEARS = timedelta(days=3652)


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    async with ledger_in(tmp_path) as ledger:
        yield ledger


async def test_expired_memories_are_forgotten(ledger: Ledger) -> None:
    await keep(
        ledger,
        memory("parked on level 3", age_days=2, expires_at=days(1)),
        memory("on a diet until Easter", age_days=2, expires_at=days(-1)),
        memory("likes tea", age_days=2),
        memory("a proposal nobody looked at", age_days=2, expires_at=days(1), status=Status.REVIEW),
    )
    report = await expire(ANN, ledger=ledger, run=run())
    assert reported_contents(report) == {"parked on level 3", "a proposal nobody looked at"}
    assert await contents(ledger) == {"on a diet until Easter", "likes tea"}
    assert await contents(ledger, Status.FORGOTTEN) == reported_contents(report)


async def test_a_memory_expires_at_its_expiry_time(ledger: Ledger) -> None:
    await keep(ledger, memory("now", expires_at=NOW), memory("later", expires_at=NOW + timedelta(microseconds=1)))
    assert reported_contents(await expire(ANN, ledger=ledger, run=run())) == {"now"}


async def test_expiry_is_in_history_and_undone_as_one(ledger: Ledger) -> None:
    await keep(ledger, *(memory(f"note {n}", age_days=2, expires_at=days(1)) for n in range(250)))
    before = await snapshot(ledger)
    report = await expire(ANN, ledger=ledger, run=run(by=Author("nightly")))
    assert len(report.steps) == 250
    [line] = await ledger.history(ANN, limit=1)
    assert (line.by.who, line.by.why, line.batch) == ("nightly", "expired", report.batch)
    await undo(ledger, report)
    assert await snapshot(ledger) == before


async def test_a_dry_run_reports_and_changes_nothing(ledger: Ledger) -> None:
    await keep(ledger, memory("parked on level 3", age_days=2, expires_at=days(1)))
    before = await ledger.revision("ann")
    report = await expire(ANN, ledger=ledger, run=run(dry_run=True))
    assert (reported_contents(report), report.batch) == ({"parked on level 3"}, None)
    assert await ledger.revision("ann") == before


async def test_a_run_is_limited_and_reports_that_there_is_more(ledger: Ledger) -> None:
    await keep(ledger, *(memory(f"note {n}", age_days=9 - n, expires_at=days(1)) for n in range(5)))
    first = await expire(ANN, ledger=ledger, run=run(max_changes=3))
    assert (reported_contents(first), first.more) == ({"note 0", "note 1", "note 2"}, True)
    second = await expire(ANN, ledger=ledger, run=run(max_changes=3))
    assert (len(second.steps), second.more) == (2, False)


async def test_memories_of_other_users_stay(ledger: Ledger) -> None:
    await keep(ledger, memory("parked", age_days=2, expires_at=days(1), scope=Scope("bob")))
    assert not (await expire(ANN, ledger=ledger, run=run())).steps
    assert await contents(ledger, user="bob") == {"parked"}


async def test_a_memory_extended_meanwhile_stays(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (memory(name, age_days=2, expires_at=days(1)) for name in ("one", "other"))
    await keep(ledger, one, other)
    find = ledger.find

    async def find_and_be_overtaken(*args: object, **options: object) -> object:
        page = await find(*args, **options)  # type: ignore[arg-type]
        await ledger.apply(ANN, [Update(one.id, {"expires_at": days(-9)})], by=BY)
        return page

    monkeypatch.setattr(ledger, "find", find_and_be_overtaken)
    report = await expire(ANN, ledger=ledger, run=run())
    assert reported_contents(report) == {"other"}
    assert report.left == (f"{one.id} was changed meanwhile",)


class TestAClockThatIsWrong:
    async def test_with_a_clock_ten_years_ahead_nothing_old_expires(self, ledger: Ledger) -> None:
        await keep(ledger, *(memory(f"for a year {n}", age_days=n, expires_at=days(n - 365)) for n in range(20)))
        report = await expire(ANN, ledger=ledger, run=run(at=NOW + YEARS))
        assert not report.steps
        assert "the clock may have jumped ahead" in report.left[0]
        assert len(await contents(ledger)) == 20

    async def test_writes_with_a_wrong_clock_do_not_make_it_trusted(self, ledger: Ledger) -> None:
        at = NOW + YEARS
        fresh = memory("parked on level 3", created_at=at, updated_at=at, expires_at=at + timedelta(hours=1))
        await keep(ledger, memory("for a year", expires_at=days(-365)), fresh)
        await keep(ledger, *(memory(f"chat {n}", created_at=at, updated_at=at) for n in range(300)))
        report = await expire(ANN, ledger=ledger, run=run(at=at + timedelta(hours=2)))
        # What was made after the leap is over by any clock.
        assert reported_contents(report) == {"parked on level 3"}
        assert "for a year" in await contents(ledger)

    async def test_with_a_clock_set_back_nothing_expires(self, ledger: Ledger) -> None:
        await keep(ledger, memory("parked", expires_at=NOW + timedelta(hours=1)))
        assert not (await expire(ANN, ledger=ledger, run=run(at=NOW - timedelta(days=1)))).steps

    async def test_a_clock_is_trusted_after_the_settle_time(self, ledger: Ledger) -> None:
        at = NOW + YEARS
        await keep(ledger, memory("for a year", expires_at=days(-365)), memory("new", created_at=at, updated_at=at))
        later = at + SETTLE_TIME + timedelta(days=1)
        assert reported_contents(await expire(ANN, ledger=ledger, run=run(at=later))) == {"for a year"}

    async def test_activity_of_others_makes_the_clock_trusted(self, ledger: Ledger) -> None:
        await keep(ledger, memory("for a year", age_days=800, expires_at=days(435)))
        assert not (await expire(ANN, ledger=ledger, run=run())).steps
        received = Turn(id="t", scope=ANN, role=Role.USER, content="hello", said_at=NOW - SETTLE_TIME - MAX_GAP / 2)
        await ledger.append(Scope("bob", "", "s"), [received], vectors=[None], by=BY)
        assert reported_contents(await expire(ANN, ledger=ledger, run=run())) == {"for a year"}


async def test_without_expired_memories_there_is_one_query(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    await keep(ledger, *(memory(f"note {n}") for n in range(20)))
    requests: list[str] = []
    for name in ("find", "count", "apply", "conversations", "history", "get"):
        real = getattr(ledger, name)

        def counting(*args: object, _real: object = real, _name: str = name, **options: object) -> object:
            requests.append(_name)
            return _real(*args, **options)  # type: ignore[operator]

        monkeypatch.setattr(ledger, name, counting)
    assert not (await expire(ANN, ledger=ledger, run=run())).steps
    assert requests == ["find"]


def test_a_run_without_changes_is_rejected() -> None:
    with pytest.raises(InvalidInput):
        MaintenanceRun(max_changes=0)
