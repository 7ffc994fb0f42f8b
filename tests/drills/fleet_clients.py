"""Clients of several servers that note acknowledged writes, and look for them through another server."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from recollect.model.ids import new_id
from tests.drills.fleet import Fleet, send_or_none

USERS = [f"person-{n}" for n in range(12)]
_NAME = re.compile(r"person-\d+")
_PLACES = "amber basin cedar delta ember fjord grove heron".split()
_THINGS = "violin telescope tent passport camera sailboat novel mask".split()
_numbers = itertools.count(1)


@dataclass
class Acked:
    """Acknowledged writes, writes that may have happened without an answer, and violations."""

    turns: dict[int, str] = field(default_factory=dict)
    tried: dict[int, str] = field(default_factory=dict)
    notes: dict[str, tuple[str, str]] = field(default_factory=dict)
    acked_at: dict[str, float] = field(default_factory=dict)
    lookups: list[float] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)
    events: dict[str, float] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    broken: int = 0


class Client:
    """One client."""

    def __init__(self, fleet: Fleet, acked: Acked) -> None:
        self._fleet, self._acked = fleet, acked
        self._http = httpx.AsyncClient(timeout=60)

    async def go_on(self, until: float) -> None:
        """Send turns and notes, and search for them, until the time is over."""
        async with self._http:
            while time.monotonic() < until:
                url = self._fleet.address()
                if url is None:
                    await asyncio.sleep(0.05)
                    continue
                await (self._say if random.random() < 0.5 else self._note)(url, random.choice(USERS))
                await asyncio.sleep(random.uniform(0.02, 0.2))

    def _request(self, method: str, path: str, user: str, body: Any, **headers: str) -> httpx.Request:
        return self._http.build_request(method, path, json=body, headers={"X-Memory-User": user, **headers})

    async def _say(self, url: str, user: str) -> None:
        number = next(_numbers)
        words = f"My locker {number} at {random.choice(_PLACES)} station holds a {random.choice(_THINGS)}."
        self._acked.tried[number] = user
        body = {"messages": [{"role": "user", "content": words}, {"role": "assistant", "content": "Noted."}]}
        answer = await send_or_none(
            self._http, self._request("POST", f"{url}/recollect/v1/remember?session_id=s", user, body)
        )
        if self._is_well(answer):
            self._acked.turns[number] = user

    async def _note(self, url: str, user: str) -> None:
        """Add a keyed note through any server that answers; then search for it through another."""
        key, number = new_id(), next(_numbers)
        body = {"content": f"{user} keeps code {number} for the {random.choice(_THINGS)}"}
        answer, used = None, url
        while answer is None or not self._is_well(answer):
            request = self._request("POST", f"{used}/recollect/v1/memories", user, body, **{"Idempotency-Key": key})
            answer = await send_or_none(self._http, request)
            if answer is None:
                self._acked.broken += 1
                await asyncio.sleep(0.05)
                used = self._fleet.address() or used
        id, at = answer.json()["id"], time.monotonic()
        self._acked.notes[id] = user, body["content"]
        self._acked.acked_at[id] = at
        await self._look(user, body["content"], id, at, but=used)

    async def _look(self, user: str, words: str, id: str, at: float, *, but: str) -> None:
        """Check that the first answer of another server has everything acknowledged before the request."""
        for _ in range(100):
            url = self._fleet.address(but)
            if url is not None:
                body = {"query": words, "limit": 20, "min_score": 0}
                answer = await send_or_none(
                    self._http, self._request("POST", f"{url}/recollect/v1/search", user, body)
                )
                if answer is not None and answer.status_code == 200:
                    hits = answer.json()["results"]
                    self._acked.lookups.append(time.monotonic() - at)
                    if id not in [hit["id"] for hit in hits]:
                        self._acked.stale.append(words)
                    self._acked.leaks += [
                        hit["memory"]
                        for hit in hits
                        if hit["user_id"] != user or {*_NAME.findall(hit["memory"])} - {user}
                    ]
                    return
            await asyncio.sleep(0.05)
        raise AssertionError("no server answered for a long time")

    def _is_well(self, answer: httpx.Response | None) -> bool:
        if answer is None:
            self._acked.broken += 1
            return False
        if answer.status_code >= 300:
            self._acked.refused.append(f"{answer.status_code}: {answer.text[:200]}")
        return answer.status_code < 300


async def follow(fleet: Fleet, acked: Acked, user: str, until: float) -> None:
    """Follow the changes of one user through any server, and resume after interruptions."""
    last = 0
    async with httpx.AsyncClient(timeout=60) as http:
        while time.monotonic() < until:
            url = fleet.address()
            if url is None:
                await asyncio.sleep(0.05)
                continue
            asking = http.stream(
                "GET",
                f"{url}/recollect/v1/changes?after={last}&within_s={max(1, int(until - time.monotonic()))}",
                headers={"X-Memory-User": user},
            )
            try:
                async with asking as answer:
                    async for line in answer.aiter_lines():
                        if line.startswith("data: {") and '"memory_id"' in line:
                            report = json.loads(line[6:])
                            last = report["id"]
                            acked.events.setdefault(report["memory_id"], time.monotonic())
            except httpx.TransportError:
                await asyncio.sleep(0.05)
