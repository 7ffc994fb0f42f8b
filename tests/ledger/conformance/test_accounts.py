"""API keys: found by the hash of their text, revoked for good, gone with their user."""

from __future__ import annotations

import asyncio
from datetime import date, datetime, timedelta
from typing import Any

import pytest

from recollect.errors import InvalidInput, NotFound
from recollect.ledger.ledger import Ledger
from recollect.model.change import Forget, ModelUsage
from recollect.model.erasure import ErasureRequest, Target
from recollect.model.key import hash_key, new_key
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.usage import SpentToday, Usage
from tests.support.ledger_samples import ANN, BY, NOON, ODD_IDS, ODD_TEXTS, Open, add, memory


class TestKey:
    """Who may ask."""

    async def test_a_key_is_found_by_its_hash_with_all_it_allows(self, ledger: Ledger) -> None:
        assert not await ledger.has_keys()
        later = now() + timedelta(days=30)
        made = [
            new_key(user="ann"),
            new_key(user="ann", project="p", writes=False, name="phone", expires_at=later),
            new_key(everyone=True, reads=False),
            new_key(everyone=True, project="p"),
            new_key(admin=True),
            new_key(user="bob", person=True),
        ]
        for new in made:
            await ledger.add_key(new.key)
        for new in made:
            assert await ledger.find_key(hash_key(new.text)) == new.key
        assert await ledger.has_keys()
        assert await ledger.keys() == [new.key for new in made]
        assert await ledger.keys("ann") == [made[0].key, made[1].key]
        assert await ledger.keys("nobody") == []

    async def test_an_unknown_hash_is_not_found(self, ledger: Ledger) -> None:
        new = new_key(user="ann")
        await ledger.add_key(new.key)
        for hash in (hash_key(new.text + "x"), b"", b"\0" * 32, new.key.hash[:31]):
            with pytest.raises(NotFound):
                await ledger.find_key(hash)

    async def test_a_revoked_key_is_still_listed_and_stays_revoked(self, ledger: Ledger) -> None:
        new = new_key(user="ann")
        await ledger.add_key(new.key)
        early, late = now(), now() + timedelta(hours=1)
        revoked = await ledger.revoke_key(new.key.id, at=early)
        assert revoked.revoked_at == early
        assert await ledger.revoke_key(new.key.id, at=late) == revoked
        assert await ledger.find_key(new.key.hash) == revoked
        assert await ledger.has_keys()

    async def test_revoking_an_unknown_key_is_not_found(self, ledger: Ledger) -> None:
        await ledger.add_key(new_key(user="ann").key)
        for id in ("nonsense", "", "' OR 1=1 --", "a\0b", "\ud800"):
            with pytest.raises(NotFound):
                await ledger.revoke_key(id, at=now())
        assert all(key.revoked_at is None for key in await ledger.keys())

    async def test_the_last_use_is_noted_and_never_goes_back(self, ledger: Ledger) -> None:
        one, other = new_key(user="ann"), new_key(user="bob")
        await ledger.add_key(one.key)
        await ledger.add_key(other.key)
        late, early = now(), now() - timedelta(hours=1)
        await ledger.record_key_use({one.key.id: late, "gone": late})
        await ledger.record_key_use({one.key.id: early, other.key.id: early})
        await ledger.record_key_use({})
        assert [key.last_used_at for key in await ledger.keys()] == [late, early]

    async def test_odd_ids_come_back_as_they_were(self, ledger: Ledger) -> None:
        for user in ODD_IDS:
            new = new_key(user=user, project=user)
            await ledger.add_key(new.key)
            assert await ledger.keys(user) == [new.key]

    async def test_keys_go_with_their_user_and_no_other(self, ledger: Ledger) -> None:
        await add(ledger, memory(scope=ANN))
        gone, left = new_key(user="ann"), [new_key(user="bob"), new_key(everyone=True)]
        for new in (gone, *left):
            await ledger.add_key(new.key)
        receipt = await ledger.erase(ANN, ErasureRequest(Target.USER), by=BY)
        assert receipt.stores[0].counts["keys"] == 1
        assert await ledger.keys() == [new.key for new in left]
        with pytest.raises(NotFound):
            await ledger.find_key(gone.key.hash)

    async def test_keys_are_there_after_the_store_was_closed(self, ledger: Ledger, store: Open) -> None:
        new = new_key(user="ann")
        await ledger.add_key(new.key)
        repeated = await store()
        assert await repeated.find_key(new.key.hash) == new.key
        await repeated.close()


DAY = date(2026, 3, 15)


async def spend(ledger: Ledger, user: str = "ann", *, at: datetime = NOON, **fields: Any) -> None:
    if user not in await ledger.users():
        await add(ledger, memory(scope=Scope(user)))
    usual: dict[str, Any] = {"step": "extract", "model": "small", "calls": 1, "tokens_in": 100, "tokens_out": 10}
    await ledger.apply(Scope(user), [], by=BY, effects=[ModelUsage(user=user, at=at, **usual | fields)])


class TestUsage:
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

    async def test_usage_of_a_failed_write_is_not_counted(self, ledger: Ledger) -> None:
        await add(ledger, memory(scope=Scope("ann")))
        spent = ModelUsage(user="ann", step="extract", model="small", tokens_in=5, at=now())
        with pytest.raises(NotFound):
            await ledger.apply(Scope("ann"), [Forget("no such memory")], by=BY, effects=[spent])
        assert await ledger.spent_today(None) == SpentToday()

    async def test_concurrent_usage_of_a_user_adds_up(self, ledger: Ledger) -> None:
        for user in ("ann", "bob"):
            await add(ledger, memory(scope=Scope(user)))
        await asyncio.gather(*(spend(ledger, user) for user in ("ann", "bob") for _ in range(25)))
        assert [(each.user, each.calls) for each in await ledger.usage(by=["user"])] == [("ann", 25), ("bob", 25)]

    async def test_concurrent_usage_of_many_users_adds_up(self, ledger: Ledger) -> None:
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
