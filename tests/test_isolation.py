"""No route tells one user anything of another, whoever is named. A route without a case fails here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from auth_samples import HERE, OUTSIDE, bearer
from fastapi.routing import iter_route_contexts
from fastapi.testclient import TestClient
from httpx import Response
from isolation_cases import CASES, EXEMPT, Call

from recollect.http.app import make_app
from recollect.http.auth.middleware import OPEN_PATHS
from recollect.model.change import By
from recollect.model.ids import new_id
from recollect.model.scope import Scope
from recollect.remember import NewMemory
from recollect.service import Service
from recollect.settings import load
from recollect.testing.scripted_llm import ScriptedLLM
from recollect.upkeep.transfer import read_line

CANARY = "canaryQXZJ"
ADA, BEA = "ada", "bea"
SECRET = Scope(BEA, "secret", "diary")
BY = By("test")


def routes() -> list[str]:
    """Every route of the application, as METHOD and path."""
    app = make_app(load({"home": "nowhere"}, environ={}).settings)
    found = []
    for route in iter_route_contexts(app.routes):
        methods = getattr(route, "methods", None) or {"ANY"}
        # Where GET is answered, HEAD is the same without the words.
        found += [f"{method} {route.path}" for method in sorted(methods) if method != "HEAD" or "GET" not in methods]
    return found


ROUTES = routes()
CALLS = [
    pytest.param(route, call, id=f"{route} {number}")
    for route, calls in CASES.items()
    for number, call in enumerate(calls)
]


@dataclass(frozen=True)
class World:
    """A server, what is Bea's on it, and keys of hers and of a stranger's."""

    client: TestClient
    llm: ScriptedLLM
    bea: dict[str, str]
    keys: dict[str, str]

    @property
    def service(self) -> Service:
        service: Service = self.client.app.state.service  # type: ignore[attr-defined]
        return service

    def run(self, function: Any, *args: Any) -> Any:
        return self.client.portal.call(function, *args)  # type: ignore[union-attr]

    def call(self, route: str, call: Call, key: str | None, ids: dict[str, str] | None = None) -> Response:
        method, path = route.split(" ", 1)
        filled = _filled(call, self.bea if ids is None else ids)
        path = re.sub(r"{(\w+)(?::\w+)?}", lambda found: filled.path[found[1]], path)
        headers = {**filled.headers, **({} if key is None else bearer(key))}
        body = {} if call.json is None else {"json": filled.json}
        return self.client.request(method, path, params=filled.query, headers=headers, **body)

    def of_bea(self) -> Any:
        """All there is of Bea's in the project."""

        async def read() -> Any:
            service = self.service
            return {
                "records": [line async for line in service.export(Scope(BEA, "secret"))],
                "history": [entry.id for entry in await service.history(Scope(BEA), limit=1000)],
                "jobs": [(job.id, job.state) for job in await service.care.jobs(BEA)],
                "turns": [turn.id for turn in await service.turns(SECRET)],
                "keys": [(key.id, key.revoked_at) for key in await service.keyring.all(BEA)],
            }

        return self.run(read)


def _filled(call: Call, ids: dict[str, str]) -> Call:
    def fill(value: Any) -> Any:
        if isinstance(value, str):
            return re.sub(r"{(\w+)}", lambda found: ids.get(found[1], found[0]), value)
        if isinstance(value, list):
            return [fill(each) for each in value]
        return {name: fill(each) for name, each in value.items()} if isinstance(value, dict) else value

    return replace(
        call, path=fill(call.path), query=fill(call.query), headers=fill(call.headers), json=fill(call.json)
    )


async def _settle(service: Service) -> tuple[dict[str, str], dict[str, str]]:
    """Give Bea something to hide, and everyone a key."""
    project = Scope(BEA, "secret")
    fields = {"metadata": {"note": CANARY}, "tags": [CANARY.lower()], "importance": 0.9}
    memory = await service.add(
        project, NewMemory(content=f"The budget of {CANARY} is 9,000", fields=fields), by=By("x", CANARY)
    )
    fact = await service.add(
        project,
        NewMemory(content=None, fields={"category": "fact", "key": "budget", "value": CANARY, "importance": 0.9}),
        by=BY,
    )
    said = await service.remember(SECRET, f"My budget for {CANARY} is 9,000 dollars", by=BY)
    waiting = new_id()
    line = {"id": waiting, "memory": f"Always say {CANARY}", "project_id": "secret", "status": "review"}
    await service.import_records([read_line(line, user=BEA)], by=BY)
    assert said.job is not None
    ids = {
        "user": BEA,
        "project": "secret",
        "session": "diary",
        "memory": memory.id,
        "fact": fact.id,
        "turn": said.turns[0].id,
        "job": said.job.id,
        "entry": str((await service.history(project))[0].id),
        "review": waiting,
    }
    ring = service.keyring
    made = {
        "bea": await ring.add(user=BEA),
        "ada": await ring.add(user=ADA),
        "reader": await ring.add(user=BEA, writes=False),
        "writer": await ring.add(user=BEA, reads=False),
        "elsewhere": await ring.add(user=BEA, project="elsewhere"),
        "admin": await ring.add(admin=True),
    }
    ids["key"] = made["bea"].key.id
    await service.add(Scope(ADA), NewMemory(content="Ada's budget is 5 dollars"), by=BY)
    return ids, {name: new.text for name, new in made.items()}


@pytest.fixture
def world(tmp_path: Path, llm: ScriptedLLM) -> Iterator[World]:
    settings = {
        "home": tmp_path,
        "database": "memory:",
        "auth": "keys",
        "worker": False,
        "upstream_url": llm.base_url,
    }
    app = make_app(load(settings, environ={}).settings)
    with TestClient(app, client=(OUTSIDE, 1), base_url=HERE, raise_server_exceptions=False) as client:
        ids, keys = client.portal.call(_settle, app.state.service)  # type: ignore[union-attr]
        yield World(client, llm, ids, keys)


def told(answer: Response) -> str:
    """All that an answer says, as it came."""
    return f"{answer.status_code} {dict(answer.headers)} {answer.content.decode(errors='replace')}"


def sent(llm: ScriptedLLM) -> str:
    """All that an endpoint was told."""
    return " ".join(f"{json.dumps(request.json)} {dict(request.headers)}" for request in llm.requests)


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
    before = world.of_bea()
    assert CANARY in json.dumps(before, default=str)
    answer = world.call(route, call, world.keys["ada"])
    assert answer.status_code in call.answers, told(answer)
    assert CANARY.lower() not in told(answer).lower()
    assert CANARY.lower() not in sent(world.llm).lower()
    assert world.of_bea() == before


@pytest.mark.parametrize(("route", "call"), CALLS)
def test_ids_of_others_and_of_nobody_are_answered_alike(world: World, route: str, call: Call) -> None:
    nobodys = {name: new_id() for name in world.bea} | {
        "user": "bob", "project": "nosuch", "session": "never", "entry": str(10**9),
    }  # fmt: skip
    foreign = _alike(world.call(route, call, world.keys["ada"]), world.bea)
    unknown = _alike(world.call(route, call, world.keys["ada"], nobodys), nobodys)
    # What is answered with the stranger's own differs by what they did before.
    assert foreign[0] == unknown[0]
    assert foreign == unknown or foreign[0] < 300


def _alike(answer: Response, ids: dict[str, str]) -> tuple[int, set[str], str]:
    """An answer without the ids that were asked for, and what no two answers have in common."""
    text = answer.text
    for name, id in sorted(ids.items(), key=lambda each: -len(each[1])):
        text = re.sub(rf"\b{re.escape(id)}\b", f"<{name}>", text)
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}|\bchatcmpl-\w+|\b1[78]\d{8}\b", "<new>", text)
    return answer.status_code, set(answer.headers), text


@pytest.mark.parametrize(("route", "call"), CALLS)
def test_who_shows_no_key_is_told_nothing(world: World, route: str, call: Call) -> None:
    before = world.of_bea()
    for key in (None, "rk_" + "x" * 43):
        answer = world.call(route, call, key)
        assert answer.status_code == 401, told(answer)
        assert CANARY.lower() not in told(answer).lower()
    assert not world.llm.requests
    assert world.of_bea() == before


@pytest.mark.parametrize(("route", "call"), CALLS)
def test_the_owner_is_answered(world: World, route: str, call: Call) -> None:
    answer = world.call(route, call, world.keys["admin" if call.admin else "bea"])
    assert answer.status_code in call.owner, told(answer)


@pytest.mark.parametrize(("route", "call"), CALLS)
def test_a_key_of_another_project_tells_nothing_of_this_one(world: World, route: str, call: Call) -> None:
    before = world.of_bea()["records"]
    answer = world.call(route, call, world.keys["elsewhere"])
    assert CANARY.lower() not in told(answer).lower()
    assert CANARY.lower() not in sent(world.llm).lower()
    assert world.of_bea()["records"] == before


@pytest.mark.parametrize(("route", "call"), CALLS)
def test_a_key_does_only_what_it_may(world: World, route: str, call: Call) -> None:
    before = world.of_bea()
    barred = [key for key, needed in (("reader", call.writes), ("writer", call.reads), ("bea", call.admin)) if needed]
    for name in barred:
        answer = world.call(route, call, world.keys[name])
        assert answer.status_code == 403, told(answer)
        assert CANARY.lower() not in told(answer).lower()
    assert not barred or world.of_bea() == before


def test_the_matrix_would_notice(world: World) -> None:
    # The owner's own question brings the canary to the endpoint: the same call is what the stranger makes.
    call = CASES["POST /v1/chat/completions"][-1]
    answer = world.call("POST /v1/chat/completions", call, world.keys["bea"])
    assert answer.status_code == 200
    assert CANARY in sent(world.llm)
