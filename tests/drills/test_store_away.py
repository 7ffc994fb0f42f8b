"""The database is stopped or frozen for a minute during chats: none waits for it, nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from recollect.config.settings import Settings, load
from recollect.http.proxy.chat_memory import ChatMemory
from recollect.http.proxy.memory_options import MemoryOptions
from recollect.http.proxy.resilience import ResilientMemory
from recollect.model.ids import new_id
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Turn
from recollect.recall import RecallRequest
from recollect.service.service import Service
from recollect.wiring import open_service
from tests.drills.sizes import Sizes
from tests.support.postgres_server import PostgresServer

PEOPLE = 10
EVERY_S = 0.1
BUDGET_S = 0.5
HEALED_S = 120.0
SETTINGS = Settings()


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.close()


@dataclass
class Chats:
    """Concurrent chats: acknowledged turns of each user, and the latency that memory added in each phase."""

    safekeeping: ResilientMemory
    acked: dict[Scope, list[str]] = field(default_factory=dict)
    unsafe: int = 0
    added_s: dict[str, list[float]] = field(default_factory=dict)
    phase: str = "well"

    async def go_on(self, person: Scope, until: asyncio.Event) -> None:
        count = 0
        while not until.is_set():
            await self._chat(person, count)
            count += 1
            await asyncio.sleep(EVERY_S)

    async def _chat(self, person: Scope, count: int) -> None:
        keeping = self.safekeeping
        started = time.perf_counter()
        messages = question().messages
        await ChatMemory(keeping, SETTINGS).begin(MemoryOptions(scope=person), messages)
        left_s = max(0.02, BUDGET_S - (time.perf_counter() - started))
        await self._say(person, "user", f"{count} question", left_s)
        added_s = time.perf_counter() - started
        # The first chats after the failure wait, until the breaker is open.
        phase = "opening" if self.phase == "away" and added_s >= BUDGET_S / 2 else self.phase
        self.added_s.setdefault(phase, []).append(added_s)
        await self._say(person, "assistant", f"{count} answer", BUDGET_S)

    async def _say(self, person: Scope, role: str, words: str, within_s: float) -> None:
        body = {"role": role, "content": words, "turn_id": new_id()}
        stored = await self.safekeeping.write(person, [body], within_s=within_s)
        if stored.is_durable:
            self.acked.setdefault(person, []).append(words)
        else:
            self.unsafe += 1


def question() -> RecallRequest:
    return RecallRequest(messages=[{"role": "user", "content": "Where do I live?"}], at=now(), limit=5, min_score=0.1)


def describe_latency(took: list[float]) -> str:
    ordered = sorted(took)
    p50, p99 = (1000 * ordered[int(len(ordered) * share)] for share in (0.5, 0.99))
    return f"{p50:.1f} ms at p50 and {p99:.1f} at p99 of {len(ordered)}"


async def _healed(safekeeping: ResilientMemory) -> float:
    started = time.monotonic()
    while safekeeping.has_spilled_turns:
        assert time.monotonic() - started < HEALED_S
        await asyncio.sleep(0.05)
    return time.monotonic() - started


async def _examine(chats: Chats, service: Service) -> int:
    """Assert that every acknowledged turn is in the ledger, in order and once; return their number."""
    total = 0
    for person, words in chats.acked.items():
        stored: list[Turn] = []
        while page := await service.turns(person, after=len(stored), limit=1000):
            stored += page
        assert [turn.content for turn in stored] == words
        total += len(stored)
    return total


@pytest.mark.parametrize("way", ["stopped", "frozen"])
async def test_chats_go_on_while_the_store_is_away(
    tmp_path: Path, server: PostgresServer, sizes: Sizes, way: str, say: Callable[[str], None]
) -> None:
    settings = load({"home": tmp_path, "database": server.dsn(), "memory_timeout_s": BUDGET_S}, environ={}).settings
    service = await open_service(settings)
    safekeeping = ResilientMemory(settings, lambda: service)
    safekeeping.replay.start()
    chats, until = Chats(safekeeping), asyncio.Event()
    # Connections and models are opened on first use, which is not measured.
    await asyncio.gather(*(service.recall(Scope(f"early {n}"), question()) for n in range(PEOPLE)))
    people = [asyncio.create_task(chats.go_on(Scope(f"user {n}", "", "s"), until)) for n in range(PEOPLE)]
    await asyncio.sleep(1)
    chats.phase = "away"
    await asyncio.to_thread(server.stop if way == "stopped" else server.freeze)
    try:
        await asyncio.sleep(sizes.store_away_s)
    finally:
        await asyncio.to_thread(server.start if way == "stopped" else server.thaw)
        chats.phase = "back"
    await asyncio.sleep(1)
    until.set()
    await asyncio.gather(*people)
    healed_s = await _healed(safekeeping)
    total = await _examine(chats, service)
    await safekeeping.close()
    await service.close()
    say(f"{total} turns, healed in {healed_s:.1f} s; added to a chat:")
    for phase, took in chats.added_s.items():
        say(f"{phase}: {describe_latency(took)}")
    assert chats.unsafe == 0
    # Each user waits a few times at most, and most chats do not wait.
    waited = len(chats.added_s.get("opening", []))
    assert waited <= 5 * PEOPLE
    assert waited < len(chats.added_s["away"])
