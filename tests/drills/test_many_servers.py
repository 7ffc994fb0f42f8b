"""Three servers and two workers on one PostgreSQL, killed at random: together they behave as one."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from recollect.testing.scripted_llm import ScriptedLLM
from tests.drills.fleet import LEASE_S, Fleet
from tests.drills.fleet_clients import USERS, Acked, Client, follow
from tests.drills.learners import LOCKER, answer
from tests.support.postgres_server import PLAIN_ROLE, SUPERUSER, running_server

CLIENTS = 6
DRAINED_S = 240.0
# What is written through one server is found by whoever asks another afterwards; who follows changes hears of them
# this much later at most, while servers are killed.
DELIVERY_TIMEOUT_S = 30.0


@pytest.fixture
async def database() -> AsyncIterator[str]:
    async with running_server().database(role=PLAIN_ROLE) as dsn:
        yield dsn


@pytest.fixture
async def aside(database: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(database.replace(f"//{PLAIN_ROLE}@", f"//{SUPERUSER}@"))
    yield connection
    await connection.close()


def variables(database: str, llm: ScriptedLLM) -> dict[str, str]:
    report = {
        "database": database,
        "llm": "scripted",
        "llm_url": llm.base_url,
        "llm_api_key": "x",
        "learn_wait_s": "0",
        "job_lease_s": str(LEASE_S),
        "job_tries": "100",
        "compress_every": "0",
        "session_episode": "false",
        "user_writes_per_minute": "0",
        "nightly_maintenance": "",
        "postgres_connections": "6",
        "access_log": "false",
    }
    return {f"RECOLLECT_{name.upper()}": value for name, value in report.items()}


@pytest.mark.drill
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("lasting_s", [pytest.param(40, id="short"), pytest.param(300, id="long")])
async def test_servers_and_workers_on_one_database_behave_as_one_through_kill_9(
    lasting_s: int, database: str, aside: Any, llm: ScriptedLLM, tmp_path: Path, seed: int, say: Callable[[str], None]
) -> None:
    llm.default = answer
    acked = Acked()
    async with Fleet.on(tmp_path, servers=3, workers=2, **variables(database, llm)) as fleet:
        until = time.monotonic() + lasting_s
        clients = [Client(fleet, acked).go_on(until) for _ in range(CLIENTS)]
        followers = [follow(fleet, acked, user, until + 5) for user in USERS[:2]]
        await asyncio.gather(fleet.kill_at_random(until, seed), *clients, *followers)
        drained_s = await _drained(aside)
    assert not acked.refused, acked.refused[:3]
    assert not acked.leaks, acked.leaks[:3]
    assert not acked.stale, f"{len(acked.stale)} of {len(acked.lookups)} were not found through another server"
    await _examine_notes(aside, acked)
    learned = await _examine_turns(aside, acked)
    followed = {id for id, (user, _) in acked.notes.items() if user in USERS[:2]}
    assert followed <= acked.events.keys(), "a change was never heard of"
    late = sorted(acked.events[id] - acked.acked_at[id] for id in followed)
    assert late[-1] < DELIVERY_TIMEOUT_S
    taken_over = await aside.fetchval("SELECT count(*) FROM jobs WHERE tries > 1")
    lookups = sorted(acked.lookups)
    say(f"{lasting_s} s, {fleet.kills['servers']} servers and {fleet.kills['workers']} workers killed")
    say(f"{len(acked.turns):,} turns acknowledged of {len(acked.tried):,} said, {learned:,} facts, each once")
    say(f"{len(acked.notes):,} notes; {acked.broken} answers never came; {taken_over} jobs taken over")
    say(f"{len(lookups):,} looks through another server, 0 stale: answer after {_describe_latency(lookups)}")
    say(
        f"changes heard through another server after {_describe_latency(late)}; "
        f"all learned {drained_s:.1f} s after the end"
    )


def _describe_latency(took: list[float]) -> str:
    p50, p99 = (1000 * took[int(len(took) * share)] for share in (0.5, 0.99))
    return f"{p50:.0f} ms at p50, {p99:.0f} at p99, {1000 * took[-1]:.0f} at most"


async def _drained(rejected: Any) -> float:
    """Wait until no job waits; return the seconds."""
    began = time.monotonic()
    while await rejected.fetchval("SELECT count(*) FROM jobs WHERE next_at IS NOT NULL AND kind = 'extract'"):
        assert time.monotonic() - began < DRAINED_S, "jobs are left over"
        await asyncio.sleep(0.2)
    return time.monotonic() - began


async def _examine_notes(rejected: Any, acked: Acked) -> None:
    """Assert that every acknowledged note is stored once, for its user."""
    rows = await rejected.fetch("SELECT id, user_id, content FROM memories WHERE content LIKE '% keeps code %'")
    stored = {row["id"]: (row["user_id"], row["content"]) for row in rows}
    assert acked.notes == stored
    assert len({content for _, content in stored.values()}) == len(stored), "a note was kept twice"


async def _examine_turns(rejected: Any, acked: Acked) -> int:
    """Every turn that was acknowledged is there, nobody else's, and taught exactly one thing; gives how many did."""
    rows = await rejected.fetch("SELECT user_id, category, content FROM memories WHERE content ~ 'locker \\d+'")
    body = {_locker(row["content"]): row["user_id"] for row in rows if row["category"] == "turn"}
    learned = Counter(_locker(row["content"]) for row in rows if row["category"] != "turn")
    assert len(body) == sum(row["category"] == "turn" for row in rows), "a turn was kept twice"
    assert acked.turns.items() <= body.items() <= acked.tried.items()
    assert all(body[_locker(row["content"])] == row["user_id"] for row in rows), "a fact is another user's"
    assert learned == dict.fromkeys(body, 1), "a turn was learned from twice, or never"
    dead = await rejected.fetchval("SELECT count(*) FROM jobs WHERE state = 'dead'")
    assert not dead
    return len(learned)


def _locker(content: str) -> int:
    match = re.search(LOCKER, content)
    assert match
    return int(match[1])
