"""Permissions of keys for one project, for writing only and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect.http.auth.middleware import OPEN_PATHS
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.remember import MemoryInput
from tests.support.isolation_server import BY, CANARY, World, mem0_id, response_text, served

API = "/recollect/v1"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with served(tmp_path_factory.mktemp("isolation")) as world:
        yield world


@pytest.fixture
def world(shared: World) -> World:
    shared.settle()
    shared.meet()
    return shared


def test_whoever_a_request_says_it_is_the_key_is_named_with_it(world: World) -> None:
    memory = world.bea["memory"]
    who = {"X-Memory-By": "admin"}
    assert world.ask_as("bea", "PATCH", f"{API}/memories/{memory}", json={"importance": 0.2}, headers=who).is_success
    [newest] = world.run(lambda: world.service.history(Scope(world.bea["user"]), limit=1))
    assert newest.by.who == f"key:{world.bea['user']} admin"


@pytest.mark.parametrize("key", ["bea", "writer", "elsewhere", "everyone", "app"])
def test_a_key_speaks_for_no_person(world: World, key: str) -> None:
    headers = {"X-Memory-Actor": "person", "X-Memory-User": world.bea["user"]}
    approve = world.ask_as(key, "POST", f"{API}/reviews/{world.bea['review']}/approve", headers=headers)
    # A key for another project is not told that it is there.
    assert approve.status_code == (404 if key in ("elsewhere", "app") else 403)
    added = world.ask_as(key, "POST", f"{API}/memories", json={"content": "It is so"}, headers=headers)
    assert added.status_code == 403


def _users_own(world: World) -> str:
    """The id of what is Bea's own in all projects."""
    scope = Scope(world.bea["user"])
    results = world.run(lambda: world.service.find(scope, Listing(limit=1000)))
    return next(record.id for record in results if not record.scope.project)


@pytest.mark.parametrize("key", ["elsewhere", "app"])
def test_what_is_the_users_own_is_read_in_a_project_and_changed_only_outside(world: World, key: str) -> None:
    id, user = _users_own(world), world.bea["user"]
    before = world.of_bea()
    who = {"X-Memory-User": user}
    mem0 = id if key == "elsewhere" else mem0_id(id, user)
    assert "chess" in world.ask_as(key, "GET", f"{API}/memories/{id}", headers=who).text
    assert "chess" in world.ask_as(key, "GET", f"/v1/memory/{id}", params={"user_id": user}).text
    assert "chess" in world.ask_as(key, "GET", f"/v1/memories/{mem0}/").text
    for answer in (
        world.ask_as(key, "PATCH", f"{API}/memories/{id}", json={"importance": 0.1}, headers=who),
        world.ask_as(key, "DELETE", f"{API}/memories/{id}", headers=who),
        world.ask_as(key, "POST", f"{API}/memories", json={"content": "x", "level": "user"}, headers=who),
        world.ask_as(key, "PATCH", f"/v1/memory/{id}", params={"user_id": user}, json={"importance": 0.1}),
        world.ask_as(key, "DELETE", f"/v1/memory/{id}", params={"user_id": user}),
        world.ask_as(key, "POST", "/api/react/facts/delete", json={"user": user, "fact_id": id}),
        world.ask_as(key, "PUT", f"/v1/memories/{mem0}/", json={"text": "x"}),
        world.ask_as(key, "DELETE", f"/v1/memories/{mem0}/"),
        world.ask_as(key, "PUT", "/v1/batch/", json={"memories": [{"memory_id": mem0, "text": "x"}]}),
        world.ask_as(key, "DELETE", "/v1/batch/", json={"memories": [{"memory_id": mem0}]}),
    ):
        assert answer.status_code == 403, response_text(answer)
    for answer in (
        world.ask_as(key, "POST", f"{API}/forget", json={"filters": {}}, headers=who),
        world.ask_as(key, "DELETE", "/v1/memory", params={"user_id": user}),
        world.ask_as(key, "DELETE", "/v1/memories/", params={"user_id": user}),
        world.ask_as(key, "DELETE", f"/v1/entities/user/{user}/"),
    ):
        assert answer.status_code == 200, response_text(answer)
    assert world.of_bea() == before


def test_what_was_said_outside_of_projects_is_not_read_by_a_key_for_one(world: World) -> None:
    chat = Scope(world.bea["user"], "", "evening")
    fields = {"level": "session"}
    stored = world.run(lambda: world.service.add(chat, MemoryInput(content="It is late", fields=fields), by=BY))
    made = world.ask_as("bea", "POST", "/v1/conversations", json={"metadata": {"a": "b"}}).json()["id"]
    for path in (f"{API}/memories/{stored.id}", f"/v1/memory/{stored.id}", f"/v1/conversations/{made}"):
        assert world.ask_as("elsewhere", "GET", path).status_code == 404
        assert world.ask_as("bea", "GET", path).status_code == 200


def test_nobody_is_listed_for_an_application_that_has_one_project(world: World) -> None:
    everybody = {"filters": {"user_id": "*"}, "query": "budget"}
    for path in ("/v3/memories/search/", "/v3/memories/", "/search"):
        assert world.ask_as("app", "POST", path, json=everybody).status_code == 403
    assert world.ask_as("app", "GET", "/v1/entities/").status_code == 403


def test_nothing_said_in_another_project_goes_with_a_memory_that_cites_it(world: World) -> None:
    before = world.of_bea()
    cites = {"content": "It costs 1", "evidence": [world.bea["turn"]]}
    made = world.ask_as("elsewhere", "POST", f"{API}/memories", json=cites).json()["id"]
    assert world.ask_as("elsewhere", "DELETE", f"{API}/memories/{made}").status_code == 200
    assert world.of_bea() == before


def test_the_same_idempotency_key_of_two_users_is_two(world: World) -> None:
    once = {"Idempotency-Key": "8f14e45f"}
    texts = {"bea": f"{CANARY} again", "ada": "Something else"}
    for key, text in texts.items():
        made = world.ask_as(key, "POST", f"{API}/memories", json={"content": text}, headers=once)
        assert (made.status_code, made.json()["memory"]) == (201, text)


def test_a_key_that_may_only_write_is_not_told_what_a_fact_says(world: World) -> None:
    project = {"X-Memory-Project": "secret"}
    weak = {"key": "budget", "value": "1", "confidence": 0.1}
    answer = world.ask_as("writer", "POST", f"{API}/memories", json=weak, headers=project)
    assert (answer.status_code, CANARY in answer.text) == (409, False)
    same = {"content": f"The budget of {CANARY} is 9,000", "project_id": "secret"}
    assert world.ask_as("writer", "POST", "/v1/memory", json=same).status_code == 409
    assert world.ask_as("bea", "POST", "/v1/memory", json=same).status_code == 200


def test_a_key_that_may_only_write_can_ask_twice_for_the_same(world: World) -> None:
    once = {"Idempotency-Key": "8f14e45f"}
    for _ in range(2):
        assert world.ask_as(
            "writer", "POST", f"{API}/memories", json={"content": "It rains"}, headers=once
        ).is_success


def test_a_key_that_may_only_write_is_not_told_what_its_words_replace(tmp_path: Path) -> None:
    with served(tmp_path, auth="keys") as world:
        before, after = f"My dog is called {CANARY}.", "My dog is called Rex."
        existing = world.ask_as("bea", "POST", f"{API}/remember", json={"messages": before, "wait_s": 60})
        assert CANARY in str(existing.json()["job"]["result"])
        messages = world.ask_as("writer", "POST", f"{API}/remember", json={"messages": after, "wait_s": 60})
        assert (messages.json()["job"]["state"], messages.json()["job"]["result"]) == ("done", None)
        repeated = world.ask_as("writer", "POST", "/v1/memories/", json={"messages": "My dog is called Max."})
        for answer in (messages, repeated):
            assert answer.is_success
            assert CANARY not in answer.text


@pytest.mark.parametrize("path", sorted(path for path in OPEN_PATHS if path.startswith("/docs")))
def test_the_page_needs_no_key(shared: World, path: str) -> None:
    assert shared.ask("GET", path).status_code == 200


def test_refusals_of_the_memory_door_have_codes_of_their_own(shared: World) -> None:
    answer = shared.ask("GET", "/v1/memory")
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "UNAUTHENTICATED")
    answer = shared.ask_as("bea", "GET", "/v1/memory", params={"user_id": "eve"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "FORBIDDEN")
