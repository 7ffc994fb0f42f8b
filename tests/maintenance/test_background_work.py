"""Background work: its triggers, its backlog, and the episodes of sessions and runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recollect import AsyncMemory
from recollect.config.settings import Settings
from recollect.errors import Backlog, InvalidInput, NotFound
from recollect.maintenance.scheduler import MaintenanceSchedule, Scheduler
from recollect.model.job import ExtractPayload, JobKind, JobState, MaintenancePayload, NewJob
from recollect.model.memory import Category
from recollect.model.scope import Scope
from recollect.model.turn import Role, Turn
from recollect.write.select import select_facts
from recollect.write.triggers import Triggers, extraction_job
from tests.support.maintenance_samples import ledger_in

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ANN = Scope("ann", session="s")


def memory_in(home: Path, **settings: Any) -> AsyncMemory:
    return AsyncMemory(settings=Settings(home=home, **settings))


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[AsyncMemory]:
    async with memory_in(tmp_path) as memory:
        yield memory


async def texts(memory: AsyncMemory, **place: Any) -> list[str]:
    return [record.content for record in await memory.get_all(user_id="ann", **place)]


def bytes_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


def turn(text: str, *, name: str | None = None, id: str = "t") -> Turn:
    return Turn(id=id, scope=ANN, role=Role.USER, content=text, said_at=NOW, name=name)


async def test_extraction_waits_for_enough_turns(tmp_path: Path) -> None:
    async with memory_in(tmp_path, learn_every=3) as memory:
        stored = await memory.remember("I live in Oslo", user_id="ann", session_id="s")
        assert stored.job is not None
        assert stored.job.due_at - stored.job.created_at > timedelta(minutes=29)
        await memory.remember("Thanks", user_id="ann", session_id="s")
        assert await memory.jobs.run_pending() == 0
        assert await texts(memory) == []
        await memory.remember("I like tea", user_id="ann", session_id="s", wait=True)
        assert sorted(await texts(memory)) == ["I like tea", "I live in Oslo"]


async def test_a_change_of_topic_triggers_extraction(tmp_path: Path) -> None:
    async with memory_in(tmp_path, learn_every=10, learn_drift=0.3) as memory:
        await memory.remember("I play the violin in an orchestra", user_id="ann", session_id="s")
        same = await memory.remember("The orchestra plays with violins and cellos", user_id="ann", session_id="s")
        other = await memory.remember("My invoice for the car repair is wrong", user_id="ann", session_id="s")
    assert same.job is not None
    assert other.job is not None
    assert other.job.due_at < same.job.due_at


def test_every_turn_postpones_the_idle_trigger_but_not_a_burst() -> None:
    triggers = Triggers(every=4, idle_s=60, wait_s=1)
    early = extraction_job(ANN, triggers, is_due=False, now=NOW)
    late = extraction_job(ANN, triggers, is_due=True, now=NOW)
    assert (early.due_at, early.postpone_after) == (NOW + timedelta(seconds=60), NOW + timedelta(seconds=1))
    assert (late.due_at, late.postpone_after) == (NOW + timedelta(seconds=1), None)


def test_exchanges_are_counted_when_they_are_answered() -> None:
    ask, answer = turn("a"), replace(turn("b"), role=Role.ASSISTANT)
    triggers = Triggers(every=2)
    assert not triggers.are_enough([ask, answer, answer, ask])
    assert triggers.are_enough([ask, answer, answer, ask, answer])
    # Without answers, each message counts.
    assert triggers.are_enough([ask, ask])
    # The steps of an agent are not waited for without end.
    assert triggers.are_enough([ask, *[answer] * 7])


async def test_an_answer_does_not_postpone_a_job_that_is_due(tmp_path: Path) -> None:
    async with memory_in(tmp_path, learn_every=10, learn_wait_s=60, learn_drift=0.3) as memory:
        await memory.remember("I play the violin in an orchestra", user_id="ann", session_id="s")
        due = await memory.remember("My invoice for the car repair is wrong", user_id="ann", session_id="s")
        answer = [{"role": "assistant", "content": "Which garage was it?"}]
        after = await memory.remember(answer, user_id="ann", session_id="s")
    assert due.job is not None
    assert after.job is not None
    assert (after.job.id, after.job.due_at) == (due.job.id, due.job.due_at)


async def test_a_backlog_of_one_user_does_not_affect_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recollect.service.jobs.BACKLOG_CHECK_INTERVAL_S", 0.0)
    async with memory_in(tmp_path, max_waiting_jobs=2, worker=False) as memory:
        for session in "ab":
            await memory.remember("I live in Oslo", user_id="ann", session_id=session)
        with pytest.raises(Backlog, match="2 jobs of this user are due"):
            await memory.remember("I live in Rome", user_id="ann", session_id="c")
        assert len(await memory.get_all(user_id="ann", turns=True)) == 2
        await memory.remember("I live in Rome", user_id="bob", session_id="c")


async def test_the_mode_is_stored_with_the_job_and_an_unknown_one_is_rejected(memory: AsyncMemory) -> None:
    stored = await memory.remember("I live in Oslo", user_id="ann", mode="document")
    assert stored.job is not None
    assert stored.job.payload == ExtractPayload(mode="document")
    with pytest.raises(InvalidInput, match="must be one of chat"):
        await memory.remember("I live in Oslo", user_id="ann", mode="shouting")


async def test_a_run_becomes_an_episode_with_its_lessons_once(memory: AsyncMemory) -> None:
    steps = [{"kind": "action", "content": "build"}, {"kind": "observation", "content": "ok"}]
    steps.append({"kind": "action", "content": "push the image"})
    report = {"user_id": "ann", "session_id": "s", "run_id": "r1"}
    outcomes = await memory.sessions.end_run(
        "Deploy the shop", steps=steps, answer="It is live", lessons=["The tests take long"], **report
    )
    episode, lesson = (outcome.record for outcome in outcomes)
    assert (episode.category, lesson.category) == (Category.EPISODE, Category.LESSON)
    assert episode.detail["steps"] == ["build", "push the image"]
    assert episode.detail["outcome"] == "It is live"
    assert await memory.sessions.end_run("Deploy the shop", steps=steps, answer="It is live", **report) == ()
    [session] = await memory.sessions.list(user_id="ann")
    assert [each["run_id"] for each in session.invocations] == ["r1"]
    with pytest.raises(InvalidInput, match="one of thought, action, observation"):
        await memory.sessions.end_run("x", user_id="ann", session_id="s", steps=[{"kind": "dream", "content": ""}])


async def test_idle_sessions_end_and_maintenance_is_queued(tmp_path: Path) -> None:
    # Without its own scheduler, which would be the first to queue the tasks.
    async with memory_in(tmp_path, worker=False) as memory:
        message = {"role": "user", "content": "I live in Oslo", "timestamp": NOW}
        await memory.remember(message, user_id="ann", session_id="s", wait=True)
        async with ledger_in(tmp_path, (await memory.service()).model) as ledger:
            schedule = MaintenanceSchedule(idle_s=60, spread_s=0)
            assert await Scheduler(ledger, schedule).tick() >= 1
        await memory.jobs.run_pending()
        [session] = await memory.sessions.list(user_id="ann")
        assert session.closed_at is not None
        assert any(record.category is Category.EPISODE for record in await memory.get_all(user_id="ann"))
        done = {job.kind for job in await memory.jobs.list(user_id="ann", states=[JobState.DONE])}
        assert {JobKind.EXTRACT, JobKind.CLOSE, JobKind.UPKEEP} <= done


async def test_consecutive_failures_are_reported_as_trouble(memory: AsyncMemory, tmp_path: Path) -> None:
    service = await memory.service()
    assert (await service.jobs.stats()).trouble == ""
    unknown = MaintenancePayload(chore="dust")
    async with ledger_in(tmp_path, service.model) as ledger:
        await ledger.enqueue(
            ANN, [NewJob(kind=JobKind.UPKEEP, key=str(number), payload=unknown) for number in range(5)]
        )
    await memory.jobs.run_pending()
    report = (await service.jobs.stats()).trouble
    assert report.startswith("jobs failed ")
    assert "times in a row" in report


async def test_an_episode_of_an_erased_turn_is_rebuilt(tmp_path: Path) -> None:
    async with memory_in(tmp_path, compress_every=4, compress_keep=2, compress_without_llm=True) as memory:
        dialogue = ["My cat is called Mimi", "Really?", "My dog is called Xylophone", "I see"]
        dialogue += ["I work at a bakery", "Ah"] * 2
        messages = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(dialogue)]
        stored = await memory.remember(messages, user_id="ann", session_id="s", wait=True)
        await memory.jobs.run_pending()
        before = [text for text in await texts(memory) if "Mimi" in text and "user said" in text]
        assert before
        assert any("Xylophone" in text for text in await texts(memory))
        receipt = await memory.erasure.erase(user_id="ann", turn_id=stored[2].id)
        assert "episode" in [each.kind for each in receipt.remade]
        await memory.jobs.run_pending()
        repeated = [text for text in await texts(memory) if "user said" in text]
        assert any("Mimi" in text for text in repeated)
        assert not any("Xylophone" in text for text in repeated)


@pytest.mark.parametrize("compress_every", [0, 4])
async def test_a_rebuilt_episode_of_a_session_has_its_date(tmp_path: Path, compress_every: int) -> None:
    settings = {"session_episode": True, "compress_every": compress_every, "compress_keep": 0}
    async with memory_in(tmp_path, compress_without_llm=True, **settings) as memory:
        dialogue = ["My cat is called Mimi", "Really?", "My dog is called Xylophone", "I see"]
        messages = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(dialogue)]
        stored = await memory.remember(messages, user_id="ann", session_id="s", wait=True)
        await memory.sessions.end(user_id="ann", session_id="s")
        await memory.jobs.run_pending()
        before = [text for text in await texts(memory) if text.startswith("On ")]
        assert len(before) == 1
        await memory.erasure.erase(user_id="ann", turn_id=stored[2].id)
        await memory.jobs.run_pending()
        [repeated] = [text for text in await texts(memory) if text.startswith("On ")]
        day = before[0].partition(",")[0]
        assert repeated.startswith(f"{day}, the user said:")
        assert "Mimi" in repeated
        assert "Xylophone" not in repeated
        ranges = [text for text in await texts(memory) if text.startswith("The user said:")]
        assert len(ranges) == bool(compress_every)


async def test_the_running_summary_is_recalled_if_configured(tmp_path: Path) -> None:
    async with memory_in(tmp_path, preset="markdown-proxy", context_summary=True, summary_every=2) as memory:
        messages = [
            {"role": "user", "content": "We plan a concert in Bergen with 40 musicians"},
            {"role": "assistant", "content": "When will it be?"},
        ]
        await memory.remember(messages, user_id="ann", session_id="s", wait=True)
        await memory.jobs.run_pending()
        [session] = await memory.sessions.list(user_id="ann")
        assert "Bergen" in session.summary
        recalled = await memory.recall("Who plays in the concert in Bergen?", user_id="ann", session_id="s")
        assert session.summary.split("”")[0] in recalled.context.text


def test_facts_of_several_speakers_name_their_speaker() -> None:
    turns = [turn("I live in Oslo", name="Ann", id="1"), turn("I live in Rome", name="Bob", id="2")]
    named = select_facts(turns)
    assert [each.content for each in named] == ["Ann: I live in Oslo", "Bob: I live in Rome"]
    assert [each.key for each in named] == [None, None]
    assert [(each.content, each.key) for each in select_facts(turns[:1])] == [("I live in Oslo", "city")]


async def test_a_fact_of_two_turns_survives_the_erasure_of_one(memory: AsyncMemory) -> None:
    text = "My budget for the Hawaii trip is $10,000"
    await memory.remember(text, user_id="ann", session_id="a", wait=True)
    await memory.remember(text, user_id="ann", session_id="b", wait=True)
    await memory.erasure.erase(user_id="ann", session_id="b")
    await memory.jobs.run_pending()
    assert await texts(memory) == [text]
    [budget] = await memory.get_all(user_id="ann")
    assert len(budget.evidence) == 1


async def test_erasing_a_user_requires_everything(memory: AsyncMemory) -> None:
    await memory.add("I like tea", user_id="ann")
    for inputs in ({}, {"session_id": ""}, {"project_id": ""}, {"turn_id": ""}):
        with pytest.raises(InvalidInput):
            await memory.erasure.erase(user_id="ann", **inputs)
    with pytest.raises(NotFound, match="has no session nope"):
        await memory.erasure.erase(user_id="ann", session_id="nope")
    assert await texts(memory) == ["I like tea"]
    await memory.erasure.erase(user_id="ann", everything=True)
    assert await texts(memory) == []


async def test_the_turn_of_a_forgotten_memory_is_not_found_until_undo(memory: AsyncMemory) -> None:
    await memory.remember("I'm allergic to penicillin", user_id="ann", session_id="s", wait=True)
    [allergy] = await memory.get_all(user_id="ann")
    await memory.delete(allergy.id, user_id="ann")
    assert not await memory.search("What am I allergic to?", user_id="ann", min_score=0)
    await memory.undo(user_id="ann")
    hits = await memory.search("What am I allergic to?", user_id="ann", min_score=0)
    # The turn says it in the same words, which is one hit.
    assert [hit.id for hit in hits] == [allergy.id]
    assert len(await memory.get_all(user_id="ann", turns=True)) == 2


async def test_with_learning_off_no_memory_is_made(tmp_path: Path) -> None:
    async with memory_in(tmp_path, learn="off") as memory:
        await memory.remember("My name is Maria", user_id="ann", session_id="s")
        await memory.sessions.end(user_id="ann", session_id="s", wait=True)
        assert await texts(memory) == []


async def test_a_user_erased_while_jobs_run_leaves_nothing(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        for number in range(20):
            await memory.remember(f"My canary is called Xylofee {number}", user_id="ann", session_id=str(number))
        await memory.remember("I live in Oslo", user_id="bob", session_id="s")
        await memory.erasure.erase(user_id="ann", everything=True)
        await memory.jobs.run_pending()
        assert await texts(memory) == []
        assert await memory.jobs.list(user_id="ann") == []
        assert [record.content for record in await memory.get_all(user_id="bob")] == ["I live in Oslo"]
    left = bytes_in(tmp_path)
    assert b"xylofe" not in left.lower()
    assert b"Oslo" in left


async def test_a_quota_is_enforced_at_once(tmp_path: Path) -> None:
    async with memory_in(tmp_path, quota_user=3) as memory:
        for number in range(6):
            await memory.add(f"Memory number {number}", user_id="ann")
        assert len(await texts(memory)) == 3


async def test_a_session_quota_counts_added_and_learned_memories(tmp_path: Path) -> None:
    async with memory_in(tmp_path, learn_level="session", quota_session=5) as memory:
        here: dict[str, Any] = {"user_id": "ann", "session_id": "s"}
        for number in range(7):
            await memory.add(f"Memory number {number}", **here, level="session")
        await memory.add("Of all sessions", user_id="ann")
        stored = {f"Memory number {number}" for number in range(2, 7)}
        assert set(await texts(memory)) == {*stored, "Of all sessions"}
        remembered = await memory.remember("I like tea", **here, wait=True)
        assert remembered.job is not None
        assert remembered.job.state == "done"
        learned = await texts(memory)
        assert (len(learned), "I like tea" in learned) == (6, True)


async def test_waiting_for_the_end_of_a_session_includes_follow_up_jobs(
    memory: AsyncMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.sessions.lifecycle.MAX_TURNS", 50)
    messages = [{"role": "user", "content": f"Note {number}"} for number in range(120)]
    await memory.remember(messages, user_id="ann", session_id="long")
    job = await memory.sessions.end(user_id="ann", session_id="long", wait=300)
    assert (job.state, "more" in (job.result or {})) == ("done", False)
    [session] = await memory.sessions.list(user_id="ann")
    assert session.closed_at is not None
    closing = [each for each in await memory.jobs.list(user_id="ann") if each.kind == "close"]
    assert ([each.state for each in closing], closing[0].id) == (["done"] * 3, job.id)
