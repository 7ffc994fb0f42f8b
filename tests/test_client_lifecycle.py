"""Opening and closing a memory leaves no thread or open file, and never hangs."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from recollect import AsyncMemory, Memory, Settings
from recollect.errors import InvalidInput, InvalidSettings, RecollectError, StoreUnavailable
from recollect.index.exact import ExactIndex
from recollect.ledger.ledger import Ledger
from recollect.ledger.sql.tx import NO_TENANT, Tx
from recollect.ledger.sqlite import open_sqlite
from recollect.models.embedding import Role
from recollect.read.calibration import EmbedderCalibration
from recollect.search import SearchDeps
from recollect.service.service import Service
from recollect.testing.fake_embedder import FakeEmbedder


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(home=tmp_path, embedder=FakeEmbedder(8)) as memory:
        yield memory


def ends(work: Callable[[], Any], within_s: float = 60) -> bool:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(within_s)
    return not thread.is_alive()


@pytest.fixture(autouse=True)
def earlier_threads() -> Iterator[None]:
    """Ignore threads that earlier tests left running."""
    EARLIER_THREADS.update(threading.enumerate())
    yield
    EARLIER_THREADS.clear()


EARLIER_THREADS: set[threading.Thread] = set()


def our_threads() -> list[str]:
    threads = (thread for thread in threading.enumerate() if thread not in EARLIER_THREADS)
    return sorted(thread.name for thread in threads if thread.name.startswith("recollect"))


def our_threads_end(within_s: float = 60) -> bool:
    end = time.monotonic() + within_s
    while our_threads() and time.monotonic() < end:
        time.sleep(0.01)
    return not our_threads()


def test_a_memory_can_import_its_own_export(memory: Memory) -> None:
    memory.add("Likes tea", user_id="a")
    assert ends(lambda: memory.import_(memory.export(user_id="a"), user_id="b"))
    assert [record.content for record in memory.get_all(user_id="b")] == ["Likes tea"]


def test_a_progress_callback_may_call_the_memory(memory: Memory) -> None:
    seen: list[tuple[int, int]] = []

    def report(done: int) -> None:
        seen.append((done, memory.admin.stats()["memories"]))

    assert ends(
        lambda: memory.import_([{"memory": f"note {n}", "user_id": "a"} for n in range(501)], progress=report)
    )
    assert seen == [(500, 500), (501, 501)]


def test_a_progress_callback_of_reembed_may_call_the_memory(tmp_path: Path) -> None:
    with Memory(home=tmp_path, embedder=FakeEmbedder(8, name="old")) as memory:
        memory.import_([{"memory": f"note {n}", "user_id": "a"} for n in range(300)])
    seen: list[int] = []
    with Memory(home=tmp_path, embedder=FakeEmbedder(8, name="new")) as memory:
        assert ends(lambda: memory.admin.reembed(lambda done: seen.append(done * bool(memory.admin.stats()))))
        assert seen[-1] == 300
        assert seen == sorted(seen)


def test_an_error_of_the_progress_callback_stops_reembed(tmp_path: Path) -> None:
    def enough(done: int) -> None:
        raise KeyError("enough")

    with Memory(home=tmp_path, embedder=FakeEmbedder(8, name="old")) as memory:
        memory.add("Likes tea", user_id="a")
    with Memory(home=tmp_path, embedder=FakeEmbedder(8, name="new")) as memory, pytest.raises(KeyError):
        memory.admin.reembed(enough)


def test_progress_that_closes_the_memory_does_not_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recollect.sync.JOIN_TIMEOUT_S", 0.2)
    memory = Memory(home=tmp_path, embedder=FakeEmbedder(8))
    lines = [{"memory": "x", "user_id": "a"}]

    def work() -> None:
        with pytest.raises(StoreUnavailable):
            memory.import_(lines * 501, progress=lambda done: memory.close())

    assert ends(work)
    assert our_threads_end()


def test_an_embedder_that_calls_its_memory_gets_an_error(tmp_path: Path) -> None:
    caught: list[BaseException] = []

    class Curious(FakeEmbedder):
        async def embed(self, texts: Sequence[str], *, role: Role = "passage") -> Any:
            for call in (lambda: memory.admin.stats(), memory.open, memory.close):
                with pytest.raises(InvalidInput, match="cannot wait for itself") as error:
                    call()
                caught.append(error.value)
            return await super().embed(texts, role=role)

    with Memory(home=tmp_path, embedder=Curious(8)) as memory:
        assert ends(lambda: memory.add("Likes tea", user_id="a"))
    assert len(caught) == 3


def test_calls_that_race_closing_end(tmp_path: Path) -> None:
    for number in range(6):
        memory = Memory(home=tmp_path / str(number), embedder=FakeEmbedder(8, delay_s=0.001)).open()
        unexpected: list[BaseException] = []

        def work(memory: Memory = memory, unexpected: list[BaseException] = unexpected) -> None:
            try:
                for turn in range(200):
                    memory.search(f"tea {turn}", user_id="a")
            except StoreUnavailable:
                pass
            except BaseException as error:
                unexpected.append(error)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.003 * (number % 5))
        memory.close()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
        assert not unexpected


def test_a_call_that_does_not_end_fails_when_the_memory_is_closed(tmp_path: Path) -> None:
    request = threading.Event()

    class Silent(FakeEmbedder):
        async def embed(self, texts: Sequence[str], *, role: Role = "passage") -> Any:
            request.set()
            return await super().embed(texts, role=role)

    memory = Memory(home=tmp_path, embedder=Silent(8, delay_s=600)).open()
    caught: list[str] = []

    def work() -> None:
        with pytest.raises(StoreUnavailable) as error:
            memory.search("tea", user_id="a")
        caught.append(str(error.value))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert request.wait(60)
    memory.close()
    thread.join(60)
    assert caught == ["the memory was closed before the call finished"]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_can_use_the_memory_its_parent_opened(memory: Memory) -> None:
    memory.add("Likes tea", user_id="a")
    child = os.fork()
    if not child:
        results: list[str] = []
        done = ends(lambda: results.extend(hit.memory for hit in memory.search("tea", user_id="a")))
        done = done and ends(lambda: memory.add("Likes coffee", user_id="a"))
        os._exit(0 if done and results == ["Likes tea"] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert {record.content for record in memory.get_all(user_id="a")} == {"Likes tea", "Likes coffee"}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_writes_of_a_forked_child_survive_the_closing_of_its_parent(tmp_path: Path) -> None:
    memory = Memory(home=tmp_path, embedder=FakeEmbedder(8))
    memory.add("before the fork", user_id="a")
    (report, notify), (let, go) = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        memory.add("while the parent has it open", user_id="a")
        os.write(notify, b"x")
        os.read(let, 1)
        memory.add("after the parent closed", user_id="a")
        os._exit(0)
    os.read(report, 1)
    memory.close()
    os.write(go, b"x")
    assert os.waitpid(child, 0)[1] == 0
    for pipe in (report, notify, let, go):
        os.close(pipe)
    with memory.open():
        assert len(memory.get_all(user_id="a")) == 3


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_during_a_write_gets_an_error(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.add("Likes tea", user_id="a")
    has_begun, may_end, apply = threading.Event(), threading.Event(), Ledger.apply

    async def apply_slowly(ledger: Ledger, *args: Any, **kwargs: Any) -> Any:
        async def hold(tx: Tx) -> None:
            has_begun.set()
            may_end.wait()

        await ledger.engine.write(hold, tenant=NO_TENANT)
        return await apply(ledger, *args, **kwargs)

    monkeypatch.setattr(Ledger, "apply", apply_slowly)
    writing = threading.Thread(target=memory.add, args=("Likes milk",), kwargs={"user_id": "a"})
    writing.start()
    has_begun.wait()
    child = os.fork()
    if not child:
        try:
            memory.add("Likes coffee", user_id="a")
        except StoreUnavailable as error:
            os._exit(0 if "open it after the fork" in str(error) else 1)
        os._exit(2)
    may_end.set()
    writing.join()
    assert os.waitpid(child, 0)[1] == 0


async def test_a_cancelled_opening_leaves_no_thread(tmp_path: Path) -> None:
    for number in range(15):
        memory = AsyncMemory(home=tmp_path / str(number), embedder=FakeEmbedder(8))
        opening = asyncio.create_task(memory.open())
        await asyncio.sleep(0.0004 * number)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        await memory.close()
    assert await asyncio.to_thread(our_threads_end)


async def test_an_opening_that_fails_late_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise StoreUnavailable("read failed")

    monkeypatch.setattr("recollect.wiring.open_result_cache", fail)
    with pytest.raises(StoreUnavailable, match="read failed"):
        await AsyncMemory(home=tmp_path, embedder=FakeEmbedder(8)).open()
    assert our_threads_end()


async def test_the_ledger_is_closed_even_if_the_embedder_cannot_be(tmp_path: Path) -> None:
    class Broken(FakeEmbedder):
        async def close(self) -> None:
            raise RuntimeError("socket already gone")

    embedder = Broken(8)
    ledger = await open_sqlite(tmp_path / "recollect.db", embedder.model)
    index = ExactIndex(ledger, embedder.model, budget_bytes=1 << 20)
    service = Service(SearchDeps(ledger, index, embedder, EmbedderCalibration(embedder)))
    with pytest.raises(RuntimeError, match="socket already gone"):
        await service.close()
    assert our_threads_end()


def test_threads_that_come_and_go_leave_no_open_files(tmp_path: Path) -> None:
    memory = AsyncMemory(home=tmp_path, embedder=FakeEmbedder(8))
    asyncio.run(memory.add("Likes tea", user_id="a"))

    def search() -> None:
        assert asyncio.run(memory.search("tea", user_id="a"))

    def open_files() -> int:
        # A collection takes a second in a process that has imported everything.
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    assert ends(search)
    first = open_files()
    assert all(ends(search) for _ in range(29))
    last = open_files()
    asyncio.run(memory.close())
    # One for each thread would be 29 more; what else is in this process may open some, too.
    assert last < first + 10


def test_an_embedder_of_the_caller_stays_open(tmp_path: Path) -> None:
    embedder = FakeEmbedder(8)
    with Memory(home=tmp_path, embedder=embedder) as memory:
        memory.add("Likes tea", user_id="a")
    assert not embedder.closed


def test_equal_texts_are_embedded_once_by_an_embedder_of_the_caller(tmp_path: Path) -> None:
    embedder = FakeEmbedder(8)
    with Memory(home=tmp_path, embedder=embedder) as memory:
        for user in ("a", "b", "c"):
            memory.add("Likes tea", user_id=user)
    assert embedder.texts_embedded == 1


def test_using_a_closed_memory_is_an_error_until_it_is_opened_again(tmp_path: Path) -> None:
    memory = Memory(home=tmp_path, embedder=FakeEmbedder(8))
    memory.add("Likes tea", user_id="a")
    memory.close()
    memory.close()
    for call in (lambda: memory.search("tea", user_id="a"), lambda: list(memory.export())):
        with pytest.raises(StoreUnavailable, match=r"closed; open it again with open\(\)"):
            call()
    assert not our_threads()
    with memory.open():
        assert memory.search("tea", user_id="a")


async def test_using_a_closed_async_memory_is_an_error_until_it_is_opened_again(tmp_path: Path) -> None:
    memory = AsyncMemory(home=tmp_path, embedder=FakeEmbedder(8))
    await memory.close()
    with pytest.raises(StoreUnavailable, match=r"closed; open it again with open\(\)"):
        await memory.admin.stats()
    async with memory:
        assert await memory.admin.stats()


def test_many_threads_can_open_a_memory_at_once(tmp_path: Path) -> None:
    wrong: list[BaseException] = []

    def call(memory: Memory) -> None:
        try:
            memory.search("tea", user_id="a")
        except RecollectError as error:
            wrong.append(error)

    for _ in range(3):
        memory = Memory(home=tmp_path, embedder=FakeEmbedder(8))
        threads = [threading.Thread(target=call, args=(memory,), daemon=True) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
        memory.close()
    assert not wrong


@pytest.mark.parametrize(
    "also", [{"home": "x"}, {"database": "memory:"}, {"preset": "react-mem"}, {"embedder": "bundled"}]
)
@pytest.mark.parametrize("kind", [Memory, AsyncMemory])
def test_settings_cannot_be_combined_with_other_parameters(kind: type, also: dict[str, str]) -> None:
    with pytest.raises(InvalidSettings, match="give either settings or"):
        kind(settings=Settings(), **also)
