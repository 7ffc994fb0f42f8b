"""The spill journal: what it kept is there after a crash, is brought to the ledger once, and can be erased."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from recollect.config.settings import load
from recollect.errors import DiskFull
from recollect.http.proxy import journal as journal_file
from recollect.http.proxy.journal import Journal
from recollect.http.proxy.replay import Replay
from recollect.model.change import Author
from recollect.model.erasure import ErasureRequest, Target
from recollect.model.ids import new_id
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Role, Turn
from recollect.service.service import Service
from recollect.wiring import open_service, spill_folder
from recollect.write.spill_file import SpilledTurn, read_spilled_lines

BY = Author("test")
MONDAY = Scope("ann", "", "monday")
CANARY = "zyzzyva-4711"
MUCH = 1 << 20


def spilled_turn(words: str, scope: Scope = MONDAY) -> SpilledTurn:
    return SpilledTurn.from_turn(Turn(id=new_id(), scope=scope, role=Role.USER, content=words, said_at=now()), now())


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    service = await open_service(load({"home": tmp_path}, environ={}).settings)
    yield service
    await service.close()


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    journal = Journal(spill(tmp_path), max_bytes=MUCH)
    yield journal
    await journal.close()


def spill(home: Path) -> Path:
    return spill_folder(load({"home": home}, environ={}).settings)


def raw(home: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(spill(home).iterdir()))


async def contents(service: Service, scope: Scope = MONDAY) -> list[str]:
    return [turn.content for turn in await service.turns(scope, limit=1000)]


async def test_what_waits_comes_to_the_ledger_in_order_and_its_file_goes(
    journal: Journal, service: Service, tmp_path: Path
) -> None:
    tuesday = Scope("ann", "", "tuesday")
    for n in range(10):
        await journal.append([spilled_turn(f"{n} a"), spilled_turn(f"{n} b")])
        await journal.append([spilled_turn(f"{n}", tuesday)])
    assert (journal.has_pending(MONDAY), journal.has_pending(Scope("bob"))) == (True, False)
    assert await Replay(journal, lambda: service).replay_pending() == 30
    assert await contents(service) == [f"{n} {part}" for n in range(10) for part in "ab"]
    assert await contents(service, tuesday) == [f"{n}" for n in range(10)]
    assert (journal.is_empty, list(spill(tmp_path).iterdir())) == (True, [])


async def test_what_is_in_the_ledger_already_is_not_doubled(journal: Journal, service: Service) -> None:
    one, two = spilled_turn("one"), spilled_turn("two")
    await service.remember(MONDAY, [one.message], by=BY, received_at=one.received_at)
    await journal.append([one, two])
    await Replay(journal, lambda: service).replay_pending()
    await journal.append([one, two])
    await Replay(journal, lambda: service).replay_pending()
    assert await contents(service) == ["one", "two"]
    assert [turn.id for turn in await service.turns(MONDAY)] == [one.message["turn_id"], two.message["turn_id"]]


async def test_those_who_come_at_once_share_a_sync(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = []
    sync = journal_file._sync
    monkeypatch.setattr(journal_file, "_sync", lambda handle: (syncs.append(handle), sync(handle)))
    await asyncio.gather(*(journal.append([spilled_turn(f"{n}")]) for n in range(200)))
    assert 1 <= len(syncs) < 20


async def test_the_file_is_for_its_owner_alone(journal: Journal, tmp_path: Path) -> None:
    await journal.append([spilled_turn("hello")])
    [path] = spill(tmp_path).iterdir()
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


async def test_a_journal_that_is_full_says_so_and_what_it_kept_stays(tmp_path: Path) -> None:
    journal = Journal(spill(tmp_path), max_bytes=2000)
    ends = await asyncio.gather(*(journal.append([spilled_turn("hello")]) for _ in range(2)))
    while not isinstance(ends[-1], DiskFull):
        ends += await asyncio.gather(journal.append([spilled_turn("hello")]), return_exceptions=True)
    stored = len(ends) - 1
    assert stored > 3
    [path] = spill(tmp_path).iterdir()
    assert (len(list(read_spilled_lines(path))), path.stat().st_size <= 2000) == (stored, True)
    await journal.close()


async def test_a_disk_without_space_keeps_what_was_kept_and_takes_more_once_there_is_some(
    journal: Journal, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await journal.append([spilled_turn("before")])
    write = os.write

    def half(handle: int, data: bytes) -> int:
        write(handle, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(journal_file.os, "write", half)
    for _ in range(5):
        with pytest.raises(DiskFull):
            await journal.append([spilled_turn("not kept")])
    monkeypatch.undo()
    await journal.append([spilled_turn("after")])
    assert len(list(spill(tmp_path).iterdir())) == 2
    await Replay(journal, lambda: service).replay_pending()
    assert await contents(service) == ["before", "after"]


async def test_a_line_that_the_system_cuts_off_is_taken_back(journal: Journal, tmp_path: Path) -> None:
    await journal.append([spilled_turn("before")])
    [path] = spill(tmp_path).iterdir()
    size, limits = path.stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, limits[1]))
    try:
        with pytest.raises(DiskFull):
            await journal.append([spilled_turn("not kept " * 100)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [line.turn.message["content"] for line in read_spilled_lines(path)] == ["before"]
    assert path.stat().st_size == size


async def test_a_file_is_not_taken_from_a_process_that_lives(
    journal: Journal, service: Service, tmp_path: Path
) -> None:
    other = Journal(spill(tmp_path), max_bytes=MUCH)
    await other.append([spilled_turn("theirs")])
    await journal.append([spilled_turn("ours")])
    await Replay(journal, lambda: service).replay_pending()
    assert await contents(service) == ["ours"]
    await other.close()
    await Replay(journal, lambda: service).replay_pending()
    assert await contents(service) == ["ours", "theirs"]


async def test_a_turn_that_the_ledger_refuses_is_put_aside_and_the_others_come_in(
    journal: Journal, service: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = spilled_turn("bad")
    [taken] = await service.remember(Scope("ann", "", "other"), "taken", by=BY)
    bad = replace(bad, message={**bad.message, "turn_id": taken.id})
    for each in (spilled_turn("one"), bad, spilled_turn("two")):
        await journal.append([each])
    await Replay(journal, lambda: service).replay_pending()
    assert await contents(service) == ["one", "two"]
    [path] = spill(tmp_path).iterdir()
    assert (path.suffix, [line.turn for line in read_spilled_lines(path)]) == (".refused", [bad])
    assert "the ledger refuses 1 spilled turns" in caplog.text
    await service.erasure.erase(Scope("ann"), ErasureRequest(Target.USER), by=BY)
    assert b"bad" not in path.read_bytes()


async def test_one_users_backlog_keeps_nobody_else_back(tmp_path: Path, journal: Journal) -> None:
    settings = load({"home": tmp_path, "most_waiting_jobs": 1}, environ={}).settings
    service = await open_service(settings)
    bob, replay = Scope("bob"), Replay(journal, lambda: service)
    await service.remember(MONDAY, "one", by=BY)
    service.jobs._backlog_checked_at.clear()
    await journal.append([spilled_turn("two"), spilled_turn("hello", bob), spilled_turn("three")])
    await replay.replay_pending()
    assert (await contents(service, bob), await contents(service)) == (["hello"], ["one"])
    assert (journal.has_pending(MONDAY), journal.has_pending(bob)) == (True, False)
    # What is through is struck out, so that it is not brought in again and again.
    assert (b"hello" in raw(tmp_path), b"three" in raw(tmp_path)) == (False, True)
    await journal.append([spilled_turn("four")])
    await service.jobs.run_pending()
    await replay.replay_pending()
    assert await contents(service) == ["one", "two", "three", "four"]
    assert journal.is_empty
    await service.close()


CHILD = """
import asyncio, sys
from pathlib import Path
from recollect.http.proxy.journal import Journal
from recollect.model.ids import new_id
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Role, Turn
from recollect.write.spill_file import SpilledTurn

async def main():
    journal = Journal(Path(sys.argv[1]), max_bytes=1 << 30)
    for n in range(10**6):
        turn = Turn(id=new_id(), scope=Scope("ann", "", "monday"), role=Role.USER, content=f"turn {n}", said_at=now())
        await journal.append([SpilledTurn.from_turn(turn, now())])
        print(n, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("torn", [b'{"user":"ann","project', b"", b"\0\0\0\0"])
async def test_what_was_acknowledged_before_a_kill_is_brought_in_by_another(
    journal: Journal, service: Service, tmp_path: Path, torn: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    folder = spill(tmp_path)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, str(folder), stdout=subprocess.PIPE, env={**os.environ}
    )
    assert child.stdout is not None
    for _ in range(25):
        await child.stdout.readline()
    assert await Replay(journal, lambda: service).replay_pending() == 0
    child.send_signal(signal.SIGKILL)
    rest = await child.stdout.read()
    await child.wait()
    acked = 25 + rest.count(b"\n")
    [path] = folder.iterdir()
    with path.open("ab") as file:
        file.write(torn)
    with caplog.at_level(logging.WARNING):
        await Replay(journal, lambda: service).replay_pending()
    stored = await contents(service)
    # The last one may have been synced just before it could be told.
    assert stored in ([f"turn {n}" for n in range(acked)], [f"turn {n}" for n in range(acked + 1)])
    assert ("cut off" in caplog.text) is (b"{" in torn)
    assert list(folder.iterdir()) == []


async def test_two_that_find_the_same_file_bring_it_in_once(service: Service, tmp_path: Path) -> None:
    gone = Journal(spill(tmp_path), max_bytes=MUCH)
    await gone.append([spilled_turn(f"{n}") for n in range(20)])
    await gone.close()
    rest = [Journal(spill(tmp_path), max_bytes=MUCH) for _ in range(4)]
    counts = await asyncio.gather(*(Replay(other, lambda: service).replay_pending() for other in rest))
    assert sorted(counts) == [0, 0, 0, 20]
    assert await contents(service) == [f"{n}" for n in range(20)]
    for other in rest:
        await other.close()


@pytest.mark.parametrize("target", [Target.USER, Target.PROJECT, Target.SESSION, Target.TURN])
async def test_an_erasure_reaches_what_waits_down_to_the_bytes(
    journal: Journal, service: Service, tmp_path: Path, target: Target
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
    await Replay(journal, lambda: service).replay_pending()
    assert await contents(service, here) == []
    assert await contents(service, Scope("bob")) == ["tea"]


async def test_what_was_read_before_an_erasure_is_refused_by_the_ledger_after_it(
    journal: Journal, service: Service
) -> None:
    await journal.append([spilled_turn(CANARY)])
    [path] = await journal.claim_files()
    [line] = await journal.read(path)
    await service.erasure.erase(Scope("ann"), ErasureRequest(Target.USER), by=BY)
    late = line.turn
    assert len(await service.remember(MONDAY, [late.message], by=BY, received_at=late.received_at)) == 0
    assert await service.users() == []


async def test_what_is_given_after_an_erasure_comes_in_though_what_came_before_does_not(
    journal: Journal, service: Service
) -> None:
    before = [spilled_turn("one"), spilled_turn("two")]
    await service.erasure.erase(Scope("ann"), ErasureRequest(Target.USER), by=BY)
    await journal.append([*before, spilled_turn("three"), spilled_turn("four")])
    assert await Replay(journal, lambda: service).replay_pending() == 2
    assert await contents(service) == ["three", "four"]


def test_each_ledger_has_a_journal_of_its_own(tmp_path: Path) -> None:
    def of(database: str) -> Path:
        return spill_folder(load({"home": tmp_path, "database": database}, environ={}).settings)

    places = ["", str(tmp_path / "other.db"), "memory:", "postgresql://db/one", "postgresql://db/two"]
    assert len({of(place) for place in places}) == len(places)
    # However one logs in.
    same = ("postgresql://ann:a@db/one", "postgres://ann:b@db/one", "postgresql://db/one?password=c&user=ann")
    assert {of(place) for place in same} == {of("postgresql://db/one")}
