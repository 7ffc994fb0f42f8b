"""API keys: found by the hash of their text, revoked for good, gone with their user."""

from __future__ import annotations

from datetime import timedelta

import pytest

from recollect.errors import NotFound, Unsupported
from recollect.ledger.protocol import Ledger
from recollect.model.erase import ErasureRequest, Target
from recollect.model.key import hash_key, new_key
from recollect.model.times import now
from recollect.testing.suite_samples import ANN, BY, ODD_IDS, Open, add, memory


class KeySuite:
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

    async def test_a_revoked_key_stays_told_of_and_stays_revoked(self, ledger: Ledger) -> None:
        new = new_key(user="ann")
        await ledger.add_key(new.key)
        early, late = now(), now() + timedelta(hours=1)
        revoked = await ledger.revoke_key(new.key.id, at=early)
        assert revoked.revoked_at == early
        assert await ledger.revoke_key(new.key.id, at=late) == revoked
        assert await ledger.find_key(new.key.hash) == revoked
        assert await ledger.has_keys()

    @pytest.mark.parametrize("id", ["nonsense", "", "' OR 1=1 --", "a\0b", "\ud800"])
    async def test_revoking_what_is_not_there_is_not_found(self, ledger: Ledger, id: str) -> None:
        await ledger.add_key(new_key(user="ann").key)
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

    @pytest.mark.parametrize("user", ODD_IDS)
    async def test_odd_ids_come_back_as_they_were(self, ledger: Ledger, user: str) -> None:
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
        try:
            repeated = await store()
        except Unsupported:
            return
        assert await repeated.find_key(new.key.hash) == new.key
        await repeated.close()
