"""Chats continue in time while memory fails, no turn is lost, and the server recovers by itself."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

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
BASE_URL = "http://127.0.0.1"
BUDGET_S = 0.1
RECOVERY_S = 300.0
_T = TypeVar("_T")


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
    memory = ResilientMemory(settings, lambda: service)
    try:
        yield memory, service
    finally:
        await memory.close()
        await service.close()


def message(text: str, role: str = "user") -> dict[str, str]:
    return {"role": role, "content": text, "turn_id": new_id()}


def recalling(question: str) -> Callable[[Service], Any]:
    request = RecallRequest(messages=[{"role": "user", "content": question}], at=now(), limit=5, min_score=0.1)
    return lambda service: service.recall(ANN, request)


def failing(error: Exception) -> Callable[..., Awaitable[NoReturn]]:
    async def fail(*_: Any, **__: Any) -> NoReturn:
        raise error

    return fail


async def timed(call: Awaitable[_T]) -> tuple[_T, float]:
    started = time.perf_counter()
    return await call, time.perf_counter() - started


async def replayed(memory: ResilientMemory) -> None:
    """Replay until nothing is left in the journal."""
    deadline = time.monotonic() + RECOVERY_S
    while memory.has_spilled_turns:
        assert time.monotonic() < deadline, "spilled turns were not replayed"
        try:
            await memory.replay.replay_pending()
        except (StoreUnavailable, TimeoutError):
            await asyncio.sleep(0.05)


async def contents(service: Service, scope: Scope = ANN) -> list[str]:
    return [turn.content for turn in await service.turns(scope, limit=1000)]


async def test_turns_are_in_the_ledger_when_a_write_returns(tmp_path: Path) -> None:
    async with opened(settings_of(tmp_path, memory_timeout_s=10)) as (memory, service):
        new, system = message("I moved to Lisbon"), {"role": "system", "content": "be kind"}
        stored = await memory.write(ANN, [new, system])
        assert (stored.reason, stored.is_durable, [turn.id for turn in stored.turns]) == (
            None,
            True,
            [new["turn_id"]],
        )
        assert await contents(service) == ["I moved to Lisbon"]
        result = await memory.read(recalling("Where do I live?"))
        assert isinstance(result, RecallResult)
        assert result.outcome is RecallOutcome.USED
        assert await memory.write(ANN, [system]) == WriteResult()
        assert not (tmp_path / "spill").exists()


async def test_late_reads_are_cancelled_and_five_of_them_open_the_breaker(tmp_path: Path) -> None:
    async with opened(settings_of(tmp_path)) as (memory, _):
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
            result, took_s = await timed(memory.read(hang))
            assert (result, took_s >= BUDGET_S / 2) == (Degraded("timeout"), True)
        assert cancelled == 5
        # The breaker is open: nothing is called, and nobody waits.
        assert await memory.read(hang) == Degraded("breaker_open")
        assert cancelled == 5


async def test_reads_that_find_no_ledger_keep_writes_from_waiting_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(settings_of(tmp_path, memory_timeout_s=20)) as (memory, service):
        waiting, ledger_answers = asyncio.Event(), asyncio.Event()
        remember = service.remember

        async def hang(*args: Any, **named: Any) -> Any:
            waiting.set()
            await ledger_answers.wait()
            return await remember(*args, **named)

        monkeypatch.setattr(service, "remember", hang)
        before = asyncio.create_task(memory.write(ANN, [message("I moved to Lisbon")]))
        await waiting.wait()
        for _ in range(5):
            await memory.read(failing(StoreUnavailable("gone")))
        # Neither the running write nor the next one waits any longer, and both turns are on disk.
        for stored in [await before, await memory.write(ANN, [message("and I like it")])]:
            assert (stored.reason, stored.is_durable) == ("breaker_open", True)
        ledger_answers.set()
        await replayed(memory)
        assert await contents(service) == ["I moved to Lisbon", "and I like it"]


async def test_reads_that_find_no_embedder_do_not_keep_writes_from_the_ledger(tmp_path: Path) -> None:
    async with opened(settings_of(tmp_path, memory_timeout_s=20)) as (memory, service):
        for _ in range(5):
            await memory.read(failing(ModelUnavailable("gone")))
        assert memory.reads.is_open
        assert (await memory.write(ANN, [message("I moved to Lisbon")])).reason is None
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
async def test_a_failed_recall_is_reported_and_counts_for_the_breaker(
    tmp_path: Path, error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(settings_of(tmp_path, memory_timeout_s=10)) as (resilient, service):

        async def recall(*_: Any) -> RecallResult:
            return RecallResult(outcome=RecallOutcome.UNAVAILABLE, reason="", failure=error)

        monkeypatch.setattr(service, "recall", recall)
        memory = ChatMemory(resilient, Settings())
        question = [{"role": "user", "content": "Where do I live?"}]
        for expected in [reason] * 5 + ["breaker_open"]:
            chat = await memory.begin(MemoryOptions(scope=ANN), question)
            assert (chat.degraded_reason, chat.messages) == (expected, question)


async def test_one_probe_in_the_background_closes_the_breaker(tmp_path: Path) -> None:
    async with opened(settings_of(tmp_path, memory_timeout_s=10)) as (memory, _):
        moment = 0.0
        memory.reads = Breaker(lambda: moment)
        for _ in range(5):
            memory.reads.record_failure()
        calls, answer = 0, asyncio.Event()

        async def slow(service: Service) -> str:
            nonlocal calls
            calls += 1
            await answer.wait()
            return "here"

        moment += OPEN_S
        results = await asyncio.gather(*(memory.read(slow) for _ in range(50)))
        await asyncio.sleep(0)
        assert (set(results), calls) == ({Degraded("breaker_open")}, 1)
        answer.set()
        await memory.tasks.close()
        assert await memory.read(slow) == "here"


async def test_a_frozen_store_delays_chats_until_the_breaker_opens_and_not_after(
    tmp_path: Path, server: PostgresServer
) -> None:
    async with (
        server.database() as dsn,
        opened(settings_of(tmp_path, database=dsn, memory_timeout_s=0.5)) as (memory, service),
    ):
        texts = [f"turn {n}" for n in range(40)]
        assert (await memory.write(ANN, [message(texts[0])])).is_durable
        await replayed(memory)
        before, after = [], []
        server.freeze()
        try:
            for n in range(1, len(texts)):
                # Each in a session of its own until the breaker is open, so that each tries the ledger.
                scope = ANN if memory.writes.is_open else Scope("ann", "", f"{n}")
                took = after if memory.reads.is_open and memory.writes.is_open else before
                read, read_s = await timed(memory.read(recalling("Where do I live?")))
                stored, write_s = await timed(memory.write(scope, [message(texts[n])]))
                assert isinstance(read, Degraded)
                assert stored.is_durable
                assert stored.reason
                took += [read_s, write_s]
        finally:
            server.thaw()
        assert len(before) <= 2 * 10
        # Medians, since a loaded machine may stall any one of them.
        assert statistics.median(before) < 2
        # Only the sync to disk takes time; nothing waits for the store until it times out.
        assert statistics.median(after[::2]) < 0.5
        assert statistics.median(after[1::2]) < 0.5
        await replayed(memory)
        scopes = [ANN, *(Scope("ann", "", f"{n}") for n in range(1, len(texts)))]
        assert sorted([each for scope in scopes for each in await contents(service, scope)]) == sorted(texts)
        mine = await contents(service)
        assert mine == sorted(mine, key=lambda each: int(each.split()[1]))


async def test_reads_beyond_capacity_time_out_without_opening_the_breaker(tmp_path: Path) -> None:
    async with opened(settings_of(tmp_path, memory_timeout_s=3)) as (memory, _):
        running = most = 0

        async def slow(service: Service) -> str:
            nonlocal running, most
            running += 1
            most = max(most, running)
            try:
                await asyncio.sleep(0.4)
            finally:
                running -= 1
            return "hit"

        results = await asyncio.gather(*(memory.read(slow) for _ in range(500)))
        assert most <= 16
        assert results[0] == "hit"
        assert results[-1] == Degraded("timeout")
        assert not memory.reads.is_open


async def test_a_stopped_store_loses_and_duplicates_no_turn(tmp_path: Path, server: PostgresServer) -> None:
    async with (
        server.database() as dsn,
        opened(settings_of(tmp_path, database=dsn, memory_timeout_s=5)) as (memory, service),
    ):
        memory.replay.start()
        await memory.write(ANN, [message("first")])
        server.stop()
        try:
            stored = [await memory.write(ANN, [message(f"{n}")]) for n in range(20)]
        finally:
            server.start()
        assert all(each.is_durable for each in stored)
        assert stored[0].reason in ("store_unavailable", "timeout")
        assert {each.reason for each in stored[1:]} <= {"backlog", "breaker_open"}
        deadline = time.monotonic() + RECOVERY_S
        while memory.has_spilled_turns:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        assert await contents(service) == ["first", *map(str, range(20))]


def wait_until_ready(client: TestClient) -> None:
    deadline = time.monotonic() + RECOVERY_S
    while client.get("/ready").json()["status"] != "ready":
        assert time.monotonic() < deadline, client.get("/ready").json()
        time.sleep(0.05)


def test_the_server_starts_while_the_store_is_down_and_recovers(tmp_path: Path) -> None:
    server = PostgresServer()
    try:
        with TestClient(make_app(settings_of(tmp_path, database=server.dsn())), base_url=BASE_URL) as client:
            ready = client.get("/ready")
            assert (ready.status_code, ready.json()["status"]) == (503, "degraded")
            assert (client.get("/live").status_code, client.get("/health").status_code) == (200, 200)
            memory: ResilientMemory = client.app.state.resilient_memory  # type: ignore[attr-defined]
            assert client.portal is not None
            for _ in range(10):
                read = client.portal.call(memory.read, recalling("Where do I live?"))
                assert read == Degraded("store_unavailable")
            stored = client.portal.call(memory.write, ANN, [message("I moved to Lisbon")])
            assert (stored.is_durable, stored.reason) == (True, "store_unavailable")
            server.start()
            wait_until_ready(client)
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
        with TestClient(make_app(settings_of(tmp_path, database=server.dsn())), base_url=BASE_URL) as client:
            # The start does not wait until the connection times out.
            assert time.monotonic() - started < 30
            assert (client.get("/ready").status_code, client.get("/live").status_code) == (503, 200)
            server.thaw()
            wait_until_ready(client)
    finally:
        server.thaw()


def test_a_ledger_file_that_cannot_be_opened_prevents_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However long opening takes: only a store on the network is opened in the background.
    monkeypatch.setattr(handle, "NETWORK_START_S", 0.0)
    (tmp_path / "recollect.db").mkdir()
    with pytest.raises(StoreUnavailable), TestClient(make_app(settings_of(tmp_path))):
        pass


async def test_turns_spill_while_the_ledger_has_no_disk_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(settings_of(tmp_path, memory_timeout_s=10)) as (memory, service):
        with monkeypatch.context() as patched:
            patched.setattr(service, "remember", failing(DiskFull("full")))
            stored = [await memory.write(ANN, [message(f"{n}")]) for n in range(3)]
            with pytest.raises(DiskFull):
                await memory.replay.replay_pending()
        assert [(each.is_durable, each.reason) for each in stored] == [
            (True, "disk_full"), (True, "backlog"), (True, "backlog"),
        ]  # fmt: skip
        assert isinstance(await memory.read(recalling("Where do I live?")), RecallResult)
        await replayed(memory)
        assert (await memory.write(ANN, [message("last")])).reason is None
        assert await contents(service) == ["0", "1", "2", "last"]


async def test_a_turn_that_fits_neither_ledger_nor_journal_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(settings_of(tmp_path, spill_mb=0)) as (memory, service):
        monkeypatch.setattr(service, "remember", failing(StoreUnavailable("gone")))
        stored = await memory.write(ANN, [message("hello")])
        assert (stored.is_durable, stored.reason) == (False, "disk_full")


async def test_turns_of_a_user_with_a_backlog_spill_and_those_of_others_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.service.jobs.BACKLOG_CHECK_INTERVAL_S", 0.0)
    settings = settings_of(tmp_path, memory_timeout_s=10, max_waiting_jobs=1, learn_every=1)
    async with opened(settings) as (memory, service):
        await memory.write(ANN, [message("one")])
        stored = await memory.write(ANN, [message("two")])
        assert (stored.is_durable, stored.reason) == (True, "backlog")
        assert (await memory.write(Scope("bob"), [message("hello")])).reason is None
        await memory.replay.replay_pending()
        assert (memory.has_spilled_turns, await contents(service)) == (True, ["one"])
        await service.jobs.run_pending()
        await replayed(memory)
        assert await contents(service) == ["one", "two"]


async def test_a_slow_write_continues_and_is_not_duplicated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(settings_of(tmp_path)) as (memory, service):
        remember, ledger_answers, done = service.remember, asyncio.Event(), asyncio.Event()

        async def slow(*args: Any, **named: Any) -> Any:
            await ledger_answers.wait()
            result = await remember(*args, **named)
            done.set()
            return result

        monkeypatch.setattr(service, "remember", slow)
        stored = await memory.write(ANN, [message("hello")])
        assert (stored.is_durable, stored.reason) == (True, "timeout")
        ledger_answers.set()
        await done.wait()
        assert await contents(service) == ["hello"]
        await replayed(memory)
        assert await contents(service) == ["hello"]


async def test_spilled_turns_are_redacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(tmp_path)
    async with opened(settings) as (memory, service):
        monkeypatch.setattr(service, "remember", failing(StoreUnavailable("gone")))
        await memory.write(ANN, [message("my card is 4111 1111 1111 1111")])
        [path] = spill_folder(settings).iterdir()
        assert b"4111 1111" not in path.read_bytes()
