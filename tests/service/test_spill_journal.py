"""The spill journal survives a crash, is replayed into the ledger once, and can be erased."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recollect.config.settings import load
from recollect.errors import DiskFull, StoreUnavailable
from recollect.http.upstream.extractive import ExtractiveUpstream
from recollect.http.upstream.learning import UpstreamModels
from recollect.http.upstream.router import open_upstream_router
from recollect.model.change import Author
from recollect.model.erasure import ErasureRequest, Target
from recollect.model.ids import new_id
from recollect.model.job import ExtractPayload, JobKind
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Role, Turn
from recollect.service import spill_journal
from recollect.service.service import Service
from recollect.service.spill_journal import SpillJournal, SpillReplay
from recollect.wiring import open_service, spill_folder
from recollect.write.spill_file import SpilledTurn, read_spilled_lines

BY = Author("test")
MONDAY = Scope("ann", "", "monday")
CANARY = "zyzzyva-4711"
MAX_BYTES = 1 << 20


def spilled_turn(text: str, scope: Scope = MONDAY) -> SpilledTurn:
    return SpilledTurn.from_turn(Turn(id=new_id(), scope=scope, role=Role.USER, content=text, said_at=now()), now())


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    service = await open_service(load({"home": tmp_path}, environ={}).settings)
    yield service
    await service.close()


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SpillJournal]:
    journal = SpillJournal(spill(tmp_path), max_bytes=MAX_BYTES)
    yield journal
    await journal.close()


def spill(home: Path) -> Path:
    return spill_folder(load({"home": home}, environ={}).settings)


def raw(home: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(spill(home).iterdir()))


async def contents(service: Service, scope: Scope = MONDAY) -> list[str]:
    return [turn.content for turn in await service.turns(scope, limit=1000)]


async def test_replay_stores_the_turns_in_order_and_removes_the_file(
    journal: SpillJournal, service: Service, tmp_path: Path
) -> None:
    tuesday = Scope("ann", "", "tuesday")
    for n in range(10):
        await journal.append([spilled_turn(f"{n} a"), spilled_turn(f"{n} b")])
        await journal.append([spilled_turn(f"{n}", tuesday)])
    assert (journal.has_pending(MONDAY), journal.has_pending(Scope("bob"))) == (True, False)
    assert await SpillReplay(journal, lambda: service).replay_pending() == 30
    assert await contents(service) == [f"{n} {part}" for n in range(10) for part in "ab"]
    assert await contents(service, tuesday) == [f"{n}" for n in range(10)]
    assert (journal.is_empty, list(spill(tmp_path).iterdir())) == (True, [])


async def test_a_turn_that_is_in_the_ledger_is_not_stored_twice(journal: SpillJournal, service: Service) -> None:
    one, two = spilled_turn("one"), spilled_turn("two")
    await service.remember(MONDAY, [one.message], by=BY, received_at=one.received_at)
    await journal.append([one, two])
    await SpillReplay(journal, lambda: service).replay_pending()
    await journal.append([one, two])
    await SpillReplay(journal, lambda: service).replay_pending()
    assert await contents(service) == ["one", "two"]
    assert [turn.id for turn in await service.turns(MONDAY)] == [one.message["turn_id"], two.message["turn_id"]]


async def test_concurrent_appends_share_a_sync(journal: SpillJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = []
    sync = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda handle: (syncs.append(handle), sync(handle)))
    await asyncio.gather(*(journal.append([spilled_turn(f"{n}")]) for n in range(200)))
    assert 1 <= len(syncs) < 20


async def test_files_are_readable_by_their_owner_only(journal: SpillJournal, tmp_path: Path) -> None:
    await journal.append([spilled_turn("hello")])
    [path] = spill(tmp_path).iterdir()
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


async def test_a_full_journal_rejects_turns_and_loses_none(tmp_path: Path) -> None:
    journal = SpillJournal(spill(tmp_path), max_bytes=2000)
    ends = await asyncio.gather(*(journal.append([spilled_turn("hello")]) for _ in range(2)))
    while not isinstance(ends[-1], DiskFull):
        ends += await asyncio.gather(journal.append([spilled_turn("hello")]), return_exceptions=True)
    stored = len(ends) - 1
    assert stored > 3
    [path] = spill(tmp_path).iterdir()
    assert (len(list(read_spilled_lines(path))), path.stat().st_size <= 2000) == (stored, True)
    await journal.close()


async def test_a_full_disk_loses_no_turn_and_appends_succeed_once_there_is_space(
    journal: SpillJournal, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await journal.append([spilled_turn("before")])
    write = os.write

    def half(handle: int, data: bytes) -> int:
        write(handle, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(spill_journal.os, "write", half)
    for _ in range(5):
        with pytest.raises(DiskFull):
            await journal.append([spilled_turn("lost")])
    monkeypatch.undo()
    await journal.append([spilled_turn("after")])
    assert len(list(spill(tmp_path).iterdir())) == 2
    await SpillReplay(journal, lambda: service).replay_pending()
    assert await contents(service) == ["before", "after"]


async def test_a_partly_written_line_is_removed(journal: SpillJournal, tmp_path: Path) -> None:
    await journal.append([spilled_turn("before")])
    [path] = spill(tmp_path).iterdir()
    size, limits = path.stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, limits[1]))
    try:
        with pytest.raises(DiskFull):
            await journal.append([spilled_turn("lost " * 200)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [line.turn.message["content"] for line in read_spilled_lines(path)] == ["before"]
    assert path.stat().st_size == size


async def test_files_of_a_running_process_are_not_replayed(
    journal: SpillJournal, service: Service, tmp_path: Path
) -> None:
    other = SpillJournal(spill(tmp_path), max_bytes=MAX_BYTES)
    await other.append([spilled_turn("theirs")])
    await journal.append([spilled_turn("ours")])
    await SpillReplay(journal, lambda: service).replay_pending()
    assert await contents(service) == ["ours"]
    await other.close()
    await SpillReplay(journal, lambda: service).replay_pending()
    assert await contents(service) == ["ours", "theirs"]


async def test_a_rejected_turn_is_moved_to_a_file_and_the_others_are_stored(
    journal: SpillJournal, service: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = spilled_turn("bad")
    [taken] = await service.remember(Scope("ann", "", "other"), "taken", by=BY)
    bad = replace(bad, message={**bad.message, "turn_id": taken.id})
    for each in (spilled_turn("one"), bad, spilled_turn("two")):
        await journal.append([each])
    await SpillReplay(journal, lambda: service).replay_pending()
    assert await contents(service) == ["one", "two"]
    [path] = spill(tmp_path).iterdir()
    assert (path.suffix, [line.turn for line in read_spilled_lines(path)]) == (".refused", [bad])
    assert "the ledger rejects 1 spilled turns" in caplog.text
    await service.erasure.erase(Scope("ann"), ErasureRequest(Target.USER), by=BY)
    assert b"bad" not in path.read_bytes()


async def test_the_backlog_of_one_user_does_not_delay_others(
    tmp_path: Path, journal: SpillJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.service.jobs.BACKLOG_CHECK_INTERVAL_S", 0.0)
    settings = load({"home": tmp_path, "max_waiting_jobs": 1}, environ={}).settings
    service = await open_service(settings)
    bob, replay = Scope("bob"), SpillReplay(journal, lambda: service)
    await service.remember(MONDAY, "one", by=BY)
    await journal.append([spilled_turn("two"), spilled_turn("hello", bob), spilled_turn("three")])
    await replay.replay_pending()
    assert (await contents(service, bob), await contents(service)) == (["hello"], ["one"])
    assert (journal.has_pending(MONDAY), journal.has_pending(bob)) == (True, False)
    # Replayed lines are overwritten, so that they are not replayed again.
    assert (b"hello" in raw(tmp_path), b"three" in raw(tmp_path)) == (False, True)
    await journal.append([spilled_turn("four")])
    # Each file that is replayed makes a job, which has to be done before the next one.
    for _ in range(2):
        await service.jobs.run_pending()
        await replay.replay_pending()
    assert await contents(service) == ["one", "two", "three", "four"]
    assert journal.is_empty
    await service.close()


async def test_turns_that_take_too_long_do_not_delay_those_of_other_users(
    journal: SpillJournal, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill_journal, "APPEND_TIMEOUT_S", 0.5)
    bob, replay, remember = Scope("bob"), SpillReplay(journal, lambda: service), service.remember
    released = asyncio.Event()

    async def slow_remember(scope: Scope, *arguments: Any, **more: Any) -> Any:
        if scope == bob:
            await released.wait()
        return await remember(scope, *arguments, **more)

    monkeypatch.setattr(service, "remember", slow_remember)
    await journal.append([spilled_turn("long", bob)])
    await replay.replay_pending()
    await journal.append([spilled_turn("short")])
    while not await contents(service):
        await replay.replay_pending()
    assert (journal.has_pending(bob), journal.has_pending(MONDAY)) == (True, False)
    released.set()
    while not journal.is_empty:
        await replay.replay_pending()
    assert await contents(service, bob) == ["long"]


async def test_long_turns_are_replayed_one_at_a_time_and_short_ones_together(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = SpillJournal(spill(tmp_path), max_bytes=8 << 20)
    calls, remember = list[int](), service.remember

    async def counting_remember(scope: Scope, messages: Any, **more: Any) -> Any:
        calls.append(len(messages))
        return await remember(scope, messages, **more)

    monkeypatch.setattr(service, "remember", counting_remember)
    texts = ["tea " * 70_000 + str(number) for number in range(3)] + [f"tea {number}" for number in range(150)]
    await journal.append([spilled_turn(text) for text in texts])
    assert await SpillReplay(journal, lambda: service).replay_pending() == len(texts)
    assert calls == [1, 1, 1, 100, 50]
    assert await contents(service) == texts
    await journal.close()


CHILD = """
import asyncio, sys
from pathlib import Path
from recollect.service.spill_journal import SpillJournal
from recollect.model.ids import new_id
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Role, Turn
from recollect.write.spill_file import SpilledTurn

async def main():
    journal = SpillJournal(Path(sys.argv[1]), max_bytes=1 << 30)
    for n in range(10**6):
        turn = Turn(id=new_id(), scope=Scope("ann", "", "monday"), role=Role.USER, content=f"turn {n}", said_at=now())
        await journal.append([SpilledTurn.from_turn(turn, now())])
        print(n, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("torn", [b'{"user":"ann","project', b"", b"\0\0\0\0"])
async def test_turns_acknowledged_before_a_kill_are_replayed_by_another_process(
    journal: SpillJournal, service: Service, tmp_path: Path, torn: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    folder = spill(tmp_path)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, str(folder), stdout=subprocess.PIPE, env={**os.environ}
    )
    assert child.stdout is not None
    for _ in range(25):
        await child.stdout.readline()
    assert await SpillReplay(journal, lambda: service).replay_pending() == 0
    child.send_signal(signal.SIGKILL)
    rest = await child.stdout.read()
    await child.wait()
    acked = 25 + rest.count(b"\n")
    [path] = folder.iterdir()
    with path.open("ab") as file:
        file.write(torn)
    with caplog.at_level(logging.WARNING):
        await SpillReplay(journal, lambda: service).replay_pending()
    stored = await contents(service)
    # The last turn may have been synced just before the acknowledgement was printed.
    assert stored in ([f"turn {n}" for n in range(acked)], [f"turn {n}" for n in range(acked + 1)])
    assert ("invalid line" in caplog.text) is (b"{" in torn)
    assert list(folder.iterdir()) == []


async def test_processes_that_find_the_same_file_replay_it_once(service: Service, tmp_path: Path) -> None:
    gone = SpillJournal(spill(tmp_path), max_bytes=MAX_BYTES)
    await gone.append([spilled_turn(f"{n}") for n in range(20)])
    await gone.close()
    rest = [SpillJournal(spill(tmp_path), max_bytes=MAX_BYTES) for _ in range(4)]
    counts = await asyncio.gather(*(SpillReplay(other, lambda: service).replay_pending() for other in rest))
    assert sorted(counts) == [0, 0, 0, 20]
    assert await contents(service) == [f"{n}" for n in range(20)]
    for other in rest:
        await other.close()


@pytest.mark.parametrize("target", [Target.USER, Target.PROJECT, Target.SESSION, Target.TURN])
async def test_an_erasure_overwrites_spilled_turns(
    journal: SpillJournal, service: Service, tmp_path: Path, target: Target
) -> None:
    here = Scope("ann", "p", "monday")
    secret, other = spilled_turn(CANARY, here), spilled_turn("tea", Scope("bob"))
    await journal.append([secret, other])
    scope = {Target.PROJECT: Scope("ann", "p"), Target.SESSION: here}.get(target, Scope("ann"))
    id = secret.message["turn_id"] if target is Target.TURN else ""
    receipt = await service.erasure.erase(scope, ErasureRequest(target, id), by=BY)
    [cleared] = [store for store in receipt.stores if store.store == "spill journal"]
    assert (dict(cleared.counts), cleared.reached) == ({"turns": 1}, True)
    assert CANARY.encode() not in raw(tmp_path)
    assert b"tea" in raw(tmp_path)
    await SpillReplay(journal, lambda: service).replay_pending()
    assert await contents(service, here) == []
    assert await contents(service, Scope("bob")) == ["tea"]


async def test_the_ledger_rejects_turns_that_were_read_before_an_erasure(
    journal: SpillJournal, service: Service
) -> None:
    await journal.append([spilled_turn(CANARY)])
    [path] = await journal.claim_files()
    [line] = await journal.read(path)
    await service.erasure.erase(Scope("ann"), ErasureRequest(Target.USER), by=BY)
    late = line.turn
    assert len(await service.remember(MONDAY, [late.message], by=BY, received_at=late.received_at)) == 0
    assert await service.users() == []


async def test_turns_received_after_an_erasure_are_stored_and_earlier_ones_are_not(
    journal: SpillJournal, service: Service
) -> None:
    before = [spilled_turn("one"), spilled_turn("two")]
    await service.erasure.erase(Scope("ann"), ErasureRequest(Target.USER), by=BY)
    await journal.append([*before, spilled_turn("three"), spilled_turn("four")])
    assert await SpillReplay(journal, lambda: service).replay_pending() == 2
    assert await contents(service) == ["three", "four"]


def test_each_ledger_has_its_own_journal(tmp_path: Path) -> None:
    def of(database: str) -> Path:
        return spill_folder(load({"home": tmp_path, "database": database}, environ={}).settings)

    places = ["", str(tmp_path / "other.db"), "memory:", "postgresql://db/one", "postgresql://db/two"]
    assert len({of(place) for place in places}) == len(places)
    # Credentials do not matter.
    same = ("postgresql://ann:a@db/one", "postgres://ann:b@db/one", "postgresql://db/one?password=c&user=ann")
    assert {of(place) for place in same} == {of("postgresql://db/one")}


async def test_replayed_turns_are_learned_from_in_the_mode_of_their_chat(
    journal: SpillJournal, service: Service
) -> None:
    tuesday = Scope("ann", "", "tuesday")
    for scope, mode in ((MONDAY, "task"), (tuesday, None)):
        message = {"role": "user", "content": "I moved to Porto", "turn_id": new_id()}
        await journal.append_messages(scope, [message], now(), mode=mode)
    assert await SpillReplay(journal, lambda: service).replay_pending() == 2
    payloads = {job.scope: job.payload for job in await service.jobs.list("ann") if job.kind is JobKind.EXTRACT}
    assert payloads == {MONDAY: ExtractPayload(mode="task"), tuesday: None}


async def test_a_deleted_spill_file_is_written_anew_while_it_is_open(
    journal: SpillJournal, service: Service, tmp_path: Path
) -> None:
    await journal.append([spilled_turn("one")])
    shutil.rmtree(spill(tmp_path))
    await journal.append([spilled_turn("two")])
    # Turns that only wait are put back as well.
    assert len(await journal.claim_files()) == 1
    shutil.rmtree(spill(tmp_path))
    assert await SpillReplay(journal, lambda: service).replay_pending() == 2
    assert await contents(service) == ["one", "two"]


async def test_a_home_that_was_moved_away_takes_no_turns(tmp_path: Path) -> None:
    home = tmp_path / "home"
    journal = SpillJournal(home / "spill", max_bytes=MAX_BYTES, home=home)
    await journal.append([spilled_turn("one")])
    home.rename(tmp_path / "away")
    with pytest.raises(StoreUnavailable, match="home was moved, deleted or unmounted while in use: put it back"):
        await journal.append([spilled_turn("two")])
    assert not home.exists()
    (tmp_path / "away").rename(home)
    await journal.append([spilled_turn("three")])
    lines = [line for path in await journal.claim_files() for line in await journal.read(path)]
    assert [line.turn.message["content"] for line in lines] == ["one", "three"]
    await journal.close()


async def test_an_erasure_takes_spilled_turns_in_with_the_model_of_their_chat(tmp_path: Path) -> None:
    settings = load({"home": tmp_path, "upstream_url": "http://127.0.0.1:9/v1", "worker": False}, environ={}).settings
    journal = SpillJournal(spill(tmp_path), max_bytes=MAX_BYTES)
    await journal.append_messages(MONDAY, [{"role": "user", "content": "I like tea"}], now(), model="gpt-large")
    upstreams = open_upstream_router(settings, fallback=ExtractiveUpstream())
    service = await open_service(settings, models=UpstreamModels(settings, upstreams))
    await service.erasure.import_spilled("ann")
    [job] = await service.jobs.list("ann")
    assert job.payload == ExtractPayload(model="gpt-large")
    await service.close()
    await upstreams.close()
    await journal.close()
