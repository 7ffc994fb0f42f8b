"""`make bench-services`: a minute of steady load on the memory services, by locust, without Redis and with it.

Server, Redis and locust share one machine. What the way through HTTP adds to a recall is measured afterwards, one
question at a time, asked by turns of the server and of a service in this process that reads the same file.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import aiohttp

from benchmarks.corpus import questions, sentences
from benchmarks.proxy_parts import await_port, free_port, stopping
from benchmarks.timing import summary
from recollect import AsyncMemory
from tests.support.redis_server import RedisServer

_CLIENTS = 50
_API = "/recollect/v1"
_LOAD = Path(__file__).parent / "services_load.py"


async def fill(home: Path, users: int, each: int) -> None:
    """Give every user some memories."""
    async with AsyncMemory(home=home) as memory:
        for number in range(users):
            lines = [{"memory": text} for text in islice(sentences(number), each)]
            await memory.import_(lines, user_id=f"user-{number}")
            if number % 100 == 99:
                print(f"\r{number + 1} of {users} users have memories", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


@contextmanager
def served(home: Path, *, redis: RedisServer | None) -> Iterator[tuple[int, int]]:
    """A server of its own process: its port and its process id."""
    port = free_port()
    environ = {**os.environ, "RECOLLECT_ACCESS_LOG": "false", "RECOLLECT_LOG_LEVEL": "warning"}
    if redis is not None:
        environ |= {"RECOLLECT_REDIS_URL": redis.url, "RECOLLECT_CACHE_FROM_MS": "0"}
    command = [sys.executable, "-m", "recollect.cli.main", "--home", str(home), "serve", "--port", str(port)]
    process = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL)
    with stopping(process):
        await_port(port, process)
        yield port, process.pid


def loaded(port: int, args: argparse.Namespace, folder: Path) -> list[dict[str, str]]:
    """What locust counted, a row for each kind of request and one for all."""
    environ = {**os.environ, "BENCH_USERS": str(args.users), "BENCH_PACE": str(args.rate / _CLIENTS)}
    command = [
        sys.executable, "-m", "locust", "--headless", "--only-summary", "-f", str(_LOAD),
        "--host", f"http://127.0.0.1:{port}", "-u", str(_CLIENTS), "-r", str(_CLIENTS), "-t", f"{args.seconds}s",
        "--csv", str(folder / "load"), "--loglevel", "ERROR",
    ]  # fmt: skip
    done = subprocess.run(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    rows = folder / "load_stats.csv"
    if not rows.exists():
        raise SystemExit(f"locust did not run: {done.stderr}")
    with rows.open(newline="") as file:
        return list(csv.DictReader(file))


def peak_mb(process: int) -> float:
    """The most memory a process has had."""
    status = Path(f"/proc/{process}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def report(name: str, rows: Sequence[dict[str, str]], process: int, seconds: float) -> None:
    """Print what the load came to."""
    print(f"\n{name}: {peak_mb(process):.0f} MiB at most")
    print(f"{'':12}{'requests':>10}{'a second':>10}{'failed':>8}{'p50 ms':>8}{'p95 ms':>8}{'p99 ms':>8}")
    for row in rows:
        count = int(row["Request Count"])
        print(
            f"{row['Name'].lstrip('/'):12}{count:10,}{count / seconds:10.1f}{row['Failure Count']:>8}"
            f"{row['50%']:>8}{row['95%']:>8}{row['99%']:>8}"
        )


async def way_through(home: Path, port: int, users: int, count: int) -> None:
    """Print what a recall takes through HTTP and in process, by turns."""
    there, here = [], []
    async with (
        AsyncMemory(home=home) as memory,
        # A light one: what a heavy client takes by itself would be half of the difference.
        aiohttp.ClientSession() as client,
    ):

        async def ask(user: str, question: str) -> None:
            url, headers = f"http://127.0.0.1:{port}{_API}/recall", {"X-Memory-User": user}
            async with client.post(url, json={"messages": question}, headers=headers) as answer:
                answer.raise_for_status()
                await answer.read()

        for number, question in enumerate(islice(questions(1), count)):
            user = f"user-{number % users}"
            # Both have seen the user's memories before: what is compared is the way, not who reads the file first.
            await memory.recall(question, user_id=user)
            await ask(user, question)
            started = time.perf_counter()
            await memory.recall(question, user_id=user)
            between = time.perf_counter()
            await ask(user, question)
            here.append(between - started)
            there.append(time.perf_counter() - between)
    one, other = summary(here), summary(there)
    print(
        f"one recall at a time: in process p50 {one.p50_us / 1000:.2f} ms, through HTTP {other.p50_us / 1000:.2f} ms "
        f"(+{(other.p50_us - one.p50_us) / 1000:.2f} ms); "
        f"p99 {one.p99_us / 1000:.2f} and {other.p99_us / 1000:.2f} ms"
    )


def main() -> None:
    """Fill a home, then load a server on it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--users", type=int, default=1000)
    parser.add_argument("--memories", type=int, default=100, help="of each user, to begin with")
    parser.add_argument("--rate", type=float, default=100, help="requests a second")
    parser.add_argument("--seconds", type=int, default=60)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        asyncio.run(fill(home, args.users, args.memories))
        print(f"{args.users:,} users, {args.users * args.memories:,} memories, {args.rate:g} requests a second")
        redis = RedisServer()
        redis.start()
        try:
            for name, shared in (("without Redis", None), ("with Redis", redis)):
                with served(home, redis=shared) as (port, process):
                    rows = loaded(port, args, Path(folder))
                    report(name, rows, process, args.seconds)
                    asyncio.run(way_through(home, port, args.users, 300))
        finally:
            redis.close()


if __name__ == "__main__":
    main()
