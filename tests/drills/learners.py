"""Processes that send turns and processes that learn from them, killed at chosen points."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect import remember
from recollect.config.fields import SessionSettings
from recollect.deps import Deps
from recollect.index.exact import ExactIndex
from recollect.ledger.ledger import Ledger
from recollect.maintenance.worker import RetryPolicy
from recollect.model.change import FinishJob
from recollect.model.scope import Scope
from recollect.models.openai_chat import OpenAIChat
from recollect.remember import LearningConfig
from recollect.service.jobs import JobService
from recollect.testing.fake_embedder import FakeEmbedder
from recollect.testing.scripted_llm import RecordedRequest
from recollect.write.triggers import Triggers
from tests.drills.children import Countdown, watch_statements
from tests.drills.stores import open_store
from tests.drills.writers import BY, MODEL

USERS = 4
LEARNING = LearningConfig(by="llm", triggers=Triggers(), sessions=SessionSettings(compress_every=0))
# Short, so that a drill does not wait for the leases of killed workers; a slow worker renews it.
RETRY_POLICY = RetryPolicy(lease_s=0.6, tries=1000, first_wait_s=0.05, max_wait_s=0.2)
LOCKER = re.compile(r"locker (\d+)")
_PLACES = "amber basin cedar delta ember fjord grove heron".split()
_THINGS = "violin telescope tent passport camera sailboat novel mask".split()


@dataclass(frozen=True, slots=True)
class Crash:
    """Where a worker dies: at the n-th time that it comes to a point, or when somebody kills it if there is none.

    "leased" is with a job taken, "answered" after the model has, "before" and "after" the effects commit, "within"
    before the n-th statement of the writes from then on; "between" is for a worker that is broken on purpose: it
    writes what it learned, and only then that the job is done.
    """

    point: str = ""
    times: int = 1


POINTS = ("leased", "answered", "before", "within", "after")


async def talk(address: str, notes: Path, number: int) -> None:
    """Send turns until killed, and note each that was acknowledged."""
    ledger = await open_store(address)
    deps = _deps(ledger, None)
    with notes.open("a") as stored:
        for at in range(1_000_000):
            locker = number * 1_000_000 + at
            text = f"My locker {locker} at {random.choice(_PLACES)} station holds a {random.choice(_THINGS)}."
            messages = [{"role": "user", "content": text}, {"role": "assistant", "content": "Noted."}]
            scope = Scope(f"user {random.randrange(USERS)}", "", "s")
            appended = await remember.remember(scope, messages, deps, LEARNING, by=BY)
            stored.write(f"{appended.turns[0].id} {locker}\n")
            stored.flush()
            await asyncio.sleep(random.uniform(0.01, 0.08))


async def work(address: str, llm_url: str, crash: Crash, lease_s: float = RETRY_POLICY.lease_s) -> None:
    """Learn from the turns until killed, or until the crash point is reached."""
    ledger = await open_store(address)
    chat = OpenAIChat(llm_url, "key", model="scripted", timeout_s=60)
    _arm(address, ledger, chat, crash)
    timeout = RETRY_POLICY if lease_s == RETRY_POLICY.lease_s else RetryPolicy(lease_s=lease_s)
    jobs = JobService(_deps(ledger, chat), LEARNING, retry_policy=timeout)
    jobs.worker.start()
    await asyncio.Event().wait()


def _deps(ledger: Ledger, chat: OpenAIChat | None) -> Deps:
    embedder = FakeEmbedder(MODEL.dimensions, name=MODEL.name)
    return Deps(ledger, ExactIndex(ledger, MODEL, budget_bytes=1 << 22), embedder, chat)


def _arm(address: str, ledger: Any, chat: OpenAIChat, crash: Crash) -> None:
    countdown = Countdown(crash.times)
    countdown.runs = True
    match crash.point:
        case "leased":
            ledger.lease = _dies_after(ledger.lease, countdown, when=lambda jobs, _: bool(jobs))
        case "answered":
            chat.complete = _dies_after(chat.complete, countdown)  # type: ignore[method-assign]
            chat.answer = _dies_after(chat.answer, countdown)  # type: ignore[method-assign]
        case "after":
            ledger.apply = _dies_after(ledger.apply, countdown, when=lambda _, named: _finishes(named))
        case "before" | "between":
            ledger.apply = _dies_before_the_end(ledger.apply, countdown, changes_first=crash.point == "between")
        case "within":
            countdown.runs = False
            watch_statements(address, countdown)
            ledger.apply = _starting(ledger.apply, countdown)


def _finishes(named: dict[str, Any]) -> bool:
    return any(isinstance(effect, FinishJob) for effect in named.get("effects", ()))


def _dies_after(
    call: Callable[..., Awaitable[Any]],
    countdown: Countdown,
    *,
    when: Callable[[Any, dict[str, Any]], bool] = lambda answer, named: True,
) -> Callable[..., Awaitable[Any]]:
    async def called(*arguments: Any, **named: Any) -> Any:
        answer = await call(*arguments, **named)
        if when(answer, named):
            countdown.tick()
        return answer

    return called


def _dies_before_the_end(
    apply: Callable[..., Awaitable[Any]], countdown: Countdown, *, changes_first: bool
) -> Callable[..., Awaitable[Any]]:
    async def applied(scope: Scope, changes: Any, **named: Any) -> Any:
        if _finishes(named):
            if changes_first:
                await apply(scope, changes, by=named["by"])
                changes = []
            countdown.tick()
        return await apply(scope, changes, **named)

    return applied


def _starting(apply: Callable[..., Awaitable[Any]], countdown: Countdown) -> Callable[..., Awaitable[Any]]:
    async def applied(*arguments: Any, **named: Any) -> Any:
        countdown.runs = True
        return await apply(*arguments, **named)

    return applied


def answer(request: RecordedRequest) -> str:
    """Return the model's answer: one new fact from each new turn, in words that never repeat."""
    lines = [json.loads(line) for line in request.text.splitlines() if line.startswith('{"line":')]
    operations = [
        {"op": "add", "lines": [line["line"]], "content": _reworded(line["said"]), "importance": 0.6}
        for line in lines
        if line["who"] == "user" and LOCKER.search(line["said"])
    ]
    return json.dumps({"operations": operations})


def _reworded(text: str) -> str:
    locker, place, thing = re.findall(r"locker (\d+) at (\w+) station holds a (\w+)", text)[0]
    return random.choice(
        [
            f"The user's locker {locker} at {place} station holds a {thing}",
            f"A {thing} is what locker {locker} of the user holds, which is at {place} station",
            f"At {place} station there is locker {locker}, and in it the user has a {thing}",
        ]
    )
