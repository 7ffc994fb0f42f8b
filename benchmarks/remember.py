"""Measure remembering: messages acknowledged, jobs done, and LLM calls per exchange, also of other products."""

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

from benchmarks.corpus import Exchange, hundred_exchanges, statements
from benchmarks.harness import AUTHOR, summarize, time_calls
from benchmarks.llm_calls import Cost, agent_cli, mem0_1, mem0_2
from recollect import remember
from recollect.config.fields import SessionSettings
from recollect.config.settings import load
from recollect.deps import Deps
from recollect.index.exact import ExactIndex
from recollect.model.scope import Scope
from recollect.models.chat import ChatMessage, Form, ModelAnswer
from recollect.remember import LearningConfig
from recollect.service.jobs import JobService
from recollect.wiring import open_embedder, open_ledger

WRITERS = 64
SESSION = 20


class ScriptedChat:
    """An LLM in this process that answers at once: it extracts the facts of each exchange, all of them as new."""

    form: Form = "schema"
    model = "scripted"

    def __init__(self, exchanges: Sequence[Exchange] = ()) -> None:
        self.cost = Cost("recollect")
        self.by_step: dict[str, int] = {}
        self._facts = {each.message: each.facts for each in exchanges}

    async def answer(self, messages: Sequence[ChatMessage], **named: Any) -> ModelAnswer:
        """Answer, and count the call."""
        text = "\n".join(message["content"] for message in messages)
        self.cost.ask(len(text))
        step, content = self._step_and_reply(text)
        self.by_step[step] = self.by_step.get(step, 0) + 1
        return ModelAnswer(text=content)

    async def complete(self, messages: Sequence[ChatMessage], **named: Any) -> str:
        """Answer with the text only."""
        return (await self.answer(messages)).text

    async def close(self) -> None:
        """Do nothing."""

    def _step_and_reply(self, text: str) -> tuple[str, str]:
        """Return the step that the prompt belongs to, and the answer."""
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
    home: Path, chat: ScriptedChat | None, *, sessions: SessionSettings
) -> AsyncIterator[tuple[Deps, LearningConfig]]:
    """Open the dependencies over a new SQLite file; learning uses the LLM if there is one."""
    settings = load({"home": home}, environ={}).settings
    embedder = await open_embedder(settings)
    ledger = await open_ledger(settings, embedder.model)
    await embedder.embed(["warm"])
    try:
        deps = Deps(ledger, ExactIndex(ledger, embedder.model, budget_bytes=1 << 28), embedder, chat)
        yield deps, LearningConfig(by="llm" if chat else "selector", sessions=sessions)
    finally:
        await ledger.close()
        await embedder.close()


async def acknowledge(home: Path, *, count: int) -> None:
    """Measure how fast messages are stored, each with its job."""
    exchanges = list(islice(statements(), 100))
    async with opened(home, None, sessions=SessionSettings()) as (deps, config):

        async def send(number: int) -> None:
            body = {"role": "user", "content": f"{exchanges[number % 100].message} ({number})"}
            await remember.remember(Scope(f"user-{number % 100}", "", "s"), body, deps, config, by=AUTHOR)

        alone = await time_calls(send, times=count // 4)
        took: list[float] = []
        numbers = iter(range(count))

        async def one_of_many() -> None:
            for number in numbers:
                began = perf_counter()
                await send(number)
                took.append(perf_counter() - began)

        began = perf_counter()
        await asyncio.gather(*(one_of_many() for _ in range(WRITERS)))
        rate = count / (perf_counter() - began)
        print("messages acknowledged, each synced to disk with its job")
        print(f"    one at a time           {alone}  = {1e6 / alone.p50_us:,.0f}/s")
        print(f"    {WRITERS} concurrently         {summarize(took)}  = {rate:,.0f}/s")


async def learn(home: Path, chat: ScriptedChat | None, exchanges: Sequence[Exchange]) -> tuple[float, int]:
    """Learn from exchanges, each of another user; return jobs per second and the number of memories."""
    async with opened(home, chat, sessions=SessionSettings()) as (deps, config):
        jobs = JobService(deps, config)
        # The first job loads models and fills caches.
        await remember.remember(Scope("warm", "", "s"), exchanges[0].messages, deps, config, by=AUTHOR)
        await jobs.worker.run_pending()
        for number, each in enumerate(exchanges):
            await remember.remember(Scope(f"user-{number}", "", "s"), each.messages, deps, config, by=AUTHOR)
        began = perf_counter()
        done = await jobs.worker.run_pending()
        rate = done / (perf_counter() - began)
        assert done == len(exchanges)
        stats = await deps.ledger.stats()
    if not stats["memories"]:
        raise RuntimeError("nothing was learned from the exchanges")
    return rate, stats["memories"]


async def count_calls(
    home: Path, exchanges: Sequence[Exchange], *, at_once: int, sessions: SessionSettings
) -> ScriptedChat:
    """Learn from exchanges, `at_once` before each run of the worker; return the LLM with its counts."""
    chat = ScriptedChat(exchanges)
    async with opened(home, chat, sessions=sessions) as (deps, config):
        jobs = JobService(deps, config)
        for number, each in enumerate(exchanges, 1):
            scope = Scope("alex", "", f"session-{(number - 1) // SESSION}")
            await remember.remember(scope, each.messages, deps, config, by=AUTHOR)
            if number % at_once == 0:
                await jobs.worker.run_pending()
        await jobs.worker.run_pending()
    return chat


async def compare(home: Path) -> None:
    """Print the LLM calls and tokens of 100 exchanges."""
    exchanges = hundred_exchanges(seed=7)
    stating = sum(bool(each.facts) for each in exchanges)
    print(f"\nLLM calls for 100 exchanges, {stating} with statements; a token is four characters")
    print(f"    {'':48}{'calls':>6}{'tokens read':>14}")
    rows = [
        ("recollect, an exchange at a time", 1, SessionSettings(compress_every=0)),
        ("recollect, five exchanges at a time", 5, SessionSettings(compress_every=0)),
        ("recollect, an exchange at a time, with episodes", 1, SessionSettings()),
    ]
    for number, (name, at_once, sessions) in enumerate(rows):
        chat = await count_calls(home / f"{number}", exchanges, at_once=at_once, sessions=sessions)
        steps = ", ".join(f"{step} {calls}" for step, calls in sorted(chat.by_step.items()))
        print(f"    {name:<48}{chat.cost.calls:>6,}{chat.cost.tokens:>14,}   {steps}")
    for cost in (mem0_1(exchanges), mem0_2(exchanges), agent_cli(exchanges)):
        print(f"    {cost.name + ', counted from its source':<48}{cost.calls:>6,}{cost.tokens:>14,}")


async def measure(home: Path, *, turns: int = 4000, jobs: int = 400) -> None:
    """Run all measurements, each on its own file."""
    await acknowledge(home / "acknowledge", count=turns)
    exchanges = list(islice(statements(), jobs))
    print(f"\njobs a second, {jobs} of one exchange each, by one worker, four at a time")
    rate, learned = await learn(home / "model", ScriptedChat(exchanges), exchanges)
    print(f"    by an LLM that answers at once   {rate:,.0f}/s   ({learned:,} memories)")
    rate, learned = await learn(home / "selector", None, exchanges)
    print(f"    by the built-in selector          {rate:,.0f}/s   ({learned:,} memories)")
    await compare(home / "compare")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="recollect-bench-") as folder:
        asyncio.run(measure(Path(folder)))
