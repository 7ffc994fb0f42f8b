"""Shared parts of the benchmarks: percentiles, filled services, and processes on free ports."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.corpus import sentences
from recollect.config.settings import load
from recollect.model.change import Author
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.recall import RecallRequest
from recollect.service.service import Service
from recollect.wiring import open_service

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

AUTHOR = Author("benchmark")
BATCH = 1000
# Calls that are not counted.
WARMUP = 5
_START_S = 120


@dataclass(frozen=True, slots=True)
class Timing:
    """Percentiles of latencies, in microseconds."""

    p50_us: float
    p99_us: float

    def __str__(self) -> str:
        return f"p50 {self.p50_us:9,.0f} us   p99 {self.p99_us:9,.0f} us"


def summarize(samples_s: list[float]) -> Timing:
    """Return the percentiles of samples in seconds."""
    ranked = sorted(samples_s)
    return Timing(ranked[len(ranked) // 2] * 1e6, ranked[min(len(ranked) - 1, int(len(ranked) * 0.99))] * 1e6)


async def time_calls(call: Callable[[int], Awaitable[object]], *, times: int, warmup: int = WARMUP) -> Timing:
    """Call repeatedly, one call at a time; the first `warmup` calls, with negative numbers, are not counted."""
    samples = []
    for number in range(-warmup, times):
        started = time.perf_counter()
        await call(number)
        if number >= 0:
            samples.append(time.perf_counter() - started)
    return summarize(samples)


@dataclass(frozen=True, slots=True)
class Cost:
    """The CPU time of a call, and the median of the microseconds of its steps."""

    timing: Timing
    steps_us: dict[str, float]


async def measure_costs(calls: Mapping[str, Callable[[], Awaitable[object]]], *, times: int) -> dict[str, Cost]:
    """Call each in turn, `times` times after the warm-up; the steps are those that their results report."""
    cpu_s: dict[str, list[float]] = {name: [] for name in calls}
    steps: dict[str, dict[str, list[float]]] = {name: {} for name in calls}
    for number in range(-WARMUP, times):
        for name, call in calls.items():
            started = time.process_time()
            result = await call()
            took_s = time.process_time() - started
            if number >= 0:
                cpu_s[name].append(took_s)
                for step, step_us in getattr(result, "steps_us", {}).items():
                    steps[name].setdefault(step, []).append(step_us)
    return {
        name: Cost(summarize(cpu_s[name]), {step: median(each) for step, each in steps[name].items()})
        for name in calls
    }


def resident_mb() -> float:
    """Return the resident memory of this process in MiB."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() / 2**20


def cpu_seconds(process: int) -> float:
    """Return the CPU time that the threads of a process have used."""
    files = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


@asynccontextmanager
async def running_service(**options: Any) -> AsyncIterator[Service]:
    """Open a service with these settings."""
    service = await open_service(load(options, environ={}).settings)
    try:
        yield service
    finally:
        await service.close()


async def fill(service: Service, user: str, count: int, *, seed: int, sessions: int = 0) -> list[str]:
    """Import `count` memories for the user, spread over `sessions`, a batch per transaction; return their texts."""
    texts = list(islice(sentences(seed), count))
    lines = [
        {"memory": text} | ({"session_id": f"session-{number % sessions}"} if sessions else {})
        for number, text in enumerate(texts)
    ]
    for start in range(0, count, BATCH):
        await service.transfer.import_lines(lines[start : start + BATCH], user=user, done=start, by=AUTHOR)
    return texts


def recall_request(text: str) -> RecallRequest:
    """Return the request to recall up to ten memories for a message."""
    return RecallRequest(messages=({"role": "user", "content": text},), at=now(), limit=10, min_score=0.0)


async def recall_once(service: Service, user: str, text: str) -> float:
    """Recall for one message; return the seconds."""
    request = recall_request(text)
    started = time.perf_counter()
    result = await service.recall(Scope(user), request)
    took_s = time.perf_counter() - started
    if not result.context.used:
        raise RuntimeError(f"no memory of {user} was used for {text!r}: {result.outcome}, {result.reason}")
    return took_s


def free_port() -> int:
    """Return a port that is not in use."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def module_process(name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Python module in a process."""
    with stop_at_end(subprocess.Popen([sys.executable, "-m", name, *arguments], stdin=subprocess.DEVNULL)) as process:
        yield process


@contextmanager
def stop_at_end(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Terminate the process at the end of the block."""
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Return when the process accepts connections; raise OSError if it ends or takes too long."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise OSError(f"no process accepts connections on port {port}")
