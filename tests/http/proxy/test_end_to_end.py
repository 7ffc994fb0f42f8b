"""A fact of one session is recalled in the next after a restart, through curl and through OpenAI's client."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import openai
import pytest
from pydantic import BaseModel

from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.hawaii_llm import PICTURE, RECALLED_ANSWER, UNKNOWN, model
from tests.support.proxy_server import BUDGET, KEY, QUESTION
from tests.support.recollect_server import RestartableServer, process

Say: TypeAlias = Callable[[RestartableServer, str, str], str]


class Person(BaseModel):
    name: str
    age: int


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedLLM]:
    with ScriptedLLM() as llm:
        llm.default = model
        yield llm


@pytest.fixture(scope="module")
def server(upstream: ScriptedLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestartableServer]:
    with process(tmp_path_factory.mktemp("hawaii"), upstream.base_url) as running:
        yield running


def by_curl(server: RestartableServer, user: str, text: str) -> str:
    return json.loads(curl(server, user, text))["choices"][0]["message"]["content"]  # type: ignore[no-any-return]


def by_curl_streamed(server: RestartableServer, user: str, text: str) -> str:
    lines = curl(server, user, text, stream=True).splitlines()
    events = [line.removeprefix("data: ") for line in lines if line]
    assert events[-1] == "[DONE]"
    return "".join(json.loads(each)["choices"][0]["delta"].get("content") or "" for each in events[:-1])


def curl(server: RestartableServer, user: str, text: str, **fields: Any) -> str:
    if not shutil.which("curl"):
        pytest.skip("not run: there is no curl on this machine")
    body = {"model": "scripted", "user": user, "messages": [{"role": "user", "content": text}], **fields}
    report = ["-H", "Content-Type: application/json", "-H", f"Authorization: Bearer {KEY}"]
    command = ["curl", "-sSN", "--fail-with-body", f"{server.url}/chat/completions", *report, "-d", json.dumps(body)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=200).stdout


def by_sdk(server: RestartableServer, user: str, text: str) -> str:
    with client(server) as sdk:
        messages: Any = [{"role": "user", "content": text}]
        return (
            sdk.chat.completions.create(model="scripted", user=user, messages=messages).choices[0].message.content
            or ""
        )


def by_sdk_streamed(server: RestartableServer, user: str, text: str) -> str:
    with client(server) as sdk:
        messages: Any = [{"role": "user", "content": text}]
        stream = sdk.chat.completions.create(model="scripted", user=user, messages=messages, stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream)


def client(server: RestartableServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=server.url, api_key=KEY, max_retries=0, timeout=60)


WAYS: dict[str, Say] = {
    "curl": by_curl,
    "curl-streamed": by_curl_streamed,
    "sdk": by_sdk,
    "sdk-streamed": by_sdk_streamed,
}


def test_a_fact_of_one_session_is_recalled_in_the_next_after_a_restart(server: RestartableServer) -> None:
    for way, say in WAYS.items():
        assert say(server, way, QUESTION) == UNKNOWN
        assert say(server, way, BUDGET) == "Noted."
    server.stop()
    server.start()
    for way, say in WAYS.items():
        assert say(server, way, QUESTION) == RECALLED_ANSWER
        assert say(server, f"another user of {way}", QUESTION) == UNKNOWN
    assert KEY not in server.log
    assert "$10,000" not in server.log


def test_the_sdk_calls_tools_and_sends_their_results(server: RestartableServer) -> None:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    tools: Any = [{"type": "function", "function": {"name": "weather", "parameters": parameters}}]
    messages: list[Any] = [{"role": "user", "content": "How is the weather?"}]
    with client(server) as sdk:
        request = sdk.chat.completions.create(model="scripted", messages=messages, tools=tools).choices[0].message
        [call] = request.tool_calls or []
        assert json.loads(call.function.arguments) == {"city": "Hilo"}  # type: ignore[union-attr]
        messages += [
            request.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
        ]
        with sdk.chat.completions.stream(model="scripted", messages=messages, tools=tools) as stream:
            final = stream.get_final_completion()
    assert final.choices[0].message.content == "Hilo is sunny"


def test_the_sdk_sends_images_and_parses_structured_answers(upstream: ScriptedLLM, server: RestartableServer) -> None:
    visible: list[Any] = [
        {"type": "text", "text": "What is in this picture?"},
        {"type": "image_url", "image_url": {"url": PICTURE}},
    ]
    with client(server) as sdk:
        seen = sdk.chat.completions.create(model="scripted", messages=[{"role": "user", "content": visible}])
        assert upstream.calls("chat")[-1].json["messages"][-1]["content"] == visible
        results = sdk.chat.completions.parse(
            model="scripted", messages=[{"role": "user", "content": "Ann is 30"}], response_format=Person
        )
    assert seen.choices[0].message.content == "A beach"
    assert results.choices[0].message.parsed == Person(name="Ann", age=30)


def test_the_sdk_reads_usage_models_embeddings_and_memory_headers(server: RestartableServer) -> None:
    with client(server) as sdk:
        raw = sdk.chat.completions.with_raw_response.create(
            model="scripted",
            messages=[{"role": "user", "content": "Count"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        last = list(raw.parse())[-1]
        assert [each.id for each in sdk.models.list()] == ["scripted"]
        assert sdk.models.retrieve("org/name")
        assert len(sdk.embeddings.create(model="scripted", input="Aloha").data[0].embedding) == 64
    assert last.usage is not None
    assert raw.headers["x-memory-status"] == "ok"
    assert raw.headers["x-memory-turn"]


@pytest.mark.parametrize("streamed", [True, False])
def test_the_sdk_raises_the_error_of_the_upstream(server: RestartableServer, streamed: bool) -> None:
    messages: Any = [{"role": "user", "content": "You go too fast"}]
    with client(server) as sdk, pytest.raises(openai.RateLimitError) as raised:
        sdk.chat.completions.create(model="scripted", messages=messages, stream=streamed)
    assert raised.value.code == "rate_limit_exceeded"
    assert raised.value.request_id == "req-7"
    assert raised.value.response.headers["retry-after"] == "1"


def test_no_client_key_is_stored(server: RestartableServer) -> None:
    home = Path(server.home)
    assert KEY.encode() not in b"".join(each.read_bytes() for each in home.rglob("*") if each.is_file())
