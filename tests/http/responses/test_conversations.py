"""OpenAI's Conversations through the real client: create, fill, list, change, delete and continue them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.responses_server import OFF, ResponsesServer


@pytest.fixture(params=["translate", "native"])
def server(request: Any, responses_server: ResponsesServer, llm: ScriptedLLM) -> Iterator[ResponsesServer]:
    with responses_server.connected(llm.base_url, request.param) as connected:
        yield connected


def say(role: str, text: str) -> Any:
    return {"type": "message", "role": role, "content": text}


def texts(items: Any) -> list[str]:
    return [item.content[0].text for item in items]


def test_a_conversation_can_be_created_read_changed_and_deleted(sdk: openai.OpenAI) -> None:
    made = sdk.conversations.create(metadata={"topic": "trip"}, items=[say("user", "Hello")])
    assert made.object == "conversation"
    assert sdk.conversations.retrieve(made.id) == made
    assert sdk.conversations.update(made.id, metadata={"topic": "sea"}).metadata == {"topic": "sea"}
    assert sdk.conversations.retrieve(made.id).metadata == {"topic": "sea"}
    assert texts(sdk.conversations.items.list(made.id)) == ["Hello"]
    gone = sdk.conversations.delete(made.id)
    assert (gone.deleted, gone.object) == (True, "conversation.deleted")
    for call in (sdk.conversations.retrieve, sdk.conversations.delete, sdk.conversations.items.list):
        with pytest.raises(openai.NotFoundError, match="not found"):
            call(made.id)


def test_items_can_be_added_listed_in_pages_read_and_deleted(sdk: openai.OpenAI) -> None:
    made = sdk.conversations.create()
    added = sdk.conversations.items.create(made.id, items=[say("user", str(n)) for n in range(5)])
    assert texts(added.data) == ["0", "1", "2", "3", "4"]
    assert not added.has_more
    assert texts(sdk.conversations.items.list(made.id, limit=2)) == ["4", "3", "2", "1", "0"]
    assert texts(sdk.conversations.items.list(made.id, limit=2, order="asc")) == ["0", "1", "2", "3", "4"]
    page = sdk.conversations.items.list(made.id, order="asc", after=added.data[1].id or "", limit=2)
    assert (texts(page.data), page.has_more) == (["2", "3"], True)
    id = str(added.data[2].id)
    assert texts([sdk.conversations.items.retrieve(id, conversation_id=made.id)]) == ["2"]
    assert sdk.conversations.items.delete(id, conversation_id=made.id).id == made.id
    with pytest.raises(openai.NotFoundError):
        sdk.conversations.items.retrieve(id, conversation_id=made.id)
    assert texts(sdk.conversations.items.list(made.id, order="asc")) == ["0", "1", "3", "4"]
    with pytest.raises(openai.BadRequestError, match="leave the id out"):
        sdk.conversations.items.create(made.id, items=[{**say("user", "again"), "id": added.data[0].id}])


@pytest.mark.parametrize("streamed", [False, True])
def test_the_items_of_a_conversation_are_sent_to_the_upstream_and_stored(
    sdk: openai.OpenAI, llm: ScriptedLLM, server: ResponsesServer, streamed: bool
) -> None:
    made = sdk.conversations.create(items=[say("user", "I am Ann"), say("assistant", "Hello Ann")])
    for text, which in (("One", made.id), ("Two", {"id": made.id})):
        answer: Any = sdk.responses.create(
            model="m",
            input=text,
            conversation=which,  # type: ignore[arg-type]
            stream=streamed,
            extra_body=OFF,
        )
        if streamed:
            *_, last = answer
            assert last.type == "response.completed"
            answer = last.response
    assert texts(sdk.conversations.items.list(made.id, order="asc")) == [
        "I am Ann", "Hello Ann", "One", "You said: One", "Two", "You said: Two",
    ]  # fmt: skip
    request = llm.requests[-1].json
    assert "conversation" not in request
    report = request.get("messages") or request["input"]
    expected = ("Ann", "Ann", "One", "One", "Two")
    assert all(text in json.dumps(each) for each, text in zip(report, expected, strict=True))
    assert [each["role"] for each in report] == ["user", "assistant", "user", "assistant", "user"]
    assert sdk.responses.retrieve(answer.id).conversation.id == made.id  # type: ignore[union-attr]
    assert {each.options.scope.session for each in server.memory.started} == {made.id}


def test_an_item_reference_is_resolved(sdk: openai.OpenAI, llm: ScriptedLLM) -> None:
    made = sdk.conversations.create(items=[say("user", "I am Ann")])
    (item,) = sdk.conversations.items.list(made.id).data
    refer: Any = [{"type": "item_reference", "id": item.id}, say("user", "Who?")]
    sdk.responses.create(model="m", input=refer, conversation=made.id, extra_body=OFF)
    request = llm.requests[-1].json
    report = request.get("messages") or request["input"]
    assert [json.dumps(each).count("Ann") for each in report] == [1, 1, 0]
    assert len(list(sdk.conversations.items.list(made.id))) == 4
    with pytest.raises(openai.BadRequestError, match="not found"):
        sdk.responses.create(
            model="m", input=[{"type": "item_reference", "id": "msg_none"}], conversation=made.id, extra_body=OFF
        )


def test_a_response_that_is_not_stored_is_added_to_its_conversation(sdk: openai.OpenAI) -> None:
    made = sdk.conversations.create()
    answer = sdk.responses.create(model="m", input="One", conversation=made.id, store=False)
    assert texts(sdk.conversations.items.list(made.id, order="asc")) == ["One", "You said: One"]
    with pytest.raises(openai.NotFoundError):
        sdk.responses.retrieve(answer.id)


def test_a_conversation_of_another_user_is_not_found(
    sdk: openai.OpenAI, server: ResponsesServer, llm: ScriptedLLM
) -> None:
    made = sdk.conversations.create(items=[say("user", "My secret is tea")])
    (item,) = sdk.conversations.items.list(made.id).data
    bob = {"X-Memory-User": "bob"}
    with httpx.Client(base_url=server.url, headers=bob, timeout=60) as client:
        for id in (made.id, "conv_none"):
            for method, path, body in (
                ("GET", "", None), ("DELETE", "", None), ("POST", "", {"metadata": {}}), ("GET", "/items", None),
                ("POST", "/items", {"items": [say("user", "x")]}), ("GET", f"/items/{item.id}", None),
                ("DELETE", f"/items/{item.id}", None),
            ):  # fmt: skip
                answer = client.request(method, f"/conversations/{id}{path}", json=body)
                assert answer.status_code == 404
                assert answer.json()["error"] == {
                    "message": f"Conversation with id '{id}' not found.",
                    "type": "invalid_request_error",
                    "param": None,
                    "code": "not_found",
                }
            answer = client.post("/responses", json={"model": "m", "input": "x", "conversation": id})
            assert answer.status_code == 404
    assert llm.requests == []
    assert texts(sdk.conversations.items.list(made.id)) == ["My secret is tea"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/conversations", {"items": "x"}),
        ("/conversations", {"items": [7]}),
        ("/conversations", {"items": [say("user", "x")] * 21}),
        ("/conversations", {"metadata": 7}),
        ("/conversations/{id}", {}),
        ("/conversations/{id}", {"metadata": [1]}),
        ("/conversations/{id}/items", {}),
        ("/conversations/{id}/items", {"items": [{"role": "tool", "content": "x"}]}),
    ],
)
def test_an_invalid_conversation_request_is_rejected_with_the_name_of_the_field(
    server: ResponsesServer, path: str, body: Any
) -> None:
    id = httpx.post(f"{server.url}/conversations", json={}, timeout=60).json()["id"]
    answer = httpx.post(server.url + path.format(id=id), json=body, timeout=60)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"]
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_an_empty_body_creates_a_conversation(server: ResponsesServer) -> None:
    assert httpx.post(f"{server.url}/conversations", timeout=60).json()["metadata"] == {}
