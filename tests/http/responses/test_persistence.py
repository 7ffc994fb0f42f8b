"""Stored responses: their owner, how they are read and continued, and how they are removed."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from recollect.model.change import Author
from recollect.model.erasure import ErasureRequest, Target
from recollect.model.scope import Scope
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.llm_faults import http_error
from tests.support.responses_server import OFF, ResponsesServer, client_of, last


def test_a_response_with_store_false_cannot_be_read_or_continued(sdk: openai.OpenAI) -> None:
    made = sdk.responses.create(model="m", input="Hi", store=False)
    with pytest.raises(openai.NotFoundError):
        sdk.responses.retrieve(made.id)
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.responses.create(model="m", input="Go on", previous_response_id=made.id)
    assert (caught.value.code, caught.value.param) == ("previous_response_not_found", "previous_response_id")


def test_a_response_of_another_user_is_not_found(server: ResponsesServer, llm: ScriptedLLM) -> None:
    with client_of(server, **{"X-Memory-User": "ann"}) as ann, client_of(server, **{"X-Memory-User": "bob"}) as bob:
        made = ann.responses.create(model="m", input="My secret is tea")
        count = len(llm.answers)
        for id in (made.id, "resp_none"):
            for call in (bob.responses.retrieve, bob.responses.delete, bob.responses.cancel):
                with pytest.raises(openai.NotFoundError) as caught:
                    call(id)
                assert caught.value.body == {
                    "message": f"Response with id '{id}' not found.",
                    "type": "invalid_request_error",
                    "param": None,
                    "code": "not_found",
                }
            with pytest.raises(openai.NotFoundError):
                bob.responses.input_items.list(id)
            with pytest.raises(openai.BadRequestError):
                bob.responses.create(model="m", input="Go on", previous_response_id=id)
        assert len(llm.answers) == count
        assert ann.responses.retrieve(made.id).id == made.id
        with pytest.raises(openai.PermissionDeniedError, match="two users"):
            ann.responses.retrieve(made.id, extra_query={"user": "bob"})


def test_input_items_are_listed_in_pages(sdk: openai.OpenAI) -> None:
    items: Any = [{"role": "user", "content": str(n)} for n in range(5)]
    made = sdk.responses.create(model="m", input=items)
    texts = [item.content[0].text for item in sdk.responses.input_items.list(made.id, limit=2, order="asc")]  # type: ignore[union-attr]
    assert texts == ["0", "1", "2", "3", "4"]
    page = sdk.responses.input_items.list(made.id, limit=2)
    assert [item.content[0].text for item in page.data] == ["4", "3"]  # type: ignore[union-attr]
    assert page.has_more
    for wrong in ({"limit": 0}, {"limit": 101}, {"order": "up"}):
        with pytest.raises(openai.BadRequestError):
            sdk.responses.input_items.list(made.id, **wrong)  # type: ignore[arg-type]


def test_a_deleted_response_is_left_out_of_the_history(server: ResponsesServer, llm: ScriptedLLM) -> None:
    with client_of(server) as sdk:
        ids, before = [], None
        for text in ("One", "Two", "Three"):
            made = sdk.responses.create(
                model="m", input=text, previous_response_id=before, extra_body={"memory_config": {"enabled": False}}
            )
            ids.append(before := made.id)
        sdk.responses.delete(ids[1])
        body = {"memory_config": {"enabled": False}}
        sdk.responses.create(model="m", input="Four", previous_response_id=ids[2], extra_body=body)
    request = last(llm)
    assert "previous_response_id" not in request
    inputs = json.dumps(request.get("messages") or request["input"])
    assert [word in inputs for word in ("One", "Two", "Three", "Four")] == [True, False, True, True]


def test_an_upstream_that_lost_the_history_is_sent_it(responses_server: ResponsesServer, llm: ScriptedLLM) -> None:
    for status, code in ((400, "previous_response_not_found"), (404, 404)):
        with responses_server.connected(llm.base_url) as server, client_of(server) as sdk:
            first = sdk.responses.create(model="m", input="One", extra_body=OFF)
            lost = {"message": f"Response with id '{first.id}' not found.", "param": None, "type": "x", "code": code}
            llm.fault(http_error(status, {"error": lost}))
            second = sdk.responses.create(model="m", input="Two", previous_response_id=first.id, extra_body=OFF)
            assert second.output_text == "You said: Two"
            assert server.context.modes[llm.base_url] == "native"
            assert sdk.responses.retrieve(second.id).previous_response_id == first.id
        report = last(llm)
        assert "previous_response_id" not in report
        assert [item["role"] for item in report["input"]] == ["user", "assistant", "user"]


def test_a_deleted_response_is_deleted_at_the_upstream_that_made_it(
    server: ResponsesServer, llm: ScriptedLLM
) -> None:
    with client_of(server) as sdk:
        made = sdk.responses.create(model="m", input="Hi")
        is_native = llm.answers[-1][0].kind == "responses"
        sdk.responses.delete(made.id)
    server.run(server.context.tasks.close())
    deleted = [request.path for request in llm.requests if request.method == "DELETE"]
    assert deleted == ([f"/v1/responses/{made.id}"] if is_native else [])


def test_an_erased_turn_is_left_out_of_the_history(server: ResponsesServer, llm: ScriptedLLM) -> None:
    with client_of(server) as sdk:
        first = sdk.responses.create(model="m", input="My secret is tea")
        second = sdk.responses.create(model="m", input="And milk", previous_response_id=first.id)
        turn = server.memory.started[0].turn_id
        assert turn is not None
        user = Scope(server.context.settings.chat_user)
        server.run(server.service.erasure.erase(user, ErasureRequest(Target.TURN, turn), by=Author("test")))
        with pytest.raises(openai.NotFoundError):
            sdk.responses.retrieve(first.id)
        sdk.responses.create(model="m", input="What else?", previous_response_id=second.id)
    assert "previous_response_id" not in last(llm)
    assert "My secret is tea" not in last(llm).get("messages", last(llm).get("input"))[0]["content"]


def test_a_response_cannot_be_cancelled_since_none_runs_in_the_background(server: ResponsesServer) -> None:
    with client_of(server) as sdk:
        response = sdk.responses.create(model="m", input="Hello")
        with pytest.raises(openai.BadRequestError, match="close the connection"):
            sdk.responses.cancel(response.id)
