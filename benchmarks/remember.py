"""What remembering costs: turns acknowledged, jobs done, and what a model is asked, beside what others ask."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.exchanges import Exchange, hundred, telling
from benchmarks.peers import Cost, agent_cli, mem0_1, mem0_2
from benchmarks.timing import summary, timed
from recollect import remember
from recollect.config.settings import load
from recollect.deps import Deps
from recollect.index.exact import ExactIndex
from recollect.model.change import Author
from recollect.model.scope import Scope
from recollect.models.chat import ChatMessage, Form, ModelAnswer
from recollect.remember import LearningConfig
from recollect.service.jobs import JobService
from recollect.sessions.lifecycle import SessionConfig
from recollect.wiring import open_embedder, open_ledger

BY = Author("bench")
WRITERS = 64
SESSION = 20


class ScriptedChat:
    """Answers at once, in this process: of each new turn what is known to be in it, and that all of it is new."""

    form: Form = "schema"
    model = "scripted"

    def __init__(self, report: Sequence[Exchange] = ()) -> None:
        self.cost = Cost("recollect")
        self.by_step: dict[str, int] = {}
        self._facts = {each.message: each.facts for each in report}

    async def answer(self, messages: Sequence[ChatMessage], **named: Any) -> ModelAnswer:
        """One answer, and no wait."""
        text = "\n".join(message["content"] for message in messages)
        self.cost.ask(len(text))
        step, content = self._step_and_reply(text)
        self.by_step[step] = self.by_step.get(step, 0) + 1
        return ModelAnswer(text=content)

    async def complete(self, messages: Sequence[ChatMessage], **named: Any) -> str:
        """The same without what it cost."""
        return (await self.answer(messages)).text

    async def close(self) -> None:
        """There is nothing to let go of."""

    def _step_and_reply(self, text: str) -> tuple[str, str]:
        """Which step asks, and what it is told."""
        if "You maintain the long-term memory of a user" not in text:
            content = re.findall(r'"who": "user", "said": "([^"]*)"', text)
            return "summarise", "The user said: " + " ".join(content)[:600]
        lines = [json.loads(line) for line in text.splitlines() if line.startswith('{"line":')]
        fields = {"op": "add", "memory": None, "category": "fact", "importance": 0.6}
        operations = [
            {**fields, "lines": [line["line"]], "content": result}
            for line in lines
            for result in self._facts.get(line["said"], ())
        ]
        return "extract", json.dumps({"operations": operations})


@asynccontextmanager
async def opened(
    home: Path, chat: ScriptedChat | None, *, after: SessionConfig
) -> AsyncIterator[tuple[Deps, LearningConfig]]:
    """Open what remembering needs, over a new SQLite file; it learns by the model if there is one."""
    settings = load({"home": home}, environ={}).settings
    embedder = await open_embedder(settings)
    ledger = await open_ledger(settings, embedder.model)
    await embedder.embed(["warm"])
    try:
        deps = Deps(ledger, ExactIndex(ledger, embedder.model, budget_bytes=1 << 28), embedder, chat)
        yield deps, LearningConfig(by="llm" if chat else "selector", after=after)
    finally:
        await ledger.close()
        await embedder.close()


async def acknowledge(home: Path, *, count: int) -> None:
    """How fast what is said is on disk, with the job that learns from it."""
    report = list(islice(telling(), 100))
    async with opened(home, None, after=SessionConfig()) as (deps, config):

        async def say(number: int) -> None:
            body = {"role": "user", "content": f"{report[number % 100].message} ({number})"}
            await remember.remember(Scope(f"user-{number % 100}", "", "s"), body, deps, config, by=BY)

        alone = await timed(say, times=count // 4)
        took: list[float] = []
        numbers = iter(range(count))

        async def one_of_many() -> None:
            for number in numbers:
                began = perf_counter()
                await say(number)
                took.append(perf_counter() - began)

        began = perf_counter()
        await asyncio.gather(*(one_of_many() for _ in range(WRITERS)))
        rate = count / (perf_counter() - began)
        print("turns acknowledged, each synced to disk with its job")
        print(f"    one at a time           {alone}  = {1e6 / alone.p50_us:,.0f}/s")
        print(f"    {WRITERS} at once              {summary(took)}  = {rate:,.0f}/s")


async def learn(home: Path, chat: ScriptedChat | None, report: Sequence[Exchange]) -> tuple[float, int]:
    """Jobs a second when each is one exchange of another user; and how much was learned."""
    async with opened(home, chat, after=SessionConfig()) as (deps, config):
        jobs = JobService(deps, config)
        # The first job loads models and fills caches.
        await remember.remember(Scope("warm", "", "s"), report[0].messages, deps, config, by=BY)
        await jobs.worker.run_pending()
        for number, each in enumerate(report):
            await remember.remember(Scope(f"user-{number}", "", "s"), each.messages, deps, config, by=BY)
        began = perf_counter()
        done = await jobs.worker.run_pending()
        rate = done / (perf_counter() - began)
        assert done == len(report)
        stats = await deps.ledger.stats()
    return rate, stats["memories"]


async def ask(home: Path, report: Sequence[Exchange], *, at_once: int, after: SessionConfig) -> ScriptedChat:
    """What a model is asked to learn from exchanges, so many of which come before anyone gets to them."""
    chat = ScriptedChat(report)
    async with opened(home, chat, after=after) as (deps, config):
        jobs = JobService(deps, config)
        for number, each in enumerate(report, 1):
            scope = Scope("alex", "", f"session-{(number - 1) // SESSION}")
            await remember.remember(scope, each.messages, deps, config, by=BY)
            if number % at_once == 0:
                await jobs.worker.run_pending()
        await jobs.worker.run_pending()
    return chat


async def compare(home: Path) -> None:
    """The table of what a hundred exchanges cost."""
    report = hundred(seed=7)
    results = sum(bool(each.facts) for each in report)
    print(f"\nwhat a model is asked for 100 exchanges, of which {results} tell something; a token is four characters")
    print(f"    {'':48}{'calls':>6}{'tokens read':>14}")
    rows = [
        ("recollect, an exchange at a time", 1, SessionConfig(compress_every=0)),
        ("recollect, five exchanges at a time", 5, SessionConfig(compress_every=0)),
        ("recollect, an exchange at a time, with episodes", 1, SessionConfig()),
    ]
    for number, (name, at_once, after) in enumerate(rows):
        chat = await ask(home / f"{number}", report, at_once=at_once, after=after)
        steps = ", ".join(f"{step} {calls}" for step, calls in sorted(chat.by_step.items()))
        print(f"    {name:<48}{chat.cost.calls:>6,}{chat.cost.tokens:>14,}   {steps}")
    for cost in (mem0_1(report), mem0_2(report), agent_cli(report)):
        print(f"    {cost.name + ', counted from its source':<48}{cost.calls:>6,}{cost.tokens:>14,}")


async def measure(home: Path, *, turns: int = 4000, jobs: int = 400) -> None:
    """All of it, each part over a file of its own."""
    await acknowledge(home / "acknowledge", count=turns)
    report = list(islice(telling(), jobs))
    print(f"\njobs a second, {jobs} of one exchange each, by one worker that does four at a time")
    rate, learned = await learn(home / "model", ScriptedChat(report), report)
    print(f"    by a model that answers at once   {rate:,.0f}/s   ({learned:,} memories)")
    rate, learned = await learn(home / "selector", None, report)
    print(f"    by the built-in selector          {rate:,.0f}/s   ({learned:,} memories)")
    await compare(home / "compare")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="recollect-bench-") as folder:
        asyncio.run(measure(Path(folder)))
