"""Old turns are compressed to episodes by ranges that depend only on the number of turns."""

from __future__ import annotations

import pytest

from recollect.errors import InvalidInput, ModelUnavailable
from recollect.model.change import Add, Forget
from recollect.model.erasure import ErasureRequest, Target
from recollect.model.memory import Category, MemoryType, Trust
from recollect.model.scope import Level, Scope
from recollect.models.openai_chat import OpenAIChat
from recollect.sessions.compress import compress, due_ranges, is_due, range_episode
from recollect.sessions.step_output import step_position
from recollect.testing.scripted_llm import RecordedRequest, ScriptedLLM
from tests.support.llm_faults import http_error
from tests.support.session_samples import (
    ANN,
    BY,
    HAWAII,
    NOW,
    a_ledger,
    after,
    apply,
    long_talk,
    state,
    stored_memories,
    talk,
)

FIVE = [(1, 10), (11, 30), (31, 50), (51, 70), (71, 90)]


def shelves(request: RecordedRequest) -> str:
    """Return a summary with the first and the last shelf of the prompt."""
    words = (word.strip('".}') for word in request.text.split())
    # The secret that ends the data may end in zeros, too, but is no number.
    numbers = [word for word in words if word.isdigit() and word.endswith("00")]
    return f"The user moved boxes in several steps, from shelf {numbers[0]} to shelf {numbers[-1]}."


def ranges(changes: object) -> list[tuple[int, int]]:
    assert isinstance(changes, tuple)
    return [(each.record.detail["turn_start"], each.record.detail["turn_end"]) for each in changes]


class TestOnlyByAModel:
    async def test_ranges_wait_while_there_is_no_model(self) -> None:
        turns = long_talk(40)
        output = await compress(state(turns), turns, chat=None, now=NOW, extracts=False)
        assert (output.changes, output.marks, output.left) == ((), {}, 0)

    async def test_a_range_that_the_model_cannot_summarise_is_skipped(
        self, llm: ScriptedLLM, chat: OpenAIChat
    ) -> None:
        llm.default = "I cannot do that."
        turns = long_talk(20)
        output = await compress(state(turns), turns, chat=chat, now=NOW, extracts=False)
        assert (output.changes, output.marks) == ((), {"compress": 10})
        assert "was not used" in output.reasons[0]


class TestTheHundredTurnConversation:
    """The example of the three-tier design: a hundred turns give five episodes; the last ten stay."""

    async def test_a_hundred_turns_one_by_one_give_five_episodes(self) -> None:
        turns, conversation, made = long_talk(100), state(), []
        for count in range(1, 101):
            conversation = state(turns[:count], metadata=conversation.metadata)
            output = await compress(conversation, turns[:count], chat=None, now=NOW)
            made += [(count, *each) for each in ranges(output.changes)]
            conversation = after(conversation, output)
        assert made == [(20, 1, 10), (40, 11, 30), (60, 31, 50), (80, 51, 70), (100, 71, 90)]
        assert step_position(conversation, "compress") == 90

    async def test_a_hundred_turns_at_once_give_the_same_five_episodes(self) -> None:
        turns = long_talk(100)
        output = await compress(state(turns), turns, chat=None, now=NOW)
        assert ranges(output.changes) == FIVE

    async def test_each_episode_takes_one_llm_call(self, llm: ScriptedLLM, chat: OpenAIChat) -> None:
        llm.default = shelves
        turns = long_talk(100)
        ledger = await a_ledger(turns)
        conversation = await apply(ledger, state(turns), await compress(state(turns), turns, chat=chat, now=NOW))
        episodes = await stored_memories(ledger, ANN, Category.EPISODE)
        assert [(each.detail["turn_start"], each.detail["turn_end"]) for each in episodes] == FIVE
        assert "shelf 100 to shelf 1000" in episodes[0].content
        assert len(llm.calls("chat")) == 5
        repeated = await compress(conversation, turns, chat=chat, now=NOW)
        assert (repeated.changes, repeated.marks, len(llm.calls("chat"))) == ((), {}, 5)


class TestAnEpisode:
    async def test_an_episode_has_its_evidence_and_its_time(self, llm: ScriptedLLM, chat: OpenAIChat) -> None:
        llm.default = shelves
        turns = long_talk(20)
        output = await compress(state(turns), turns, chat=chat, now=NOW)
        [change] = output.changes
        assert isinstance(change, Add)
        record = change.record
        assert (record.category, record.type, record.trust) == (Category.EPISODE, MemoryType.EPISODIC, Trust.LOW)
        assert record.evidence == tuple(turn.id for turn in turns[:10])
        assert record.occurred_at == turns[0].said_at
        assert (record.detail["made"], record.detail["model"]) == ("model", "small")
        assert record.detail["until"] == turns[9].said_at.isoformat()
        assert record.prompt_digest
        assert output.cost.calls == 1
        assert output.cost.tokens_in > 0
        assert output.cost.model == "small"

    @pytest.mark.parametrize(
        ("scope", "level"), [(ANN, Level.USER), (Scope("ann", "garden", "monday"), Level.PROJECT)]
    )
    async def test_an_episode_has_the_default_level_of_its_scope(self, scope: Scope, level: Level) -> None:
        turns = long_talk(20, scope=scope)
        [change] = (await compress(state(turns, scope=scope), turns, chat=None, now=NOW)).changes
        assert isinstance(change, Add)
        assert (change.record.level, change.record.scope) == (level, scope)

    async def test_without_a_model_an_episode_quotes_the_user_only(self) -> None:
        turns = talk(*HAWAII, *("Thanks!" for _ in range(14)))
        [change] = (await compress(state(turns), turns, chat=None, now=NOW)).changes
        assert isinstance(change, Add)
        record = change.record
        assert record.content.startswith("The user said: “")
        assert "my budget for the trip is $10,000" in record.content
        assert "Palm Inn" not in record.content
        assert "Thanks" not in record.content
        assert (record.detail["made"], record.trust) == ("extract", Trust.HIGH)
        assert "model" not in record.detail

    async def test_questions_about_the_world_are_summarised(self, llm: ScriptedLLM, chat: OpenAIChat) -> None:
        llm.default = "The user asked about capitals, and the assistant named Paris."
        turns = talk(*("What is the capital of France?" if at % 2 else "It is Paris." for at in range(1, 21)))
        [change] = (await compress(state(turns), turns, chat=chat, now=NOW)).changes
        assert isinstance(change, Add)
        assert change.record.detail["made"] == "model"

    async def test_ranges_with_the_same_summary_have_an_episode_each(self) -> None:
        turns = talk(*(f"My bike is red, and number {at % 2}." for at in range(1, 41)))
        ledger = await a_ledger(turns)
        await apply(ledger, state(turns), await compress(state(turns), turns, chat=None, now=NOW))
        episodes = await stored_memories(ledger, ANN, Category.EPISODE)
        assert len({each.content for each in episodes}) == 1
        assert len(episodes) == 2

    async def test_an_episode_made_twice_is_stored_once(self) -> None:
        turns = long_talk(20)
        ledger = await a_ledger(turns)
        first = await compress(state(turns), turns, chat=None, now=NOW)
        second = await compress(state(turns), turns, chat=None, now=NOW)
        await apply(ledger, state(turns), first)
        await apply(ledger, state(turns), second)
        assert len(await stored_memories(ledger, ANN, Category.EPISODE)) == 1

    async def test_a_forgotten_episode_is_not_added_again(self) -> None:
        turns = long_talk(20)
        ledger = await a_ledger(turns)
        output = await compress(state(turns), turns, chat=None, now=NOW)
        await apply(ledger, state(turns), output)
        [episode] = await stored_memories(ledger, ANN, Category.EPISODE)
        await ledger.apply(ANN, [Forget(episode.id)], by=BY)
        await apply(ledger, state(turns), await compress(state(turns), turns, chat=None, now=NOW))
        assert [str(each.status) for each in await stored_memories(ledger, ANN, Category.EPISODE)] == ["forgotten"]

    async def test_secrets_are_in_no_episode_and_in_no_prompt(self, llm: ScriptedLLM, chat: OpenAIChat) -> None:
        secret = "sk-proj-Ab12Cd34Ef56Gh78Ij90Kl12Mn34Op56"
        turns = talk(*(f"My key for shelf {at} is {secret}, keep it." for at in range(1, 21)))
        [extracted] = (await compress(state(turns), turns, chat=None, now=NOW)).changes
        await compress(state(turns), turns, chat=chat, now=NOW)
        assert isinstance(extracted, Add)
        assert secret not in extracted.record.content
        assert not any(secret in call.text for call in llm.calls("chat"))


class TestWhatGoesWrong:
    async def test_an_unusable_answer_is_retried_once_and_then_replaced_by_quotes(
        self, llm: ScriptedLLM, chat: OpenAIChat
    ) -> None:
        llm.default = "As an AI, I cannot sum up conversations about boxes and shelves."
        turns = long_talk(20)
        output = await compress(state(turns), turns, chat=chat, now=NOW)
        [change] = output.changes
        assert isinstance(change, Add)
        assert change.record.detail["made"] == "extract"
        assert output.reasons == ("turns 1-10: the model's summary was not used: it refuses",)
        assert output.cost.calls == len(llm.calls("chat")) == 2
        assert "it refuses" in llm.calls("chat")[1].text

    async def test_a_usable_second_answer_is_accepted(self, llm: ScriptedLLM, chat: OpenAIChat) -> None:
        llm.reply("Boxes.").reply("Summary: The user moved a box to shelf 100 and on to shelf 1000.")
        turns = long_talk(20)
        [change] = (await compress(state(turns), turns, chat=chat, now=NOW)).changes
        assert isinstance(change, Add)
        assert change.record.content == "The user moved a box to shelf 100 and on to shelf 1000."

    async def test_an_unavailable_model_raises_an_error(self, llm: ScriptedLLM, chat: OpenAIChat) -> None:
        llm.fault(http_error(503), times=None)
        turns = long_talk(20)
        with pytest.raises(ModelUnavailable):
            await compress(state(turns), turns, chat=chat, now=NOW)

    async def test_episodes_made_before_the_model_failed_are_stored(self, llm: ScriptedLLM, chat: OpenAIChat) -> None:
        def once(request: RecordedRequest) -> str:
            llm.fault(http_error(503), times=None)
            return shelves(request)

        llm.default = once
        turns = long_talk(60)
        output = await compress(state(turns), turns, chat=chat, now=NOW)
        assert (ranges(output.changes), output.marks, output.left) == ([(1, 10)], {"compress": 10}, 2)
        rest = await compress(after(state(turns), output), turns, chat=None, now=NOW)
        assert ranges(rest.changes) == [(11, 30), (31, 50)]

    async def test_small_talk_makes_no_llm_call(self, llm: ScriptedLLM, chat: OpenAIChat) -> None:
        turns = talk(*("Hello!" if at % 2 else "Hi there!" for at in range(1, 21)))
        output = await compress(state(turns), turns, chat=chat, now=NOW)
        assert (llm.calls("chat"), output.cost.calls, output.marks) == ([], 0, {"compress": 10})

    async def test_a_short_conversation_is_not_compressed(self) -> None:
        turns = long_talk(19)
        assert not is_due(state(turns), every=20, keep=10)
        assert (await compress(state(turns), turns, chat=None, now=NOW)).changes == ()
        assert is_due(state(long_talk(20)), every=20, keep=10)

    @pytest.mark.parametrize(("every", "keep"), [(10, 10), (5, 9), (20, -1)])
    async def test_compress_keep_must_be_less_than_compress_every(self, every: int, keep: int) -> None:
        with pytest.raises(InvalidInput, match="`keep` must be"):
            due_ranges(long_talk(40), done=0, every=every, keep=keep)

    async def test_an_invalid_mark_counts_as_nothing_done(self) -> None:
        for marks in ("all", {"compress": "10"}, {"compress": True}, {"compress": -3}, None):
            assert step_position(state(metadata={"written_to": marks}), "compress") == 0


class TestErasing:
    async def test_erasing_a_turn_erases_its_episode_which_is_rebuilt_from_the_rest(self) -> None:
        turns = long_talk(40)
        ledger = await a_ledger(turns)
        conversation = await apply(ledger, state(turns), await compress(state(turns), turns, chat=None, now=NOW))
        receipt = await ledger.erase(ANN, ErasureRequest(Target.TURN, "turn-5"), by=BY)
        assert [each.detail["turn_start"] for each in await stored_memories(ledger, ANN, Category.EPISODE)] == [11]
        [remade] = [each for each in receipt.remade if each.kind == "episode"]
        assert remade.turns is not None
        first, last = remade.turns
        left = [turn for turn in await ledger.turns(ANN, limit=100) if first <= turn.position <= last]
        await apply(ledger, conversation, await range_episode(ANN, left, chat=None, now=NOW))
        episodes = await stored_memories(ledger, ANN, Category.EPISODE)
        assert len(episodes) == 2
        assert not any("500" in each.content for each in episodes if each.detail["turn_start"] == 1)
