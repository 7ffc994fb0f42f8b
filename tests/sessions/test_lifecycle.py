"""Session jobs and runs that write to a conversation concurrently lose nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from recollect.config.fields import SessionSettings
from recollect.deps import Deps
from recollect.errors import Conflict, InvalidInput
from recollect.index.exact import ExactIndex
from recollect.ledger.ledger import Ledger
from recollect.model.change import Change, ConversationUpdate
from recollect.model.job import Job, JobKind, NewJob
from recollect.model.memory import Category
from recollect.model.turn import Turn
from recollect.models.chat import ChatMessage
from recollect.models.embedding import EmbeddingModel
from recollect.sessions.agent_runs import RecordedStep, RunRecord, StepKind
from recollect.sessions.lifecycle import end_run, end_session, is_due, summarize_session
from recollect.sessions.step_output import step_position
from recollect.testing.fake_embedder import FakeEmbedder
from recollect.write.triggers import job_key
from tests.support.session_samples import ANN, BY, DAY, HAWAII, a_ledger, long_talk, stored_memories, talk

QUIET = SessionSettings(compress_every=0, compress_without_llm=True, promote=False)
STEPS = (RecordedStep(StepKind.ACTION, "run the tests"), RecordedStep(StepKind.ACTION, "ship the build"))


def make_deps(ledger: Ledger, chat: Any = None) -> Deps:
    model = EmbeddingModel("test", 4)
    index = ExactIndex(ledger, model, budget_bytes=1 << 20)
    return Deps(ledger, index, FakeEmbedder(model.dimensions, name=model.name), chat)


def run(id: str, **fields: Any) -> RunRecord:
    return RunRecord(id=id, goal=f"Deploy the service of {id}", steps=STEPS, ended_at=DAY, **fields)


async def leased(ledger: Ledger, kind: JobKind) -> Job:
    await ledger.enqueue(ANN, [NewJob(kind=kind, key=job_key(ANN))])
    [job] = await ledger.lease(worker="test", limit=1, lease_s=60)
    return job


def later_turns(turns: int, at: int) -> list[Turn]:
    return [replace(each, id=f"later-{each.id}") for each in talk(*["I also need a car."] * turns, first=at)]


def interrupted(ledger: Ledger, interruptions: Sequence[Any]) -> None:
    """Run each interruption right before one of the next writes."""
    real, left = ledger.apply, list(interruptions)

    async def apply(scope: Any, changes: Sequence[Change], **options: Any) -> Any:
        if left:
            await left.pop(0)()
        return await real(scope, changes, **options)

    ledger.apply = apply  # type: ignore[method-assign]


def overlapping(ledger: Ledger) -> None:
    """Delay reads, so that all callers read the conversation before one writes it."""
    real = ledger.conversation

    async def conversation(scope: Any) -> Any:
        stored = await real(scope)
        await asyncio.sleep(0.001)
        return stored

    ledger.conversation = conversation  # type: ignore[method-assign]


class TestRuns:
    async def test_runs_that_end_concurrently_are_all_stored(self) -> None:
        ledger = await a_ledger(talk(*HAWAII))
        overlapping(ledger)
        runs = [run(f"run-{at}") for at in range(12)]
        await asyncio.gather(*(end_run(ANN, each, make_deps(ledger), QUIET) for each in runs))
        report = (await ledger.conversation(ANN)).invocations
        assert sorted(each["run_id"] for each in report) == sorted(each.id for each in runs)
        assert len(await stored_memories(ledger, ANN, Category.EPISODE)) == 12

    async def test_a_run_reported_twice_concurrently_is_stored_once(self) -> None:
        ledger = await a_ledger(talk(*HAWAII))
        overlapping(ledger)
        first = run("same", answer="It is live.", lessons=("The tests are slow.",))
        repeated = replace(
            first, answer="It went live.", lessons=("Tests take long.",), ended_at=DAY + timedelta(hours=1)
        )
        report = await asyncio.gather(*(end_run(ANN, each, make_deps(ledger), QUIET) for each in (first, repeated)))
        assert sorted(map(len, report)) == [0, 2]
        assert (
            len(await stored_memories(ledger, ANN, Category.EPISODE))
            == len(await stored_memories(ledger, ANN, Category.LESSON))
            == 1
        )
        assert len((await ledger.conversation(ANN)).invocations) == 1

    async def test_the_id_of_a_run_does_not_depend_on_the_time_of_its_report(self) -> None:
        ids = set()
        for hours in (0, 5):
            ledger = await a_ledger(talk(*HAWAII))
            ended = replace(run("same"), ended_at=DAY + timedelta(hours=hours))
            ids |= {each.record.id for each in await end_run(ANN, ended, make_deps(ledger), QUIET)}
        assert len(ids) == 1

    async def test_turns_added_meanwhile_do_not_prevent_storing_a_run(self) -> None:
        ledger = await a_ledger(talk(*HAWAII))

        async def say(at: int) -> None:
            await ledger.append(ANN, later_turns(1, at), vectors=[None], by=BY)

        interrupted(ledger, [lambda at=at: say(at) for at in range(7, 17)])
        await end_run(ANN, run("busy"), make_deps(ledger), QUIET)
        conversation = await ledger.conversation(ANN)
        assert (conversation.turn_count, len(conversation.invocations)) == (16, 1)


class TestJobs:
    async def test_a_run_that_ends_while_invocations_are_built_is_stored(self) -> None:
        ledger = await a_ledger(talk(*HAWAII))
        job = await leased(ledger, JobKind.SUMMARISE)
        other = make_deps(ledger)
        interrupted(ledger, [lambda: end_run(ANN, run("meanwhile"), other, QUIET)])
        await summarize_session(job, other, QUIET.model_copy(update={"store_invocations": True}))
        report = (await ledger.conversation(ANN)).invocations
        assert [each.get("run_id") for each in report] == ["meanwhile", None, None, None]

    async def test_a_summary_written_meanwhile_is_not_overwritten(self) -> None:
        ledger = await a_ledger(talk(*HAWAII))
        job = await leased(ledger, JobKind.SUMMARISE)
        real = ledger.apply
        note = ConversationUpdate(ANN, {"summary": "Written by another."})
        interrupted(ledger, [lambda: real(ANN, [], by=BY, effects=[note])])
        with pytest.raises(Conflict, match="by another"):
            await summarize_session(job, make_deps(ledger), QUIET.model_copy(update={"summary_every": 1}))
        assert (await ledger.conversation(ANN)).summary == "Written by another."

    async def test_a_turn_added_while_a_session_ends_keeps_it_open(self) -> None:
        ledger = await a_ledger(talk(*HAWAII))
        job = await leased(ledger, JobKind.CLOSE)
        interrupted(ledger, [lambda: ledger.append(ANN, later_turns(1, 7), vectors=[None], by=BY)])
        await end_session(job, make_deps(ledger), QUIET)
        conversation = await ledger.conversation(ANN)
        assert (conversation.closed_at, step_position(conversation, "close")) == (None, 6)

    async def test_a_session_that_continues_after_its_end_gets_another_episode(self) -> None:
        ledger = await a_ledger(talk(*HAWAII))
        for _ in range(2):
            await end_session(await leased(ledger, JobKind.CLOSE), make_deps(ledger), QUIET)
        assert len(await stored_memories(ledger, ANN, Category.EPISODE)) == 1
        later = talk("My flight to Hawaii moved to May 5.", "Noted.", first=7, day=DAY + timedelta(days=4))
        await ledger.append(ANN, later, vectors=[None, None], by=BY)
        await end_session(await leased(ledger, JobKind.CLOSE), make_deps(ledger), QUIET)
        [_, episode] = await stored_memories(ledger, ANN, Category.EPISODE)
        assert episode.content.startswith("On Jan 2 2025, the user said: “My flight to Hawaii")
        assert episode.detail["turn_start"] == 7

    async def test_a_very_long_session_ends_in_several_jobs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("recollect.sessions.lifecycle.MAX_TURNS", 100)
        ledger = await a_ledger(long_talk(230))
        job: Job | None = await leased(ledger, JobKind.CLOSE)
        jobs = 0
        while job is not None:
            assert (await ledger.conversation(ANN)).closed_at is None
            await end_session(job, make_deps(ledger), QUIET)
            jobs += 1
            job = next(iter(await ledger.lease(worker="test", limit=1, lease_s=60)), None)
        conversation = await ledger.conversation(ANN)
        assert (jobs, step_position(conversation, "close")) == (3, 230)
        assert conversation.closed_at is not None
        parts = [each.detail for each in await stored_memories(ledger, ANN, Category.EPISODE)]
        assert sorted((each["turn_start"], each["turn_end"]) for each in parts) == [
            (1, 100), (101, 200), (201, 230),
        ]  # fmt: skip

    async def test_a_very_long_session_is_compressed_in_several_jobs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("recollect.sessions.lifecycle.MAX_TURNS", 100)
        ledger = await a_ledger(long_talk(110))
        config = QUIET.model_copy(update={"compress_every": 10, "compress_keep": 5})
        await summarize_session(await leased(ledger, JobKind.SUMMARISE), make_deps(ledger), config)
        [rest] = await ledger.lease(worker="test", limit=1, lease_s=60)
        await summarize_session(rest, make_deps(ledger), config)
        assert step_position(await ledger.conversation(ANN), "compress") == 105

    async def test_reasons_contain_no_secrets(self) -> None:
        class Refusing:
            model = "refusing"

            async def complete(self, messages: Sequence[ChatMessage], **options: Any) -> str:
                raise InvalidInput("the server will not read sk-abcdefghijklmnop1234567890ABCD")

        ledger = await a_ledger(long_talk(20))
        job = await leased(ledger, JobKind.SUMMARISE)
        report = await summarize_session(job, make_deps(ledger, Refusing()), SessionSettings(promote=False))
        assert report["reasons"]
        assert "abcdefghijklmnop" not in str(report)


class TestWithoutAModel:
    async def test_without_extracts_no_episode_is_made(self) -> None:
        ledger = await a_ledger(long_talk(40))
        config = SessionSettings(promote=False)
        await summarize_session(await leased(ledger, JobKind.SUMMARISE), make_deps(ledger), config)
        assert await stored_memories(ledger, ANN, Category.EPISODE) == []
        assert step_position(await ledger.conversation(ANN), "compress") == 0

    async def test_without_extracts_compression_is_not_due_without_a_model(self) -> None:
        conversation = await (await a_ledger(long_talk(40))).conversation(ANN)
        config = SessionSettings(promote=False)
        assert is_due(conversation, config, has_model=True)
        assert not is_due(conversation, config, has_model=False)
        assert is_due(conversation, config.model_copy(update={"compress_without_llm": True}), has_model=False)

    async def test_the_end_of_a_session_is_an_episode_even_without_extracts(self) -> None:
        ledger = await a_ledger(talk(*HAWAII))
        config = QUIET.model_copy(update={"compress_without_llm": False})
        await end_session(await leased(ledger, JobKind.CLOSE), make_deps(ledger), config)
        [episode] = await stored_memories(ledger, ANN, Category.EPISODE)
        assert episode.detail["kind"] == "session"
