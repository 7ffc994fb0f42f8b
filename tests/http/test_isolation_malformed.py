"""No route reveals anything of another user to malformed and unusual requests."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest

from recollect.config.settings import load
from recollect.http.app import make_app
from recollect.http.responses.asgi import InProgressResponse, ResponsesContext
from recollect.maintenance.undo import BACKGROUND_AUTHORS
from recollect.model.scope import Scope
from tests.support.isolation_cases import CASES, Call
from tests.support.isolation_server import CANARY, World, filled_with, response_text, sent, served

API = "/recollect/v1"
DESCRIBED = make_app(load({"home": "nowhere"}, environ={}).settings).openapi()
FIRST = [pytest.param(route, calls[0], id=route) for route, calls in CASES.items()]
BY_ID = [
    pytest.param(route, call, id=route)
    for route, [call, *_] in CASES.items()
    if any("{" in part for part in call.path.values())
]
ODD_IDS = [
    "..",
    ".",
    "a/b",
    "a%2Fb",
    "%00",
    "\0",
    "🦊",
    "x" * 5000,
    "' OR 1=1 --",
    "{}",
    "*",
    "a.b.c",
    "\u202e",
    "?x=1#y",
]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with served(tmp_path_factory.mktemp("isolation")) as world:
        yield world


@pytest.fixture
def world(shared: World) -> World:
    shared.settle()
    shared.meet()
    return shared


@pytest.mark.parametrize(("route", "call"), BY_ID)
def test_odd_ids_are_ids_that_nobody_has(shared: World, route: str, call: Call) -> None:
    shared.meet()
    before = shared.of_bea()
    for odd in [*ODD_IDS, shared.bea["memory"].upper(), f" {shared.bea['memory']} "]:
        # As a client sends it that does not tidy up the path.
        ids = {**dict.fromkeys(shared.bea, quote(odd, safe="%").replace(".", "%2E")), "entry": "1"}
        answer = shared.call(route, call, shared.keys["ada"], ids)
        assert 400 <= answer.status_code < 500 or answer.status_code in call.answers, (
            odd[:20],
            response_text(answer),
        )
        assert CANARY.lower() not in response_text(answer).lower()
    assert shared.of_bea() == before


@pytest.mark.parametrize(("route", "call"), [each for each in FIRST if each.values[0].startswith("GET ")])
def test_head_tells_no_more_than_get(shared: World, route: str, call: Call) -> None:
    shared.meet()
    path = route.removeprefix("GET ")
    for key in ("ada", "writer", "elsewhere"):
        got = shared.call(route, call, shared.keys[key])
        head = shared.call(f"HEAD {path}", call, shared.keys[key])
        assert head.status_code in (got.status_code, 404, 405), (key, response_text(head))
        assert CANARY.lower() not in response_text(head).lower()
    assert shared.call(f"HEAD {path}", call, None).status_code == 401


@pytest.mark.parametrize(("route", "call"), FIRST)
def test_options_tell_nothing_and_do_nothing(shared: World, route: str, call: Call) -> None:
    before = shared.of_bea()
    path = route.split(" ", 1)[1]
    assert shared.call(f"OPTIONS {path}", call, None).status_code == 401
    answer = shared.call(f"OPTIONS {path}", call, shared.keys["bea"])
    is_passed_on = path.startswith("/v1/{") or path == "/v1/chat/completions"
    assert is_passed_on or answer.status_code in (404, 405, 403), response_text(answer)
    assert CANARY.lower() not in response_text(answer).lower()
    assert shared.of_bea() == before


@pytest.mark.parametrize(("route", "call"), FIRST)
def test_every_route_refuses_who_names_another_user(shared: World, route: str, call: Call) -> None:
    shared.meet()
    before = shared.of_bea()
    for headers in ({"X-Memory-User": "{user}"}, {"x-authz-user-id": "{user}"}):
        answer = shared.call(route, replace(call, headers={**call.headers, **headers}), shared.keys["ada"])
        assert answer.status_code == 403, response_text(answer)
    named = replace(call, headers={**call.headers, "X-Memory-Project": "{project}"})
    assert shared.call(route, named, shared.keys["elsewhere"]).status_code == 403
    assert shared.of_bea() == before


@pytest.mark.parametrize(("route", "call"), FIRST)
def test_a_key_of_an_application_tells_nothing_of_other_projects(shared: World, route: str, call: Call) -> None:
    shared.meet()
    before = shared.of_bea()
    for named in (call, replace(call, headers={**call.headers, "X-Memory-User": "{user}"})):
        answer = shared.call(route, named, shared.keys["app"])
        assert CANARY.lower() not in response_text(answer).lower()
        assert answer.status_code < 500, response_text(answer)
    assert CANARY.lower() not in sent(shared.llm).lower()
    assert shared.of_bea() == before


@pytest.mark.parametrize(("route", "call"), [each for each in FIRST if each.values[1].writes])
def test_history_names_the_key(world: World, route: str, call: Call) -> None:
    scope = Scope(world.bea["user"])
    [newest] = world.run(lambda: world.service.history(scope, limit=1))
    world.call(route, call, world.keys["admin" if call.admin else "bea"])
    lines = world.run(lambda: world.service.history(scope, limit=1000)) if route != f"POST {API}/erase" else []
    for line in lines:
        # Background jobs and the agent have authors of their own.
        assert (
            line.id <= newest.id or line.by.who.startswith("key:") or line.by.who in {*BACKGROUND_AUTHORS, "agent"}
        ), line


def _parts(world: World) -> ResponsesContext:
    parts: ResponsesContext = world.client.app.state.proxy.responses  # type: ignore[attr-defined]
    return parts


@pytest.mark.parametrize("key", ["ada", "elsewhere"])
def test_a_response_that_is_being_answered_is_its_own_callers(world: World, key: str) -> None:
    parts, secret = _parts(world), world.secret

    async def begin() -> InProgressResponse:
        task = asyncio.ensure_future(asyncio.Event().wait())
        return InProgressResponse(secret, task, lambda: {"id": "resp_now", "output": CANARY})

    under_way = parts.in_progress[secret.user, "resp_now"] = world.run(begin)
    try:
        for method, path in (("GET", "resp_now"), ("POST", "resp_now/cancel"), ("DELETE", "resp_now")):
            unknown = world.ask_as(key, method, f"/v1/responses/{path.replace('now', 'nil')}")
            answer = world.ask_as(key, method, f"/v1/responses/{path}")
            assert (answer.status_code, unknown.status_code) == (404, 404)
            assert answer.text.replace("resp_now", "resp_nil") == unknown.text
        assert not under_way.is_cancelled
        assert CANARY in world.ask_as("bea", "GET", "/v1/responses/resp_now").text
    finally:
        del parts.in_progress[secret.user, "resp_now"]
        world.client.portal.call(under_way.task.cancel)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "path",
    [
        "responses/{response}/", "responses/{response}/unknown", "/responses/{response}", "./responses/{response}",
        "x/../responses/{response}", "conversations/{conversation}/", "conversations", "responses",
    ],
)  # fmt: skip
def test_no_response_is_asked_for_where_all_users_are_one(world: World, path: str) -> None:
    # A client that tidies up the path would not show it.
    for method in ("GET", "PUT", "PATCH", "OPTIONS"):
        raw = filled_with(Call(json=path), world.bea).json.replace("..", "%2E%2E").replace("./", "%2E/")
        answer = world.ask_as("ada", method, f"/v1/{raw}")
        assert answer.status_code in (307, 404, 405), response_text(answer)
    assert not world.llm.requests


def test_no_item_of_another_user_is_named_to_an_endpoint_that_all_share(world: World) -> None:
    refer = [{"type": "item_reference", "id": world.bea["item"]}, {"role": "user", "content": "What is that?"}]
    answer = world.ask_as("ada", "POST", "/v1/responses", json={"model": "m", "input": refer})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "not_found")
    assert not world.llm.requests
    # One's own account there is one's own business.
    headers = {"Authorization": "Bearer sk-mine", "X-API-Key": world.keys["ada"]}
    assert world.ask("POST", "/v1/responses", json={"model": "m", "input": refer}, headers=headers).is_success


# What their bodies say of a user is for the endpoint, too: there the header counts.
_CHATS = re.compile(
    r"/(v1/)?(chat/completions|responses|conversations|conversations/{conversation_id}(/items)?|{path.*)"
)
_WAYS = ("X-Memory-User", "x-authz-user-id")


def _ways(route: str) -> list[tuple[str, str]]:
    """Every way in which a request there can name a user: where, and by which name."""
    method, path = route.split(" ", 1)
    operation = DESCRIBED["paths"].get(path, {}).get(method.lower(), {})
    results = [("headers", name) for name in _WAYS]
    results += [
        ("query", each["name"])
        for each in operation.get("parameters", ())
        if each["in"] == "query" and each["name"] in ("user", "user_id")
    ]
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    if _CHATS.fullmatch(path):
        return results
    for part in (schema, *schema.get("anyOf", ()), *schema.get("oneOf", ())):
        named = DESCRIBED["components"]["schemas"].get(part.get("$ref", "").rpartition("/")[2], {})
        results += [("json", name) for name in ("user", "user_id") if name in named.get("properties", {})]
    return results


def _naming(call: Call, way: tuple[str, str], user: str) -> Call:
    where, name = way
    return replace(call, **{where: {**(getattr(call, where) or {}), name: user}})


def _nameless(call: Call) -> Call:
    """The call without anyone's name."""

    def rest(named: Any) -> Any:
        return {name: each for name, each in named.items() if name not in ("user", "user_id", *_WAYS)}

    json = rest(call.json) if isinstance(call.json, dict) else call.json
    return replace(call, query=rest(call.query), headers=rest(call.headers), json=json)


TWO_WAYS = [
    pytest.param(route, _nameless(calls[0]), one, other, id=f"{route} {one[1]} {other[1]}")
    for route, calls in CASES.items()
    for one, other in itertools.permutations(_ways(route), 2)
]


def test_there_are_routes_with_names_in_header_query_and_body() -> None:
    places = {(one[0], other[0]) for _, _, one, other in (each.values for each in TWO_WAYS)}
    assert places >= {("headers", "query"), ("headers", "json"), ("query", "json"), ("headers", "headers")}


@pytest.mark.parametrize(("route", "call", "one", "other"), TWO_WAYS)
def test_a_request_names_one_user(
    shared: World, route: str, call: Call, one: tuple[str, str], other: tuple[str, str]
) -> None:
    before = shared.of_bea()
    named = _naming(_naming(call, one, "{user}"), other, "bob")
    answer = shared.call(route, named, shared.keys["admin"])
    assert answer.status_code == 403, response_text(answer)
    assert CANARY.lower() not in response_text(answer).lower()
    assert shared.of_bea() == before
