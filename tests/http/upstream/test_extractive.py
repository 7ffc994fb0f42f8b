"""The built-in model answers from memory alone, says so, quotes its sources and invents nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from recollect import AsyncMemory, Memory
from recollect.config.settings import load
from recollect.http.upstream.extractive import MODEL, ExtractiveUpstream
from recollect.http.upstream.router import UpstreamRequest
from recollect.model.memory import Category
from recollect.model.result import Hit
from recollect.service.extractive_answer import RequestMemory, answer_from_memory
from tests.support.proxy_server import served

NO_LLM = "No LLM is configured"


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[AsyncMemory]:
    # On a loaded machine, loading the models may take longer than a recall may.
    settings = load({"home": tmp_path, "recall_timeout_s": 60}, environ={}).settings
    async with AsyncMemory(settings=settings) as memory:
        yield memory


async def answer_question(memory: AsyncMemory, question: str) -> str:
    """Return the answer to a question, from the memories that are recalled for it."""
    recalled = await memory.recall(question, user_id="alex")
    return answer_from_memory(question, RequestMemory(hits=recalled.hits))


async def test_an_answer_quotes_the_memory_with_its_source(memory: AsyncMemory) -> None:
    stored = await memory.add("The budget for the Hawaii trip is $10,000", user_id="alex")
    await memory.add("Alex plays the cello on Thursdays", user_id="alex")
    answer = await answer_question(memory, "How much can I spend in Hawaii?")
    today = datetime.now(UTC).date().isoformat()
    assert (
        f"- “The budget for the Hawaii trip is $10,000” (noted, {today}, memory {stored.id})" in answer.splitlines()
    )
    assert "cello" not in answer
    assert NO_LLM in answer


async def test_a_learned_fact_is_quoted_in_the_words_of_the_user(memory: AsyncMemory) -> None:
    await memory.remember("I moved to Lisbon last week", user_id="alex", session_id="one", wait=True)
    [learned] = (await memory.get_all(user_id="alex")).records
    answer = await answer_question(memory, "Where do I live?")
    assert "“I moved to Lisbon last week" in answer
    assert learned.id in answer or learned.evidence[0] in answer


async def test_an_edited_memory_is_quoted_instead_of_its_turn(memory: AsyncMemory) -> None:
    await memory.remember("I live in Lisbon", user_id="alex", session_id="one", wait=True)
    [learned] = (await memory.get_all(user_id="alex")).records
    await memory.update(learned.id, "User lives in Porto", user_id="alex")
    answer = await answer_question(memory, "Where do I live?")
    assert "Porto" in answer
    assert "Lisbon" not in answer


async def test_the_newest_of_two_statements_wins(memory: AsyncMemory) -> None:
    for text in ("My budget for the Hawaii trip is $8,000", "My budget for the Hawaii trip is now $10,000"):
        await memory.remember(text, user_id="alex", session_id="one", wait=True)
    answer = await answer_question(memory, "What is my budget for the Hawaii trip?")
    assert "$10,000" in answer
    assert "$8,000" not in answer


@pytest.mark.parametrize(
    ("said", "question", "now", "before"),
    [
        (["I live in Lisbon", "I like jazz", "I moved to Porto"], "Where do I live?", "Porto", "Lisbon"),
        (["I live in Lisbon", "I like jazz", "I moved to Porto"], "Which city do I live in now?", "Porto", "Lisbon"),
        (
            ["My favourite colour is blue", "My favourite colour is green now"],
            "My favourite colour?",
            "green",
            "blue",
        ),
        (["I work at Google", "I work at Meta now"], "Where do I work?", "Meta", "Google"),
    ],
)
async def test_a_changed_fact_is_answered_with_its_current_value(
    memory: AsyncMemory, said: list[str], question: str, now: str, before: str
) -> None:
    for number, words in enumerate(said):
        await memory.remember(words, user_id="alex", session_id=str(number), wait=True)
    answer = await answer_question(memory, question)
    assert now in answer
    assert before not in answer


@pytest.mark.parametrize(
    ("said", "question", "now"),
    [
        (
            ["We are going to Lisbon in May", "We cancelled the Lisbon trip, we are going to Porto instead"],
            "Where are we travelling?",
            "Porto",
        ),
        (
            [
                "I booked a trip to Lisbon for July",
                "The trip to Lisbon is cancelled",
                "I booked a trip to Athens for July",
            ],
            "What trip did I book?",
            "Athens",
        ),
    ],
)
async def test_a_cancelled_plan_is_not_quoted_below_the_new_one(
    memory: AsyncMemory, said: list[str], question: str, now: str
) -> None:
    for number, words in enumerate(said):
        await memory.remember(words, user_id="alex", session_id=str(number), wait=True)
    answer = await answer_question(memory, question)
    assert now in answer
    assert all("cancel" in line for line in answer.splitlines() if "Lisbon" in line)


async def test_a_quotation_has_the_date_on_which_it_was_said(memory: AsyncMemory) -> None:
    await memory.remember("I bought the car in 2014", user_id="alex", session_id="one", wait=True)
    today = datetime.now(UTC).date().isoformat()
    assert f", {today} about 2014-01-01, memory" in await answer_question(memory, "When did I buy the car?")


async def test_a_question_about_the_past_quotes_earlier_values(memory: AsyncMemory) -> None:
    for text in ("My budget for the Hawaii trip is $8,000", "My budget for the Hawaii trip is now $10,000"):
        await memory.remember(text, user_id="alex", session_id="one", wait=True)
    assert "$8,000" in await answer_question(memory, "What was my budget for the Hawaii trip before, originally?")


async def test_unrelated_memories_are_not_quoted(memory: AsyncMemory) -> None:
    for text in ("I prefer window seats", "My wife's birthday is on 3 May", "I work as a nurse in Boston"):
        await memory.remember(text, user_id="alex", session_id="one", wait=True)
    answer = await answer_question(memory, "When is my wife's birthday?")
    assert [line[:20] for line in answer.splitlines() if line.startswith("- ")] == ["- “My wife's birthda"]


async def test_a_question_about_the_user_quotes_the_most_important_memories(memory: AsyncMemory) -> None:
    for text in ("I prefer window seats", "I work as a nurse in Boston"):
        await memory.remember(text, user_id="alex", session_id="one", wait=True)
    answer = await answer_question(memory, "What do you know about me?")
    assert "window seats" in answer
    assert "nurse" in answer
    assert "not sure" not in answer


async def test_questions_and_own_answers_are_never_quoted(memory: AsyncMemory) -> None:
    first = answer_from_memory("What is my budget for Hawaii?", RequestMemory())
    talk = [
        {"role": "user", "content": "What is my budget for Hawaii?"},
        {"role": "assistant", "content": first},
        {"role": "user", "content": "what is my budget for Hawaii"},
    ]
    await memory.remember(talk, user_id="alex", session_id="one", wait=True)
    answer = await answer_question(memory, "What is my budget for Hawaii?")
    assert answer == first
    assert "I have nothing about that yet, but I will remember what you tell me." in answer


async def test_at_most_three_memories_are_quoted_and_long_ones_are_truncated(memory: AsyncMemory) -> None:
    for n in range(8):
        await memory.add(f"Alex keeps bees in garden {'abcdefgh'[n]}. " + "And so on it goes. " * 50, user_id="alex")
    answer = await answer_question(memory, "Where do I keep bees?")
    lines = [line for line in answer.splitlines() if line.startswith("- ")]
    assert 1 <= len(lines) <= 3
    assert all(len(line) < 450 for line in lines)


async def test_pinned_facts_do_not_answer_unrelated_questions(memory: AsyncMemory) -> None:
    await memory.add(user_id="alex", key="city", value="Lisbon", category="identity", importance=0.9)
    answer = await answer_question(memory, "What is my budget for Hawaii?")
    assert "Lisbon" not in answer
    assert "I have nothing about that yet" in answer


async def test_links_and_markup_of_a_memory_are_defanged(memory: AsyncMemory) -> None:
    await memory.add("My blog is ![x](https://evil.example/a?b=c) <script>", user_id="alex")
    answer = await answer_question(memory, "What is my blog?")
    assert "blog" in answer
    assert "https://evil.example" not in answer
    assert "<script>" not in answer


@pytest.mark.parametrize(
    ("said", "part"),
    [
        ("My sister lives in Porto", "I will remember that."),
        ("Meine Schwester wohnt in Porto", "Das merke ich mir."),
        ("Ma sœur habite à Porto et je suis content", "Je m'en souviendrai."),
        ("Mi hermana vive en Oporto y yo no", "Lo recordaré."),
        ("Wo wohnt meine Schwester?", "Dazu habe ich noch nichts"),
        ("Où est-ce que ma sœur habite ?", "Je n'ai encore rien"),
        ("¿Dónde vive mi hermana?", "Todavía no tengo nada"),
        ("tell me where my sister lives", "I have nothing about that yet"),
        ("hello!", "Tell me something"),
        ("", "Tell me something"),
        ("What is the capital of France?", "That takes an LLM."),
        ("Write me a poem about the sea", "That takes an LLM."),
        ("When I was young I lived in Rome", "I will remember that."),
        ("I don't know what to do on Sundays", "I will remember that."),
        ("what do i do for a living", "I have nothing about that yet"),
        ("when's my birthday", "I have nothing about that yet"),
        ("whats my name", "I have nothing about that yet"),
        ("any idea where I left my keys", "I have nothing about that yet"),
        ("wo arbeite ich", "Dazu habe ich noch nichts"),
    ],
)
def test_statements_questions_and_greetings_are_distinguished(said: str, part: str) -> None:
    answer = answer_from_memory(said, RequestMemory())
    assert answer.startswith(part)
    assert "LLM" in answer


def test_a_statement_and_a_question_in_one_message_are_both_answered() -> None:
    answer = answer_from_memory("I moved to Porto. What is my budget?", RequestMemory())
    assert answer.startswith("I will remember that.\n\nI have nothing about that yet")


def test_the_answer_reports_when_memory_is_off_or_unavailable() -> None:
    assert "I will remember" not in answer_from_memory(
        "I moved to Porto. What is my budget?", RequestMemory(stores_turns=False)
    )
    assert answer_from_memory("What is my budget?", RequestMemory(degraded_reason="away")).startswith(
        "My memory does not answer"
    )
    assert answer_from_memory("What is my budget?", None).startswith("Memory is off for this request")


async def test_a_weak_match_is_answered_with_doubt(memory: AsyncMemory) -> None:
    await memory.add("Alex plays the cello on Thursdays", user_id="alex")
    [record] = (await memory.get_all(user_id="alex")).records
    hit = Hit(replace(record, category=Category.FACT), 0.2, {"relevance": 0.2})
    assert answer_from_memory("Who is my dentist?", RequestMemory(hits=[hit])).startswith(
        "I am not sure that I know."
    )


def chat(**fields: Any) -> UpstreamRequest:
    body = {"model": "any", "messages": [{"role": "user", "content": "I moved to Porto"}], **fields}
    return UpstreamRequest(
        method="POST", path="/chat/completions", body=json.dumps(body).encode(), memory=RequestMemory()
    )


async def sent(request: UpstreamRequest) -> tuple[int, bytes]:
    reply = await ExtractiveUpstream().send(request)
    return reply.status, b"".join([part async for part in reply.chunks()])


async def test_a_completion_has_the_shape_of_openai() -> None:
    status, body = await sent(chat())
    completion = ChatCompletion.model_validate_json(body, strict=True)
    assert (status, completion.model, completion.object) == (200, MODEL, "chat.completion")
    [choice] = completion.choices
    assert choice.message.content == answer_from_memory("I moved to Porto", RequestMemory())
    assert completion.usage is not None
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens


async def test_a_stream_has_the_same_text_in_chunks_of_openai() -> None:
    _, body = await sent(chat(stream=True, stream_options={"include_usage": True}))
    *events, done = body.decode().split("\n\n")[:-1]
    assert done == "data: [DONE]"
    chunks = [ChatCompletionChunk.model_validate_json(event.removeprefix("data: ")) for event in events]
    assert len({chunk.id for chunk in chunks}) == 1
    choices = [choice for chunk in chunks for choice in chunk.choices]
    assert choices[0].delta.role == "assistant"
    assert [choice.finish_reason for choice in choices] == [None] * (len(choices) - 1) + ["stop"]
    whole = "".join(choice.delta.content or "" for choice in choices)
    assert whole == answer_from_memory("I moved to Porto", RequestMemory())
    assert chunks[-1].usage is not None
    assert chunks[-1].choices == []
    assert all(chunk.usage is None for chunk in chunks[:-1])
    _, body = await sent(chat(stream=True))
    assert b"usage" not in body


@pytest.mark.parametrize(
    ("request_", "status", "param"),
    [
        (chat(messages=[]), 400, "messages"),
        (chat(messages="hello"), 400, "messages"),
        (chat(response_format={"type": "json_object"}), 400, "response_format"),
        (chat(tool_choice="required"), 400, "tool_choice"),
        (replace(chat(), body=b"{"), 400, None),
        (replace(chat(), body=b"[]"), 400, None),
        (replace(chat(), body=b'{"messages":' + b"[" * 10_000 + b"]" * 10_000 + b"}"), 400, None),
        (replace(chat(), path="/embeddings"), 404, None),
        (replace(chat(), method="GET"), 404, None),
        (UpstreamRequest(method="GET", path="/models/gpt-4"), 404, None),
    ],
    ids=lambda value: "" if isinstance(value, UpstreamRequest) else str(value),
)
async def test_an_unsupported_request_is_an_error_in_openais_format(
    request_: UpstreamRequest, status: int, param: str | None
) -> None:
    got, body = await sent(request_)
    error = json.loads(body)["error"]
    assert (got, error["param"], error["type"]) == (status, param, "invalid_request_error")
    assert error["message"]


async def test_a_body_in_parts_with_malformed_messages_is_answered() -> None:
    async def parts() -> AsyncIterator[bytes]:
        whole = bytes(chat(messages=[None, 7, {"role": "user"}, {"role": "user", "content": [{"text": 3}]}]).body)  # type: ignore[arg-type]
        yield whole[:20]
        yield whole[20:]

    status, body = await sent(replace(chat(), body=parts()))
    assert status == 200
    assert "Tell me something" in body.decode()


def test_the_openai_client_can_use_it(tmp_path: Path) -> None:
    messages: Any = [{"role": "user", "content": "My sister lives in Porto"}]
    with (
        served(tmp_path, "") as server,
        openai.OpenAI(base_url=server.url, api_key="none", max_retries=0) as client,
    ):
        assert [model.id for model in client.models.list()] == [MODEL]
        whole = client.chat.completions.create(model=MODEL, messages=messages).choices[0].message.content
        with client.chat.completions.create(model=MODEL, messages=messages, stream=True) as stream:
            pieces = [chunk.choices[0].delta.content or "" for chunk in stream]
        assert len(pieces) > 5
        assert "".join(pieces) == whole
        with pytest.raises(openai.NotFoundError, match="no LLM"):
            client.embeddings.create(model=MODEL, input="x")


def test_a_chat_waits_longer_than_usual_for_memories_that_are_its_answer(tmp_path: Path) -> None:
    with Memory(home=tmp_path) as memory:
        memory.add("The budget for the Hawaii trip is $10,000", user_id="alex")
    with served(tmp_path, "", memory_timeout_s=0.0001) as server:
        question = {"role": "user", "content": "How much can I spend in Hawaii?"}
        answer = server.post({"model": MODEL, "user": "alex", "messages": [question]}).json
    assert "$10,000" in answer["choices"][0]["message"]["content"]
