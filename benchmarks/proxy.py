"""Measure the latency that the proxy adds to a chat, compared with calling the upstream directly (`make bench`).

Upstream, proxy and clients are separate processes on one machine and compete for its cores: compare a figure with
that of direct calls under the same load. With more clients than one process can answer, latency is the length of the
queue, and requests per second is the figure to read.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import (
    fill,
    free_port,
    module_process,
    running_service,
    summarize,
    wait_for_port,
)
from benchmarks.proxy_load import Load
from benchmarks.proxy_server import BEAT_S, METRICS
from benchmarks.proxy_upstream import BRISK_S, PACED_S

MODES: dict[str, dict[str, str]] = {
    "memory off": {"x-memory": "off"},
    "memory read": {"x-memory": "read"},
    "memory write": {"x-memory": "write"},
    "read and write": {},
}
_USERS = 20
_ANSWERS = ((False, "whole answers"), (True, "to the first token"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An upstream, or a proxy in front of it."""

    name: str
    port: int
    headers: dict[str, str] = field(default_factory=dict)
    users: Sequence[str] = ("default",)
    has_metrics: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The figures of one target under one load."""

    p50_ms: float
    p99_ms: float
    rate: float
    without_memory: int
    failed: str
    recall_ms: float = 0.0
    stall_ms: float = 0.0
    idle_ms: float = 0.0
    cpu_us: float = 0.0


class Clients:
    """The process that makes the load; use it in a `with`."""

    def __enter__(self) -> Clients:
        command = [sys.executable, "-m", "benchmarks.proxy_load"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        return self

    def __exit__(self, *_: object) -> None:
        self._stdin.close()
        self._process.wait(30)
        self._stdout.close()

    def begin(self, load: Load) -> None:
        """Start the load."""
        self._stdin.write(json.dumps(asdict(load)).encode() + b"\n")
        self._stdin.flush()

    def end(self) -> dict[str, Any]:
        """Wait for the end of the load; return its results."""
        return dict(json.loads(self._stdout.readline()))


class Heartbeat:
    """Measure how late an idle thread wakes up: the stalls that the machine itself causes."""

    def __init__(self) -> None:
        self._latest_s = 0.0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            due = time.perf_counter() + BEAT_S
            time.sleep(BEAT_S)
            self._latest_s = max(self._latest_s, time.perf_counter() - due)

    def read(self) -> float:
        """Return the longest delay in seconds since the last call."""
        latest_s, self._latest_s = self._latest_s, 0.0
        return latest_s


def read_metrics(port: int) -> dict[str, Any]:
    """Return the metrics of our server since the last call."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{METRICS}") as answer:
        return dict(json.load(answer))


async def fill_users(home: Path, memories: int) -> None:
    """Import the memories of every user."""
    async with running_service(home=home) as service:
        for number in range(2 * _USERS):
            await fill(service, f"user-{number}", memories, seed=number)


def measure_target(clients: Clients, target: Target, load: Load, *, beat: Heartbeat) -> Measurement:
    """Measure one target under one load."""
    load = replace(load, port=target.port, headers=target.headers, users=target.users)
    if target.has_metrics:
        read_metrics(target.port)
    beat.read()
    clients.begin(load)
    result = clients.end()
    metrics = read_metrics(target.port) if target.has_metrics else {}
    return replace(_measurement(result, metrics, first=load.stream), idle_ms=beat.read() * 1e3)


def _measurement(result: dict[str, Any], metrics: dict[str, Any], *, first: bool) -> Measurement:
    samples = result["first_s" if first else "whole_s"] or [float("nan")]
    took, recalls = summarize(samples), metrics.get("recalls_s") or [0.0]
    return Measurement(
        p50_ms=took.p50_us / 1e3,
        p99_ms=took.p99_us / 1e3,
        rate=len(samples) / result["seconds"],
        without_memory=len(result["troubles"]),
        failed=result["failed"][0] if result["failed"] else "",
        recall_ms=summarize(recalls).p50_us / 1e3,
        stall_ms=metrics.get("stall_s", 0.0) * 1e3,
        cpu_us=metrics.get("cpu_s", 0.0) / result["asked"] * 1e6,
    )


def compare(clients: Clients, targets: Sequence[Target], load: Load, *, rounds: int) -> None:
    """Measure all targets under one load, in rounds; print the medians."""
    beat = Heartbeat()
    measurements = [
        [measure_target(clients, each, replace(load, seed=number), beat=beat) for each in targets]
        for number in range(rounds)
    ]
    for at, target in enumerate(targets):
        if failed := next((each[at].failed for each in measurements if each[at].failed), ""):
            raise RuntimeError(f"{target.name}: {failed}")
        print(_line(target.name, [each[at] for each in measurements], [each[0] for each in measurements]))


def _line(name: str, measurements: Sequence[Measurement], direct: Sequence[Measurement]) -> str:
    middle = {
        each: median(getattr(one, each) for one in measurements) for each in ("p50_ms", "p99_ms", "rate", "cpu_us")
    }
    text = f"  {name:<17} p50 {middle['p50_ms']:8.2f} ms  p99 {middle['p99_ms']:8.2f} ms  {middle['rate']:7,.0f}/s"
    if name == "direct":
        return text
    both = list(zip(measurements, direct, strict=True))
    added = median(one.p50_ms - base.p50_ms for one, base in both)
    text += f"  added {added:8.2f} and {median(one.p99_ms - base.p99_ms for one, base in both):8.2f} ms"
    recall = median(each.recall_ms for each in measurements)
    if middle["cpu_us"]:
        stall, idle = (median(getattr(each, name) for each in measurements) for name in ("stall_ms", "idle_ms"))
        text += f"  cpu {middle['cpu_us']:6,.0f} us  stall {stall:4.0f} ms (an idle process {idle:.0f})"
    if recall:
        text += f"  recall {recall:6.2f} ms, the rest {added - recall:6.2f} ms"
    without = sum(each.without_memory for each in measurements)
    return text + (f"  {without} without memory" if without else "")


def start_targets(home: Path, parts: ExitStack) -> list[Target]:
    """Start the upstream and our server; return the upstream, and our server in each mode."""
    upstream_port, port = free_port(), free_port()
    upstream = f"http://127.0.0.1:{upstream_port}/v1"
    wait_for_port(upstream_port, parts.enter_context(module_process("benchmarks.proxy_upstream", str(upstream_port))))
    server = parts.enter_context(module_process("benchmarks.proxy_server", str(home), str(port), upstream))
    wait_for_port(port, server)
    targets = [Target(name="direct", port=upstream_port)]
    for name, headers in MODES.items():
        first = _USERS if name == "read and write" else 0
        readers = [f"user-{number}" for number in range(first, first + _USERS)]
        users = [f"writer-{number}" for number in range(_USERS)] if name == "memory write" else readers
        targets.append(Target(name=name, port=port, headers=headers, users=users, has_metrics=True))
    return targets


def warm_up(clients: Clients, targets: Sequence[Target]) -> None:
    """Load what is loaded on first use."""
    beat = Heartbeat()
    for target in targets:
        measure_target(clients, target, Load(seconds=1, clients=2, stream=True, model="quick"), beat=beat)


def measure(home: Path, args: argparse.Namespace, parts: ExitStack) -> None:
    """Start all processes, and compare the targets."""
    clients = parts.enter_context(Clients())
    targets = start_targets(home, parts)
    warm_up(clients, targets)
    for clients_at_once in map(int, args.clients.split(",")):
        for stream, what in _ANSWERS:
            print(f"\n{what}, {clients_at_once} at a time, an upstream that answers at once ({_busy()}):")
            load = Load(seconds=args.seconds, clients=clients_at_once, stream=stream, model="quick")
            compare(clients, targets, load, rounds=args.rounds)
    for stream, what in _ANSWERS:
        # Writes are synced while the upstream works; with one client at a time a wait for the disk would show.
        print(f"\n{what}, one at a time, an upstream that begins after {BRISK_S * 1e3:.0f} ms ({_busy()}):")
        load = Load(seconds=args.seconds * 2, clients=1, stream=stream, model="brisk")
        compare(clients, targets, load, rounds=args.rounds)
    for stream, what in _ANSWERS:
        print(f"\n{what}, {args.streams} at a time, an upstream as slow as a model ({_busy()}):")
        load = Load(seconds=args.seconds * 3, clients=args.streams, stream=stream, model="paced", ramp_s=PACED_S)
        compare(clients, targets, load, rounds=args.rounds)
    slow_readers(clients, targets[-1].port, args)


def slow_readers(clients: Clients, port: int, args: argparse.Namespace) -> None:
    """Print the memory used by answers that are read slowly."""
    before = read_metrics(port)["resident_mb"]
    seconds = min(15.0, args.seconds * 7)
    clients.begin(Load(port=port, seconds=seconds, clients=args.readers, stream=True, model="endless", slow=True))
    time.sleep(seconds * 0.7)
    during = read_metrics(port)
    result = clients.end()
    failed = f"; failed: {result['failed'][0]}" if result["failed"] else ""
    print(
        f"\n{args.readers:,} clients that read a kilobyte a second of an endless answer: "
        f"{during['resident_mb']:,.0f} MiB resident (before {before:,.0f}){failed}"
    )


def _busy() -> str:
    """Describe how busy the machine is, and how fast a core is at this moment."""
    start = time.process_time()
    sum(range(3_000_000))
    took = (time.process_time() - start) * 1e3
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors, 3 million additions {took:.0f} ms"


def main() -> None:
    """Fill a home, then measure the proxy on it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", default="1,10,100", help="concurrent clients of a fast upstream")
    parser.add_argument("--streams", type=int, default=100, help="concurrent clients of a slow upstream")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="rounds to take medians of")
    parser.add_argument("--memories", type=int, default=1000, help="of each user")
    parser.add_argument("--readers", type=int, default=1000, help="slow readers")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="recollect-bench-") as home, ExitStack() as parts:
        asyncio.run(fill_users(Path(home), args.memories))
        print(f"the proxy: {args.memories:,} memories a user, medians of {args.rounds} rounds of {args.seconds:g} s")
        measure(Path(home), args, parts)


if __name__ == "__main__":
    main()
