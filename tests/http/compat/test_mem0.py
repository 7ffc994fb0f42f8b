"""mem0's own client against Recollect, and the routes of mem0's self-hosted server."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mem0.client.main import AsyncMemoryClient, MemoryClient
from mem0.client.types import DeleteAllMemoryOptions
from mem0.exceptions import MemoryNotFoundError, ValidationError

from recollect.http.compat import mem0 as mem0_routes
from recollect.http.server import run_embedded_server
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.remember_samples import claim, learns, settings

# Set before the client is used: it would write to the home folder.
os.environ.setdefault("MEM0_DIR", tempfile.mkdtemp(prefix="mem0-"))


ALEX: dict[str, Any] = {"filters": {"user_id": "alex"}}
PEANUTS = "User is allergic to peanuts"
BIKE = "User rides a red cargo bike"


def running(home: Path, llm: ScriptedLLM | None = None, **more: Any) -> AbstractContextManager[str]:
    """Run a real server; the context is its URL."""
    return run_embedded_server(settings(home, llm, **more))


@pytest.fixture
def host(tmp_path: Path) -> Iterator[str]:
    with running(tmp_path) as url:
        yield url


@pytest.fixture
def mem0(host: str) -> Iterator[MemoryClient]:
    client = MemoryClient(api_key="any", host=host)
    yield client
    client.client.close()


def raw(mem0: MemoryClient, content: str, *, user_id: str | None = "alex", **more: Any) -> str:
    """Store a text verbatim and return its id."""
    names = {"user_id": user_id} if user_id else {}
    [result] = mem0.add(content, infer=False, **names, **more)["results"]
    assert (result["memory"], result["event"]) == (content, "ADD")
    return str(result["id"])


def contents(listed: Any) -> list[str]:
    return [each["memory"] for each in listed["results"]]


def test_the_client_of_mem0_can_do_everything(mem0: MemoryClient) -> None:
    id = raw(mem0, PEANUTS, metadata={"topic": "health"})
    assert raw(mem0, BIKE) != id
    stored = mem0.get(id)
    assert (stored["id"], stored["memory"], stored["user_id"]) == (id, PEANUTS, "alex")
    assert stored["metadata"] == {"topic": "health"}
    match = mem0.search("What must the user not eat, any allergic reactions?", **ALEX)
    assert contents(match)[0] == PEANUTS
    assert 0 < match["results"][0]["score"] <= 1
    listed = mem0.get_all(**ALEX)
    assert (listed["count"], contents(listed)) == (2, [BIKE, PEANUTS])
    assert mem0.update(id, text="User is allergic to nuts")["memory"] == "User is allergic to nuts"
    assert mem0.get(id)["metadata"] == {"topic": "health"}
    assert [(each["event"], each["old_memory"], each["new_memory"]) for each in mem0.history(id)] == [
        ("ADD", None, PEANUTS),
        ("UPDATE", PEANUTS, "User is allergic to nuts"),
    ]
    assert mem0.delete(id) == {"message": "Memory deleted successfully!"}
    with pytest.raises(MemoryNotFoundError):
        mem0.get(id)
    assert mem0.history(id)[-1]["event"] == "DELETE"
    mem0.delete_all(user_id="alex")
    assert mem0.get_all(**ALEX)["results"] == []


def test_messages_are_learned_from(tmp_path: Path, llm: ScriptedLLM) -> None:
    learns(llm, "peanuts", claim(PEANUTS))
    messages = [
        {"role": "user", "content": "I'm allergic to peanuts"},
        {"role": "assistant", "content": "I will keep that in mind."},
    ]
    with running(tmp_path, llm) as host:
        mem0 = MemoryClient(api_key="any", host=host)
        added = mem0.add(messages, user_id="alex", agent_id="cook", run_id="monday", metadata={"topic": "health"})
        assert [(each["memory"], each["event"]) for each in added["results"]] == [(PEANUTS, "ADD")]
        [stored] = mem0.search("allergies", filters={"AND": [{"user_id": "alex"}, {"agent_id": "cook"}]})["results"]
        assert (stored["memory"], stored["agent_id"], stored["run_id"]) == (PEANUTS, "cook", "monday")
        assert stored["metadata"] == {"topic": "health"}
        # It is found by the user alone as well; turns are not returned.
        assert contents(mem0.search("allergies", **ALEX)) == [PEANUTS]
        assert contents(mem0.get_all(**ALEX)) == [PEANUTS]
        mem0.client.close()


def test_slow_learning_continues_in_the_background(
    tmp_path: Path, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mem0_routes, "LEARN_S", 0.2)
    with running(tmp_path, llm) as host:
        llm.stop()
        mem0 = MemoryClient(api_key="any", host=host)
        added = mem0.add("I'm allergic to peanuts", user_id="alex")
        assert (added["status"], added["results"]) == ("PENDING", [])
        assert added["event_id"]
        mem0.client.close()


def test_the_selector_learns_without_an_llm(mem0: MemoryClient) -> None:
    added = mem0.add("My name is Alex and I live in Oslo.", user_id="alex")
    assert added["status"] == "SUCCEEDED"
    assert "I live in Oslo" in contents(added)

    assert mem0.add("Hello!", user_id="alex")["results"] == []


@pytest.mark.parametrize("infer", [True, False])
def test_invisible_messages_are_skipped(mem0: MemoryClient, infer: bool) -> None:
    for unseen in ("", " ", "\x10", "\0", "\u200b", [{"role": "user", "content": "\x10"}]):
        assert mem0.add(unseen, user_id="alex", infer=infer)["results"] == []
    received = mem0.add(
        [{"role": "user", "content": "\x10"}, {"role": "user", "content": "I live in Os\u200blo."}],
        user_id="alex",
        infer=infer,
    )
    assert contents(received) == ["I live in Oslo" if infer else "I live in Oslo."]


def test_the_async_client_of_mem0_works(host: str) -> None:
    async def round_trip() -> None:
        async with AsyncMemoryClient(api_key="any", host=host) as mem0:
            [added] = (await mem0.add(PEANUTS, user_id="alex", infer=False))["results"]
            assert contents(await mem0.search("allergic to what?", **ALEX)) == [PEANUTS]
            await mem0.update(added["id"], text=BIKE)
            assert contents(await mem0.get_all(**ALEX)) == [BIKE]
            await mem0.delete(added["id"])
            assert (await mem0.get_all(**ALEX))["count"] == 0

    asyncio.run(round_trip())


def test_pages_begin_with_the_newest(mem0: MemoryClient) -> None:
    for number in range(5):
        raw(mem0, f"Fact number {number}")
    first = mem0.get_all(**ALEX, page=1, page_size=2)
    last = mem0.get_all(**ALEX, page=3, page_size=2)
    assert (first["count"], contents(first)) == (5, ["Fact number 4", "Fact number 3"])
    assert (first["previous"], "page=2" in first["next"]) == (None, True)
    assert (contents(last), last["next"]) == (["Fact number 0"], None)


def test_batches_change_or_delete_all_or_none(mem0: MemoryClient) -> None:
    one, two = raw(mem0, "one"), raw(mem0, "two")
    report = mem0.batch_update([{"memory_id": one, "text": "first"}, {"memory_id": two, "text": "second"}])
    assert report == {"message": "Successfully updated 2 memories"}
    with pytest.raises(MemoryNotFoundError):
        mem0.batch_delete([{"memory_id": one}, {"memory_id": "nowhere"}])
    assert contents(mem0.get_all(**ALEX)) == ["second", "first"]
    assert mem0.batch_delete([{"memory_id": one}, {"memory_id": two}])["message"].startswith("Successfully deleted 2")
    assert mem0.get_all(**ALEX)["count"] == 0


def test_users_agents_and_runs_are_entities(mem0: MemoryClient) -> None:
    raw(mem0, PEANUTS)
    raw(mem0, BIKE)
    raw(mem0, "Answers are short", user_id=None, agent_id="cook")
    raw(mem0, "The oven is hot", user_id=None, run_id="monday")
    entities = {(each["type"], each["name"]): each["total_memories"] for each in mem0.users()["results"]}
    assert entities == {("user", "alex"): 2, ("agent", "cook"): 1, ("run", "monday"): 1}
    assert contents(mem0.get_all(filters={"agent_id": "cook"})) == ["Answers are short"]
    either = mem0.get_all(filters={"OR": [{"user_id": "alex"}, {"run_id": "monday"}]})
    assert contents(either) == ["The oven is hot", BIKE, PEANUTS]
    mem0.delete_users(agent_id="cook")
    assert mem0.get_all(filters={"agent_id": "cook"})["count"] == 0
    mem0.reset()
    assert mem0.users()["results"] == []


FILTERED = [
    ({"AND": [{"user_id": "alex"}, {"metadata": {"topic": "food"}}]}, ["Peas"]),
    ({"user_id": "alex", "topic": "food"}, ["Peas"]),
    ({"user_id": "alex", "topic": {"ne": "food"}}, ["Sails", "Wheels"]),
    ({"user_id": "alex", "topic": {"in": ["food", "sport"]}}, ["Wheels", "Peas"]),
    ({"user_id": "alex", "topic": {"nin": ["food", "sport"]}}, ["Sails"]),
    ({"user_id": "alex", "size": {"gte": 2, "lt": 3}}, ["Wheels"]),
    ({"user_id": "alex", "size": {"gt": 2}}, ["Sails"]),
    ({"user_id": "alex", "topic": {"contains": "oo"}}, ["Peas"]),
    ({"user_id": "alex", "keywords": {"contains": "eas"}}, ["Peas"]),
    ({"user_id": "alex", "keywords": {"icontains": "WHEELS"}}, ["Wheels"]),
    ({"user_id": "alex", "agent_id": "*"}, ["Wheels"]),
    ({"user_id": "alex", "agent_id": "cook"}, ["Wheels"]),
    ({"user_id": "alex", "run_id": "*"}, ["Sails"]),
    ({"user_id": "alex", "run_id": "monday"}, ["Sails"]),
    ({"AND": [{"user_id": "alex"}, {"NOT": [{"topic": "food"}, {"topic": "sport"}]}]}, ["Sails"]),
    ({"AND": [{"user_id": "alex"}, {"OR": [{"topic": "food"}, {"size": 3}]}]}, ["Sails", "Peas"]),
    ({"user_id": "alex", "created_at": {"gte": "2020-01-01", "lte": "2100-01-01"}}, ["Sails", "Wheels", "Peas"]),
    ({"user_id": "alex", "created_at": {"lt": "2020-01-01"}}, []),
    ({"user_id": "alex", "categories": {"contains": "fact"}}, ["Sails", "Wheels", "Peas"]),
    ({"user_id": "alex", "categories": {"in": ["finance"]}}, []),
    ({"user_id": {"in": ["alex", "eve"]}, "topic": "food"}, ["Beans", "Peas"]),
    ({"user_id": "*", "topic": "food"}, ["Beans", "Peas"]),
    ({"AND": [{"user_id": "nobody"}]}, []),
]


@pytest.fixture
def stocked(mem0: MemoryClient) -> MemoryClient:
    raw(mem0, "Peas", metadata={"topic": "food", "size": 1})
    raw(mem0, "Wheels", metadata={"topic": "sport", "size": 2}, agent_id="cook")
    raw(mem0, "Sails", metadata={"topic": "sea", "size": 3}, run_id="monday")
    raw(mem0, "Beans", user_id="eve", metadata={"topic": "food", "size": 1})
    return mem0


def test_filters_work_as_in_mem0(stocked: MemoryClient) -> None:
    assert {str(plain): contents(stocked.get_all(filters=plain)) for plain, _ in FILTERED} == {
        str(plain): expected for plain, expected in FILTERED
    }
    for plain, expected in FILTERED:
        match = stocked.search("peas wheels sails beans", filters=plain, threshold=0.0)
        assert sorted(contents(match)) == sorted(expected), plain


NONSENSE = [
    {"topic": "food"},
    {"NOT": [{"user_id": "alex"}]},
    {"user_id": 7},
    {"user_id": "alex", "size": {"about": 3}},
    {"user_id": "alex", "created_at": {"gte": "yesterday-ish"}},
    {"AND": {"user_id": "alex"}},
    {"user_id": "alex", "$or": [{"x": 1}]},
    {"user_id": "alex", "a' OR 1=1 --": "x"},
]


def test_an_invalid_filter_is_rejected(mem0: MemoryClient) -> None:
    for plain in NONSENSE:
        with pytest.raises(ValidationError):
            mem0.get_all(filters=plain)


def test_only_memories_of_the_filter_are_deleted(stocked: MemoryClient) -> None:
    stocked.delete_all(DeleteAllMemoryOptions(filters={"user_id": "alex", "run_id": "monday"}))
    assert contents(stocked.get_all(**ALEX)) == ["Wheels", "Peas"]
    stocked.delete_all(user_id="alex", agent_id="cook")
    assert contents(stocked.get_all(**ALEX)) == ["Peas"]
    for options in ({}, {"user_id": "*"}, {"usr_id": "alex"}, {"user_id": "eve", "projectid": "x"}):
        with pytest.raises(ValidationError):
            stocked.delete_all(**options)
    assert contents(stocked.get_all(**ALEX)) == ["Peas"]
    assert contents(stocked.get_all(filters={"user_id": "eve"})) == ["Beans"]


def test_an_expiration_date_can_be_set_and_removed(mem0: MemoryClient) -> None:
    id = raw(mem0, PEANUTS, expiration_date="2999-12-31")
    assert mem0.get(id)["expiration_date"] == "2999-12-31"
    assert mem0.update(id, expiration_date=None)["expiration_date"] is None
    with pytest.raises(ValidationError):
        mem0.update(id, expiration_date="soon")


def test_a_memory_that_exists_is_updated(mem0: MemoryClient) -> None:
    body = {"user_id": "alex", "infer": False}
    events = [
        mem0.add(PEANUTS, metadata=metadata, **body)["results"][0]["event"]
        for metadata in ({"a": 1, "b": 1}, {"b": 2}, {"b": 2})
    ]
    assert events == ["ADD", "UPDATE", "NONE"]
    [one] = mem0.get_all(filters={"user_id": "alex"})["results"]
    assert one["metadata"] == {"a": 1, "b": 2}


def test_only_requested_fields_are_returned_and_no_expired_memories(mem0: MemoryClient) -> None:
    raw(mem0, BIKE, expiration_date="2020-12-31")
    id = raw(mem0, PEANUTS)
    assert contents(mem0.get_all(**ALEX)) == [PEANUTS]
    assert mem0.search("allergic", **ALEX, fields=["memory"])["results"] == [{"id": id, "memory": PEANUTS}]


def test_a_caller_limited_to_a_user_reaches_no_other(host: str, mem0: MemoryClient) -> None:
    foreign = raw(mem0, PEANUTS)
    bound = MemoryClient(
        api_key="any", host=host, client=httpx.Client(headers={"x-authz-user-id": "eve"}, timeout=60)
    )
    own = raw(bound, BIKE, user_id=None)
    assert bound.get(own)["user_id"] == "eve"
    assert contents(bound.get_all()) == [BIKE]
    assert contents(bound.get_all(filters={"agent_id": "alex"})) == []
    assert contents(bound.search("allergic", filters={"user_id": "*"}, threshold=0.0)) == [BIKE]
    for id in (foreign, foreign.partition(".")[0], "0198c6f1-5d2a-7c31-9a44-8f5a2f6b1c90", "x.####", "x."):
        for ask in (bound.get, bound.delete, bound.history, lambda id: bound.update(id, text="mine")):
            with pytest.raises(MemoryNotFoundError):
                ask(id)
    for ask in (
        lambda: bound.get_all(**ALEX),
        lambda: bound.search("x", **ALEX),
        lambda: bound.add("x", user_id="alex"),
        lambda: bound.delete_all(user_id="alex"),
        lambda: bound.delete_users(user_id="alex"),
    ):
        with pytest.raises(Exception, match="names another user"):
            ask()
    assert [each["name"] for each in bound.users()["results"]] == ["eve"]
    assert httpx.post(f"{host}/reset", headers={"x-authz-user-id": "eve"}, timeout=60).status_code == 403
    assert contents(mem0.get_all(**ALEX)) == [PEANUTS]
    bound.client.close()


def test_older_versions_of_the_routes_return_bare_lists(host: str, mem0: MemoryClient) -> None:
    raw(mem0, PEANUTS)
    with httpx.Client(base_url=host, timeout=60) as client:
        listed = client.get("/v1/memories/", params={"user_id": "alex"}).json()
        assert [each["memory"] for each in listed] == [PEANUTS]
        assert client.post("/v2/memories/", json=ALEX).json() == listed
        for path in ("/v1/memories/search/", "/v2/memories/search/"):
            results = client.post(path, json={"query": "allergic", **ALEX}).json()
            assert [each["id"] for each in results] == [listed[0]["id"]]
        paged = client.get("/v1/memories/", params={"user_id": "alex", "page": 1}).json()
        assert (paged["count"], paged["results"]) == (1, listed)


def test_the_routes_of_a_self_hosted_server_work(host: str) -> None:
    with httpx.Client(base_url=host, timeout=60) as client:
        body = {"messages": [{"role": "user", "content": PEANUTS}], "user_id": "alex", "infer": False}
        [added] = client.post("/memories", json=body).json()["results"]
        path = f"/memories/{added['id']}"
        assert client.get(path).json()["memory"] == PEANUTS
        assert contents(client.get("/memories", params={"user_id": "alex"}).json()) == [PEANUTS]
        request = {"query": "allergic to what?", "user_id": "alex"}
        assert contents(client.post("/search", json=request).json()) == [PEANUTS]
        updated = client.put(path, json={"text": BIKE}).json()
        assert (updated["message"], updated["memory"]) == ("Memory updated successfully!", BIKE)
        assert [each["event"] for each in client.get(f"{path}/history").json()] == ["ADD", "UPDATE"]
        assert client.delete(path).json() == {"message": "Memory deleted successfully!"}
        assert client.get(path).status_code == 404
        client.post("/memories", json=body)
        assert client.delete("/memories").status_code == 400
        assert client.delete("/memories", params={"user_id": "alex"}).status_code == 200
        client.post("/memories", json=body)
        assert client.post("/reset").json() == {"message": "All memories reset"}
        assert client.get("/memories", params={"user_id": "alex"}).json() == {"results": []}
        refused = client.post("/configure", json={"llm": {"config": {"openai_base_url": "http://elsewhere"}}})
        assert refused.status_code == 403
        assert "operator" in refused.json()["detail"]


def test_large_and_deep_filters_and_unknown_ids_are_rejected(host: str) -> None:
    deep: Any = {"user_id": "alex"}
    for _ in range(40):
        deep = {"AND": [deep]}
    wide = {"AND": [{"user_id": "alex"}, {"OR": [{"size": number} for number in range(1000)]}]}
    for plain in (deep, wide, {"AND": [[["x"]]]}, {"user_id": "alex", "size": {}}):
        assert httpx.post(f"{host}/v3/memories/", json={"filters": plain}, timeout=60).status_code == 400

    client = httpx.Client(base_url=host, timeout=60)
    for id in ("x", "x.", "x.YQ", "x.AAAA", "a%00b", "%F0%9F%98%80", "x." + "Y" * 600):
        for path in (f"/memories/{id}", f"/v1/memories/{id}/", f"/v1/memory/{id}?user_id=alex"):
            assert client.get(path).status_code == 404, path
    client.close()
