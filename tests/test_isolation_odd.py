"""No route tells one user anything of another, also where it is asked in ways that nobody should ask it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
from auth_samples import bearer
from isolation_call import Call
from isolation_cases import CASES
from isolation_world import BY, CANARY, World, filled_with, sent, served, told

from recollect.http.auth.middleware import OPEN_PATHS
from recollect.http.responses.parts import Parts, UnderWay
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.remember import NewMemory
from recollect.upkeep.undo import BEHIND

API = "/recollect/v1"
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
    shared.meet()
    shared.settle()
    shared.meet()
    return shared


def ask(world: World, key: str, method: str, path: str, **more: Any) -> Any:
    """An answer to somebody's key."""
    headers = {**bearer(world.keys[key]), **more.pop("headers", {})}
    return world.ask(method, path, headers=headers, **more)


@pytest.mark.parametrize(("route", "call"), BY_ID)
def test_odd_ids_are_ids_that_nobody_has(shared: World, route: str, call: Call) -> None:
    shared.meet()
    before = shared.of_bea()
    for odd in [*ODD_IDS, shared.bea["memory"].upper(), f" {shared.bea['memory']} "]:
        # As a client sends it that does not tidy up the path.
        ids = {**dict.fromkeys(shared.bea, quote(odd, safe="%").replace(".", "%2E")), "entry": "1"}
        answer = shared.call(route, call, shared.keys["ada"], ids)
        assert 400 <= answer.status_code < 500 or answer.status_code in call.answers, (odd[:20], told(answer))
        assert CANARY.lower() not in told(answer).lower()
    assert shared.of_bea() == before


@pytest.mark.parametrize(("route", "call"), [each for each in FIRST if each.values[0].startswith("GET ")])
def test_head_tells_no_more_than_get(shared: World, route: str, call: Call) -> None:
    shared.meet()
    path = route.removeprefix("GET ")
    for key in ("ada", "writer", "elsewhere"):
        got = shared.call(route, call, shared.keys[key])
        head = shared.call(f"HEAD {path}", call, shared.keys[key])
        assert head.status_code in (got.status_code, 404, 405), (key, told(head))
        assert CANARY.lower() not in told(head).lower()
    assert shared.call(f"HEAD {path}", call, None).status_code == 401


@pytest.mark.parametrize(("route", "call"), FIRST)
def test_options_tell_nothing_and_do_nothing(shared: World, route: str, call: Call) -> None:
    before = shared.of_bea()
    path = route.split(" ", 1)[1]
    assert shared.call(f"OPTIONS {path}", call, None).status_code == 401
    answer = shared.call(f"OPTIONS {path}", call, shared.keys["bea"])
    is_passed_on = path.startswith("/v1/{") or path == "/v1/chat/completions"
    assert is_passed_on or answer.status_code in (404, 405, 403), told(answer)
    assert CANARY.lower() not in told(answer).lower()
    assert shared.of_bea() == before


@pytest.mark.parametrize(("route", "call"), FIRST)
def test_every_route_refuses_who_names_another_user(shared: World, route: str, call: Call) -> None:
    shared.meet()
    before = shared.of_bea()
    for headers in ({"X-Memory-User": "{user}"}, {"x-authz-user-id": "{user}"}):
        answer = shared.call(route, replace(call, headers={**call.headers, **headers}), shared.keys["ada"])
        assert answer.status_code == 403, told(answer)
    named = replace(call, headers={**call.headers, "X-Memory-Project": "{project}"})
    assert shared.call(route, named, shared.keys["elsewhere"]).status_code == 403
    assert shared.of_bea() == before


@pytest.mark.parametrize(("route", "call"), FIRST)
def test_a_key_of_an_application_tells_nothing_of_other_projects(shared: World, route: str, call: Call) -> None:
    shared.meet()
    before = shared.of_bea()
    for named in (call, replace(call, headers={**call.headers, "X-Memory-User": "{user}"})):
        answer = shared.call(route, named, shared.keys["app"])
        assert CANARY.lower() not in told(answer).lower()
        assert answer.status_code < 500, told(answer)
    assert CANARY.lower() not in sent(shared.llm).lower()
    assert shared.of_bea() == before


@pytest.mark.parametrize(("route", "call"), [each for each in FIRST if each.values[1].writes])
def test_history_names_the_key(world: World, route: str, call: Call) -> None:
    scope = Scope(world.bea["user"])
    [newest] = world.run(lambda: world.service.history(scope, limit=1))
    world.call(route, call, world.keys["admin" if call.admin else "bea"])
    lines = world.run(lambda: world.service.history(scope, limit=1000)) if route != f"POST {API}/erase" else []
    for line in lines:
        # What is learned or put in order behind an answer is nobody's doing.
        assert line.id <= newest.id or line.by.who.startswith("key:") or line.by.who in BEHIND, line


def test_whoever_a_request_says_it_is_the_key_is_named_with_it(world: World) -> None:
    memory = world.bea["memory"]
    who = {"X-Memory-By": "admin"}
    assert ask(world, "bea", "PATCH", f"{API}/memories/{memory}", json={"importance": 0.2}, headers=who).is_success
    [newest] = world.run(lambda: world.service.history(Scope(world.bea["user"]), limit=1))
    assert newest.by.who == f"key:{world.bea['user']} admin"


@pytest.mark.parametrize("key", ["bea", "writer", "elsewhere", "everyone", "app"])
def test_a_key_speaks_for_no_person(world: World, key: str) -> None:
    headers = {"X-Memory-Actor": "person", "X-Memory-User": world.bea["user"]}
    approve = ask(world, key, "POST", f"{API}/reviews/{world.bea['review']}/approve", headers=headers)
    # A key for another project is not told that it is there.
    assert approve.status_code == (404 if key in ("elsewhere", "app") else 403)
    added = ask(world, key, "POST", f"{API}/memories", json={"content": "It is so"}, headers=headers)
    assert added.status_code == 403


def _users_own(world: World) -> str:
    """The id of what is Bea's own in all projects."""
    scope = Scope(world.bea["user"])
    found = world.run(lambda: world.service.find(scope, Listing(limit=1000)))
    return next(record.id for record in found if not record.scope.project)


@pytest.mark.parametrize("key", ["elsewhere", "app"])
def test_what_is_the_users_own_is_read_in_a_project_and_changed_only_outside(world: World, key: str) -> None:
    id, user = _users_own(world), world.bea["user"]
    before = world.of_bea()
    who = {"X-Memory-User": user}
    mem0 = (
        id
        if key == "elsewhere"
        else filled_with(Call(json=world.bea["mem0"]), {}).json.replace(world.bea["memory"], id)
    )
    assert "chess" in ask(world, key, "GET", f"{API}/memories/{id}", headers=who).text
    assert "chess" in ask(world, key, "GET", f"/v1/memory/{id}", params={"user_id": user}).text
    assert "chess" in ask(world, key, "GET", f"/v1/memories/{mem0}/").text
    for answer in (
        ask(world, key, "PATCH", f"{API}/memories/{id}", json={"importance": 0.1}, headers=who),
        ask(world, key, "DELETE", f"{API}/memories/{id}", headers=who),
        ask(world, key, "POST", f"{API}/memories", json={"content": "x", "level": "user"}, headers=who),
        ask(world, key, "PATCH", f"/v1/memory/{id}", params={"user_id": user}, json={"importance": 0.1}),
        ask(world, key, "DELETE", f"/v1/memory/{id}", params={"user_id": user}),
        ask(world, key, "POST", "/api/react/facts/delete", json={"user": user, "fact_id": id}),
        ask(world, key, "PUT", f"/v1/memories/{mem0}/", json={"text": "x"}),
        ask(world, key, "DELETE", f"/v1/memories/{mem0}/"),
        ask(world, key, "PUT", "/v1/batch/", json={"memories": [{"memory_id": mem0, "text": "x"}]}),
        ask(world, key, "DELETE", "/v1/batch/", json={"memories": [{"memory_id": mem0}]}),
    ):
        assert answer.status_code == 403, told(answer)
    for answer in (
        ask(world, key, "POST", f"{API}/forget", json={"filters": {}}, headers=who),
        ask(world, key, "DELETE", "/v1/memory", params={"user_id": user}),
        ask(world, key, "DELETE", "/v1/memories/", params={"user_id": user}),
        ask(world, key, "DELETE", f"/v1/entities/user/{user}/"),
    ):
        assert answer.status_code == 200, told(answer)
    assert world.of_bea() == before


def test_what_was_said_outside_of_projects_is_not_read_by_a_key_for_one(world: World) -> None:
    chat = Scope(world.bea["user"], "", "evening")
    fields = {"level": "session"}
    kept = world.run(lambda: world.service.add(chat, NewMemory(content="It is late", fields=fields), by=BY))
    made = ask(world, "bea", "POST", "/v1/conversations", json={"metadata": {"a": "b"}}).json()["id"]
    for path in (f"{API}/memories/{kept.id}", f"/v1/memory/{kept.id}", f"/v1/conversations/{made}"):
        assert ask(world, "elsewhere", "GET", path).status_code == 404
        assert ask(world, "bea", "GET", path).status_code == 200


def test_nobody_is_listed_for_an_application_that_has_one_project(world: World) -> None:
    everybody = {"filters": {"user_id": "*"}, "query": "budget"}
    for path in ("/v3/memories/search/", "/v3/memories/", "/search"):
        assert ask(world, "app", "POST", path, json=everybody).status_code == 403
    assert ask(world, "app", "GET", "/v1/entities/").status_code == 403


def test_nothing_said_in_another_project_goes_with_a_memory_that_cites_it(world: World) -> None:
    before = world.of_bea()
    cites = {"content": "It costs 1", "evidence": [world.bea["turn"]]}
    made = ask(world, "elsewhere", "POST", f"{API}/memories", json=cites).json()["id"]
    assert ask(world, "elsewhere", "DELETE", f"{API}/memories/{made}").status_code == 200
    assert world.of_bea() == before


def test_the_same_idempotency_key_of_two_users_is_two(world: World) -> None:
    once = {"Idempotency-Key": "8f14e45f"}
    texts = {"bea": f"{CANARY} again", "ada": "Something else"}
    for key, text in texts.items():
        made = ask(world, key, "POST", f"{API}/memories", json={"content": text}, headers=once)
        assert (made.status_code, made.json()["memory"]) == (201, text)


def test_a_key_that_may_only_write_is_not_told_what_a_fact_says(world: World) -> None:
    project = {"X-Memory-Project": "secret"}
    weak = {"key": "budget", "value": "1", "confidence": 0.1}
    answer = ask(world, "writer", "POST", f"{API}/memories", json=weak, headers=project)
    assert (answer.status_code, CANARY in answer.text) == (409, False)
    same = {"content": f"The budget of {CANARY} is 9,000", "project_id": "secret"}
    assert ask(world, "writer", "POST", "/v1/memory", json=same).status_code == 409
    assert ask(world, "bea", "POST", "/v1/memory", json=same).status_code == 200


def test_a_key_that_may_only_write_can_ask_twice_for_the_same(world: World) -> None:
    once = {"Idempotency-Key": "8f14e45f"}
    for _ in range(2):
        assert ask(world, "writer", "POST", f"{API}/memories", json={"content": "It rains"}, headers=once).is_success


@pytest.mark.parametrize("path", sorted(path for path in OPEN_PATHS if path.startswith("/docs")))
def test_the_page_needs_no_key(shared: World, path: str) -> None:
    assert shared.ask("GET", path).status_code == 200


def test_refusals_of_the_memory_door_have_codes_of_their_own(shared: World) -> None:
    answer = shared.ask("GET", "/v1/memory")
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "UNAUTHENTICATED")
    answer = ask(shared, "bea", "GET", "/v1/memory", params={"user_id": "eve"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "FORBIDDEN")


def _parts(world: World) -> Parts:
    parts: Parts = world.client.app.state.proxy._parts  # type: ignore[attr-defined]
    return parts


@pytest.mark.parametrize("key", ["ada", "elsewhere"])
def test_a_response_that_is_being_answered_is_its_own_callers(world: World, key: str) -> None:
    parts, secret = _parts(world), world.secret

    async def begin() -> UnderWay:
        task = asyncio.ensure_future(asyncio.Event().wait())
        return UnderWay(secret, task, lambda: {"id": "resp_now", "output": CANARY})

    under_way = parts.under_way[secret.user, "resp_now"] = world.run(begin)
    try:
        for method, path in (("GET", "resp_now"), ("POST", "resp_now/cancel"), ("DELETE", "resp_now")):
            unknown = ask(world, key, method, f"/v1/responses/{path.replace('now', 'nil')}")
            answer = ask(world, key, method, f"/v1/responses/{path}")
            assert (answer.status_code, unknown.status_code) == (404, 404)
            assert answer.text.replace("resp_now", "resp_nil") == unknown.text
        assert not under_way.is_cancelled
        assert CANARY in ask(world, "bea", "GET", "/v1/responses/resp_now").text
    finally:
        del parts.under_way[secret.user, "resp_now"]
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
        answer = ask(world, "ada", method, f"/v1/{raw}")
        assert answer.status_code in (307, 404, 405), told(answer)
    assert not world.llm.requests


def test_no_item_of_another_user_is_named_to_an_endpoint_that_all_share(world: World) -> None:
    refer = [{"type": "item_reference", "id": world.bea["item"]}, {"role": "user", "content": "What is that?"}]
    answer = ask(world, "ada", "POST", "/v1/responses", json={"model": "m", "input": refer})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "not_found")
    assert not world.llm.requests
    # One's own account there is one's own business.
    headers = {"Authorization": "Bearer sk-mine", "X-API-Key": world.keys["ada"]}
    assert world.ask("POST", "/v1/responses", json={"model": "m", "input": refer}, headers=headers).is_success
