"""Chats and a memory that fails: they go on in time, what was said is kept, and all heals by itself."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from recollect.aio.breaker import OPEN_S, Breaker
from recollect.config.settings import Settings, load
from recollect.errors import DiskFull, ModelUnavailable, StoreUnavailable
from recollect.http.app import make_app
from recollect.http.proxy.chat_memory import ChatMemory
from recollect.http.proxy.memory_options import MemoryOptions
from recollect.http.proxy.resilience import Degraded, ResilientMemory, WriteResult
from recollect.ledger import postgres
from recollect.model.ids import new_id
from recollect.model.result import RecallOutcome, RecallResult
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.recall import RecallRequest
from recollect.service import handle
from recollect.service.service import Service
from recollect.wiring import open_service, spill_folder
from tests.support.postgres_server import PostgresServer

ANN = Scope("ann", "", "monday")
HERE = "http://127.0.0.1"
BUDGET_S = 0.1
HEALED_S = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server that tests may stop and freeze; they leave it running."""
    server = PostgresServer()
    server.start()
    yield server
    server.close()


def settings_of(home: Path, **options: Any) -> Settings:
    return load({"home": home, "memory_timeout_s": BUDGET_S, **options}, environ={}).settings


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[tuple[ResilientMemory, Service]]:
    service = await open_service(settings)
    safekeeping = ResilientMemory(settings, lambda: service)
    try:
        yield safekeeping, service
    finally:
        await safekeeping.close()
        await service.close()


def message(words: str, role: str = "user") -> dict[str, str]:
    return {"role": role, "content": words, "turn_id": new_id()}


def asking(words: str) -> Callable[[Service], Any]:
    recall = RecallRequest(messages=[{"role": "user", "content": words}], at=now(), limit=5, min_score=0.1)
    return lambda service: service.recall(ANN, recall)


async def timed(doing: Any) -> tuple[Any, float]:
    started = time.perf_counter()
    return await doing, time.perf_counter() - started


async def brought_in(safekeeping: ResilientMemory) -> None:
    """Wait until nothing is left in the journal."""
    deadline = time.monotonic() + HEALED_S
    while safekeeping.has_spilled_turns:
        assert time.monotonic() < deadline, "what was spilled did not come in"
        try:
            await safekeeping.replay.replay_pending()
        except (StoreUnavailable, TimeoutError):
            await asyncio.sleep(0.05)


async def contents(service: Service, scope: Scope = ANN) -> list[str]:
    return [turn.content for turn in await service.turns(scope, limit=1000)]


async def test_while_all_is_well_turns_are_in_the_ledger_when_it_returns(tmp_path: Path) -> None:
    async with opened(settings_of(tmp_path, memory_timeout_s=10)) as (safekeeping, service):
        text = message("I moved to Lisbon")
        stored = await safekeeping.write(ANN, [text, {"role": "system", "content": "be kind"}])
        assert (stored.reason, stored.is_durable, [turn.id for turn in stored.turns]) == (
            None,
            True,
            [text["turn_id"]],
        )
        assert await contents(service) == ["I moved to Lisbon"]
        results = await safekeeping.read(asking("Where do I live?"))
        assert isinstance(results, RecallResult)
        assert results.outcome is RecallOutcome.USED
        assert await safekeeping.write(ANN, [{"role": "system", "content": "be kind"}]) == WriteResult()
        assert not (tmp_path / "spill").exists()


async def test_a_read_that_is_late_is_cancelled_and_five_of_them_open_the_breaker(tmp_path: Path) -> None:
    async with opened(settings_of(tmp_path)) as (safekeeping, _):
        cancelled = 0

        async def hang(service: Service) -> str:
            nonlocal cancelled
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled += 1
                raise
            return "late"

        for _ in range(5):
            results, took = await timed(safekeeping.read(hang))
            # Given up a little before the time is up, so that the whole stays within it.
            assert (results, took >= BUDGET_S / 2) == (Degraded("timeout"), True)
        assert cancelled == 5
        # Nobody is asked any more, so nobody is waited for.
        results = await safekeeping.read(hang)
        assert results == Degraded("breaker_open")
        assert cancelled == 5


async def test_reads_that_find_the_ledger_away_keep_writes_from_waiting_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(settings_of(tmp_path, memory_timeout_s=20)) as (safekeeping, service):
        waited, ledger_answers = asyncio.Event(), asyncio.Event()
        remember = service.remember

        async def hang(*inputs: Any, **more: Any) -> Any:
            waited.set()
            await ledger_answers.wait()
            return await remember(*inputs, **more)

        async def fail(service: Service) -> str:
            raise StoreUnavailable("gone")

        monkeypatch.setattr(service, "remember", hang)
        before = asyncio.create_task(safekeeping.write(ANN, [message("I moved to Lisbon")]))
        await waited.wait()
        for _ in range(5):
            await safekeeping.read(fail)
        # Neither the one who waits already nor the next one waits any longer, and what they said is on disk.
        for stored in [await before, await safekeeping.write(ANN, [message("and I like it")])]:
            assert (stored.reason, stored.is_durable) == ("breaker_open", True)
        ledger_answers.set()
        await brought_in(safekeeping)
        assert await contents(service) == ["I moved to Lisbon", "and I like it"]


async def test_reads_that_find_the_embedder_away_do_not_keep_writes_from_the_ledger(tmp_path: Path) -> None:
    async with opened(settings_of(tmp_path, memory_timeout_s=20)) as (safekeeping, service):

        async def fail(service: Service) -> str:
            raise ModelUnavailable("gone")

        for _ in range(5):
            await safekeeping.read(fail)
        assert safekeeping.reads.is_open
        assert (await safekeeping.write(ANN, [message("I moved to Lisbon")])).reason is None
        assert await contents(service) == ["I moved to Lisbon"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (StoreUnavailable("gone"), "store_unavailable"),
        (DiskFull("full"), "disk_full"),
        (ModelUnavailable("gone"), "embedder_unavailable"),
        (ZeroDivisionError(), "store_unavailable"),
    ],
)
async def test_a_read_that_fails_says_why_and_errors_that_recall_swallows_count(
    tmp_path: Path, error: Exception, reason: str
) -> None:
    async with opened(settings_of(tmp_path, memory_timeout_s=10)) as (safekeeping, service):

        async def fail(*_: Any, **__: Any) -> Any:
            raise error

        service._ledger.keyed_facts = fail  # type: ignore[method-assign]
        memory = ChatMemory(safekeeping, limit=5, min_score=0.1)
        question = [{"role": "user", "content": "Where do I live?"}]
        for expected in [reason] * 5 + ["breaker_open"]:
            chat = await memory.begin(MemoryOptions(scope=ANN), question)
            assert (chat.degraded_reason, chat.messages) == (expected, question)


async def test_one_probe_goes_behind_the_chats_and_closes_the_breaker(tmp_path: Path) -> None:
    async with opened(settings_of(tmp_path, memory_timeout_s=10)) as (safekeeping, _):
        moment = 0.0
        safekeeping.reads = Breaker(lambda: moment)
        for _ in range(5):
            safekeeping.reads.record_failure()
        request, answer = 0, asyncio.Event()

        async def slow(service: Service) -> str:
            nonlocal request
            request += 1
            await answer.wait()
            return "here"

        moment += OPEN_S
        results = await asyncio.gather(*(safekeeping.read(slow) for _ in range(50)))
        await asyncio.sleep(0)
        assert (set(results), request) == ({Degraded("breaker_open")}, 1)
        answer.set()
        await safekeeping.tasks.close()
        assert await safekeeping.read(slow) == "here"


async def test_a_frozen_store_delays_chats_until_the_breaker_opens_and_not_after(
    tmp_path: Path, server: PostgresServer
) -> None:
    async with (
        server.database() as dsn,
        opened(settings_of(tmp_path, database=dsn, memory_timeout_s=0.5)) as (safekeeping, service),
    ):
        words = [f"turn {n}" for n in range(60)]
        assert (await safekeeping.write(ANN, [message(words[0])])).is_durable
        await brought_in(safekeeping)
        before, after = [], []
        server.freeze()
        try:
            for n in range(1, 60):
                # Each in a session of its own until the breaker is open, so that each tries the ledger.
                scope = ANN if safekeeping.writes.is_open else Scope("ann", "", f"{n}")
                took = before if not (safekeeping.reads.is_open and safekeeping.writes.is_open) else after
                read, reading_s = await timed(safekeeping.read(asking("Where do I live?")))
                stored, writing_s = await timed(safekeeping.write(scope, [message(words[n])]))
                assert isinstance(read, Degraded)
                assert stored.is_durable
                assert stored.reason
                took += [reading_s, writing_s]
        finally:
            server.thaw()
        assert len(before) <= 2 * 10
        # A loaded machine may stall any one of them.
        assert statistics.median(before) < 2
        # Beside the sync to disk of what was said nothing takes time: neither waits for the store.
        assert statistics.median(after[::2]) < 0.25
        assert statistics.median(after[1::2]) < 0.4
        await brought_in(safekeeping)
        everyone = [Scope("ann", "", f"{n}") for n in range(1, 60)]
        stored_texts = [each for scope in (*everyone, ANN) for each in await contents(service, scope)]
        assert sorted(stored_texts) == sorted(words)
        mine = await contents(service)
        assert mine == sorted(mine, key=lambda each: int(each.split()[1]))


async def test_more_reads_than_can_be_done_at_once_are_given_up_in_time_and_open_no_breaker(tmp_path: Path) -> None:
    async with opened(settings_of(tmp_path, memory_timeout_s=0.5)) as (safekeeping, _):
        under_way = most = 0

        async def slow(service: Service) -> str:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            try:
                await asyncio.sleep(0.1)
            finally:
                under_way -= 1
            return "found"

        results = await asyncio.gather(*(safekeeping.read(slow) for _ in range(500)))
        assert most <= 16
        assert results[0] == "found"
        assert results[-1] == Degraded("timeout")
        assert not safekeeping.reads.is_open


async def test_a_stopped_store_loses_nothing_and_doubles_nothing(tmp_path: Path, server: PostgresServer) -> None:
    async with (
        server.database() as dsn,
        opened(settings_of(tmp_path, database=dsn, memory_timeout_s=5)) as (safekeeping, service),
    ):
        safekeeping.replay.start()
        await safekeeping.write(ANN, [message("first")])
        server.stop()
        try:
            stored = [await safekeeping.write(ANN, [message(f"{n}")]) for n in range(20)]
        finally:
            server.start()
        assert all(each.is_durable for each in stored)
        assert stored[0].reason in ("store_unavailable", "timeout")
        assert {each.reason for each in stored[1:]} <= {"backlog", "breaker_open"}
        deadline = time.monotonic() + HEALED_S
        while safekeeping.has_spilled_turns:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        assert await contents(service) == ["first", *map(str, range(20))]


def test_the_server_starts_while_the_store_is_down_and_recovers_alone(tmp_path: Path) -> None:
    server = PostgresServer()
    try:
        with TestClient(make_app(settings_of(tmp_path, database=server.dsn())), base_url=HERE) as client:
            ready = client.get("/ready")
            assert (ready.status_code, ready.json()["status"]) == (503, "degraded")
            assert (client.get("/live").status_code, client.get("/health").status_code) == (200, 200)
            safekeeping: ResilientMemory = client.app.state.resilient_memory  # type: ignore[attr-defined]
            assert client.portal is not None
            read = client.portal.call(safekeeping.read, asking("Where do I live?"))
            stored = client.portal.call(safekeeping.write, ANN, [message("I moved to Lisbon")])
            assert (read, stored.is_durable, stored.reason) == (
                Degraded("store_unavailable"),
                True,
                "store_unavailable",
            )
            for _ in range(10):
                assert client.portal.call(safekeeping.read, asking("Where do I live?")) == read
            server.start()
            deadline = time.monotonic() + HEALED_S
            while client.get("/ready").json()["status"] != "ready":
                assert time.monotonic() < deadline, client.get("/ready").json()
                time.sleep(0.05)
            service: Service = client.app.state.service  # type: ignore[attr-defined]
            assert client.portal.call(contents, service) == ["I moved to Lisbon"]
    finally:
        server.close()


def test_the_server_starts_while_the_store_is_frozen(
    tmp_path: Path, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "CONNECT_S", 60.0)
    server.freeze()
    try:
        started = time.monotonic()
        with TestClient(make_app(settings_of(tmp_path, database=server.dsn())), base_url=HERE) as client:
            # It does not wait for a connection until it gives up.
            assert time.monotonic() - started < 30
            assert (client.get("/ready").status_code, client.get("/live").status_code) == (503, 200)
            server.thaw()
            deadline = time.monotonic() + HEALED_S
            while client.get("/ready").status_code != 200:
                assert time.monotonic() < deadline
                time.sleep(0.05)
    finally:
        server.thaw()


def test_a_file_that_cannot_be_opened_keeps_the_server_from_starting_however_long_that_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handle, "NETWORK_START_S", 0.0)
    (tmp_path / "recollect.db").mkdir()
    with pytest.raises(StoreUnavailable), TestClient(make_app(settings_of(tmp_path))):
        pass


async def test_a_full_disk_under_the_ledger_spills_and_heals(tmp_path: Path) -> None:
    async with opened(settings_of(tmp_path, memory_timeout_s=10)) as (safekeeping, service):
        await safekeeping.write(ANN, [message("first")])
        connection = service._ledger.engine._writer.connections[0]  # type: ignore[attr-defined]
        pages = connection.pragma("page_count")
        connection.pragma("max_page_count", pages)
        stored = [await safekeeping.write(ANN, [message(f"{n} " + "word " * 2000)]) for n in range(3)]
        assert [(each.is_durable, each.reason) for each in stored] == [
            (True, "disk_full"), (True, "backlog"), (True, "backlog"),
        ]  # fmt: skip
        assert isinstance(await safekeeping.read(asking("Where do I live?")), RecallResult)
        with pytest.raises(DiskFull):
            await safekeeping.replay.replay_pending()
        connection.pragma("max_page_count", 1 << 30)
        await brought_in(safekeeping)
        assert [words.split()[0] for words in await contents(service)] == ["first", "0", "1", "2"]
        assert (await safekeeping.write(ANN, [message("last")])).reason is None


async def test_without_room_for_the_journal_the_chat_goes_on_and_is_told(tmp_path: Path) -> None:
    async with opened(settings_of(tmp_path, spill_mb=0)) as (safekeeping, service):
        await service._ledger.close()
        stored = await safekeeping.write(ANN, [message("hello")])
        assert (stored.is_durable, stored.reason) == (False, "disk_full")


async def test_a_user_with_a_backlog_spills_and_others_do_not(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, memory_timeout_s=10, most_waiting_jobs=1, learn_every=1)
    async with opened(settings) as (safekeeping, service):
        await safekeeping.write(ANN, [message("one")])
        service.jobs._backlog_checked_at.clear()
        stored = await safekeeping.write(ANN, [message("two")])
        assert (stored.is_durable, stored.reason) == (True, "backlog")
        assert (await safekeeping.write(Scope("bob"), [message("hello")])).reason is None
        await safekeeping.replay.replay_pending()
        assert (safekeeping.has_spilled_turns, await contents(service)) == (True, ["one"])
        await service.jobs.run_pending()
        await brought_in(safekeeping)
        assert await contents(service) == ["one", "two"]


async def test_a_write_that_is_slow_is_not_broken_off_and_not_doubled(tmp_path: Path) -> None:
    async with opened(settings_of(tmp_path)) as (safekeeping, service):
        append, go_on, appended = service._ledger.append, asyncio.Event(), asyncio.Event()

        async def slow(*inputs: Any, **named: Any) -> Any:
            await go_on.wait()
            done = await append(*inputs, **named)
            appended.set()
            return done

        service._ledger.append = slow  # type: ignore[method-assign]
        stored = await safekeeping.write(ANN, [message("hello")])
        assert (stored.is_durable, stored.reason) == (True, "timeout")
        go_on.set()
        await appended.wait()
        assert await contents(service) == ["hello"]
        await brought_in(safekeeping)
        assert await contents(service) == ["hello"]


async def test_secrets_are_kept_out_of_the_journal_as_they_are_out_of_the_log(tmp_path: Path) -> None:
    async with opened(settings_of(tmp_path)) as (safekeeping, service):
        await service._ledger.close()
        await safekeeping.write(ANN, [message("my card is 4111 1111 1111 1111")])
        [path] = spill_folder(settings_of(tmp_path)).iterdir()
        assert b"4111 1111" not in path.read_bytes()
