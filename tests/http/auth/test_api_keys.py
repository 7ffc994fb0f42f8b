"""API keys: created once, stored as hashes, cached, and rejected after revocation."""

from __future__ import annotations

import asyncio
import hmac
from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recollect import AsyncMemory
from recollect.errors import InvalidInput, NotFound, StoreUnavailable, Unauthenticated
from recollect.ledger.sqlite import open_in_memory, open_sqlite
from recollect.model.key import hash_key, new_key
from recollect.model.times import now
from recollect.models.embedding import EmbeddingModel
from recollect.service import api_keys
from recollect.service.api_keys import ApiKeys

MODEL = EmbeddingModel("none", 1)


class Clock:
    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


class CountingLedger:
    """A ledger that counts calls, and can be unavailable or hang."""

    def __init__(self, ledger: Any) -> None:
        self._ledger = ledger
        self.calls: Counter[str] = Counter()
        self.trouble: Exception | None = None
        self.running = asyncio.Event()
        self.running.set()

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            await self.running.wait()
            if self.trouble is not None:
                raise self.trouble
            return await getattr(self._ledger, name)(*args, **kwargs)

        return call


@pytest.fixture
async def counting() -> AsyncIterator[CountingLedger]:
    ledger = await open_in_memory(MODEL)
    yield CountingLedger(ledger)
    await ledger.close()


@pytest.fixture
async def ring(counting: CountingLedger, clock: Clock) -> AsyncIterator[ApiKeys]:
    ring = ApiKeys(counting, clock=clock, wait_s=0.01)  # type: ignore[arg-type]
    yield ring
    await ring.close()


async def test_keys_are_random_and_distinct() -> None:
    texts = {new_key(user="ann").text for _ in range(1000)}
    assert len(texts) == 1000
    assert all(text.startswith("rk_") and len(text) == 46 and text[3:].isalnum() for text in texts)
    assert len(set("".join(text[3:] for text in texts))) == 62


async def test_only_the_hash_is_on_disk(tmp_path: Path) -> None:
    ledger = await open_sqlite(tmp_path / "ledger.db", MODEL)
    new = await ApiKeys(ledger).add(new_key(user="ann", name="phone"))
    await ledger.close()
    raw = b"".join(file.read_bytes() for file in list(tmp_path.iterdir()))  # noqa: ASYNC240
    assert new.text.encode() not in raw
    assert new.text[3:].encode() not in raw
    assert new.key.hash in raw
    assert new.text not in f"{new!r} {new.key!r} {new.key.to_dict()}"


async def test_a_valid_key_is_authenticated_and_others_are_not(ring: ApiKeys) -> None:
    new = await ring.add(new_key(user="ann"))
    assert await ring.authenticate(new.text) == new.key
    for wrong in ("", "rk_", new.text[:-1], new.text + "x", new.text.lower(), f" {new.text}", "sk-" + new.text[3:]):
        with pytest.raises(Unauthenticated):
            await ring.authenticate(wrong)


async def test_a_key_is_compared_in_constant_time(ring: ApiKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    new = await ring.add(new_key(user="ann"))
    compared: list[tuple[bytes, bytes]] = []
    really = hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return really(one, other)

    monkeypatch.setattr(api_keys.hmac, "compare_digest", compare)  # type: ignore[attr-defined]
    await ring.authenticate(new.text)
    await ring.authenticate(new.text)
    assert compared == [(new.key.hash, hash_key(new.text))] * 2


async def test_lookups_of_keys_are_cached(ring: ApiKeys, counting: CountingLedger, clock: Clock) -> None:
    new = await ring.add(new_key(user="ann"))
    for _ in range(50):
        await ring.authenticate(new.text)
        with pytest.raises(Unauthenticated):
            await ring.authenticate("rk_wrong")
    assert counting.calls["find_key"] == 2
    clock.at += api_keys.CACHE_TTL_S
    await ring.authenticate(new.text)
    assert counting.calls["find_key"] == 3


async def test_a_revoked_key_is_rejected_at_once_here_and_soon_elsewhere(
    ring: ApiKeys, counting: CountingLedger, clock: Clock
) -> None:
    elsewhere = ApiKeys(counting, clock=clock)  # type: ignore[arg-type]
    new = await ring.add(new_key(user="ann"))
    assert await ring.authenticate(new.text) == await elsewhere.authenticate(new.text)
    revoked = await ring.revoke(new.key.id)
    assert revoked.revoked_at is not None
    with pytest.raises(Unauthenticated):
        await ring.authenticate(new.text)
    clock.at += api_keys.CACHE_TTL_S
    with pytest.raises(Unauthenticated):
        await elsewhere.authenticate(new.text)
    with pytest.raises(NotFound):
        await ring.revoke("nonsense")
    await elsewhere.close()


async def test_a_cached_key_expires_in_time(ring: ApiKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    new = await ring.add(new_key(user="ann", expires_at=now() + timedelta(hours=1)))
    await ring.authenticate(new.text)
    later = now() + timedelta(hours=1, seconds=1)
    monkeypatch.setattr(api_keys, "now", lambda: later)
    with pytest.raises(Unauthenticated):
        await ring.authenticate(new.text)


async def test_the_last_use_is_recorded_once_a_minute(ring: ApiKeys, clock: Clock) -> None:
    async def last_use(after_s: float) -> datetime | None:
        clock.at += after_s
        for _ in range(100):
            await ring.authenticate(new.text)
        await ring.close()
        return (await ring.list_keys())[0].last_used_at

    new = await ring.add(new_key(user="ann"))
    first = await last_use(0)
    assert first is not None
    assert await last_use(59) == first
    last = await last_use(1)
    assert last is not None
    assert last > first


async def test_cached_keys_stay_valid_while_the_ledger_is_unavailable(
    ring: ApiKeys, counting: CountingLedger, clock: Clock
) -> None:
    new, other = await ring.add(new_key(user="ann")), await ring.add(new_key(user="bob"))
    await ring.authenticate(new.text)
    counting.trouble = StoreUnavailable("away")
    clock.at += api_keys.CACHE_TTL_S
    assert await ring.authenticate(new.text) == new.key
    lookups = counting.calls["find_key"]
    await ring.authenticate(new.text)
    assert counting.calls["find_key"] == lookups
    with pytest.raises(StoreUnavailable):
        await ring.authenticate(other.text)
    clock.at += api_keys.OFFLINE_TTL_S
    with pytest.raises(StoreUnavailable):
        await ring.authenticate(new.text)


async def test_authentication_does_not_wait_for_a_ledger_that_hangs(
    ring: ApiKeys, counting: CountingLedger, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_keys, "WAIT_S", 0.01)
    new = await ring.add(new_key(user="ann"))
    await ring.authenticate(new.text)
    counting.running.clear()
    clock.at += api_keys.CACHE_TTL_S
    assert await ring.authenticate(new.text) == new.key
    with pytest.raises(StoreUnavailable):
        await ring.authenticate(new_key(user="bob").text)
    counting.running.set()


async def test_caches_are_bounded_and_wrong_keys_do_not_evict_valid_ones(
    ring: ApiKeys, counting: CountingLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_keys, "MAX_ENTRIES", 20)
    new = await ring.add(new_key(user="ann"))
    await ring.authenticate(new.text)
    for number in range(100):
        with pytest.raises(Unauthenticated):
            await ring.authenticate(f"rk_{number}")
    assert ring.is_cached(new.text)
    before = counting.calls["find_key"]
    with pytest.raises(Unauthenticated):
        await ring.authenticate("rk_0")
    with pytest.raises(Unauthenticated):
        await ring.authenticate("rk_99")
    assert counting.calls["find_key"] == before + 1
    added = [await ring.add(new_key(user="bob")) for _ in range(50)]
    for each in added:
        await ring.authenticate(each.text)
    assert sum(ring.is_cached(each.text) for each in added) == 20


async def test_whether_keys_exist_is_checked_until_they_do(
    ring: ApiKeys, counting: CountingLedger, clock: Clock
) -> None:
    assert not await ring.is_used()
    assert not await ring.is_used()
    assert counting.calls["has_keys"] == 1
    await counting.add_key(new_key(user="ann").key)
    clock.at += api_keys.CACHE_TTL_S
    counting.trouble = StoreUnavailable("away")
    # The last known answer counts until the ledger answers in the background.
    assert not await ring.is_used()
    counting.trouble = None
    async with asyncio.timeout(30):
        while not await ring.is_used():  # noqa: ASYNC110 - the ledger answers in the background
            await asyncio.sleep(0.01)
    lookups = counting.calls["has_keys"]
    clock.at += 1000
    assert await ring.is_used()
    assert counting.calls["has_keys"] == lookups


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "a key needs one of them"),
        ({"user": "ann", "admin": True}, "neither a user"),
        ({"project": "p", "admin": True}, "neither a user"),
        ({"project": "p"}, "a key needs one of them"),
        ({"user": "ann", "everyone": True}, "not both"),
        ({"user": "ann", "reads": False, "writes": False}, "right to read or to write"),
        ({"user": "ann", "expires_at": now() - timedelta(seconds=1)}, "must be in the future"),
        ({"user": ""}, "`user_id` is empty"),
        ({"user": " "}, "`user_id` is empty"),
        ({"user": "a\r\nb"}, "control character"),
        ({"user": "ann", "project": ""}, "`project_id` is empty"),
        ({"user": "ann", "project": "a\nb"}, "control character"),
        ({"user": "ann", "name": "a\nforged"}, "control character"),
        ({"user": "ann", "name": "x" * 101}, "100"),
    ],
)
def test_invalid_options_of_a_key_are_rejected(given: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        new_key(**given)


async def test_keys_can_be_managed_in_python(tmp_path: Path) -> None:
    async with AsyncMemory(home=tmp_path) as memory:
        new = await memory.keys.create(user_id="ann", write=False, expires_at="2099-01-01")
        assert [key.to_dict() for key in await memory.keys.list(user_id="ann")] == [new.key.to_dict()]
        assert (new.key.reads, new.key.writes, new.key.rights) == (True, False, "read")
        assert (await memory.keys.revoke(new.key.id)).revoked_at is not None
