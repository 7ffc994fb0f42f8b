"""Effects: what happens together with changes to memories, or not at all."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from recollect.errors import Conflict, InvalidInput
from recollect.ledger.protocol import Ledger
from recollect.model.change import Add, Change, Forget, IdempotencyToken
from recollect.model.effect import ConversationUpdate, Effect, EnqueueJob, FinishJob, ModelUsage
from recollect.model.job import Job, JobState
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Conversation
from recollect.testing.suite_jobs import MONDAY, new, put, take
from recollect.testing.suite_samples import ANN, BY, NOON, memory, say, turn


def finish(job: Job, **result: Any) -> FinishJob:
    assert job.lease is not None
    return FinishJob(job.id, job.lease, result or None)


async def leased(ledger: Ledger) -> Job:
    await put(ledger, new("s"), scope=MONDAY)
    (job,) = await take(ledger)
    return job


async def do(ledger: Ledger, *effects: Effect, **more: Any) -> None:
    await ledger.apply(ANN, more.pop("changes", []), by=BY, effects=effects, **more)


class EffectSuite:
    """All of it or none."""

    async def test_memories_job_conversation_and_usage_change_together(self, ledger: Ledger) -> None:
        await say(ledger, MONDAY, "I like tea")
        job = await leased(ledger)
        record = memory("likes tea")
        await do(
            ledger,
            finish(job, learned=1),
            ConversationUpdate(MONDAY, {"learned_to": 1, "summary": "tea"}, expected_version=1),
            EnqueueJob(MONDAY, new("next")),
            ModelUsage(user="ann", step="extract", model="m", tokens_in=10, tokens_out=5, at=now()),
            changes=[Add(record)],
        )
        assert len(await ledger.get(ANN, [record.id])) == 1
        done = await ledger.job("ann", job.id)
        assert (done.state, done.result) == (JobState.DONE, {"learned": 1})
        results = await ledger.conversation(MONDAY)
        assert (results.learned_to, results.summary, results.version, results.turn_count) == (1, "tea", 2, 1)
        assert [each.key for each in await ledger.jobs(states=[JobState.WAITING])] == ["next"]
        assert (await ledger.spent_today("ann")).tokens == 15

    @pytest.mark.parametrize("reason", ["finished", "cancelled", "lost", "moved", "no memory", "stranger's job"])
    async def test_nothing_happens_if_any_part_cannot(self, ledger: Ledger, reason: str) -> None:
        await say(ledger, MONDAY, "I like tea")
        job = await leased(ledger)
        record = memory("likes tea")
        version, scope, ended = 1, ANN, finish(job)
        changes: list[Change] = [Add(record)]
        error: type[Exception] = Conflict
        match reason:
            case "finished":
                await ledger.finish(job)
            case "cancelled":
                await ledger.cancel("ann", [job.id])
            case "lost":
                ended = FinishJob(job.id, "another's lease")
            case "moved":
                await say(ledger, MONDAY, "and coffee")
            case "no memory":
                changes, error = [Add(record), Forget("nobody's")], Exception
            case _:
                scope, changes, error = Scope("bob"), [], Exception
        before = await ledger.jobs(), await ledger.conversation(MONDAY), await ledger.history(ANN)
        with pytest.raises(error):
            await ledger.apply(
                scope,
                changes,
                by=BY,
                effects=[
                    EnqueueJob(scope, new("next")),
                    ModelUsage(user=scope.user, step="extract", model="m", at=now()),
                    *(
                        [ConversationUpdate(MONDAY, {"learned_to": 1}, expected_version=version)]
                        if scope is ANN
                        else []
                    ),
                    ended,
                ],
            )
        assert await ledger.get(ANN, [record.id]) == []
        assert (await ledger.jobs(), await ledger.conversation(MONDAY), await ledger.history(ANN)) == before
        assert await ledger.usage() == []

    async def test_what_was_done_once_is_not_done_again(self, ledger: Ledger) -> None:
        job, once = await leased(ledger), IdempotencyToken("key", "digest")
        for _ in range(2):
            spent = ModelUsage(user="ann", step="s", model="m", at=now())
            await do(ledger, finish(job), spent, changes=[Add(memory())], once=once)
        assert (await ledger.spent_today("ann")).calls == 1

    async def test_effects_need_no_changes_and_make_no_revision(self, ledger: Ledger) -> None:
        await say(ledger, MONDAY, "hello")
        before = await ledger.revision("ann"), await ledger.history(ANN)
        await do(ledger, ConversationUpdate(MONDAY, {"summary": "a greeting"}))
        assert (await ledger.revision("ann"), await ledger.history(ANN)) == before
        assert (await ledger.conversation(MONDAY)).summary == "a greeting"

    async def test_effects_on_another_user_are_refused(self, ledger: Ledger) -> None:
        bob = Scope("bob", "", "s")
        for effect in (
            ConversationUpdate(bob, {"summary": "x"}),
            EnqueueJob(bob, new()),
            ModelUsage(user="bob", step="s", model="m", at=now()),
        ):
            with pytest.raises(InvalidInput):
                await do(ledger, effect)
        assert await ledger.jobs() == []

    async def test_every_field_of_a_note_comes_back_and_the_others_stay(self, ledger: Ledger) -> None:
        await say(ledger, MONDAY, "hello")
        await do(
            ledger, ConversationUpdate(MONDAY, {"summary": "hi \0 \ud800", "metadata": {"a": [1]}, "learned_to": 1})
        )
        await do(
            ledger, ConversationUpdate(MONDAY, {"invocations": [{"goal": "x"}, {"goal": "y"}], "closed_at": NOON})
        )
        results = await ledger.conversation(MONDAY)
        assert (results.summary, results.metadata, results.learned_to) == ("hi \0 \ud800", {"a": [1]}, 1)
        assert (results.invocations, results.closed_at) == (({"goal": "x"}, {"goal": "y"}), NOON)
        assert (results.turn_count, results.version) == (1, 3)
        await do(
            ledger, ConversationUpdate(MONDAY, {"summary": "", "metadata": {}, "invocations": [], "learned_to": 0})
        )
        results = await ledger.conversation(MONDAY)
        assert (results.summary, results.metadata, results.learned_to, results.invocations) == ("", {}, 0, ())
        assert results.closed_at == NOON

    @pytest.mark.parametrize(
        "fields",
        [
            {"turn_count": 3}, {"version": 1}, {"summary": None}, {"learned_to": "1"}, {"learned_to": -1},
            {"metadata": {"x": object()}}, {"closed_at": "noon"},
        ],
    )  # fmt: skip
    async def test_a_note_that_cannot_be_kept_is_refused(self, ledger: Ledger, fields: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput):
            await do(ledger, ConversationUpdate(MONDAY, fields))

    async def test_what_is_noted_before_anything_was_said_stays(self, ledger: Ledger) -> None:
        await do(ledger, ConversationUpdate(MONDAY, {"metadata": {"title": "plans"}}, expected_version=0))
        results = await ledger.conversation(MONDAY)
        assert results == Conversation(scope=MONDAY, metadata={"title": "plans"}, version=1)
        with pytest.raises(Conflict):
            await do(ledger, ConversationUpdate(MONDAY, {"summary": "x"}, expected_version=0))
        await say(ledger, MONDAY, "hello")
        results = await ledger.conversation(MONDAY)
        assert (results.metadata, results.turn_count, results.started_at) == ({"title": "plans"}, 1, NOON)
        assert results.last_turn_at == NOON

    async def test_a_closed_conversation_is_opened_by_a_new_turn(self, ledger: Ledger) -> None:
        await say(ledger, MONDAY, "hello")
        await do(ledger, ConversationUpdate(MONDAY, {"closed_at": now(), "summary": "short"}, expected_version=1))
        assert (await ledger.conversation(MONDAY)).closed_at is not None
        await say(ledger, MONDAY, "one more thing")
        results = await ledger.conversation(MONDAY)
        assert (results.closed_at, results.summary) == (None, "short")

    async def test_conversations_are_found_by_how_long_they_are_silent(self, ledger: Ledger) -> None:
        sessions = [Scope("ann", "p", f"{n}") for n in range(4)] + [Scope("bob", "", "0")]
        for n, scope in enumerate(sessions):
            logged = turn("hi", said_at=NOON + timedelta(minutes=n))
            await ledger.append(scope, [logged], vectors=[None], by=BY)
        await do(ledger, ConversationUpdate(sessions[1], {"closed_at": NOON}))
        assert [each.scope for each in await ledger.conversations()] == sessions
        assert [each.scope for each in await ledger.conversations("ann", order="newest")] == sessions[3::-1]
        idle = await ledger.conversations(open=True, idle_before=NOON + timedelta(minutes=3))
        assert [each.scope for each in idle] == [sessions[0], sessions[2]]
        assert [each.scope for each in await ledger.conversations(open=False)] == [sessions[1]]
        (whole,) = await ledger.conversations("bob")
        assert whole == await ledger.conversation(sessions[4])

    async def test_conversations_come_a_page_at_a_time(self, ledger: Ledger) -> None:
        sessions = [Scope("ann", project, session) for project in ("", "p") for session in ("", "a", "b")]
        for scope in sessions:
            await say(ledger, scope, "hi")
        await do(ledger, ConversationUpdate(Scope("ann", "q"), {"metadata": {"new": True}}))
        for order in ("oldest", "newest"):
            seen: list[Conversation] = []
            while page := await ledger.conversations(order=order, limit=2, after=seen[-1] if seen else None):
                seen += page
            assert len(seen) == len({each.scope for each in seen}) == 7
        assert [each.scope for each in seen] == [*reversed(sessions), Scope("ann", "q")]
