"""A hundred concurrent streams of a slow upstream: the latency added by memory, and stalls of the event loop."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import pytest

from benchmarks.proxy import Clients, Heartbeat, fill_users, measure_target, start_targets, warm_up
from benchmarks.proxy_load import Load
from benchmarks.proxy_upstream import PACED_S

STREAMS, ROUNDS = 100, 3
MOST_ADDED_MS, MOST_STALL_MS = 5.0, 50.0


@pytest.mark.drill
def test_a_hundred_streams_gain_little_beside_their_recall_and_none_holds_up_the_others(tmp_path: Path) -> None:
    asyncio.run(fill_users(tmp_path, 200))
    with ExitStack() as parts:
        clients = parts.enter_context(Clients())
        direct, *modes = start_targets(tmp_path, parts)
        warm_up(clients, [direct, *modes])
        beat = Heartbeat()
        load = Load(seconds=6, clients=STREAMS, stream=True, model="paced", ramp_s=PACED_S)
        rounds = [
            [measure_target(clients, each, load, beat=beat) for each in (direct, *modes)] for _ in range(ROUNDS)
        ]
    for at, mode in enumerate(modes, start=1):
        # Compared within a round, because machines are noisy.
        concurrent = median(each[at].p50_ms - each[0].p50_ms - each[at].recall_ms for each in rounds)
        # Without the delay of an idle process on this machine.
        stall = median(each[at].stall_ms - each[at].idle_ms for each in rounds)
        print(f"{mode.name}: {concurrent:.2f} ms beside recall at p50, stalls of {stall:.0f} ms at most")
        assert concurrent <= MOST_ADDED_MS
        assert stall < MOST_STALL_MS
        assert not any(each[at].failed or each[at].without_memory for each in rounds)
