"""Mixed traffic of several users against `recollect serve` while parts fail, and the violations that it finds."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from recollect import AsyncMemory
from recollect.config.settings import load
from recollect.testing.llm_replies import Fault, ScriptedReply
from recollect.testing.scripted_llm import RecordedRequest, ScriptedLLM, echo
from tests.support.llm_faults import delay, hang, http_error, reset, truncated
from tests.support.postgres_server import PostgresServer
from tests.support.recollect_server import RecollectServer

# Every text names its user and a number of its own, so that a text of another user is seen wherever it appears.
CANARY = re.compile(r"zq-([a-z]+)-(\d+)-qz")
# The model of a chat names the fault of the upstream; the last two delay an answer, but do not spoil it.
UPSTREAM_FAULTS: dict[str, tuple[Fault, ...]] = {
    "http-500": (http_error(500),),
    "reset": (reset(),),
    "cut": (reset(after_bytes=60),),
    "stall": (hang(after_bytes=60),),
    "truncated": (truncated(),),
    "slow": (delay(2.0),),
    "scripted": (),
}
HARMLESS = ("slow", "scripted")
# A fault is in force this much longer: breakers close, a killed process is replaced, spilled turns are replayed.
RECOVERY_S = 45.0
STALL_TIMEOUT_S, TIMEOUT_S = 4.0, 60.0
DISK_BYTES = 512 << 20
# Erasing a whole user would revoke the user's keys.
PROJECT = "soak"
NDJSON = {"Content-Type": "application/x-ndjson"}
_THINGS = ("violin", "tent", "passport", "camera")
_numbers = itertools.count(1)


@dataclass
class Findings:
    """What happened to one store: figures, and violations that must stay empty."""

    requests: int = 0
    chats: int = 0
    upstream_faults: int = 0
    degraded: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    verified: int = 0
    erased_rounds: int = 0
    refused: Counter[int] = field(default_factory=Counter)
    interrupted: int = 0
    keys_unchecked: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    chat_s: list[float] = field(default_factory=list)
    rss_mb: list[float] = field(default_factory=list)
    handles: list[int] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    resurrected: list[str] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)
    failed_chats: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)

    def violations(self) -> dict[str, list[str]]:
        names = ("lost", "resurrected", "leaks", "failed_chats", "unexpected")
        return {name: found for name in names if (found := getattr(self, name))}


def quarters(samples: list[Any]) -> tuple[float, float]:
    """Return the medians of the first and the last quarter, without the first tenth, in which caches fill."""
    settled = samples[len(samples) // 10 :]
    size = max(1, len(settled) // 4)
    return float(median(settled[:size])), float(median(settled[-size:]))


class Upstream:
    """The scripted model: answers chats with their last message, learns a fact from each, and looks for leaks."""

    def __init__(self, llm: ScriptedLLM) -> None:
        self.leaks: list[str] = []
        llm.default = self._reply

    def _reply(self, request: RecordedRequest) -> ScriptedReply:
        owners = {name for name, _ in CANARY.findall(request.text)}
        if len(owners) > 1:
            self.leaks.append(f"a prompt has texts of {sorted(owners)}")
        lines = [json.loads(line) for line in request.text.splitlines() if line.startswith('{"line":')]
        if lines:
            new = [
                {"op": "add", "lines": [each["line"]], "content": f"Learned: {each['said']}", "importance": 0.6}
                for each in lines
                if each["who"] == "user" and CANARY.search(each["said"])
            ]
            return ScriptedReply(json.dumps({"operations": new}))
        model = request.json.get("model", "") if isinstance(request.json, dict) else ""
        return ScriptedReply(echo(request), faults=UPSTREAM_FAULTS.get(model, ()))


@dataclass
class Target:
    """A server of two processes on one store. One process is never killed, so that its memory can be followed."""

    name: str
    home: Path
    server: RecollectServer
    shared_key: str
    user_keys: dict[str, str]
    database: PostgresServer | None = None
    has_small_disk: bool = False
    findings: Findings = field(default_factory=Findings)
    ids: dict[str, str] = field(default_factory=dict)
    fault_until: float = 0.0
    killed_at: float = 0.0

    def processes(self) -> list[int]:
        """Return the ids of the serving processes, oldest first."""
        supervisor = self.server.process.pid
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        serving = [pid for pid in children if b"spawn_main" in _read(f"/proc/{pid}/cmdline")]
        return sorted(
            map(int, serving), key=lambda pid: int(_read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[19])
        )

    def sample(self) -> None:
        """Note the memory and the file handles of the process that is never killed."""
        pid = self.processes()[0]
        status = _read(f"/proc/{pid}/status").decode()
        self.findings.rss_mb.append(int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024)
        self.findings.handles.append(len(os.listdir(f"/proc/{pid}/fd")))

    @property
    def faults(self) -> dict[str, Callable[[], Any]]:
        faults: dict[str, Callable[[], Any]] = {"process killed": self._kill}
        if self.has_small_disk:
            faults["disk full"] = self._fill_disk
        if self.database is not None:
            faults |= {"database restarted": self._restart, "database frozen": self._freeze}
        return faults

    async def inject(self, name: str) -> None:
        self.fault_until = float("inf")
        await self.faults[name]()
        self.findings.faults[name] += 1
        self.fault_until = time.monotonic() + RECOVERY_S

    async def _kill(self) -> None:
        [_, *newer] = self.processes()
        for process in newer:
            self.killed_at = time.monotonic()
            os.kill(process, signal.SIGKILL)

    async def _fill_disk(self) -> None:
        ballast = self.home / "ballast"
        try:
            with ballast.open("wb", buffering=0) as file:
                for size in (1 << 20, 1 << 12):
                    try:
                        while file.write(bytes(size)) == size:
                            pass
                    except OSError:
                        pass
            await asyncio.sleep(4)
        finally:
            ballast.unlink()

    async def _restart(self) -> None:
        assert self.database is not None
        await asyncio.to_thread(self.database.kill if random.random() < 0.5 else self.database.stop)
        await asyncio.sleep(2)
        await asyncio.to_thread(self.database.start)

    async def _freeze(self) -> None:
        assert self.database is not None
        await asyncio.to_thread(self.database.freeze)
        await asyncio.sleep(3)
        await asyncio.to_thread(self.database.thaw)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


@asynccontextmanager
async def open_target(
    name: str, folder: Path, llm: ScriptedLLM, users: list[str], database: PostgresServer | None
) -> AsyncIterator[Target]:
    """Start a server with a key for each user, and one for all of them; SQLite is on a small disk if it can be."""
    home = folder / name
    home.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(home)]
    has_small_disk = database is None and not await asyncio.to_thread(subprocess.call, mount)
    settings = {
        "llm": "scripted",
        "llm_url": llm.base_url,
        "llm_api_key": "x",
        "upstream_url": llm.base_url,
        "learn_wait_s": "0",
        "job_lease_s": "5",
        "user_writes_per_minute": "0",
        "access_log": "false",
        **({"database": database.dsn()} if database else {}),
    }
    try:
        async with AsyncMemory(settings=load({"home": home, **settings}, environ={}).settings) as memory:
            shared = await memory.keys.create(everyone=True)
            keys = {user: (await memory.keys.create(user_id=user)).text for user in users}
        variables = {f"RECOLLECT_{name.upper()}": value for name, value in settings.items()}
        with RecollectServer(home, "--workers", "2", **variables) as server:
            yield Target(name, home, server, shared.text, keys, database, has_small_disk)
    finally:
        if has_small_disk:
            await asyncio.to_thread(subprocess.check_call, ["umount", "--lazy", str(home)])


class User:
    """One user: a round of mixed requests, then everything acknowledged is looked for, and erased."""

    def __init__(self, name: str, target: Target) -> None:
        self.name, self.target, self.found = name, target, target.findings
        self._http = httpx.AsyncClient(base_url=target.server.url, timeout=TIMEOUT_S)
        self._new_round()

    def _new_round(self) -> None:
        self._first = next(_numbers)
        self._turns: dict[str, str] = {}
        self._memories: dict[str, str] = {}
        self._imported: set[str] = set()
        self._forgotten: set[str] = set()

    async def run(self, until: float, round_s: float, pause_s: float) -> None:
        """Go on until a time, in rounds."""
        operations = [self._chat] * 4 + [self._respond, self._remember, self._remember, self._add, self._add]
        operations += [
            self._search,
            self._search,
            self._recall,
            self._forget,
            self._import,
            self._export,
            self._trespass,
        ]
        async with self._http:
            while time.monotonic() < until:
                round_ends = min(until, time.monotonic() + round_s * random.uniform(0.7, 1.3))
                while time.monotonic() < round_ends:
                    await random.choice(operations)()
                    await asyncio.sleep(random.uniform(0, 2 * pause_s))
                await self._verify()
                await self._erase()

    def _text(self) -> str:
        return f"My locker zq-{self.name}-{next(_numbers)}-qz holds a {random.choice(_THINGS)}."

    def _headers(self) -> dict[str, str]:
        key = random.choice([self.target.shared_key, self.target.user_keys[self.name]])
        return {"Authorization": f"Bearer {key}", "X-Memory-User": self.name, "X-Memory-Project": PROJECT}

    async def _send(
        self, method: str, path: str, headers: dict[str, str] | None = None, **more: Any
    ) -> httpx.Response | None:
        """Return the response if the request succeeded; count and judge anything else."""
        began = time.monotonic()
        self.found.requests += 1
        try:
            response = await self._http.request(method, path, headers=self._headers() | (headers or {}), **more)
        except httpx.TransportError as error:
            self.found.interrupted += 1
            # An export that fails in the middle is cut off, so that the client notices.
            is_cut = path.endswith("/export") and began < self.target.fault_until
            if not is_cut and not self._was_killed(began):
                self.found.unexpected.append(f"{method} {path}: {error!r} though no process was killed")
            return None
        self._look_for_leaks(response.text, f"{method} {path}")
        if response.is_success:
            return response
        self.found.refused[response.status_code] += 1
        is_excused = response.status_code in (429, 503, 507) and began < self.target.fault_until
        if not is_excused:
            self.found.unexpected.append(f"{method} {path}: {response.status_code} {response.text[:200]}")
        return None

    def _was_killed(self, began: float) -> bool:
        return self.target.killed_at > began - 1

    def _look_for_leaks(self, text: str, where: str) -> None:
        for owner, number in CANARY.findall(text):
            if owner != self.name:
                self.found.leaks.append(f"{where} of {self.name} has a text of {owner}")
            elif int(number) < self._first:
                self.found.resurrected.append(f"{where} of {self.name} has {number}, erased before {self._first}")

    def _acknowledge(self, kind: dict[str, str], id: str, text: str) -> None:
        self.found.acknowledged += 1
        kind[id] = text

    async def _chat(self) -> None:
        text = self._text()
        body = {"messages": [{"role": "user", "content": text}], "stream": random.random() < 0.5}
        await self._ask("/v1/chat/completions", body, text)

    async def _respond(self) -> None:
        text = self._text()
        await self._ask("/v1/responses", {"input": text, "stream": random.random() < 0.5}, text)

    async def _ask(self, path: str, body: dict[str, Any], text: str) -> None:
        """Chat. An answer that the upstream did not spoil must arrive whole, whatever happens to memory."""
        fault = random.choice(list(UPSTREAM_FAULTS)) if random.random() < 0.15 else "scripted"
        began = time.monotonic()
        self.found.requests += 1
        self.found.chats += 1
        self.found.upstream_faults += fault != "scripted"
        answer = ""
        try:
            async with self._http.stream(
                "POST",
                path,
                json={**body, "model": fault},
                headers=self._headers(),
                timeout=STALL_TIMEOUT_S if fault == "stall" else TIMEOUT_S,
            ) as response:
                status = response.headers.get("x-memory-status", "none")
                if status != "ok":
                    self.found.degraded[status] += 1
                if turn := response.headers.get("x-memory-turn"):
                    self._acknowledge(self._turns, turn, text)
                async for part in response.aiter_text():
                    answer += part
        except httpx.TransportError as error:
            if fault in HARMLESS and not self._was_killed(began):
                self.found.failed_chats.append(f"{path}: {error!r}")
            self.found.interrupted += 1
            return
        self._look_for_leaks(answer, path)
        [canary] = [match[0] for match in CANARY.finditer(text)]
        # A stream divides words between frames; its end tells that it is whole.
        is_whole = ("[DONE]" in answer or "response.completed" in answer) if body["stream"] else canary in answer
        if response.status_code == 503 and "API key cannot be checked" in answer and began < self.target.fault_until:
            # A new process cannot know whether a key is valid while the database is away.
            self.found.keys_unchecked += 1
        elif fault in HARMLESS:
            if response.status_code != 200 or not is_whole:
                self.found.failed_chats.append(f"{path}: {response.status_code} {answer[-300:]}")
            self.found.chat_s.append(time.monotonic() - began - 2.0 * (fault == "slow"))

    async def _remember(self) -> None:
        body = {"messages": [{"role": "user", "content": (text := self._text())}]}
        if response := await self._send("POST", "/recollect/v1/remember?session_id=s", json=body):
            self._acknowledge(self._turns, response.json()["turns"][0]["id"], text)

    async def _add(self) -> None:
        text = self._text()
        if response := await self._send("POST", "/recollect/v1/memories", json={"content": text}):
            self._acknowledge(self._memories, id := response.json()["id"], text)
            self.target.ids[self.name] = id

    async def _search(self) -> None:
        """Look for a memory by its words: what was acknowledged is found at once, by either process."""
        active = [id for id in self._memories if id not in self._forgotten]
        if active:
            body = {"query": self._memories[id := random.choice(active)], "limit": 20, "min_score": 0}
            response = await self._send("POST", "/recollect/v1/search", json=body)
            if response and id not in [hit["id"] for hit in response.json()["results"]]:
                self.found.lost.append(f"a search of {self.name} does not find {self._memories[id]!r}")

    async def _recall(self) -> None:
        await self._send("POST", "/recollect/v1/recall", json={"messages": "Which lockers do I have?"})

    async def _forget(self) -> None:
        active = [id for id in self._memories if id not in self._forgotten]
        if active and await self._send("DELETE", f"/recollect/v1/memories/{(id := random.choice(active))}"):
            self._forgotten.add(id)

    async def _import(self) -> None:
        texts = [self._text() for _ in range(3)]
        lines = "".join(json.dumps({"memory": text, "project_id": PROJECT}) + "\n" for text in texts)
        if await self._send("POST", "/recollect/v1/import", headers=NDJSON, content=lines):
            self.found.acknowledged += len(texts)
            self._imported |= set(texts)

    async def _export(self) -> list[dict[str, Any]] | None:
        response = await self._send("GET", "/recollect/v1/export")
        return [json.loads(line) for line in response.text.splitlines()] if response else None

    async def _trespass(self) -> None:
        """Ask for memories of another user: by id, and by name with a key of one's own."""
        others = [name for name in self.target.ids if name != self.name]
        if not others:
            return
        id = self.target.ids[other := random.choice(others)]
        own_key = {"Authorization": f"Bearer {self.target.user_keys[self.name]}"}
        for path, user, expected in (
            (f"/recollect/v1/memories/{id}", self.name, 404),
            ("/recollect/v1/memories", other, 403),
        ):
            self.found.requests += 1
            try:
                response = await self._http.get(path, headers={**own_key, "X-Memory-User": user})
            except httpx.TransportError:
                continue
            if response.status_code not in (expected, 503):
                self.found.leaks.append(f"{self.name} got {response.status_code} for {path} of {other}")

    async def _verify(self) -> None:
        """Look for every acknowledged write of the round, until all are there or too much time has passed."""
        give_up = time.monotonic() + 2 * RECOVERY_S
        while True:
            lines = await self._export()
            missing = self._missing(lines) if lines is not None else None
            if missing == []:
                break
            if time.monotonic() > give_up:
                self.found.lost += ["an export never succeeded"] if missing is None else missing
                break
            await asyncio.sleep(1)
        self.found.verified += len(self._turns) + len(self._memories) + len(self._imported)

    def _missing(self, lines: list[dict[str, Any]]) -> list[str]:
        stored = {line["id"]: line for line in lines if "id" in line}
        texts = {line["memory"] for line in stored.values() if line["category"] != "turn"}
        missing = [f"{self.name}: turn {text!r}" for id, text in self._turns.items() if id not in stored]
        missing += [f"{self.name}: memory {text!r}" for id, text in self._memories.items() if id not in stored]
        missing += [f"{self.name}: imported {text!r}" for text in self._imported - texts]
        return missing + [
            f"{self.name}: forgotten {stored[id]['memory']!r} is active"
            for id in self._forgotten & stored.keys()
            if stored[id]["status"] == "active"
        ]

    async def _erase(self) -> None:
        """Erase everything of the round, so that stores do not grow; nothing of it may appear in the next."""
        give_up = time.monotonic() + 2 * RECOVERY_S
        while not await self._send("POST", "/recollect/v1/erase", json={"target": "project", "project_id": PROJECT}):
            if time.monotonic() > give_up:
                self.found.unexpected.append(f"{self.name} could not be erased")
                return
            await asyncio.sleep(1)
        self.target.ids.pop(self.name, None)
        self.found.erased_rounds += 1
        self._new_round()
