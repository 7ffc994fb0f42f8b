"""`make bench`: what the proxy adds to a chat, beside calling the upstream directly.

Upstream, proxy and clients are processes of their own on one machine, so they take processor time from each other:
read a figure beside the one of direct calls under the same load. Where more clients ask than one process can answer,
latency is the length of the queue, and the figure to read is requests a second.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.proxy_load import Load
from benchmarks.proxy_parts import Beat, Clients, await_port, free_port, meters, module, stopping
from benchmarks.proxy_peers import PEERS
from benchmarks.proxy_upstream import BRISK_S, PACED_S
from benchmarks.timing import summary

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
    """Who is asked: an upstream, or a proxy before it."""

    name: str
    port: int
    headers: dict[str, str] = field(default_factory=dict)
    users: Sequence[str] = ("default",)
    has_meters: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one measurement showed, in milliseconds and microseconds as their names say."""

    p50_ms: float
    p99_ms: float
    rate: float
    troubled: int
    failed: str
    recall_ms: float = 0.0
    stall_ms: float = 0.0
    idle_ms: float = 0.0
    cpu_us: float = 0.0


async def fill(home: Path, memories: int) -> None:
    """Give every user their memories."""
    from benchmarks.run import fill as fill_one
    from recollect.config.settings import load
    from recollect.wiring import open_embedder, open_service

    settings = load({"home": home}, environ={}).settings
    service, embedder = await open_service(settings), await open_embedder(settings)
    for number in range(2 * _USERS):
        await fill_one(service, embedder, f"user-{number}", memories, seed=number)
    await service.close()


def measured(clients: Clients, target: Target, load: Load, *, beat: Beat) -> Seen:
    """One target under one load."""
    load = replace(load, port=target.port, headers=target.headers, users=target.users)
    if target.has_meters:
        meters(target.port)
    beat.read()
    clients.begin(load)
    came = clients.end()
    visible = meters(target.port) if target.has_meters else {}
    return replace(_seen(came, visible, first=load.stream), idle_ms=beat.read() * 1e3)


def _seen(came: dict[str, Any], visible: dict[str, Any], *, first: bool) -> Seen:
    samples = came["first_s" if first else "whole_s"] or [float("nan")]
    took, recalls = summary(samples), visible.get("recalls_s") or [0.0]
    return Seen(
        p50_ms=took.p50_us / 1e3,
        p99_ms=took.p99_us / 1e3,
        rate=len(samples) / came["seconds"],
        troubled=len(came["troubles"]),
        failed=came["failed"][0] if came["failed"] else "",
        recall_ms=summary(recalls).p50_us / 1e3,
        stall_ms=visible.get("stall_s", 0.0) * 1e3,
        cpu_us=visible.get("cpu_s", 0.0) / came["asked"] * 1e6,
    )


def compare(clients: Clients, targets: Sequence[Target], load: Load, *, rounds: int) -> None:
    """All targets under one load, one after the other and again; medians of the rounds are printed."""
    beat = Beat()
    seen = [
        [measured(clients, each, replace(load, seed=number), beat=beat) for each in targets]
        for number in range(rounds)
    ]
    for at, target in enumerate(targets):
        print(_line(target.name, [each[at] for each in seen], [each[0] for each in seen]))


def _line(name: str, seen: Sequence[Seen], direct: Sequence[Seen]) -> str:
    middle = {each: median(getattr(one, each) for one in seen) for each in ("p50_ms", "p99_ms", "rate", "cpu_us")}
    text = f"  {name:<17} p50 {middle['p50_ms']:8.2f} ms  p99 {middle['p99_ms']:8.2f} ms  {middle['rate']:7,.0f}/s"
    if name == "direct":
        return text
    both = list(zip(seen, direct, strict=True))
    added = median(one.p50_ms - base.p50_ms for one, base in both)
    text += f"  added {added:8.2f} and {median(one.p99_ms - base.p99_ms for one, base in both):8.2f} ms"
    recall = median(each.recall_ms for each in seen)
    if middle["cpu_us"]:
        stall, idle = (median(getattr(each, name) for each in seen) for name in ("stall_ms", "idle_ms"))
        text += f"  cpu {middle['cpu_us']:6,.0f} us  stall {stall:4.0f} ms (an idle process {idle:.0f})"
    if recall:
        text += f"  recall {recall:6.2f} ms, beside it {added - recall:6.2f} ms"
    troubled, failed = sum(each.troubled for each in seen), next((each.failed for each in seen if each.failed), "")
    return (
        text + (f"  {troubled} went without memory" if troubled else "") + (f"  failed: {failed}" if failed else "")
    )


def started(home: Path, parts: ExitStack) -> list[Target]:
    """The upstream, and our server before it in each of its modes."""
    upstream_port, port = free_port(), free_port()
    upstream = f"http://127.0.0.1:{upstream_port}/v1"
    await_port(upstream_port, parts.enter_context(module("benchmarks.proxy_upstream", str(upstream_port))))
    server = parts.enter_context(module("benchmarks.proxy_server", str(home), str(port), upstream))
    await_port(port, server)
    targets = [Target(name="direct", port=upstream_port)]
    for name, headers in MODES.items():
        first = _USERS if name == "read and write" else 0
        readers = [f"user-{number}" for number in range(first, first + _USERS)]
        users = [f"writer-{number}" for number in range(_USERS)] if name == "memory write" else readers
        targets.append(Target(name=name, port=port, headers=headers, users=users, has_meters=True))
    return targets


def warm(clients: Clients, targets: Sequence[Target]) -> None:
    """Load what is loaded by its first use."""
    beat = Beat()
    for target in targets:
        measured(clients, target, Load(seconds=1, clients=2, stream=True, model="quick"), beat=beat)


def measure(home: Path, args: argparse.Namespace, parts: ExitStack) -> None:
    """Start everything, and compare."""
    clients = parts.enter_context(Clients())
    ours = started(home / "ours", parts)
    targets = [*ours, *_peers(home, args, parts, f"http://127.0.0.1:{ours[0].port}/v1")]
    warm(clients, targets)
    for clients_at_once in map(int, args.clients.split(",")):
        for stream, what in _ANSWERS:
            print(f"\n{what}, {clients_at_once} at a time, an upstream that answers at once ({_busy()}):")
            load = Load(seconds=args.seconds, clients=clients_at_once, stream=stream, model="quick")
            compare(clients, targets, load, rounds=args.rounds)
    for stream, what in _ANSWERS:
        # What is written is synced beside the upstream's work: here is who would wait for the disk.
        print(f"\n{what}, 1 at a time, an upstream that begins after {BRISK_S * 1e3:.0f} ms ({_busy()}):")
        load = Load(seconds=args.seconds * 2, clients=1, stream=stream, model="brisk")
        compare(clients, targets, load, rounds=args.rounds)
    for stream, what in _ANSWERS:
        print(f"\n{what}, 100 at a time, an upstream that takes its time as a model does ({_busy()}):")
        load = Load(seconds=args.seconds * 3, clients=100, stream=stream, model="paced", ramp_s=PACED_S)
        compare(clients, targets, load, rounds=args.rounds)
    slow_readers(clients, ours[-1].port, args.readers)


def _peers(home: Path, args: argparse.Namespace, parts: ExitStack, upstream: str) -> list[Target]:
    results = []
    for peer in PEERS if args.peers else ():
        port = free_port()
        try:
            version = peer.version(args.peers.resolve())
            started = stopping(peer.start(args.peers.resolve(), home / peer.name, port, upstream))
            await_port(port, parts.enter_context(started))
        except OSError as error:
            print(f"without {peer.name}: {error}")
            continue
        results.append(Target(name=f"{peer.name} {version}", port=port))
    return results


def slow_readers(clients: Clients, port: int, readers: int) -> None:
    """How much memory answers take that nobody fetches."""
    before = meters(port)["resident_mb"]
    clients.begin(Load(
        port=port, seconds=15, clients=readers, stream=True, model="endless", slow=True,
    ))  # fmt: skip
    time.sleep(10)
    during = meters(port)
    came = clients.end()
    failed = f"; failed: {came['failed'][0]}" if came["failed"] else ""
    print(
        f"\n{readers:,} clients that read a kilobyte a second of an endless answer: "
        f"{during['resident_mb']:,.0f} MiB resident (before {before:,.0f}){failed}"
    )


def _busy() -> str:
    """How busy the machine is with other things, and how fast a processor of it is at this moment."""
    start = time.process_time()
    sum(range(3_000_000))
    took = (time.process_time() - start) * 1e3
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors, 3 million additions {took:.0f} ms"


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", default="1,10,100", help="how many ask at a time")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="medians are of so many")
    parser.add_argument("--memories", type=int, default=1000, help="of each user who is read for")
    parser.add_argument("--readers", type=int, default=1000, help="slow ones")
    parser.add_argument("--peers", type=Path, help="a folder to install other proxies in, and measure them too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="recollect-bench-") as home, ExitStack() as parts:
        asyncio.run(fill(Path(home) / "ours", args.memories))
        print(f"the proxy: {args.memories:,} memories a user, medians of {args.rounds} rounds of {args.seconds:g} s")
        measure(Path(home), args, parts)


if __name__ == "__main__":
    main()
