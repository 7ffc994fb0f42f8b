"""No route reveals anything of another user. A route without a case fails here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.routing import iter_route_contexts
from httpx import Response

from recollect.config.settings import load
from recollect.errors import NotFound
from recollect.http.app import make_app
from recollect.http.auth.middleware import OPEN_PATHS
from recollect.model.ids import new_id
from tests.support.isolation_cases import CASES, EXEMPT, Call
from tests.support.isolation_server import CANARY, World, mem0_id, response_text, sent, served


def routes() -> list[str]:
    """Every route of the application, as METHOD and path."""
    app = make_app(load({"home": "nowhere"}, environ={}).settings)
    results = []
    for route in iter_route_contexts(app.routes):
        methods = getattr(route, "methods", None) or {"ANY"}
        # Where GET is answered, HEAD is the same without the words.
        results += [
            f"{method} {route.path}" for method in sorted(methods) if method != "HEAD" or "GET" not in methods
        ]
    return results


ROUTES = routes()
CALLS = [
    pytest.param(route, call, id=f"{route} {number}")
    for route, calls in CASES.items()
    for number, call in enumerate(calls)
]
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
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with served(tmp_path_factory.mktemp("isolation")) as world:
        yield world


@pytest.fixture
def world(shared: World) -> World:
    """The same server for all, and the same Bea until somebody changes something of hers."""
    if not shared.is_same:
        try:
            shared.check_same()
        except (AssertionError, NotFound):
            shared.settle()
    shared.meet()
    return shared


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_has_a_case(route: str) -> None:
    example = f'"{route}": [Call(path={{"memory_id": "{{memory}}"}})]'
    assert route in CASES or route in EXEMPT, (
        f"{route} has no case: add to CASES in tests/isolation_cases.py how it is called with another user's ids, "
        f"such as {example}; or to EXEMPT, with the reason, if it tells nothing about anyone"
    )


def test_no_case_is_left_of_a_route_that_is_gone() -> None:
    assert not (CASES.keys() | EXEMPT.keys()) - set(ROUTES)
    assert all(CASES.values())


def test_only_what_is_exempt_is_open_to_everyone() -> None:
    assert {route.split(" ", 1)[1] for route in EXEMPT} == OPEN_PATHS


@pytest.mark.parametrize(("route", "call"), CALLS)
def test_a_stranger_learns_and_changes_nothing(world: World, route: str, call: Call) -> None:
    assert CANARY in json.dumps(world.before, default=str)
    answer = world.call(route, call, world.keys["ada"])
    assert answer.status_code in call.answers, response_text(answer)
    assert_silent(world, answer)
    # Ids of others and of nobody are answered alike.
    nobodys = _nobodys(world)
    world.meet()
    unknown = world.call(route, call, world.keys["ada"], nobodys)
    assert_alike(_alike(answer, world.bea), _alike(unknown, nobodys))
    world.check_same()


@pytest.mark.parametrize(("route", "call"), CALLS)
def test_a_key_of_another_project_tells_nothing_of_this_one(world: World, route: str, call: Call) -> None:
    answer = world.call(route, call, world.keys["elsewhere"])
    assert not call.whole or answer.status_code == 403, response_text(answer)
    assert_silent(world, answer)
    # What is in another project and what is not are answered alike.
    nobodys = _nobodys(world, world.bea["user"])
    unknown = world.call(route, call, world.keys["elsewhere"], nobodys)
    assert_alike(_alike(answer, world.bea), _alike(unknown, nobodys))
    world.check_same()


def assert_silent(world: World, answer: Response) -> None:
    """Nothing of Bea's is in the answer or was sent to an upstream."""
    assert CANARY.lower() not in response_text(answer).lower()
    assert CANARY.lower() not in sent(world.llm).lower()


def assert_alike(one: tuple[int, set[str], str], other: tuple[int, set[str], str]) -> None:
    """Nobody can tell the one answer from the other."""
    # What is answered with one's own says what that is, and when it came about.
    assert one == other or (one[0] == other[0] < 300) or {one[0], other[0]} == {200, 201}


def _nobodys(world: World, user: str = "") -> dict[str, str]:
    """Ids that there are not, and names that nobody has."""
    named = {"user": "bob", "project": "nosuch", "session": "never", "entry": str(10**9)}
    ids = {name: new_id() for name in world.bea} | named | ({"user": user} if user else {})
    return {**ids, "mem0": mem0_id(ids["memory"], ids["user"])}


def _alike(answer: Response, ids: dict[str, str]) -> tuple[int, set[str], str]:
    """An answer without the requested ids and without parts that differ between any two answers."""
    text = answer.text
    for name, id in sorted(ids.items(), key=lambda each: -len(each[1])):
        text = re.sub(rf"\b{re.escape(id)}\b", f"<{name}>", text)
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}|\bchatcmpl-\w+|\b1[78]\d{8}\b", "<new>", text)
    return answer.status_code, set(answer.headers), re.sub(r"\bada-\d+", "<ada>", text)


@pytest.mark.parametrize(("route", "call"), [(route, calls[0]) for route, calls in CASES.items()])
def test_who_shows_no_key_is_told_nothing(world: World, route: str, call: Call) -> None:
    for key in (None, "rk_" + "x" * 43):
        answer = world.call(route, call, key)
        assert answer.status_code == 401, response_text(answer)
        assert CANARY.lower() not in response_text(answer).lower()
        if not route.startswith("HEAD "):
            assert _fields(answer.json()) == _error_of(route), response_text(answer)
    assert not world.llm.requests
    world.check_same()


def _error_of(route: str) -> set[str]:
    path = route.split(" ", 1)[1]
    return ERRORS[max((prefix for prefix in ERRORS if path.startswith(prefix)), key=len)]


def _fields(error: dict[str, object]) -> set[str]:
    inner = error.get("error")
    return {f"error.{name}" for name in inner} if isinstance(inner, dict) else set(error)


@pytest.mark.parametrize(("route", "call"), CALLS)
def test_the_owner_is_answered(world: World, route: str, call: Call) -> None:
    answer = world.call(route, call, world.keys["admin" if call.admin else "bea"])
    assert answer.status_code in call.owner, response_text(answer)


def _barred(call: Call) -> list[str]:
    """The keys that may not do it."""
    return [key for key, needed in (("reader", call.writes), ("writer", call.reads), ("bea", call.admin)) if needed]


@pytest.mark.parametrize(("route", "call"), [case for case in CALLS if _barred(case.values[1])])
def test_a_key_does_only_what_it_may(world: World, route: str, call: Call) -> None:
    for name in _barred(call):
        answer = world.call(route, call, world.keys[name])
        assert answer.status_code == 403, response_text(answer)
        assert_silent(world, answer)
    world.check_same()


def test_the_matrix_would_notice(world: World) -> None:
    # The owner's own question brings the canary to the endpoint: the same call is what the stranger makes.
    call = CASES["POST /v1/chat/completions"][-1]
    answer = world.call("POST /v1/chat/completions", call, world.keys["bea"])
    assert answer.status_code == 200
    assert CANARY in sent(world.llm)


@pytest.mark.parametrize(("route", "number"), [("GET /recollect/v1/export", 0), ("GET /v1/memory", 0)])
def test_the_owner_is_told_what_the_stranger_is_not(world: World, route: str, number: int) -> None:
    assert CANARY in response_text(world.call(route, CASES[route][number], world.keys["bea"]))


def test_a_changed_bea_is_a_new_one(world: World, tmp_path: Path) -> None:
    world.call("POST /recollect/v1/forget", CASES["POST /recollect/v1/forget"][2], world.keys["bea"])
    assert world.of_bea() != world.before
