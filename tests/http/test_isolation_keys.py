"""Permissions of keys for one project, for writing only and for programs; stored responses of other users."""

from __future__ import annotations

from pathlib import Path

import pytest

from recollect.http.auth.middleware import OPEN_PATHS
from recollect.model.ids import new_id
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.remember import MemoryInput
from tests.support.isolation_cases import Call
from tests.support.isolation_server import BY, CANARY, World, filled_with, mem0_id, response_text, served

API = "/recollect/v1"


def test_history_names_the_key_with_the_author_of_the_request(world: World) -> None:
    memory = world.bea["memory"]
    who = {"X-Memory-By": "admin"}
    assert world.ask_as("bea", "PATCH", f"{API}/memories/{memory}", json={"importance": 0.2}, headers=who).is_success
    [newest] = world.run(lambda: world.service.history(Scope(world.bea["user"]), limit=1))
    assert newest.by.who == f"key:{world.bea['user']} admin"


@pytest.mark.parametrize("key", ["bea", "writer", "elsewhere", "everyone", "app"])
def test_a_key_of_a_program_may_not_act_as_a_person(world: World, key: str) -> None:
    headers = {"X-Memory-Actor": "person", "X-Memory-User": world.bea["user"]}
    approve = world.ask_as(key, "POST", f"{API}/reviews/{world.bea['review']}/approve", headers=headers)
    # A key for another project is not told that it is there.
    assert approve.status_code == (404 if key in ("elsewhere", "app") else 403)
    added = world.ask_as(key, "POST", f"{API}/memories", json={"content": "It is so"}, headers=headers)
    assert added.status_code == 403


def _user_level_memory(world: World) -> str:
    """The id of what is Bea's own in all projects."""
    scope = Scope(world.bea["user"])
    results = world.run(lambda: world.service.find(scope, Listing(limit=1000)))
    return next(record.id for record in results if not record.scope.project)


@pytest.mark.parametrize("key", ["elsewhere", "app"])
def test_memories_of_the_user_level_are_read_only_for_a_key_of_one_project(world: World, key: str) -> None:
    id, user = _user_level_memory(world), world.bea["user"]
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


def test_sessions_outside_of_projects_are_hidden_from_a_key_of_one_project(world: World) -> None:
    chat = Scope(world.bea["user"], "", "evening")
    fields = {"level": "session"}
    stored = world.run(lambda: world.service.add(chat, MemoryInput(content="It is late", fields=fields), by=BY))
    made = world.ask_as("bea", "POST", "/v1/conversations", json={"metadata": {"a": "b"}}).json()["id"]
    for path in (f"{API}/memories/{stored.id}", f"/v1/memory/{stored.id}", f"/v1/conversations/{made}"):
        assert world.ask_as("elsewhere", "GET", path).status_code == 404
        assert world.ask_as("bea", "GET", path).status_code == 200


def test_a_key_of_one_project_may_not_list_users(world: World) -> None:
    everybody = {"filters": {"user_id": "*"}, "query": "budget"}
    for path in ("/v3/memories/search/", "/v3/memories/", "/search"):
        assert world.ask_as("app", "POST", path, json=everybody).status_code == 403
    assert world.ask_as("app", "GET", "/v1/entities/").status_code == 403


def test_deleting_a_memory_leaves_its_evidence_in_other_projects(world: World) -> None:
    before = world.of_bea()
    cites = {"content": "It costs 1", "evidence": [world.bea["turn"]]}
    made = world.ask_as("elsewhere", "POST", f"{API}/memories", json=cites).json()["id"]
    assert world.ask_as("elsewhere", "DELETE", f"{API}/memories/{made}").status_code == 200
    assert world.of_bea() == before


def test_idempotency_keys_of_two_users_are_independent(world: World) -> None:
    once = {"Idempotency-Key": new_id()}
    texts = {"bea": f"{CANARY} again", "ada": "Something else"}
    for key, text in texts.items():
        made = world.ask_as(key, "POST", f"{API}/memories", json={"content": text}, headers=once)
        assert (made.status_code, made.json()["memory"]) == (201, text)


def test_a_write_only_key_does_not_see_existing_facts(world: World) -> None:
    project = {"X-Memory-Project": "secret"}
    weak = {"key": "budget", "value": "1", "confidence": 0.1}
    answer = world.ask_as("writer", "POST", f"{API}/memories", json=weak, headers=project)
    assert (answer.status_code, CANARY in answer.text) == (409, False)
    same = {"content": f"The budget of {CANARY} is 9,000", "project_id": "secret"}
    assert world.ask_as("writer", "POST", "/v1/memory", json=same).status_code == 409
    assert world.ask_as("bea", "POST", "/v1/memory", json=same).status_code == 200


def test_a_write_only_key_can_repeat_a_request(world: World) -> None:
    once = {"Idempotency-Key": new_id()}
    for _ in range(2):
        assert world.ask_as(
            "writer", "POST", f"{API}/memories", json={"content": "It rains"}, headers=once
        ).is_success


def test_a_write_only_key_does_not_see_superseded_memories(tmp_path: Path) -> None:
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
def test_the_documentation_page_needs_no_key(world: World, path: str) -> None:
    assert world.ask("GET", path).status_code == 200


def test_the_memory_api_has_its_own_error_codes(world: World) -> None:
    answer = world.ask("GET", "/v1/memory")
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "UNAUTHENTICATED")
    answer = world.ask_as("bea", "GET", "/v1/memory", params={"user_id": "eve"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "FORBIDDEN")


@pytest.mark.parametrize(
    "path",
    [
        "responses/{response}/", "responses/{response}/unknown", "/responses/{response}", "./responses/{response}",
        "x/../responses/{response}", "conversations/{conversation}/", "conversations", "responses",
    ],
)  # fmt: skip
def test_unusual_paths_of_responses_are_not_forwarded(world: World, path: str) -> None:
    # Encoded, because a client would normalise the path.
    for method in ("GET", "PUT", "PATCH", "OPTIONS"):
        raw = filled_with(Call(json=path), world.bea).json.replace("..", "%2E%2E").replace("./", "%2E/")
        answer = world.ask_as("ada", method, f"/v1/{raw}")
        assert answer.status_code in (307, 404, 405), response_text(answer)
    assert not world.llm.requests


def test_an_item_of_another_user_is_not_named_to_a_shared_upstream(world: World) -> None:
    refer = [{"type": "item_reference", "id": world.bea["item"]}, {"role": "user", "content": "What is that?"}]
    answer = world.ask_as("ada", "POST", "/v1/responses", json={"model": "m", "input": refer})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "not_found")
    assert not world.llm.requests
    # The caller's own account at the upstream has only the caller's items.
    headers = {"Authorization": "Bearer sk-mine", "X-API-Key": world.keys["ada"]}
    assert world.ask("POST", "/v1/responses", json={"model": "m", "input": refer}, headers=headers).is_success
