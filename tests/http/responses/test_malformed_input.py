"""Malformed requests are rejected and malformed upstream answers ignored; neither causes an internal error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.testclient import TestClient

from recollect.config.server_fields import ResponsesMode
from recollect.http.auth.caller import LOCAL_CALLER, STATE_CALLER
from recollect.http.proxy.chat_memory import ChatContext, ChatMemory
from recollect.http.proxy.routes import responses_routes
from recollect.http.responses.from_chat import ResponseTranslator
from recollect.http.responses.items import new_response, output_text
from recollect.http.responses.passthrough import PassthroughState
from recollect.http.responses.request import ResponsesContext, parse_response_params
from recollect.http.upstream.router import BufferedResponse, UpstreamRequest
from recollect.ledger.sqlite import open_in_memory
from recollect.service.service import Service
from recollect.sessions.resolve import SessionMatch
from tests.support.ledger_samples import MODEL

odd = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 99)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "role", "content", "text", "id", "name", "format", "output", "image_url", "effort"]
            )
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)
kinds = st.sampled_from(
    ["message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output", "reasoning",
     "item_reference", "web_search_call", "input_text", "input_image", "input_file", "refusal", "function", "custom"]
)  # fmt: skip
nearly_items = st.fixed_dictionaries(
    {"type": kinds},
    optional={
        "role": st.sampled_from(["user", "assistant", "system", "developer"]) | odd,
        "content": st.lists(st.fixed_dictionaries({"type": kinds}, optional={"text": odd, "image_url": odd})) | odd,
        "call_id": odd, "output": odd, "arguments": odd, "name": odd, "id": odd, "input": odd, "summary": odd,
    },
)  # fmt: skip
nearly_requests = st.fixed_dictionaries(
    {"model": st.just("m"), "input": st.just("Hi") | st.lists(nearly_items, max_size=4) | odd},
    optional={
        name: st.lists(nearly_items, max_size=2) | odd
        for name in ("instructions", "tools", "tool_choice", "text", "reasoning", "include", "top_logprobs", "prompt",
                     "max_output_tokens", "metadata", "conversation", "previous_response_id", "store",
                     "parallel_tool_calls", "temperature")
    },
)  # fmt: skip
nearly_chunks = st.fixed_dictionaries(
    {},
    optional={
        "choices": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "index": st.just(0) | odd,
                    "delta": st.fixed_dictionaries(
                        {},
                        optional={
                            name: odd | st.lists(odd)
                            for name in ("content", "tool_calls", "refusal", "reasoning_content", "annotations",
                                         "function_call")
                        },
                    )
                    | odd,
                    "finish_reason": st.sampled_from(["stop", "length"]) | odd,
                    "logprobs": odd,
                },
            )
            | odd
        )
        | odd,
        "usage": odd, "model": odd, "error": st.none() | odd,
    },
)  # fmt: skip


@dataclass
class Answering:
    """An upstream that answers every request with the same text."""

    name: str = "main"

    async def send(self, upstream_request: UpstreamRequest) -> BufferedResponse:
        assert isinstance(upstream_request.body, bytes)
        request = json.loads(upstream_request.body)
        if "messages" in request:
            message = {"role": "assistant", "content": "Aloha"}
            body: dict[str, Any] = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        else:
            part = {"type": "output_text", "text": "Aloha", "annotations": []}
            item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
            body = {"id": "resp_1", "object": "response", "status": "completed", "output": [item]}
        return BufferedResponse(200, [(b"content-type", b"application/json")], [json.dumps(body).encode()])

    async def close(self) -> None: ...


class NoMemory:
    async def begin(self, options: Any, messages: Sequence[Mapping[str, Any]]) -> ChatContext:
        return ChatContext(options, messages, SessionMatch(scope=options.scope))

    async def store_user_turns(self, chat: ChatContext) -> None: ...

    async def store_answer(self, chat: ChatContext, text: str, *, quotes_memory: bool = False) -> str:
        return ""


class FakeService:
    def __init__(self) -> None:
        self.responses = asyncio.run(open_in_memory(MODEL))

    async def epoch(self, user: str) -> int:
        return (await self.responses.revision(user)).epoch


def client(mode: ResponsesMode) -> TestClient:
    upstream, service = Answering(), FakeService()
    parts = ResponsesContext(
        service=lambda: cast(Service, service),
        memory=cast(ChatMemory, NoMemory()),
        upstream_of=lambda model: upstream,
        modes={"main": mode},
    )
    served = Starlette(routes=responses_routes(lambda: parts))

    async def with_caller(scope: Any, receive: Any, send: Any) -> None:
        await served({**scope, "state": {STATE_CALLER: LOCAL_CALLER}}, receive, send)

    return TestClient(with_caller)


TRANSLATING, NATIVE = client("translate"), client("native")


@settings(deadline=None, max_examples=50)
@given(nearly_requests)
def test_a_malformed_request_is_answered_or_rejected(body: dict[str, Any]) -> None:
    for server in (TRANSLATING, NATIVE):
        answer = server.post("/v1/responses", json=body)
        assert answer.status_code in (200, 400, 404)
        if answer.status_code != 200:
            assert answer.json()["error"].keys() == {"message", "type", "param", "code"}
            continue
        made = answer.json()
        if made.get("store") is not False and body.get("store") is not False:
            assert server.get(f"/v1/responses/{made['id']}").status_code == 200
            assert server.get(f"/v1/responses/{made['id']}/input_items").status_code == 200
            repeated = server.post(
                "/v1/responses", json={"model": "m", "input": "x", "previous_response_id": made["id"]}
            )
            assert repeated.status_code == 200


@settings(deadline=None, max_examples=50)
@given(st.lists(nearly_items | odd, max_size=4), odd)
def test_a_malformed_conversation_is_created_or_rejected(items: list[Any], metadata: Any) -> None:
    answer = TRANSLATING.post("/v1/conversations", json={"items": items, "metadata": metadata})
    assert answer.status_code in (200, 400)
    if answer.status_code == 200:
        id = answer.json()["id"]
        assert TRANSLATING.get(f"/v1/conversations/{id}/items").status_code == 200
        text = TRANSLATING.post("/v1/responses", json={"model": "m", "input": "x", "conversation": id})
        assert text.status_code == 200


@settings(deadline=None, max_examples=80)
@given(st.lists(nearly_chunks, max_size=5))
def test_malformed_chunks_never_break_a_translation(chunks: list[Any]) -> None:
    request = asyncio.run(parse_response_params(b'{"model": "m", "input": "Hi"}'))
    translation = ResponseTranslator(new_response(request, id="resp_1", created_at=1))
    events = translation.begin()
    for chunk in chunks:
        events += translation.feed(chunk)
    events += translation.end()
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert translation.response["status"] in ("completed", "incomplete", "failed")
    output_text(translation.response)
    json.dumps(events)


@settings(deadline=None, max_examples=80)
@given(
    st.lists(
        st.fixed_dictionaries(
            {"type": st.sampled_from(["response.created", "response.output_text.delta", "response.output_item.added",
                                      "response.output_item.done", "response.completed"])},
            optional={"response": odd, "item": nearly_items | odd, "output_index": st.integers(0, 2) | odd,
                      "content_index": st.integers(0, 2) | odd, "delta": st.text() | odd, "sequence_number": odd},
        )
        | odd,
        max_size=6,
    )
)  # fmt: skip
def test_malformed_events_never_break_a_relayed_stream(events: list[Any]) -> None:
    watch = PassthroughState()
    watch.feed(b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events))
    watch.stop("incomplete")
    output_text(watch.response)
