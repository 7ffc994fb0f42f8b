"""Reflection stores insights that memories support, with their evidence."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from recollect.deps import Deps
from recollect.errors import BrokenAnswer, Conflict
from recollect.index.exact import ExactIndex
from recollect.ledger.ledger import Ledger
from recollect.maintenance.reflect import reflect
from recollect.maintenance.tasks import MaintenanceReport
from recollect.model.change import Author, FinishJob, Forget, Supersede
from recollect.model.erasure import ErasureRequest, Target
from recollect.model.job import JobKind, JobState, NewJob
from recollect.model.memory import Category, MemoryRecord, MemoryType, Status, Trust
from recollect.model.scope import Level, Scope
from recollect.model.times import now
from recollect.models.openai_chat import OpenAIChat
from recollect.models.static_embedder import StaticEmbedder
from recollect.prompts import prompt
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.maintenance_samples import (
    ANN,
    BY,
    contents,
    days,
    keep,
    ledger_in,
    memory,
    reported_contents,
    run,
    snapshot,
    undo,
)

EMBEDDER = StaticEmbedder()
DEPLOYED = (
    "The user deployed payment-service on Monday with docker-compose",
    "The deployment of payment-service failed because of a port conflict",
    "The user deployed payment-service again with docker-compose",
    "A port conflict on 8080 stopped the deployment of payment-service",
    "The user's dog is called Rex",
)
PORTS = "Deployments of payment-service fail because of port conflicts"
COMPOSE = "The user prefers docker-compose to deploy payment-service"


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    async with ledger_in(tmp_path, EMBEDDER.model) as ledger:
        yield ledger


@pytest.fixture
async def deployed(ledger: Ledger) -> list[MemoryRecord]:
    """Store memories in the order of the prompt: the newest has number 1."""
    records = [memory(each, age_days=at) for at, each in enumerate(DEPLOYED)]
    await keep(ledger, *records, embedder=EMBEDDER)
    return records


def insight(content: str, *lines: int, **fields: Any) -> dict[str, Any]:
    usual = {"op": "add", "type": "semantic", "importance": 0.7, "confidence": 0.9}
    return {"content": content, "lines": list(lines), **usual, **fields}


def answer(*insights: dict[str, Any]) -> str:
    return json.dumps({"operations": insights})


async def reflected(
    ledger: Ledger, chat: OpenAIChat | None, *, scope: Scope = ANN, **options: Any
) -> MaintenanceReport:
    after = options.pop("after", None)
    index = ExactIndex(ledger, EMBEDDER.model, budget_bytes=1 << 20)
    return await reflect(scope, deps=Deps(ledger, index, EMBEDDER, chat), run=run(**options), after=after)


async def test_insights_and_lessons_are_stored_with_their_evidence(
    ledger: Ledger, chat: OpenAIChat, llm: ScriptedLLM, deployed: list[MemoryRecord]
) -> None:
    llm.reply(answer(insight(PORTS, 2, 4), insight(COMPOSE, 1, 3, type="procedural", importance=0.6)))
    report = await reflected(ledger, chat)
    ports, compose = await ledger.get(ANN, [step.id for step in report.steps])
    assert (ports.content, ports.type, ports.category) == (PORTS, MemoryType.REFLECTIVE, Category.INSIGHT)
    assert ports.evidence == (deployed[1].id, deployed[3].id)
    assert (compose.category, compose.status, compose.level) == (Category.LESSON, Status.ACTIVE, Level.USER)
    # A model's view is neither sure nor anybody's word.
    assert (ports.confidence, ports.trust, ports.prompt_digest) == (0.8, Trust.LOW, prompt("reflect").digest)
    assert ports.detail == {"model": "small"}


async def test_without_a_model_nothing_is_added(ledger: Ledger, deployed: list[MemoryRecord]) -> None:
    before = await snapshot(ledger)
    report = await reflected(ledger, None)
    assert (report.steps, report.calls) == ((), 0)
    assert "need an LLM" in report.left[0]
    assert await snapshot(ledger) == before


async def test_a_known_insight_is_not_added_again(
    ledger: Ledger, chat: OpenAIChat, llm: ScriptedLLM, deployed: list[MemoryRecord]
) -> None:
    llm.reply(answer(insight(PORTS, 2, 4)))
    await reflected(ledger, chat)
    repeated = "deployments of payment-service fail because of port conflicts!"
    llm.reply(answer(insight(repeated, 2, 4), insight(COMPOSE, 1, 3), insight(COMPOSE + ".", 1, 3)))
    report = await reflected(ledger, chat)
    assert reported_contents(report) == {COMPOSE}
    assert [each.split(":")[0] for each in report.left] == ["known already"] * 2
    assert '{"known": "Deployments' in llm.calls("chat")[1].text.replace('\\"', '"')


async def test_a_forgotten_insight_is_not_added_again(
    ledger: Ledger, chat: OpenAIChat, llm: ScriptedLLM, deployed: list[MemoryRecord]
) -> None:
    llm.default = answer(insight(PORTS, 2, 4))
    [step] = (await reflected(ledger, chat)).steps
    await ledger.apply(ANN, [Forget(step.id)], by=Author("ann"))
    assert (await reflected(ledger, chat)).steps == ()


WRONG = {
    "no evidence": insight(PORTS),
    "one memory only": insight(PORTS, 2),
    "one memory twice": insight(PORTS, 2, 2),
    "an unknown memory": insight(PORTS, 2, 100),
    "a negative number": insight(PORTS, 2, -1),
    "a number nobody said": insight("Deployments of payment-service failed 12 times because of ports", 2, 4),
    "a name nobody said": insight("Deployments of payment-service fail when Bob is away", 2, 4),
    "something else": insight("The weather in spring is often mild and pleasant", 2, 4),
    "a memory said again": insight(DEPLOYED[1] + ".", 2, 4),
    "a refusal": insight("I'm sorry, but I can't help with the deployment of payment-service", 2, 4),
    "nothing": insight("", 2, 4),
    "far too long": insight(PORTS + " and again" * 100, 2, 4),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
async def test_an_unsupported_insight_is_rejected(
    ledger: Ledger, chat: OpenAIChat, llm: ScriptedLLM, deployed: list[MemoryRecord], wrong: dict[str, Any]
) -> None:
    llm.default = answer(wrong, insight(COMPOSE, 1, 3))
    report = await reflected(ledger, chat)
    assert reported_contents(report) == {COMPOSE}
    assert report.left[0].startswith("salvaged: ")


async def test_an_insight_may_count_its_memories(
    ledger: Ledger, chat: OpenAIChat, llm: ScriptedLLM, deployed: list[MemoryRecord]
) -> None:
    llm.reply(answer(insight("Deployments of payment-service failed 2 times because of ports", 2, 4)))
    assert len((await reflected(ledger, chat)).steps) == 1


async def test_an_insight_with_an_instruction_waits_for_review(
    ledger: Ledger, chat: OpenAIChat, llm: ScriptedLLM, deployed: list[MemoryRecord]
) -> None:
    order = "From now on always stop the deployment of payment-service on a port conflict"
    llm.reply(answer(insight(order, 2, 4, type="procedural")))
    [step] = (await reflected(ledger, chat)).steps
    [record] = await ledger.get(ANN, [step.id])
    assert (record.status, record.detail["proposed_by"]) == (Status.REVIEW, "reflection")
    assert order not in await contents(ledger)


async def test_a_run_adds_only_the_most_important_insights(
    ledger: Ledger,
    chat: OpenAIChat,
    llm: ScriptedLLM,
    deployed: list[MemoryRecord],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    llm.reply(answer(insight(COMPOSE, 1, 3, importance=0.3), insight(PORTS, 2, 4, importance=0.9)))
    monkeypatch.setattr("recollect.maintenance.reflect.MAX_INSIGHTS", 1)
    report = await reflected(ledger, chat)
    assert reported_contents(report) == {PORTS}
    assert report.left == (f"more than the 1 of a run: {COMPOSE}",)


class TestStale:
    async def test_an_insight_with_forgotten_evidence_is_stale(
        self, ledger: Ledger, chat: OpenAIChat, llm: ScriptedLLM, deployed: list[MemoryRecord]
    ) -> None:
        llm.reply(answer(insight(PORTS, 2, 4), insight(COMPOSE, 1, 3)))
        report = await reflected(ledger, chat)
        ports = next(step.id for step in report.steps if step.content == PORTS)
        assert (await reflected(ledger, None)).stale == ()
        await ledger.apply(ANN, [Forget(deployed[3].id)], by=BY)
        assert (await reflected(ledger, None)).stale == (ports,)

    async def test_superseded_evidence_still_counts(
        self, ledger: Ledger, chat: OpenAIChat, llm: ScriptedLLM, deployed: list[MemoryRecord]
    ) -> None:
        llm.reply(answer(insight(PORTS, 2, 4)))
        [step] = (await reflected(ledger, chat)).steps
        newer = memory("A port conflict on 8081 stopped the deployment of payment-service")
        await ledger.apply(ANN, [Supersede(deployed[3].id, newer)], by=BY)
        assert (await reflected(ledger, None)).stale == ()
        await ledger.apply(ANN, [Forget(newer.id)], by=BY)
        assert (await reflected(ledger, None)).stale == (step.id,)

    async def test_erasing_the_evidence_erases_the_insight(
        self, ledger: Ledger, chat: OpenAIChat, llm: ScriptedLLM, deployed: list[MemoryRecord]
    ) -> None:
        llm.reply(answer(insight(PORTS, 2, 4)))
        await reflected(ledger, chat)
        await ledger.erase(ANN, ErasureRequest(Target.MEMORY, deployed[1].id), by=BY)
        assert PORTS not in await contents(ledger, *Status)


class TestPlaces:
    async def test_an_insight_from_a_project_stays_in_the_project(
        self, ledger: Ledger, chat: OpenAIChat, llm: ScriptedLLM
    ) -> None:
        work = Scope("ann", "work")
        own = [memory(each, age_days=at, scope=work if at == 1 else ANN) for at, each in enumerate(DEPLOYED)]
        await keep(ledger, *own, memory("A secret of another project", scope=Scope("ann", "other")))
        llm.reply(answer(insight(PORTS, 2, 4), insight(COMPOSE, 1, 3)))
        report = await reflected(ledger, chat, scope=work)
        places = {each.content: each.level for each in await ledger.get(ANN, [step.id for step in report.steps])}
        assert places == {PORTS: Level.PROJECT, COMPOSE: Level.USER}
        assert "secret" not in llm.calls("chat")[0].text

    async def test_a_run_for_the_user_reads_no_project(
        self, ledger: Ledger, chat: OpenAIChat, llm: ScriptedLLM, deployed: list[MemoryRecord]
    ) -> None:
        await keep(ledger, memory("A secret of a project", scope=Scope("ann", "work")))
        llm.reply(answer())
        await reflected(ledger, chat)
        assert "secret" not in llm.calls("chat")[0].text


async def test_expired_memories_are_not_read(
    ledger: Ledger, chat: OpenAIChat, llm: ScriptedLLM, deployed: list[MemoryRecord]
) -> None:
    await keep(ledger, memory("Parked on level 3", expires_at=days(0)))
    llm.reply(answer())
    await reflected(ledger, chat)
    assert "Parked" not in llm.calls("chat")[0].text


class TestRuns:
    async def test_a_dry_run_changes_nothing_and_one_undo_reverts_a_run(
        self, ledger: Ledger, chat: OpenAIChat, llm: ScriptedLLM, deployed: list[MemoryRecord]
    ) -> None:
        llm.default = answer(insight(PORTS, 2, 4), insight(COMPOSE, 1, 3))
        dry = await reflected(ledger, chat, dry_run=True)
        assert reported_contents(dry) == {PORTS, COMPOSE}
        assert await contents(ledger) == {*DEPLOYED}
        await undo(ledger, await reflected(ledger, chat))
        assert await contents(ledger) == {*DEPLOYED}

    async def test_too_few_or_unchanged_memories_make_no_llm_call(
        self, ledger: Ledger, chat: OpenAIChat, llm: ScriptedLLM, deployed: list[MemoryRecord]
    ) -> None:
        old = await reflected(ledger, chat, after=days(-1))
        await ledger.apply(ANN, [Forget(deployed[0].id)], by=BY)
        few = await reflected(ledger, chat)
        assert ("too few" in few.left[0], "nothing is new" in old.left[0]) == (True, True)
        assert llm.calls("chat") == []

    async def test_the_cost_of_a_broken_answer_is_recorded(
        self, ledger: Ledger, chat: OpenAIChat, llm: ScriptedLLM, deployed: list[MemoryRecord]
    ) -> None:
        llm.default = "I would rather not"
        with pytest.raises(BrokenAnswer):
            await reflected(ledger, chat)
        [usage] = await ledger.usage("ann", by=("step",))
        assert (usage.step, usage.calls) == ("reflect", 2)

    async def test_insights_and_the_end_of_the_job_are_one_transaction(
        self, ledger: Ledger, chat: OpenAIChat, llm: ScriptedLLM, deployed: list[MemoryRecord]
    ) -> None:
        llm.default = answer(insight(PORTS, 2, 4))
        await ledger.enqueue(ANN, [NewJob(kind=JobKind.REFLECT)])
        [job] = await ledger.lease(worker="w", limit=1, lease_s=60)
        with pytest.raises(Conflict):
            await reflected(ledger, chat, at=now(), effects=(FinishJob(job.id, "stolen"),))
        assert PORTS not in await contents(ledger)
        assert (await ledger.spent_today("ann")).calls == 1, "it has to be paid for all the same"
        await reflected(ledger, chat, effects=(FinishJob(job.id, job.lease or ""),))
        assert PORTS in await contents(ledger)
        assert (await ledger.job("ann", job.id)).state is JobState.DONE

    async def test_a_memory_erased_meanwhile_is_in_no_insight(
        self, ledger: Ledger, chat: OpenAIChat, llm: ScriptedLLM, deployed: list[MemoryRecord]
    ) -> None:
        loop = asyncio.get_running_loop()

        def erase_then_answer(request: object) -> str:
            what = ErasureRequest(Target.MEMORY, deployed[1].id)
            asyncio.run_coroutine_threadsafe(ledger.erase(ANN, what, by=BY), loop).result(60)
            return answer(insight(PORTS, 2, 4))

        llm.reply(erase_then_answer)
        with pytest.raises(Conflict, match="erased"):
            await reflected(ledger, chat)
        assert PORTS not in await contents(ledger, *Status)
