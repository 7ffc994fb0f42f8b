"""What is written about a conversation while others write to it: nothing of theirs is lost, and nothing of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from conversation_samples import ANN, BY, DAY, HAWAII, a_ledger, kept, long_talk, talk

from recollect.conversation.afterwards import Afterwards, end, end_run, sum_up
from recollect.conversation.run import Run, RunStep, StepKind
from recollect.conversation.written import mark_of
from recollect.errors import Conflict, InvalidInput
from recollect.index.exact import ExactIndex
from recollect.ledger.memory import MemoryLedger
from recollect.model.change import Change
from recollect.model.effect import Note
from recollect.model.job import Job, JobKind, NewJob
from recollect.model.memory import Category
from recollect.model.turn import Turn
from recollect.models.chat import ChatMessage
from recollect.models.embedding import EmbeddingModel
from recollect.testing.fake_embedder import FakeEmbedder
from recollect.write.deps import Deps
from recollect.write.triggers import job_key

QUIET = Afterwards(compress_every=0, promote_from=None)
STEPS = (RunStep(StepKind.ACTION, "run the tests"), RunStep(StepKind.ACTION, "ship the build"))


def means(ledger: MemoryLedger, chat: Any = None) -> Deps:
    model = EmbeddingModel("test", 4)
    index = ExactIndex(ledger, model, budget_bytes=1 << 20)
    return Deps(ledger, index, FakeEmbedder(model.dimensions, name=model.name), chat)


def run(id: str, **fields: Any) -> Run:
    return Run(id=id, goal=f"Deploy the service of {id}", steps=STEPS, ended_at=DAY, **fields)


async def leased(ledger: MemoryLedger, kind: JobKind) -> Job:
    await ledger.enqueue(ANN, [NewJob(kind=kind, key=job_key(ANN))])
    [job] = await ledger.lease(worker="test", limit=1, lease_s=60)
    return job


def said_later(turns: int, at: int) -> list[Turn]:
    return [replace(each, id=f"later-{each.id}") for each in talk(*["I also need a car."] * turns, first=at)]


def interrupted(ledger: MemoryLedger, interruptions: Sequence[Any]) -> None:
    """Have something happen right before each of the next times that something is applied."""
    real, left = ledger.apply, list(interruptions)

    async def apply(scope: Any, changes: Sequence[Change], **options: Any) -> Any:
        if left:
            await left.pop(0)()
        return await real(scope, changes, **options)

    ledger.apply = apply  # type: ignore[method-assign]


def overlapping(ledger: MemoryLedger) -> None:
    """Have everyone read the conversation before anyone writes it."""
    real = ledger.conversation

    async def conversation(scope: Any) -> Any:
        held = await real(scope)
        await asyncio.sleep(0.001)
        return held

    ledger.conversation = conversation  # type: ignore[method-assign]


class TestRuns:
    async def test_runs_that_end_at_once_are_all_kept(self) -> None:
        ledger = await a_ledger(talk(*HAWAII))
        overlapping(ledger)
        runs = [run(f"run-{at}") for at in range(12)]
        await asyncio.gather(*(end_run(ANN, each, means(ledger), QUIET) for each in runs))
        told = (await ledger.conversation(ANN)).invocations
        assert sorted(each["run_id"] for each in told) == sorted(each.id for each in runs)
        assert len(await kept(ledger, ANN, Category.EPISODE)) == 12

    async def test_one_that_is_told_twice_at_once_is_kept_once(self) -> None:
        ledger = await a_ledger(talk(*HAWAII))
        overlapping(ledger)
        first = run("same", answer="It is live.", lessons=("The tests are slow.",))
        again = replace(
            first, answer="It went live.", lessons=("Tests take long.",), ended_at=DAY + timedelta(hours=1)
        )
        told = await asyncio.gather(*(end_run(ANN, each, means(ledger), QUIET) for each in (first, again)))
        assert sorted(map(len, told)) == [0, 2]
        assert len(await kept(ledger, ANN, Category.EPISODE)) == len(await kept(ledger, ANN, Category.LESSON)) == 1
        assert len((await ledger.conversation(ANN)).invocations) == 1

    async def test_its_episode_is_the_same_whenever_it_is_told(self) -> None:
        ids = set()
        for hours in (0, 5):
            ledger = await a_ledger(talk(*HAWAII))
            ended = replace(run("same"), ended_at=DAY + timedelta(hours=hours))
            ids |= {each.record.id for each in await end_run(ANN, ended, means(ledger), QUIET)}
        assert len(ids) == 1

    async def test_what_is_said_meanwhile_does_not_keep_it_from_being_kept(self) -> None:
        ledger = await a_ledger(talk(*HAWAII))

        async def say(at: int) -> None:
            await ledger.append(ANN, said_later(1, at), vectors=[None], by=BY)

        interrupted(ledger, [lambda at=at: say(at) for at in range(7, 17)])
        await end_run(ANN, run("busy"), means(ledger), QUIET)
        conversation = await ledger.conversation(ANN)
        assert (conversation.turn_count, len(conversation.invocations)) == (16, 1)


class TestJobs:
    async def test_a_run_that_ends_while_exchanges_are_noted_is_not_lost(self) -> None:
        ledger = await a_ledger(talk(*HAWAII))
        job = await leased(ledger, JobKind.SUMMARISE)
        other = means(ledger)
        interrupted(ledger, [lambda: end_run(ANN, run("meanwhile"), other, QUIET)])
        await sum_up(job, other, replace(QUIET, invocations=True))
        told = (await ledger.conversation(ANN)).invocations
        assert [each.get("run_id") for each in told] == ["meanwhile", None, None, None]

    async def test_a_summary_that_another_wrote_meanwhile_is_not_overwritten(self) -> None:
        ledger = await a_ledger(talk(*HAWAII))
        job = await leased(ledger, JobKind.SUMMARISE)
        real = ledger.apply
        note = Note(ANN, {"summary": "Written by another."})
        interrupted(ledger, [lambda: real(ANN, [], by=BY, effects=[note])])
        with pytest.raises(Conflict, match="by another"):
            await sum_up(job, means(ledger), replace(QUIET, summary_every=1))
        assert (await ledger.conversation(ANN)).summary == "Written by another."

    async def test_what_is_said_while_it_ends_keeps_a_session_open(self) -> None:
        ledger = await a_ledger(talk(*HAWAII))
        job = await leased(ledger, JobKind.CLOSE)
        interrupted(ledger, [lambda: ledger.append(ANN, said_later(1, 7), vectors=[None], by=BY)])
        await end(job, means(ledger), QUIET)
        conversation = await ledger.conversation(ANN)
        assert (conversation.closed_at, mark_of(conversation, "close")) == (None, 6)

    async def test_the_end_of_a_very_long_session_is_in_its_episodes(self) -> None:
        ledger = await a_ledger(long_talk(2_300))
        job: Job | None = await leased(ledger, JobKind.CLOSE)
        jobs = 0
        while job is not None:
            assert (await ledger.conversation(ANN)).closed_at is None
            await end(job, means(ledger), QUIET)
            jobs += 1
            job = next(iter(await ledger.lease(worker="test", limit=1, lease_s=60)), None)
        conversation = await ledger.conversation(ANN)
        assert (jobs, mark_of(conversation, "close")) == (3, 2_300)
        assert conversation.closed_at is not None
        parts = [each.detail for each in await kept(ledger, ANN, Category.EPISODE)]
        assert sorted((each["turn_start"], each["turn_end"]) for each in parts) == [
            (1, 1_000), (1_001, 2_000), (2_001, 2_300),
        ]  # fmt: skip

    async def test_the_end_of_a_very_long_session_is_compressed(self) -> None:
        ledger = await a_ledger(long_talk(1_100))
        habits = replace(QUIET, compress_every=100, compress_keep=50)
        await sum_up(await leased(ledger, JobKind.SUMMARISE), means(ledger), habits)
        [rest] = await ledger.lease(worker="test", limit=1, lease_s=60)
        await sum_up(rest, means(ledger), habits)
        assert mark_of(await ledger.conversation(ANN), "compress") == 1_050

    async def test_reasons_keep_no_secrets(self) -> None:
        class Refusing:
            model = "refusing"

            async def complete(self, messages: Sequence[ChatMessage], **options: Any) -> str:
                raise InvalidInput("the server will not read sk-abcdefghijklmnop1234567890ABCD")

        ledger = await a_ledger(long_talk(20))
        job = await leased(ledger, JobKind.SUMMARISE)
        told = await sum_up(job, means(ledger, Refusing()), Afterwards(promote_from=None))
        assert told["reasons"]
        assert "abcdefghijklmnop" not in str(told)


class TestWithoutAModel:
    async def test_turns_need_not_be_repeated_as_episodes(self) -> None:
        ledger = await a_ledger(long_talk(40))
        habits = Afterwards(extracts=False, promote_from=None)
        await sum_up(await leased(ledger, JobKind.SUMMARISE), means(ledger), habits)
        assert await kept(ledger, ANN, Category.EPISODE) == []
        assert mark_of(await ledger.conversation(ANN), "compress") == 0

    async def test_there_is_nothing_to_do_until_there_is_one(self) -> None:
        conversation = await (await a_ledger(long_talk(40))).conversation(ANN)
        habits = Afterwards(extracts=False, promote_from=None)
        assert habits.is_due(conversation, has_model=True)
        assert not habits.is_due(conversation, has_model=False)
        assert replace(habits, extracts=True).is_due(conversation, has_model=False)

    async def test_the_end_of_a_session_is_an_episode_all_the_same(self) -> None:
        ledger = await a_ledger(talk(*HAWAII))
        await end(await leased(ledger, JobKind.CLOSE), means(ledger), replace(QUIET, extracts=False))
        [episode] = await kept(ledger, ANN, Category.EPISODE)
        assert episode.detail["kind"] == "session"
