"""No route reveals or changes anything of another user or project. A route without a case fails here."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from functools import cache
from typing import Any
from urllib.parse import quote

import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from httpx import Response

from recollect.config.settings import load
from recollect.http.app import make_app
from recollect.http.auth.middleware import OPEN_PATHS
from recollect.http.page import PAGE_PREFIX
from recollect.maintenance.undo import BACKGROUND_AUTHORS
from recollect.model.ids import new_id
from recollect.model.scope import Scope
from tests.support.isolation_cases import CASES, EXEMPT, Call
from tests.support.isolation_server import CANARY, World, mem0_id, response_text, sent

WRONG_KEY = "rk_" + "x" * 43
# The fields of an error in each API; the longest matching prefix counts.
ERRORS = {
    "/": {"detail"},
    "/metrics": {"error.code", "error.message", "error.retryable"},
    "/recollect/v1": {"error.code", "error.message", "error.retryable"},
    "/v1/memory": {"error.code", "error.message"},
    "/api/sessions": {"error", "detail"},
    "/api/react": {"error.type", "error.message"},
    "/v1/agent": {"error.type", "error.message"},
    **{
        path: {"error.message", "error.type", "error.param", "error.code"}
        for path in ("/v1/chat", "/chat", "/v1/responses", "/v1/conversations", "/v1/{path")
    },
    "/v1/memories": {"detail"},
    "/mcp": {"error.code", "error.message"},
}
ODD_IDS = (
    "..", ".", "a/b", "a%2Fb", "%00", "\0", "🦊", "x" * 5000, "' OR 1=1 --", "{}", "*", "a.b.c", "\u202e", "?x=1#y",
)  # fmt: skip
EVERY_ROUTE = pytest.mark.parametrize("route", CASES)


@cache
def application() -> FastAPI:
    return make_app(load({"home": "nowhere"}, environ={}).settings)


@cache
def document() -> dict[str, Any]:
    return application().openapi()


def routes() -> set[str]:
    """Return every route of the application, as METHOD and path; HEAD only where there is no GET."""
    names = set()
    for route in iter_route_contexts(application().routes):
        methods = getattr(route, "methods", None) or {"ANY"}
        names |= {f"{method} {route.path}" for method in methods if method != "HEAD" or "GET" not in methods}
    return names


def test_every_route_has_a_case() -> None:
    assert routes() == CASES.keys() | EXEMPT.keys(), (
        "add to CASES in tests/support/isolation_cases.py how the route is called with another user's ids, such as "
        '[Call(path={"memory_id": "{memory}"})]; or to EXEMPT, with the reason, if it reveals nothing about anyone'
    )
    assert all(CASES.values())
    assert {route.split(" ", 1)[1] for route in EXEMPT} == OPEN_PATHS | {f"{PAGE_PREFIX}{{path:path}}"}


@EVERY_ROUTE
def test_other_keys_reveal_and_change_nothing(world: World, route: str) -> None:
    assert CANARY in json.dumps(world.before, default=str)
    _check_without_key(world, route)
    for call in CASES[route]:
        world.add_stranger()
        answer = world.call(route, call, world.keys["ada"])
        assert answer.status_code in call.answers, response_text(answer)
        _check_silent(world, answer)
        unknown_ids = _unknown_ids(world)
        world.add_stranger()
        _check_alike(world, answer, world.call(route, call, world.keys["ada"], unknown_ids), unknown_ids)
        _check_other_project(world, route, call)
        for key, is_required in (("reader", call.writes), ("writer", call.reads), ("bea", call.admin)):
            if is_required:
                answer = world.call(route, call, world.keys[key])
                assert answer.status_code == 403, response_text(answer)
                _check_silent(world, answer)
    world.check_unchanged()


def _check_without_key(world: World, route: str) -> None:
    path = route.split(" ", 1)[1]
    expected = ERRORS[max((prefix for prefix in ERRORS if path.startswith(prefix)), key=len)]
    for key in (None, WRONG_KEY):
        answer = world.call(route, CASES[route][0], key)
        assert answer.status_code == 401, response_text(answer)
        if not route.startswith("HEAD "):
            error = answer.json()
            inner = error.get("error")
            assert ({f"error.{name}" for name in inner} if isinstance(inner, dict) else set(error)) == expected
    assert not world.llm.requests


def _check_other_project(world: World, route: str, call: Call) -> None:
    answer = world.call(route, call, world.keys["elsewhere"])
    assert not call.whole or answer.status_code == 403, response_text(answer)
    _check_silent(world, answer)
    unknown_ids = _unknown_ids(world, world.bea["user"])
    _check_alike(world, answer, world.call(route, call, world.keys["elsewhere"], unknown_ids), unknown_ids)


def _check_silent(world: World, answer: Response) -> None:
    """Check that nothing of Bea's is in the answer or was sent to an upstream."""
    assert CANARY.lower() not in response_text(answer).lower()
    assert CANARY.lower() not in sent(world.llm).lower()


def _check_alike(world: World, answer: Response, unknown: Response, unknown_ids: dict[str, str]) -> None:
    """Check that an id of another user is answered like one that does not exist."""
    one, other = _comparable(answer, world.bea), _comparable(unknown, unknown_ids)
    # A success concerns the caller's own memories, which have new ids and times.
    assert one == other or one[0] == other[0] < 300 or {one[0], other[0]} == {200, 201}


def _unknown_ids(world: World, user: str = "bob") -> dict[str, str]:
    names = {"user": user, "project": "nosuch", "session": "never", "entry": str(10**9)}
    ids = {name: new_id() for name in world.bea} | names
    return {**ids, "mem0": mem0_id(ids["memory"], ids["user"])}


def _comparable(answer: Response, ids: dict[str, str]) -> tuple[int, set[str], str]:
    """Return an answer without the requested ids and without parts that differ between any two answers."""
    text = answer.text
    for name, id in sorted(ids.items(), key=lambda each: -len(each[1])):
        text = re.sub(rf"\b{re.escape(id)}\b", f"<{name}>", text)
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}|\bchatcmpl-\w+|\b1[78]\d{8}\b", "<new>", text)
    return answer.status_code, set(answer.headers), re.sub(r"\bada-\d+", "<ada>", text)


@EVERY_ROUTE
def test_the_owner_is_answered_and_named_in_the_history(world: World, route: str) -> None:
    for call in CASES[route]:
        world.restore()
        scope = Scope(world.bea["user"])
        [newest] = world.run(lambda scope=scope: world.service.history(scope, limit=1))
        answer = world.call(route, call, world.keys["admin" if call.admin else "bea"])
        assert answer.status_code in call.owner, response_text(answer)
        # Chats are recorded with an author of their own.
        if call.writes and call is CASES[route][0] and not route.endswith("/erase"):
            for entry in world.run(lambda scope=scope: world.service.history(scope, limit=1000)):
                # So are background jobs and the agent.
                is_named = entry.by.who.startswith("key:") or entry.by.who in {*BACKGROUND_AUTHORS, "agent"}
                assert entry.id <= newest.id or is_named, entry


def test_the_canary_is_where_its_owner_reads_it(world: World) -> None:
    route = "POST /v1/chat/completions"
    assert world.call(route, CASES[route][-1], world.keys["bea"]).status_code == 200
    assert CANARY in sent(world.llm)
    for route in ("GET /recollect/v1/export", "GET /v1/memory"):
        assert CANARY in response_text(world.call(route, CASES[route][0], world.keys["bea"]))
    world.call("POST /recollect/v1/forget", CASES["POST /recollect/v1/forget"][2], world.keys["bea"])
    with pytest.raises(AssertionError):
        world.check_unchanged()


@EVERY_ROUTE
def test_head_options_and_foreign_names_reveal_and_change_nothing(world: World, route: str) -> None:
    method, path = route.split(" ", 1)
    call = CASES[route][0]
    if method == "GET":
        assert world.call(f"HEAD {path}", call, None).status_code == 401
        for key in ("ada", "writer", "elsewhere"):
            got, head = (world.call(f"{each} {path}", call, world.keys[key]) for each in ("GET", "HEAD"))
            assert head.status_code in (got.status_code, 404, 405), response_text(head)
            _check_silent(world, head)
    assert world.call(f"OPTIONS {path}", call, None).status_code == 401
    options = world.call(f"OPTIONS {path}", call, world.keys["bea"])
    is_forwarded = path.startswith("/v1/{") or path == "/v1/chat/completions"
    assert is_forwarded or options.status_code in (404, 405, 403), response_text(options)
    assert CANARY.lower() not in response_text(options).lower()
    for key, header in (("ada", "X-Memory-User"), ("ada", "x-authz-user-id"), ("elsewhere", "X-Memory-Project")):
        value = "{project}" if header == "X-Memory-Project" else "{user}"
        answer = world.call(route, replace(call, headers={**call.headers, header: value}), world.keys[key])
        assert answer.status_code == 403, response_text(answer)
    for named in (call, replace(call, headers={**call.headers, "X-Memory-User": "{user}"})):
        answer = world.call(route, named, world.keys["app"])
        assert answer.status_code < 500, response_text(answer)
        _check_silent(world, answer)
    world.check_unchanged()


@pytest.mark.parametrize(
    "route", [route for route, [call, *_] in CASES.items() if any("{" in part for part in call.path.values())]
)
def test_odd_ids_are_ids_that_nobody_has(world: World, route: str) -> None:
    call = CASES[route][0]
    for odd in [*ODD_IDS, world.bea["memory"].upper(), f" {world.bea['memory']} "]:
        # As a client sends it that does not normalise the path.
        ids = {**dict.fromkeys(world.bea, quote(odd, safe="%").replace(".", "%2E")), "entry": "1"}
        answer = world.call(route, call, world.keys["ada"], ids)
        is_rejected = 400 <= answer.status_code < 500 or answer.status_code in call.answers
        assert is_rejected, (odd[:20], response_text(answer))
        assert CANARY.lower() not in response_text(answer).lower()
    world.check_unchanged()


# What the bodies of these say about a user is for the upstream as well: there the header counts.
_CHATS = re.compile(
    r"/(v1/)?(chat/completions|responses|conversations|conversations/{conversation_id}(/items)?|{path.*)"
)
_USER_HEADERS = ("X-Memory-User", "x-authz-user-id")
_USER_FIELDS = ("user", "user_id")


def _places_for_a_user(route: str) -> list[tuple[str, str]]:
    """Return every place where a request can name a user: the part of the request, and the name there."""
    method, path = route.split(" ", 1)
    operation = document()["paths"].get(path, {}).get(method.lower(), {})
    places = [("headers", name) for name in _USER_HEADERS]
    places += [
        ("query", each["name"])
        for each in operation.get("parameters", ())
        if each["in"] == "query" and each["name"] in _USER_FIELDS
    ]
    if _CHATS.fullmatch(path):
        return places
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    for part in (schema, *schema.get("anyOf", ()), *schema.get("oneOf", ())):
        body = document()["components"]["schemas"].get(part.get("$ref", "").rpartition("/")[2], {})
        places += [("json", name) for name in _USER_FIELDS if name in body.get("properties", {})]
    return places


def _without_users(call: Call) -> Call:
    def strip(fields: Any) -> Any:
        return {name: each for name, each in fields.items() if name not in (*_USER_FIELDS, *_USER_HEADERS)}

    json = strip(call.json) if isinstance(call.json, dict) else call.json
    return replace(call, query=strip(call.query), headers=strip(call.headers), json=json)


def _naming(call: Call, place: tuple[str, str], user: str) -> Call:
    part, name = place
    return replace(call, **{part: {**(getattr(call, part) or {}), name: user}})


@EVERY_ROUTE
def test_a_request_that_names_two_users_is_rejected(world: World, route: str) -> None:
    for one, other in itertools.permutations(_places_for_a_user(route), 2):
        call = _naming(_naming(_without_users(CASES[route][0]), one, "{user}"), other, "bob")
        answer = world.call(route, call, world.keys["admin"])
        assert answer.status_code == 403, (one, other, response_text(answer))
        _check_silent(world, answer)
    world.check_unchanged()


def test_some_routes_can_name_a_user_in_header_query_and_body() -> None:
    assert {part for route in CASES for part, _ in _places_for_a_user(route)} == {"headers", "query", "json"}
