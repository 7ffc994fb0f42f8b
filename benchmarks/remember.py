"""Measure writes: memories, messages and imports, jobs done, and LLM calls per exchange, also of other products.

`python -m benchmarks.remember --against FOLDER` compares the writes with another checkout, in alternate runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import astuple, dataclass
from itertools import islice
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from benchmarks.corpus import Exchange, hundred_exchanges, sentences, statements
from benchmarks.harness import AUTHOR, BATCH, running_service
from benchmarks.llm_calls import Cost, agent_cli, mem0_1, mem0_2
from recollect import remember
from recollect.config.fields import SessionSettings
from recollect.config.settings import load
from recollect.deps import Deps
from recollect.index.exact import ExactIndex
from recollect.model.scope import Scope
from recollect.models.chat import ChatMessage, Form, ModelAnswer
from recollect.remember import LearningConfig, MemoryInput
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


@dataclass(frozen=True, slots=True)
class WriteRate:
    """How many were written in a second, and the CPU time of each."""

    per_s: float
    cpu_us: float

    def __str__(self) -> str:
        return f"{self.per_s:9,.0f}/s   {self.cpu_us:9,.0f} us of CPU each"


async def measure_writes(home: Path, *, count: int) -> dict[str, WriteRate]:
    """Write memories and messages of 50 users, each on disk before the call returns, and import memories of one."""
    # Token vectors are made in the background, and would be counted as well.
    async with running_service(home=home, late_interaction=False) as service:
        texts = sentences(99)

        async def add(number: int) -> None:
            await service.add(Scope(f"user-{number % 50}"), MemoryInput(content=next(texts)), by=AUTHOR)

        async def send(number: int) -> None:
            message = {"role": "user", "content": next(texts)}
            await service.remember(Scope(f"user-{number % 50}", "", "session"), message, by=AUTHOR)

        async def load(number: int) -> None:
            lines = [{"memory": text} for text in islice(texts, BATCH)]
            await service.transfer.import_lines(lines, user="imported", done=0, by=AUTHOR)

        return {
            "memory added, one at a time": await _measure_rate(add, count // 4),
            f"memory added, {WRITERS} at a time": await _measure_rate(add, count, clients=WRITERS),
            f"message stored with its job, {WRITERS} at a time": await _measure_rate(send, count, clients=WRITERS),
            f"memory imported, {BATCH} at a time": await _measure_rate(load, max(1, count // BATCH), size=BATCH),
        }


async def _measure_rate(
    write: Callable[[int], Awaitable[None]], count: int, *, clients: int = 1, size: int = 1
) -> WriteRate:
    """Write `count` times by so many clients, after as many writes as there are clients that do not count."""
    await asyncio.gather(*map(write, range(clients)))
    numbers = iter(range(count))

    async def run_client() -> None:
        for number in numbers:
            await write(number)

    started, cpu_started = perf_counter(), process_time()
    await asyncio.gather(*(run_client() for _ in range(clients)))
    took_s, cpu_s = perf_counter() - started, process_time() - cpu_started
    return WriteRate(count * size / took_s, cpu_s / count / size * 1e6)


def compare_writes(checkout: Path, *, count: int, rounds: int) -> None:
    """Print the writes of a checkout and of this one: the least CPU time and the highest rate of alternate runs."""
    best: dict[str, dict[str, WriteRate]] = {}
    for _ in range(rounds):
        for name, folder in (("that", checkout), ("this", Path(__file__).parent.parent)):
            environment = {**os.environ, "PYTHONPATH": f"{folder / 'src'}{os.pathsep}{Path(__file__).parent.parent}"}
            command = [sys.executable, "-m", "benchmarks.remember", "--json", "--turns", str(count)]
            output = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout
            for kind, (per_s, cpu_us) in json.loads(output).items():
                former = best.setdefault(kind, {}).get(name, WriteRate(0, cpu_us))
                best[kind][name] = WriteRate(max(per_s, former.per_s), min(cpu_us, former.cpu_us))
    for kind, rates in best.items():
        that, this = rates["that"], rates["this"]
        print(f"{kind}\n    {checkout}: {that}\n    this checkout: {this}")
        print(f"    {this.per_s / that.per_s:.2f}x the rate, {that.cpu_us / this.cpu_us:.2f}x as many a CPU second")


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
    for name, rate in (await measure_writes(home / "writes", count=turns)).items():
        print(f"{name:48}{rate}")
    exchanges = list(islice(statements(), jobs))
    print(f"\njobs a second, {jobs} of one exchange each, by one worker, four at a time")
    rate, learned = await learn(home / "model", ScriptedChat(exchanges), exchanges)
    print(f"    by an LLM that answers at once   {rate:,.0f}/s   ({learned:,} memories)")
    rate, learned = await learn(home / "selector", None, exchanges)
    print(f"    by the built-in selector          {rate:,.0f}/s   ({learned:,} memories)")
    await compare(home / "compare")


def main() -> None:
    """Run the measurements in a temporary folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=4000, help="memories and messages to write")
    parser.add_argument("--jobs", type=int, default=400, help="exchanges to learn from")
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="compare the writes with this checkout only")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each checkout")
    parser.add_argument("--json", action="store_true", help="print the writes only, as JSON")
    args = parser.parse_args()
    if args.against is not None:
        compare_writes(args.against, count=args.turns, rounds=args.rounds)
        return
    with tempfile.TemporaryDirectory(prefix="recollect-bench-") as folder:
        if args.json:
            rates = asyncio.run(measure_writes(Path(folder), count=args.turns))
            print(json.dumps({name: astuple(rate) for name, rate in rates.items()}))
        else:
            asyncio.run(measure(Path(folder), turns=args.turns, jobs=args.jobs))


if __name__ == "__main__":
    main()
