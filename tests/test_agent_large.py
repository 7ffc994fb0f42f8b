"""A run begins soon, and with the right memories, however many there are."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from agent_samples import memory_of

from recollect.agent.habits import AgentConfig
from recollect.agent.start import start_run
from recollect.model.ids import new_id
from recollect.model.scope import Scope
from recollect.testing.scripted_llm import ScriptedLLM

FACTS, EPISODES = 4000, 2000
PLACES = ("Lyon", "Oslo", "Porto", "Quito", "Riga", "Sofia", "Turin", "Utrecht", "Vienna", "Warsaw")
THINGS = ("gateway", "printer", "warehouse", "invoice", "contract", "backup", "door", "server", "parcel", "refund")
SCOPE = Scope("alex", "office", "monday")
# Most of a second on a machine that does other things as well; alone it takes some ten milliseconds.
MOST_S = 2.0


def lines() -> list[dict[str, object]]:
    made: list[dict[str, object]] = []
    for number in range(FACTS):
        thing, place = THINGS[number % 10], PLACES[number // 10 % 10]
        text = f"The {thing} number {number} in {place} is looked after by team {number % 37}"
        made.append({"id": new_id(), "memory": text, "project_id": "office"})
    for number in range(EPISODES):
        thing, place = THINGS[number % 10], PLACES[number // 10 % 10]
        goal = f"Repair the {thing} number {number} in {place}"
        steps = [f"inspect(id={number})", f"replace_part(id={number}, part={number % 91})"]
        report = f"Goal: {goal}\nSteps: 1. {steps[0]} 2. {steps[1]}\nOutcome: it works"
        detail = {"goal": goal, "steps": steps, "outcome": "it works", "lessons": ""}
        made.append(
            {"id": new_id(), "memory": report, "project_id": "office", "category": "episode", "detail": detail}
        )
    return made


async def test_thousands_of_facts_and_episodes_do_not_hold_up_a_run(tmp_path: Path, llm: ScriptedLLM) -> None:
    async with memory_of(tmp_path, llm, worker=False) as memory:
        done = await memory.import_(lines(), user_id="alex")
        assert done.added == FACTS + EPISODES
        service = await memory._open()
        took = []
        for number in (1234, 17, 1999, 801, 1500, 333, 64, 1077, 905, 1666):
            thing, place = THINGS[number % 10], PLACES[number // 10 % 10]
            question = f"Repair the {thing} number {number} in {place}"
            began = time.perf_counter()
            started = await start_run(service, SCOPE, question, state="", config=AgentConfig(recall_s=60))
            took.append(time.perf_counter() - began)
            assert (len(started.facts), len(started.episodes)) == (5, 3)
            assert f"Goal: {question} Steps: 1. inspect(id={number})" in started.block
            assert f"The {thing} number {number} in {place}" in started.block
        then = median(took[1:])
        print(f"\n{FACTS:,} facts, {EPISODES:,} episodes: first {took[0] * 1e3:.0f} ms, then {then * 1e3:.0f} ms")
        assert then < MOST_S
