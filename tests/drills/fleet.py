"""Servers and workers on one database, each a process of its own that is killed and started again."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.support.recollect_server import RecollectServer, environment

# Short, so that what a killed worker had begun is soon taken over; one that is only slow renews it.
LEASE_S = 3
_COMMAND = [sys.executable, "-m", "recollect.cli.main"]


@dataclass
class Server:
    """`recollect serve`, as often as it is started; it does no jobs."""

    home: Path
    variables: dict[str, str]
    running: RecollectServer | None = None
    url: str | None = None

    async def start(self) -> None:
        """Return when it answers; from then on it has an address."""

        def start() -> str:
            self.home.mkdir(exist_ok=True)
            self.running = RecollectServer(self.home, **self.variables, RECOLLECT_WORKER="false")
            self.running.wait_until_healthy()
            return self.running.url

        self.url = await asyncio.to_thread(start)

    async def kill(self) -> None:
        """End it with no warning."""
        running, self.running, self.url = self.running, None, None
        assert running is not None
        assert running.process.poll() is None, f"a server ended by itself:\n{running.log[-3000:]}"
        await asyncio.to_thread(running.__exit__)


@dataclass
class Worker:
    """`recollect worker`, as often as it is started."""

    home: Path
    variables: dict[str, str]
    process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Return when it takes jobs."""

        def begun() -> None:
            self.home.mkdir(exist_ok=True)
            with (self.home.parent / f"{self.home.name}.log").open("ab") as log:
                self.process = subprocess.Popen(
                    [*_COMMAND, "worker"],
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=environment(self.home, **self.variables),
                )
            assert self.process.stdout is not None
            assert self.process.stdout.readline().startswith(b"Working as ")

        await asyncio.to_thread(begun)

    async def kill(self) -> None:
        process, self.process = self.process, None
        assert process is not None
        assert process.poll() is None, f"a worker ended by itself: {self.home}"
        process.kill()
        await asyncio.to_thread(process.communicate)


@dataclass
class Fleet:
    """Everything that runs; use it in an `async with`."""

    servers: list[Server]
    workers: list[Worker]
    kills: dict[str, int] = field(default_factory=lambda: {"servers": 0, "workers": 0})

    @classmethod
    def on(cls, folder: Path, *, servers: int, workers: int, **variables: str) -> Fleet:
        return cls(
            [Server(folder / f"server-{n}", variables) for n in range(servers)],
            [Worker(folder / f"worker-{n}", variables) for n in range(workers)],
        )

    async def __aenter__(self) -> Fleet:
        await asyncio.gather(*(each.start() for each in (*self.servers, *self.workers)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self.servers:
            if server.running is not None:
                server.running.__exit__()
        for worker in self.workers:
            if worker.process is not None:
                worker.process.kill()
                worker.process.communicate()

    async def kill_at_random(self, until: float, seed: int) -> None:
        """Kill each of them now and then and start it again a moment later; one server is always there."""
        members = [*self.servers, *self.workers]
        chances = [random.Random(seed + n) for n in range(len(members))]
        await asyncio.gather(
            *(self._kill(each, until, chance) for each, chance in zip(members, chances, strict=True))
        )

    async def _kill(self, member: Server | Worker, until: float, chance: random.Random) -> None:
        kind = "servers" if isinstance(member, Server) else "workers"
        while True:
            await asyncio.sleep(chance.uniform(0.5, 8))
            if time.monotonic() > until:
                return
            if kind == "servers" and sum(server.url is not None for server in self.servers) < 2:
                continue
            await member.kill()
            self.kills[kind] += 1
            await asyncio.sleep(chance.uniform(0, 1))
            await member.start()

    def address(self, but: str | None = None) -> str | None:
        """One of the servers that are there, another than a given one if there is any."""
        there = [server.url for server in self.servers if server.url is not None]
        rest = [url for url in there if url != but]
        return random.choice(rest or there) if there else None


async def send_or_none(client: httpx.AsyncClient, request: httpx.Request) -> httpx.Response | None:
    """The answer; None if whoever was to give it is gone."""
    try:
        return await client.send(request)
    except httpx.TransportError:
        return None
