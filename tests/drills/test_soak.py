"""Mixed traffic for a minute, or for an hour with `make soak`, while upstream, disk, database and processes fail."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from recollect.testing.scripted_llm import ScriptedLLM
from tests.drills.soak import Target, Upstream, User, open_target, quarters
from tests.support.postgres_server import PostgresServer

USERS = {"sqlite": ["anna", "bert", "cleo", "dana"], "postgres": ["emil", "fran", "gino", "hope"]}
PAUSE_S = 1.0
# Caches fill for an hour; a leak of three kilobytes per request would exceed this. In a shorter run processes are
# still warming up.
MAX_RSS_GROWTH, RSS_MIN_S, MAX_MORE_HANDLES = 0.05, 1800, 8


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.close()


@pytest.mark.drill
@pytest.mark.timeout(7200)
async def test_no_write_is_lost_no_text_leaks_and_nothing_grows_while_parts_fail(
    request: pytest.FixtureRequest, tmp_path: Path, llm: ScriptedLLM, postgres: PostgresServer, seed: int
) -> None:
    random.seed(seed)
    upstream = Upstream(llm)
    seconds = 60 * request.config.getoption("--soak-minutes")
    async with (
        open_target("sqlite", tmp_path, llm, USERS["sqlite"], None) as sqlite,
        open_target("postgres", tmp_path, llm, USERS["postgres"], postgres) as other,
    ):
        targets = [sqlite, other]
        until = time.monotonic() + seconds
        users = [User(name, target) for target in targets for name in USERS[target.name]]
        async with asyncio.TaskGroup() as tasks:
            for user in users:
                tasks.create_task(user.run(until, round_s=min(150, seconds / 4), pause_s=PAUSE_S))
            for target in targets:
                tasks.create_task(_inject(target, until, every_s=max(8, min(90, seconds / 8))))
            tasks.create_task(_watch(targets, llm, until, every_s=min(60, seconds / 12)))
    print_table(targets, seconds)
    assert not upstream.leaks, upstream.leaks[:3]
    for target in targets:
        assert target.findings.violations() == {}
        assert target.findings.verified == target.findings.acknowledged
        assert set(target.findings.faults) == set(target.faults), "a fault was never injected"
        rss_before, rss_after = quarters(target.findings.rss_mb)
        assert seconds < RSS_MIN_S or rss_after <= rss_before * (1 + MAX_RSS_GROWTH)
        handles_before, handles_after = quarters(target.findings.handles)
        assert handles_after <= handles_before + MAX_MORE_HANDLES


async def _inject(target: Target, until: float, every_s: float) -> None:
    """Inject every fault in turn; the end of the run is free of them, so that everything heals."""
    while True:
        for name in target.faults:
            await asyncio.sleep(every_s * random.uniform(0.7, 1.3))
            if time.monotonic() > until:
                return
            await target.inject(name)


async def _watch(targets: list[Target], llm: ScriptedLLM, until: float, every_s: float) -> None:
    """Sample memory and file handles, and print progress."""
    began = printed = time.monotonic()
    while (moment := time.monotonic()) < until:
        for target in targets:
            target.sample()
        llm.clear()
        if moment - printed >= every_s:
            printed = moment
            for target in targets:
                found = target.findings
                print(
                    f"{moment - began:6.0f} s {target.name:8} {found.requests:7,} requests {found.chats:6,} chats "
                    f"{found.acknowledged:6,} acknowledged {found.rss_mb[-1]:6.1f} MB {found.handles[-1]:4} handles "
                    f"{dict(found.faults)} { ({name: len(each) for name, each in found.violations().items()}) }",
                    flush=True,
                )
        await asyncio.sleep(max(0.5, every_s / 20))


def print_table(targets: list[Target], seconds: float) -> None:
    """Print all figures, a column for each store."""
    table = Table("", *(target.name for target in targets), title=f"Soak, {seconds / 60:g} minutes")
    for name, values in zip(_ROWS, zip(*map(_figures, targets), strict=True), strict=True):
        table.add_row(name, *values)
    Console(width=118).print(table)
    for target in targets:
        for name, found in target.findings.violations().items():
            print(f"{target.name}: {name}: {len(found)}", *found[:5], sep="\n  ")


_ROWS = (
    "requests", "chats", "upstream faults", "chats without full memory", "chats failed because of memory",
    "chats whose key could not be checked",
    "acknowledged writes", "of these looked for afterwards", "lost", "rounds erased", "erased text seen again",
    "texts of other users seen", "refused during faults", "refused or broken without a fault",
    "cut by a kill or the upstream",
    "faults", "chat p50 / p99", "resident memory, first to last quarter", "file handles, first to last quarter",
)  # fmt: skip


def _figures(target: Target) -> list[str]:
    found = target.findings
    took = sorted(found.chat_s)
    p50, p99 = (1000 * took[int(len(took) * share)] for share in (0.5, 0.99))
    rss, handles = quarters(found.rss_mb), quarters(found.handles)
    return [
        f"{found.requests:,}",
        f"{found.chats:,}",
        f"{found.upstream_faults:,}",
        f"{found.degraded.total():,}" + "".join(f"\n{name} {count}" for name, count in found.degraded.most_common()),
        str(len(found.failed_chats)),
        str(found.keys_unchecked),
        f"{found.acknowledged:,}",
        f"{found.verified:,}",
        str(len(found.lost)),
        str(found.erased_rounds),
        str(len(found.resurrected)),
        str(len(found.leaks)),
        f"{found.refused.total()} {dict(found.refused)}",
        str(len(found.unexpected)),
        str(found.interrupted),
        "\n".join(f"{name} {count}" for name, count in found.faults.items()),
        f"{p50:.0f} ms / {p99:.0f} ms",
        f"{rss[0]:.1f} MB to {rss[1]:.1f} MB",
        f"{handles[0]:.0f} to {handles[1]:.0f}",
    ]
