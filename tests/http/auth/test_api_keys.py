"""API keys: created once, stored as hashes, cached, and rejected after revocation."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator
from datetime import timedelta
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


@pytest.fixture
async def ring(clock: Clock) -> AsyncIterator[ApiKeys]:
    ledger = await open_in_memory(MODEL)
    ring = ApiKeys(ledger, clock=clock, wait_s=0.01)
    yield ring
    await ring.close()
    await ledger.close()


class Counting:
    """A ledger that counts what it is asked, and can be away."""

    def __init__(self, ledger: Any) -> None:
        self._ledger = ledger
        self.lookup_count = 0
        self.trouble: Exception | None = None
        self.running = asyncio.Event()
        self.running.set()

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self.lookup_count += 1
            await self.running.wait()
            if self.trouble is not None:
                raise self.trouble
            return await getattr(self._ledger, name)(*args, **kwargs)

        return call


@pytest.fixture
async def counting(ring: ApiKeys) -> Counting:
    ring._ledger = counting = Counting(ring._ledger)  # type: ignore[assignment]
    return counting


async def test_a_key_is_256_random_bits_and_none_is_like_another() -> None:
    texts = {new_key(user="ann").text for _ in range(1000)}
    assert len(texts) == 1000
    assert all(text.startswith("rk_") and len(text) == 46 and text[3:].isalnum() for text in texts)
    # Every character of the alphabet comes up: the random bits reach all of them.
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


async def test_a_key_that_holds_is_found_and_any_other_is_not(ring: ApiKeys) -> None:
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


async def test_a_key_that_was_found_is_not_asked_for_again_for_a_while(
    ring: ApiKeys, counting: Counting, clock: Clock
) -> None:
    new = await ring.add(new_key(user="ann"))
    counting.lookup_count = 0
    for _ in range(50):
        await ring.authenticate(new.text)
        with pytest.raises(Unauthenticated):
            await ring.authenticate("rk_wrong")
    assert counting.lookup_count <= 3
    clock.at += api_keys._CACHE_TTL_S
    await ring.authenticate(new.text)
    assert counting.lookup_count <= 5


async def test_a_revoked_key_is_refused_at_once_here_and_soon_elsewhere(ring: ApiKeys, clock: Clock) -> None:
    elsewhere = ApiKeys(ring._ledger, clock=clock)
    new = await ring.add(new_key(user="ann"))
    assert await ring.authenticate(new.text) == await elsewhere.authenticate(new.text)
    revoked = await ring.revoke(new.key.id)
    assert revoked.revoked_at is not None
    with pytest.raises(Unauthenticated):
        await ring.authenticate(new.text)
    clock.at += api_keys._CACHE_TTL_S
    with pytest.raises(Unauthenticated):
        await elsewhere.authenticate(new.text)
    with pytest.raises(NotFound):
        await ring.revoke("nonsense")
    await elsewhere.close()


async def test_a_key_ends_at_its_time_though_it_was_found_a_moment_before(
    ring: ApiKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = await ring.add(new_key(user="ann", expires_at=now() + timedelta(hours=1)))
    await ring.authenticate(new.text)
    later = now() + timedelta(hours=1, seconds=1)
    monkeypatch.setattr(api_keys, "now", lambda: later)
    with pytest.raises(Unauthenticated):
        await ring.authenticate(new.text)


async def test_the_last_use_is_written_behind_once_a_minute(ring: ApiKeys, counting: Counting, clock: Clock) -> None:
    new = await ring.add(new_key(user="ann"))
    for _ in range(100):
        await ring.authenticate(new.text)
    await ring._writer.close()
    first = (await ring.list_keys())[0].last_used_at
    assert first is not None
    writes = counting.lookup_count
    clock.at += 59
    ring._valid.clear()
    await ring.authenticate(new.text)
    assert not ring._pending_uses
    clock.at += 1
    await ring.authenticate(new.text)
    await ring._write()
    later = (await ring.list_keys())[0].last_used_at
    assert later is not None
    assert later > first
    assert counting.lookup_count - writes <= 6


async def test_while_the_ledger_is_away_known_keys_stay_good_and_others_are_not_judged(
    ring: ApiKeys, counting: Counting, clock: Clock
) -> None:
    new, other = await ring.add(new_key(user="ann")), await ring.add(new_key(user="bob"))
    await ring.authenticate(new.text)
    counting.trouble = StoreUnavailable("away")
    clock.at += api_keys._CACHE_TTL_S
    assert await ring.authenticate(new.text) == new.key
    # It is not asked again and again.
    request = counting.lookup_count
    await ring.authenticate(new.text)
    assert counting.lookup_count == request
    with pytest.raises(StoreUnavailable):
        await ring.authenticate(other.text)
    clock.at += api_keys._OFFLINE_TTL_S
    with pytest.raises(StoreUnavailable):
        await ring.authenticate(new.text)


async def test_nobody_waits_for_a_ledger_that_never_answers(
    ring: ApiKeys, counting: Counting, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_keys, "_WAIT_S", 0.01)
    new = await ring.add(new_key(user="ann"))
    await ring.authenticate(new.text)
    counting.running.clear()
    clock.at += api_keys._CACHE_TTL_S
    assert await ring.authenticate(new.text) == new.key
    with pytest.raises(StoreUnavailable):
        await ring.authenticate(new_key(user="bob").text)
    counting.running.set()


async def test_guesses_do_not_fill_the_memory_nor_push_out_who_has_a_key(
    ring: ApiKeys, counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_keys, "_MAX_ENTRIES", 20)
    new = await ring.add(new_key(user="ann"))
    await ring.authenticate(new.text)
    for number in range(100):
        with pytest.raises(Unauthenticated):
            await ring.authenticate(f"rk_{number}")
    assert len(ring._invalid) == 20
    assert ring.is_cached(new.text)
    for _ in range(50):
        await ring.authenticate((await ring.add(new_key(user="bob"))).text)
    assert len(ring._valid) <= 20
    assert len(ring._use_recorded_at) <= 20


async def test_whether_there_are_keys_is_asked_now_and_then_until_there_are(
    ring: ApiKeys, counting: Counting, clock: Clock
) -> None:
    assert not await ring.is_used()
    assert not await ring.is_used()
    assert counting.lookup_count == 1
    await counting.add_key(new_key(user="ann").key)
    clock.at += api_keys._CACHE_TTL_S
    counting.trouble = StoreUnavailable("away")
    # What was so is so until something else is heard.
    assert not await ring.is_used()
    counting.trouble = None
    # It is asked for behind, in nobody's time.
    assert ring._ledger_probe is not None
    await asyncio.wait_for(ring._ledger_probe, 30)
    assert await ring.is_used()
    request = counting.lookup_count
    clock.at += 1000
    assert await ring.is_used()
    assert counting.lookup_count == request


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
def test_a_key_that_opens_nothing_or_too_much_is_not_made(given: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        new_key(**given)


async def test_keys_can_be_had_in_python(tmp_path: Path) -> None:
    async with AsyncMemory(home=tmp_path) as memory:
        new = await memory.keys.create(user_id="ann", write=False, expires_at="2099-01-01")
        assert [key.to_dict() for key in await memory.keys.list(user_id="ann")] == [new.key.to_dict()]
        assert (new.key.reads, new.key.writes, new.key.rights) == (True, False, "read")
        assert (await memory.keys.revoke(new.key.id)).revoked_at is not None
