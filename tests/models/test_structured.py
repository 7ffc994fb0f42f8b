"""Asking for JSON: whatever the endpoint can do and however the model spells it, a checked value or a clear error."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from recollect.errors import BrokenAnswer, InvalidInput, InvalidSettings, ModelUnavailable
from recollect.models import http_client, structured
from recollect.models.chat import AnsweringChat, Form
from recollect.models.loose_json import parse_json_values
from recollect.models.openai_chat import OpenAIChat
from recollect.models.structured import InvalidAnswer, Partial, Structured, ask_json
from recollect.testing.llm_replies import Fault, ScriptedReply, ToolCall
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.linear_time import assert_linear
from tests.support.llm_faults import (
    MALFORMED_ANSWERS,
    delay,
    html_page,
    http_error,
    malformed_reply,
    no_body,
    reset,
    trickle,
    truncated,
)

SCHEMA = {
    "title": "facts",
    "type": "object",
    "properties": {"facts": {"type": "array"}},
    "required": ["facts"],
    "additionalProperties": False,
}
MESSAGES = [{"role": "user", "content": "What did they say?"}]
GOOD = {"facts": [{"id": 0, "content": "The budget for the Hawaii trip is $10,000"}]}
HAWAII = ["The budget for the Hawaii trip is $10,000"]
NO_SCHEMA = {"error": {"message": "Unknown parameter: 'response_format.json_schema'"}}
NO_TOOLS = {"error": {"message": "tools are not supported by this model"}}


def contents(answer: object) -> Partial[list[str]]:
    """The contents of all facts; those without one are complained of."""
    if not isinstance(answer, dict) or not isinstance(answer.get("facts"), list):
        raise InvalidAnswer('it has no list "facts"')
    facts = [fact["content"] for fact in answer["facts"] if isinstance(fact.get("content"), str)]
    missing = len(answer["facts"]) - len(facts)
    if missing and not facts:
        raise InvalidAnswer("no fact has a content that is a text")
    return Partial(facts, ("a fact has no content",) * min(1, missing), score=len(facts))


async def ask(chat: Any, **options: Any) -> Structured[list[str]]:
    arguments: dict[str, Any] = {"schema": SCHEMA, "max_tokens": 100, "timeout_s": None, "check": contents, **options}
    return await ask_json(chat, MESSAGES, **arguments)


def last_message(llm: ScriptedLLM, at: int = -1) -> str:
    """The last message of a request."""
    return str(llm.calls("chat")[at].json["messages"][-1]["content"])


class TestOneGoodAnswer:
    async def test_it_is_had_by_one_call_that_the_server_holds_to_the_schema(
        self, llm: ScriptedLLM, chat: OpenAIChat
    ) -> None:
        llm.reply_json(GOOD)
        answer = await ask(chat)
        assert (answer.value, answer.calls, answer.how, answer.model) == (HAWAII, 1, "schema", "small")
        assert not answer.salvaged
        assert answer.complaints == ()
        [request] = llm.calls("chat")
        assert request.json["response_format"]["json_schema"]["schema"] == SCHEMA
        assert request.json["messages"] == MESSAGES

    async def test_it_tells_what_it_cost(self, llm: ScriptedLLM, chat: OpenAIChat) -> None:
        llm.reply("no JSON").reply_json(GOOD)
        answer = await ask(chat)
        assert answer.calls == 2
        assert (answer.tokens_in, answer.tokens_out) == (llm.stats.prompt_tokens, llm.stats.completion_tokens)
        assert answer.tokens_out > 10

    @pytest.mark.parametrize("usage", [None, [], {"prompt_tokens": "many"}, {"prompt_tokens": -5}, {}])
    async def test_tokens_that_the_server_does_not_count_are_none(
        self, llm: ScriptedLLM, chat: OpenAIChat, usage: Any
    ) -> None:
        choice = {"message": {"content": json.dumps(GOOD)}, "finish_reason": "stop"}
        llm.fault(http_error(200, {"choices": [choice], "usage": usage}))
        answer = await ask(chat)
        assert (answer.tokens_in, answer.tokens_out) == (0, 0)

    @pytest.mark.parametrize(
        "name",
        [
            "fenced", "prose_with_braces", "nan", "duplicate_keys", "unknown_ids", "negative_ids",
            "think_before_json", "only_in_reasoning",
        ],
    )  # fmt: skip
    async def test_an_odd_spelling_needs_no_second_call(self, llm: ScriptedLLM, chat: OpenAIChat, name: str) -> None:
        llm.reply(malformed_reply(name))
        answer = await ask(chat)
        assert (answer.value, answer.calls, answer.salvaged) == (HAWAII, 1, False)

    async def test_half_a_character_is_replaced(self, llm: ScriptedLLM, chat: OpenAIChat) -> None:
        llm.reply(malformed_reply("lone_surrogate"))
        assert (await ask(chat)).value == ["Likes surfing \ufffd"]

    async def test_a_thousand_facts_come_whole(self, llm: ScriptedLLM, chat: OpenAIChat) -> None:
        llm.reply(malformed_reply("thousand_facts"))
        assert len((await ask(chat)).value) == 1000

    async def test_of_a_draft_and_an_answer_the_answer_counts(self, llm: ScriptedLLM, chat: OpenAIChat) -> None:
        draft = {"facts": [{"content": "draft"}]}
        llm.reply(f"First {json.dumps(draft)}, no: {json.dumps(GOOD)} {{really}} [1]")
        assert (await ask(chat)).value == HAWAII


class TestBrokenAnswers:
    @pytest.mark.parametrize("name", ["empty", "null", "cut_off", "wrong_types", "html_page", "ten_megabytes"])
    async def test_what_cannot_be_used_is_asked_for_once_more(
        self, llm: ScriptedLLM, chat: OpenAIChat, name: str
    ) -> None:
        llm.reply(malformed_reply(name)).reply_json(GOOD)
        answer = await ask(chat)
        assert (answer.value, answer.calls, answer.salvaged) == (HAWAII, 2, False)
        repeated = llm.calls("chat")[1].json["messages"]
        assert repeated[: len(MESSAGES)] == MESSAGES
        assert [message["role"] for message in repeated[len(MESSAGES) :]] == ["assistant", "user"]
        assert len(repeated[-2]["content"]) <= 2_000
        assert json.dumps(SCHEMA) in last_message(llm)

    @pytest.mark.parametrize(
        "fault", [html_page(), no_body(), truncated(), http_error(200, "null")], ids=lambda f: f.name
    )
    async def test_an_answer_that_is_no_completion_is_asked_for_once_more(
        self, llm: ScriptedLLM, chat: OpenAIChat, fault: Fault
    ) -> None:
        llm.reply_json(GOOD)
        llm.fault(fault)
        answer = await ask(chat)
        assert (answer.value, answer.calls) == (HAWAII, 2)
        assert llm.base_url not in last_message(llm)

    @pytest.mark.parametrize("name", ["empty", "null", "cut_off", "wrong_types", "html_page", "ten_megabytes"])
    async def test_what_stays_broken_is_an_error_that_a_job_can_try_again(
        self, llm: ScriptedLLM, chat: OpenAIChat, name: str
    ) -> None:
        llm.reply(malformed_reply(name)).reply(malformed_reply(name)).reply_json(GOOD)
        with pytest.raises(BrokenAnswer, match="small gave no answer that can be used") as raised:
            await ask(chat)
        assert raised.value.retryable
        assert raised.value.calls == len(llm.requests) == 2
        if name != "ten_megabytes":
            assert raised.value.tokens_in == llm.stats.prompt_tokens > 0

    async def test_the_model_is_told_what_is_wrong(self, llm: ScriptedLLM, chat: OpenAIChat) -> None:
        llm.reply_json({"memories": []}).reply_json(GOOD)
        await ask(chat)
        assert 'it has no list "facts"' in last_message(llm)

    async def test_a_check_that_trips_over_the_answer_is_a_broken_answer_too(
        self, llm: ScriptedLLM, chat: OpenAIChat
    ) -> None:
        llm.reply_json({"facts": 7}).reply_json(GOOD)
        answer = await ask(chat, check=lambda value: [each["content"] for each in value["facts"]])
        assert answer.value == HAWAII
        assert "JSON of another shape" in last_message(llm)


class TestSalvage:
    PART = '{"facts": [{"content": "One"}, {"content": "Two"}, {"content": "Thr'

    async def test_of_two_broken_answers_the_better_part_is_kept(self, llm: ScriptedLLM, chat: OpenAIChat) -> None:
        llm.reply(self.PART).reply('{"facts": [{"content": "One"}, {"con')
        answer = await ask(chat)
        assert (answer.value, answer.calls, answer.salvaged) == (["One", "Two"], 2, True)
        assert "lost" in answer.complaints[0]

    async def test_a_whole_answer_is_better_than_a_longer_part(self, llm: ScriptedLLM, chat: OpenAIChat) -> None:
        llm.reply(self.PART).reply_json(GOOD)
        answer = await ask(chat)
        assert (answer.value, answer.salvaged) == (HAWAII, False)

    async def test_half_a_number_and_half_a_sentence_are_left_out(self, llm: ScriptedLLM, chat: OpenAIChat) -> None:
        llm.reply('{"facts": [{"content": "One", "amount": 10').reply('{"facts": [{"content": "One", "amount": 10')
        answer = await ask(chat, check=lambda value: value["facts"])
        assert answer.value == [{"content": "One"}]

    @pytest.mark.parametrize("fault", [http_error(500), http_error(400), reset(), delay(30)], ids=lambda f: f.name)
    async def test_a_second_question_that_fails_leaves_what_the_first_gave(
        self, llm: ScriptedLLM, chat: OpenAIChat, fault: Fault
    ) -> None:
        llm.reply(self.PART)
        llm.when("cannot be used").reply(ScriptedReply("", faults=[fault]))
        answer = await ask(chat, timeout_s=4)
        assert (answer.value, answer.salvaged) == (["One", "Two"], True)
        assert "asking once more failed" in answer.complaints[-1]

    async def test_a_model_that_ran_out_of_tokens_while_it_thought_gets_more(
        self, llm: ScriptedLLM, chat: OpenAIChat
    ) -> None:
        llm.reply(ScriptedReply("", reasoning="Hm, let me see", finish_reason="length")).reply_json(GOOD)
        assert (await ask(chat)).value == HAWAII
        requests = [request.json["max_tokens"] for request in llm.calls("chat")]
        assert requests == [100, 100 * structured.TOKEN_FACTOR]

    async def test_more_tokens_stay_within_reason(self, llm: ScriptedLLM, chat: OpenAIChat) -> None:
        llm.reply(ScriptedReply(self.PART, finish_reason="length")).reply_json(GOOD)
        await ask(chat, max_tokens=structured.MAX_TOKENS - 1)
        assert llm.calls("chat")[1].json["max_tokens"] == structured.MAX_TOKENS


class TestForms:
    async def test_a_server_without_schemas_is_asked_by_a_tool_from_then_on(
        self, llm: ScriptedLLM, chat: OpenAIChat
    ) -> None:
        llm.fault(http_error(400, NO_SCHEMA))
        for _ in range(2):
            llm.reply(tool_calls=[ToolCall("facts", GOOD)])
        answers = [await ask(chat), await ask(chat)]
        assert [(each.value, each.how, each.calls) for each in answers] == [(HAWAII, "tool", 1)] * 2
        first, second, third = (request.json for request in llm.calls("chat"))
        assert "response_format" in first
        for query in (second, third):
            assert query["tools"][0]["function"]["parameters"] == SCHEMA
            assert query["tool_choice"]["function"]["name"] == "facts"
            assert "response_format" not in query

    async def test_a_server_without_tools_is_asked_in_words_from_then_on(
        self, llm: ScriptedLLM, chat: OpenAIChat
    ) -> None:
        llm.fault(http_error(422, NO_SCHEMA))
        llm.fault(http_error(404, NO_TOOLS))
        llm.reply_json(GOOD).reply_json(GOOD)
        answers = [await ask(chat), await ask(chat)]
        assert [(each.value, each.how) for each in answers] == [(HAWAII, "prompt")] * 2
        request = llm.calls("chat")[-1].json
        assert not {"tools", "response_format"} & request.keys()
        assert request["messages"][-1]["content"].startswith(MESSAGES[0]["content"])
        assert json.dumps(SCHEMA) in last_message(llm)
        assert len(llm.requests) == 4

    @pytest.mark.parametrize("arguments", [GOOD, json.dumps(GOOD), f"```json\n{json.dumps(GOOD)}\n```"])
    async def test_the_arguments_of_a_tool_are_read_like_any_answer(
        self, llm: ScriptedLLM, chat: OpenAIChat, arguments: Any
    ) -> None:
        chat.form = "tool"
        llm.reply(tool_calls=[ToolCall("facts", arguments)])
        assert (await ask(chat)).value == HAWAII

    async def test_a_model_that_calls_no_tool_may_say_it(self, llm: ScriptedLLM, chat: OpenAIChat) -> None:
        chat.form = "tool"
        llm.reply_json(GOOD)
        answer = await ask(chat)
        assert (answer.value, answer.how) == (HAWAII, "tool")

    async def test_a_request_that_is_refused_in_every_form_says_nothing_about_forms(
        self, llm: ScriptedLLM, chat: OpenAIChat
    ) -> None:
        llm.fault(http_error(400, {"error": {"message": "the prompt is too long"}}), times=3)
        llm.reply_json(GOOD)
        with pytest.raises(InvalidInput, match="too long"):
            await ask(chat)
        assert (await ask(chat)).how == "schema"

    async def test_a_refused_key_is_not_asked_about_twice(self, llm: ScriptedLLM, chat: OpenAIChat) -> None:
        llm.fault(http_error(401), times=None)
        with pytest.raises(InvalidSettings):
            await ask(chat)
        assert len(llm.requests) == 1

    async def test_a_chat_that_only_completes_will_do(self) -> None:
        class Plain:
            """Knows neither schemas nor what it costs."""

            model = "plain"

            def __init__(self) -> None:
                self.asked: list[str] = []

            async def complete(
                self, messages: Sequence[Mapping[str, str]], *, schema: Any = None, **options: Any
            ) -> str:
                if schema is not None:
                    raise InvalidInput("no schemas here")
                self.asked.append(messages[-1]["content"])
                return json.dumps(GOOD)

            async def close(self) -> None: ...

        plain = Plain()
        answer = await ask(plain)
        how: Form = "prompt"
        assert (answer.value, answer.how, answer.tokens_in) == (HAWAII, how, 0)
        assert json.dumps(SCHEMA) in plain.asked[0]
        assert not isinstance(plain, AnsweringChat)


class TestFaults:
    @pytest.mark.parametrize("fault", [http_error(429), http_error(503), reset()], ids=lambda f: f.name)
    async def test_a_passing_fault_of_the_line_is_no_broken_answer(
        self, llm: ScriptedLLM, chat: OpenAIChat, fault: Fault
    ) -> None:
        llm.reply_json(GOOD)
        llm.fault(fault)
        assert (await ask(chat)).calls == 1

    @pytest.mark.parametrize("fault", [http_error(500), reset()], ids=lambda f: f.name)
    async def test_a_server_that_is_away_is_not_asked_a_second_question(
        self, llm: ScriptedLLM, chat: OpenAIChat, fault: Fault
    ) -> None:
        llm.fault(fault, times=None)
        with pytest.raises(ModelUnavailable) as raised:
            await ask(chat)
        assert raised.value.retryable
        assert len(llm.requests) == http_client.TRIES

    async def test_a_byte_now_and_then_ends_at_the_deadline(self, llm: ScriptedLLM, chat: OpenAIChat) -> None:
        llm.fault(trickle(0.05), times=None)
        with pytest.raises(ModelUnavailable, match="did not answer"):
            await ask(chat, timeout_s=0.3)

    async def test_the_deadline_is_for_both_questions(self, llm: ScriptedLLM, chat: OpenAIChat) -> None:
        # Both would answer within a deadline of their own.
        late = ScriptedReply(json.dumps(GOOD), faults=[delay(9)])
        llm.reply(ScriptedReply("no JSON", faults=[delay(3)])).reply(late)
        with pytest.raises(BrokenAnswer):
            await ask(chat, timeout_s=10)


class TestLooseJson:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ('\ufeff{"a": 1}', {"a": 1}),
            ("{'a': 'it's', b: True, c: None,}", {"a": "it's", "b": True, "c": None}),
            ('{"a": "He said "hi" to me", "b": 2}', {"a": 'He said "hi" to me', "b": 2}),
            ('{"a": 1 "b": 2}', {"a": 1, "b": 2}),
            ('{"a": 1, // so\n "b": .5}', {"a": 1, "b": 0.5}),
            ('{"a": "two\nlines"}', {"a": "two\nlines"}),
            ("{“a”: “b”}", {"a": "b"}),
            ('{"n": 1e999, "m": -Infinity, "o": ' + "9" * 5000 + "}", {"n": None, "m": None, "o": None}),
            ('{"a": [1], "a": [2], "b": 1, "b": null, "c": 1, "c": 2}', {"a": [1, 2], "b": 1, "c": 2}),
            (r'{"a":"\q \u00e9 \u0000 \ud83c\udf0a \udf0a"}', {"a": "q é \ufffd 🌊 \ufffd"}),
        ],
    )
    def test_what_models_misspell_is_understood(self, text: str, value: object) -> None:
        [read] = parse_json_values(text)
        assert (read.value, read.is_incomplete) == (value, False)

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ('[{"a": 1}, {"a": 2]', [{"a": 1}, {"a": 2}]),
            ('{"a": [1, {"c": "x"}, {"c": "y', {"a": [1, {"c": "x"}]}),
            ('{"a": {"b": 1}, junk}', {"a": {"b": 1}}),
            ('{"a": 1, "b": tru', {"a": 1}),
        ],
    )
    def test_what_is_cut_off_or_unclear_is_lost_and_said_to_be(self, text: str, value: object) -> None:
        [read] = parse_json_values(text)
        assert (read.value, read.is_incomplete) == (value, True)

    @pytest.mark.parametrize("text", ["", "  ", "no JSON", '{"a": 10', "{a sentence}", "[" * 5000, '{"a":' * 5000])
    def test_what_holds_none_gives_none(self, text: str) -> None:
        assert list(parse_json_values(text)) == []

    def test_no_text_takes_more_than_linear_time(self) -> None:
        for part in (
            "[", '{"a":', '"', '{"', "{'", '{"a"', "{x} ", "\\", "/*", "{/*", "//", "{//", "{a:1 {", "[]", '["x" y',
            " ", "{ ", '" b "', "\\u", '{"a":"\\', "9", "1,", '[{"a":1}}', "“",
        ):  # fmt: skip
            assert_linear(lambda text: list(parse_json_values(text)), part)
            assert_linear(lambda text: list(parse_json_values('{"facts": ["' + text)), part)

    def test_of_ten_megabytes_one_is_read(self) -> None:
        [read] = parse_json_values(MALFORMED_ANSWERS["ten_megabytes"])
        assert read.is_incomplete
