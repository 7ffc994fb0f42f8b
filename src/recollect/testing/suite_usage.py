"""Usage: what models were asked for whom, by which step, on which day."""

from __future__ import annotations

import asyncio
from datetime import date, datetime, timedelta
from typing import Any

import pytest

from recollect.errors import InvalidInput, NotFound
from recollect.ledger.protocol import Ledger
from recollect.model.change import Forget
from recollect.model.effect import ModelUsage
from recollect.model.erase import ErasureRequest, Target
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.usage import SpentToday, Usage
from recollect.testing.suite_samples import BY, NOON, ODD_TEXTS, add, memory

DAY = date(2026, 3, 15)


async def spend(ledger: Ledger, user: str = "ann", *, at: datetime = NOON, **fields: Any) -> None:
    if user not in await ledger.users():
        await add(ledger, memory(scope=Scope(user)))
    usual: dict[str, Any] = {"step": "extract", "model": "small", "calls": 1, "tokens_in": 100, "tokens_out": 10}
    await ledger.apply(Scope(user), [], by=BY, effects=[ModelUsage(user=user, at=at, **usual | fields)])


class UsageSuite:
    """Sums that are counted up as they are spent."""

    async def test_what_is_spent_adds_up_by_day_model_and_step(self, ledger: Ledger) -> None:
        await spend(ledger)
        await spend(ledger, tokens_in=1, tokens_out=2, calls=3)
        await spend(ledger, step="resolve")
        await spend(ledger, model="large", at=NOON + timedelta(days=1))
        assert await ledger.usage("ann") == [
            Usage(day=DAY, model="small", step="extract", calls=4, tokens_in=101, tokens_out=12),
            Usage(day=DAY, model="small", step="resolve", calls=1, tokens_in=100, tokens_out=10),
            Usage(day=date(2026, 3, 16), model="large", step="extract", calls=1, tokens_in=100, tokens_out=10),
        ]

    async def test_sums_can_be_parted_in_other_ways(self, ledger: Ledger) -> None:
        await spend(ledger)
        await spend(ledger, "bob", step="resolve")
        await spend(ledger, "bob", model="large")
        total = Usage(calls=3, tokens_in=300, tokens_out=30)
        assert await ledger.usage(by=[]) == [total]
        assert await ledger.usage("nobody", by=[]) == await ledger.usage("nobody") == []
        assert [(each.user, each.calls) for each in await ledger.usage(by=["user"])] == [("ann", 1), ("bob", 2)]
        assert [(each.model, each.calls) for each in await ledger.usage(by=["model"])] == [("large", 1), ("small", 2)]
        parted = await ledger.usage("bob", by=["step", "user"])
        assert [(each.user, each.step, each.day) for each in parted] == [
            ("bob", "extract", None),
            ("bob", "resolve", None),
        ]
        with pytest.raises(InvalidInput):
            await ledger.usage(by=["price"])  # type: ignore[list-item]

    async def test_sums_can_begin_on_a_day(self, ledger: Ledger) -> None:
        for n in range(3):
            await spend(ledger, at=NOON + timedelta(days=n))
        since = NOON + timedelta(days=1, hours=11)
        assert [each.day for each in await ledger.usage(since=since)] == [date(2026, 3, 16), date(2026, 3, 17)]

    async def test_what_was_spent_today_is_only_of_today_and_of_one_user(self, ledger: Ledger) -> None:
        assert await ledger.spent_today("ann") == SpentToday()
        await spend(ledger, at=now() - timedelta(days=1))
        await spend(ledger, "bob", at=now())
        assert await ledger.spent_today("ann") == SpentToday()
        await spend(ledger, at=now())
        await spend(ledger, at=now(), step="resolve", model="large")
        assert await ledger.spent_today("ann") == SpentToday(tokens=220, calls=2)

    async def test_what_all_users_spent_today_is_the_sum_of_them(self, ledger: Ledger) -> None:
        assert await ledger.spent_today(None) == SpentToday()
        await spend(ledger, at=now() - timedelta(days=1))
        assert await ledger.spent_today(None) == SpentToday()
        for user in ("ann", "bob", "cem"):
            await spend(ledger, user, at=now())
            await spend(ledger, user, at=now(), step="resolve", model="large", calls=2)
        assert await ledger.spent_today(None) == SpentToday(tokens=660, calls=9)

    async def test_what_all_users_spent_stays_when_one_is_erased(self, ledger: Ledger) -> None:
        for user in ("ann", "bob"):
            await spend(ledger, user, at=now())
        await ledger.erase(Scope("ann"), ErasureRequest(Target.USER), by=BY)
        assert await ledger.spent_today("ann") == SpentToday()
        assert await ledger.spent_today(None) == SpentToday(tokens=220, calls=2)

    async def test_what_is_spent_on_a_user_who_is_not_there_counts_for_all_and_keeps_no_name(
        self, ledger: Ledger
    ) -> None:
        spent = ModelUsage(user="nobody", step="rewrite", model="small", tokens_in=5, at=now())
        await ledger.apply(Scope("nobody"), [], by=BY, effects=[spent])
        assert (await ledger.users(), await ledger.usage()) == ([], [])
        assert await ledger.spent_today(None) == SpentToday(tokens=5, calls=1)

    async def test_what_is_not_written_is_not_spent_by_anyone(self, ledger: Ledger) -> None:
        await add(ledger, memory(scope=Scope("ann")))
        spent = ModelUsage(user="ann", step="extract", model="small", tokens_in=5, at=now())
        with pytest.raises(NotFound):
            await ledger.apply(Scope("ann"), [Forget("no such memory")], by=BY, effects=[spent])
        assert await ledger.spent_today(None) == SpentToday()

    async def test_those_who_spend_at_once_lose_nothing(self, ledger: Ledger) -> None:
        for user in ("ann", "bob"):
            await add(ledger, memory(scope=Scope(user)))
        await asyncio.gather(*(spend(ledger, user) for user in ("ann", "bob") for _ in range(25)))
        assert [(each.user, each.calls) for each in await ledger.usage(by=["user"])] == [("ann", 25), ("bob", 25)]

    async def test_many_users_who_spend_at_once_add_up(self, ledger: Ledger) -> None:
        users = [f"user {n}" for n in range(40)]
        for user in users:
            await add(ledger, memory(scope=Scope(user)))
        await asyncio.gather(*(spend(ledger, user, at=now()) for user in users for _ in range(3)))
        assert await ledger.spent_today(None) == SpentToday(tokens=120 * 110, calls=120)

    async def test_odd_names_of_models_and_steps_come_back(self, ledger: Ledger) -> None:
        for text in ODD_TEXTS.values():
            await spend(ledger, model=text, step=text)
        results = await ledger.usage("ann")
        assert {(each.model, each.step) for each in results} == {(text, text) for text in ODD_TEXTS.values()}
