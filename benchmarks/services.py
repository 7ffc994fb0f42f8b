"""Load the REST API at a steady rate, without Redis and with it (`make bench-services`).

Requests start at random moments (a Poisson process), whether or not earlier ones are answered, and latency counts
from the planned moment. Half are recalls, a fifth searches, three tenths writes. Server, Redis and clients share a
machine. Then single recalls alternate between HTTP and a service in this process that reads the same file.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import aiohttp

from benchmarks.corpus import questions, sentences
from benchmarks.harness import fill, free_port, running_service, stop_at_end, summarize, wait_for_port
from recollect import AsyncMemory
from tests.support.redis_server import running_redis

_API = "/recollect/v1"
_OPERATIONS = {"/recall": 5, "/search": 2, "/remember": 2, "/memories": 1}


async def fill_users(home: Path, users: int, memories: int) -> None:
    """Import the memories of every user."""
    async with running_service(home=home) as service:
        for number in range(users):
            await fill(service, f"user-{number}", memories, seed=number)


@contextmanager
def running_server(home: Path, *, redis_url: str) -> Iterator[tuple[str, int]]:
    """Start a server; yield the address of its API and its process id."""
    port = free_port()
    environ = {**os.environ, "RECOLLECT_ACCESS_LOG": "false", "RECOLLECT_LOG_LEVEL": "warning"}
    if redis_url:
        environ |= {"RECOLLECT_REDIS_URL": redis_url, "RECOLLECT_CACHE_MIN_MS": "0"}
    command = [sys.executable, "-m", "recollect.cli.main", "--home", str(home), "serve", "--port", str(port)]
    process = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL)
    with stop_at_end(process):
        wait_for_port(port, process)
        yield f"http://127.0.0.1:{port}{_API}", process.pid


class Load:
    """Random requests at a fixed average rate, and their latencies."""

    def __init__(self, client: aiohttp.ClientSession, url: str, users: int) -> None:
        self._client, self._url, self._users = client, url, users
        self._random, self._questions, self._sentences = random.Random(1), questions(1), sentences(1)
        self.samples_s: dict[str, list[float]] = {operation: [] for operation in _OPERATIONS}

    async def run(self, rate: float, seconds: float) -> None:
        """Send requests for so long, and wait for all answers."""
        planned_at = started = perf_counter()
        async with asyncio.TaskGroup() as requests:
            while planned_at < started + seconds:
                await asyncio.sleep(max(0.0, planned_at - perf_counter()))
                requests.create_task(self._send(planned_at))
                planned_at += self._random.expovariate(rate)

    async def _send(self, planned_at: float) -> None:
        [operation] = self._random.choices(list(_OPERATIONS), weights=list(_OPERATIONS.values()))
        user = f"user-{self._random.randrange(self._users)}"
        await post(self._client, f"{self._url}{operation}", self._body(operation), user)
        self.samples_s[operation].append(perf_counter() - planned_at)

    def _body(self, operation: str) -> dict[str, Any]:
        match operation:
            case "/recall":
                return {"messages": next(self._questions)}
            case "/search":
                return {"query": next(self._questions)}
            case "/remember":
                return {"messages": [{"role": "user", "content": next(self._sentences)}]}
            case _:
                return {"content": next(self._sentences)}


async def post(client: aiohttp.ClientSession, url: str, body: dict[str, Any], user: str) -> None:
    """Send a request as a user, and read the answer."""
    async with client.post(url, json=body, headers={"X-Memory-User": user}) as answer:
        answer.raise_for_status()
        await answer.read()


def report(name: str, load: Load, process: int, seconds: float) -> None:
    """Print the rate and latency of each operation, and the peak memory of the server."""
    status = Path(f"/proc/{process}/status").read_text()
    peak_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    print(f"\n{name}: server at most {peak_kb / 1024:.0f} MiB")
    everything = [sample for samples in load.samples_s.values() for sample in samples]
    for operation, samples in {**load.samples_s, "all": everything}.items():
        if samples:
            print(f"{operation.lstrip('/'):12}{len(samples) / seconds:8.1f}/s   {summarize(samples)}")


async def compare_paths(home: Path, client: aiohttp.ClientSession, url: str, args: argparse.Namespace) -> None:
    """Print the latency of a recall through HTTP and in process, alternating."""
    http_s, process_s = [], []
    async with AsyncMemory(home=home) as memory:
        for number, question in enumerate(islice(questions(1), args.questions)):
            user = f"user-{number % args.users}"
            body = {"messages": question}
            # Both have the user's memories loaded before the measurement.
            await memory.recall(question, user_id=user)
            await post(client, f"{url}/recall", body, user)
            started = perf_counter()
            await memory.recall(question, user_id=user)
            between = perf_counter()
            await post(client, f"{url}/recall", body, user)
            process_s.append(between - started)
            http_s.append(perf_counter() - between)
    print(f"one recall at a time: in process {summarize(process_s)}, through HTTP {summarize(http_s)}")


async def measure(home: Path, args: argparse.Namespace) -> None:
    """Fill a home, then load a server on it."""
    await fill_users(home, args.users, args.memories)
    print(f"{args.users:,} users of {args.memories:,} memories, {args.rate:g} requests a second")
    for name, redis_url in (("without Redis", ""), ("with Redis", running_redis().url)):
        with running_server(home, redis_url=redis_url) as (url, process):
            async with aiohttp.ClientSession() as client:
                load = Load(client, url, args.users)
                await load.run(args.rate, args.seconds)
                report(name, load, process, args.seconds)
                await compare_paths(home, client, url, args)


def main() -> None:
    """Measure in a temporary folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=1000)
    parser.add_argument("--memories", type=int, default=100, help="of each user at the start")
    parser.add_argument("--rate", type=float, default=100, help="requests a second")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--questions", type=int, default=300, help="of the comparison with recalls in process")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="recollect-bench-") as folder:
        asyncio.run(measure(Path(folder) / "home", args))


if __name__ == "__main__":
    main()
