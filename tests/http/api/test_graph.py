"""The graph of memories, names, keys and sessions in the REST API."""

from __future__ import annotations

import contextlib
import http.client
from typing import Any

import httpx
import pytest

from recollect import Memory
from recollect.errors import InvalidInput
from recollect.testing.fake_embedder import FakeEmbedder
from tests.support.api_server import add, as_user, problem


def graph(client: httpx.Client, around: str, **params: Any) -> dict[str, Any]:
    answer = client.get("/graph", params={"around": around, **params})
    assert answer.status_code == 200, answer.text
    plain: dict[str, Any] = answer.json()
    ids = [node["id"] for node in plain["nodes"]]
    assert len(set(ids)) == len(ids)
    assert all(edge["source"] in ids and edge["target"] in ids for edge in plain["edges"])
    return plain


def labels(plain: dict[str, Any]) -> list[tuple[int, str, str]]:
    return [(node["distance"], node["kind"], node["label"]) for node in plain["nodes"]]


def edges(plain: dict[str, Any]) -> set[tuple[str, str, str]]:
    label = {node["id"]: node["label"] for node in plain["nodes"]}
    return {(label[edge["source"]], edge["kind"], label[edge["target"]]) for edge in plain["edges"]}


def test_a_name_leads_to_memories_and_these_to_other_names(api: httpx.Client) -> None:
    add(api, "Works with Anna at Acme")
    add(api, "Anna lives in Oslo")
    add(api, "Likes tea")
    assert labels(graph(api, "anna")) == [
        (0, "name", "Anna"),
        (1, "memory", "Anna lives in Oslo"),
        (1, "memory", "Works with Anna at Acme"),
    ]
    two = graph(api, "ANNA", depth=2)
    assert labels(two)[3:] == [(2, "name", "Oslo"), (2, "name", "Acme")]
    assert edges(two) == {
        ("Anna lives in Oslo", "mentions", "Anna"),
        ("Anna lives in Oslo", "mentions", "Oslo"),
        ("Works with Anna at Acme", "mentions", "Anna"),
        ("Works with Anna at Acme", "mentions", "Acme"),
    }
    assert graph(api, "ANNA", depth=2) == two


def test_a_memory_leads_to_its_names_and_session_and_through_them_to_others(api: httpx.Client) -> None:
    answer = api.post("/memories", json={"content": "Met Anna in Oslo"}, headers={"X-Memory-Session": "monday"})
    add(api, "Anna likes tea")
    add(api, "Prefers tea")
    found = graph(api, answer.json()["id"], depth=2)
    assert labels(found) == [
        (0, "memory", "Met Anna in Oslo"),
        (1, "name", "Anna"),
        (1, "name", "Oslo"),
        (1, "session", "monday"),
        (2, "memory", "Anna likes tea"),
    ]
    assert ("Met Anna in Oslo", "said_in", "monday") in edges(found)


def test_a_key_leads_to_its_values_and_those_it_had(api: httpx.Client) -> None:
    for city in ("Oslo", "Rome"):
        assert api.post("/memories", json={"key": "home city", "value": city}).status_code == 201
    assert labels(graph(api, "home city")) == [(0, "key", "home city"), (1, "memory", "home city: Rome")]
    assert labels(graph(api, "Oslo")) == []
    past = graph(api, "home city", superseded=True, depth=2)
    assert edges(past) == {
        ("home city: Oslo", "same_key", "home city"),
        ("home city: Oslo", "mentions", "Oslo"),
        ("home city: Oslo", "superseded_by", "home city: Rome"),
        ("home city: Rome", "same_key", "home city"),
        ("home city: Rome", "mentions", "Rome"),
    }
    statuses = {node["label"]: node["status"] for node in past["nodes"]}
    assert (statuses["home city: Oslo"], statuses["home city: Rome"]) == ("superseded", "active")


def test_an_update_undo_and_deletion_change_the_graph(api: httpx.Client) -> None:
    id = add(api, "Met Anna in Oslo")["id"]
    api.patch(f"/memories/{id}", json={"content": "Met Bob in Oslo"})
    assert labels(graph(api, "Anna")) == []
    assert labels(graph(api, "Bob"))[0] == (0, "name", "Bob")
    api.post("/undo")
    assert labels(graph(api, "Bob")) == []
    assert labels(graph(api, "Anna"))[1:] == [(1, "memory", "Met Anna in Oslo")]
    api.delete(f"/memories/{id}")
    assert labels(graph(api, "Anna")) == labels(graph(api, id)) == []
    api.post("/undo")
    assert len(graph(api, id)["nodes"]) == 3
    erased = api.post("/erase", json={"target": "memory", "id": id})
    assert erased.status_code == 200, erased.text
    assert labels(graph(api, "Anna", superseded=True)) == labels(graph(api, id)) == []


def test_users_and_projects_are_separate(api: httpx.Client) -> None:
    id = add(api, "Met Anna in Oslo")["id"]
    hidden = {"X-Memory-Project": "secret", "X-Memory-Session": "friday"}
    answer = api.post("/memories", json={"content": "Pays Anna in Rome"}, headers=hidden)
    with as_user(api, "someone else") as stranger:
        add(stranger, "Knows Anna")
        assert labels(graph(stranger, "Anna", depth=2)) == [(0, "name", "Anna"), (1, "memory", "Knows Anna")]
        assert labels(graph(stranger, id)) == []
    assert "Rome" not in str(graph(api, "Anna", depth=2))
    assert labels(graph(api, answer.json()["id"])) == labels(graph(api, "Rome")) == []
    assert "Rome" in str(graph(api, "Anna", depth=2, project_id="secret"))
    assert "friday" not in str(graph(api, "Anna", depth=2, project_id="other"))


def test_the_number_of_nodes_is_limited(api: httpx.Client) -> None:
    for n in range(5):
        add(api, f"Saw Anna with Person{n}")
    assert (len(graph(api, "Anna", limit=6)["nodes"]), graph(api, "Anna", limit=6)["truncated"]) == (6, False)
    cut = graph(api, "Anna", limit=3, depth=2)
    assert labels(cut)[1:] == [(1, "memory", "Saw Anna with Person4"), (1, "memory", "Saw Anna with Person3")]
    assert cut["truncated"] is True
    assert len(graph(api, "Anna", limit=200, depth=2)["nodes"]) == 11


def test_a_long_memory_is_cut_and_mentions_a_limited_number_of_names(api: httpx.Client) -> None:
    stored = add(api, "Met Anna. " + "Then we went on to Oslo and Rome. " * 30_000)
    found = graph(api, stored["id"], limit=200)
    assert labels(found)[1:] == [(1, "name", "Anna"), (1, "name", "Oslo"), (1, "name", "Rome")]
    assert len(found["nodes"][0]["label"]) == 200


@pytest.mark.parametrize(
    "name", ["O'Brien\"; DROP TABLE mentions;--", "100%", "_", "*", "ÅSA", "Ｚｏë", "🦊", "\u202eAnna"]
)
def test_any_name_can_be_asked_for(api: httpx.Client, name: str) -> None:
    add(api, "Met Åsa and Zoë Fox at O'Brien's")
    found = labels(graph(api, name))
    assert found == [] or found[1][2] == "Met Åsa and Zoë Fox at O'Brien's"
    assert bool(found) == (name in ("ÅSA", "Ｚｏë"))


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({}, "around"),
        ({"around": ""}, "around"),
        ({"around": "  "}, "around"),
        ({"around": "a\x00b"}, "around"),
        ({"around": "x" * 301}, "around"),
        ({"around": "Anna", "depth": 3}, "depth"),
        ({"around": "Anna", "limit": 201}, "limit"),
        ({"around": "Anna", "as_of": "2026-01-01"}, "as_of"),
    ],
)
def test_bad_parameters_are_named(api: httpx.Client, params: dict[str, Any], field: str) -> None:
    status, _, message = problem(api.get("/graph", params=params))
    assert status in (400, 422)
    assert field in message


def test_a_name_of_a_mebibyte_is_refused(api: httpx.Client) -> None:
    # httpx refuses to send it.
    connection = http.client.HTTPConnection(api.base_url.host, api.base_url.port, timeout=60)
    headers = {"X-Memory-User": api.headers["X-Memory-User"]}
    with contextlib.closing(connection):
        connection.request("GET", f"{api.base_url.path}graph?around={'x' * (1 << 20)}", headers=headers)
        assert 400 <= connection.getresponse().status < 500


def test_the_graph_survives_export_and_import(tmp_path: Any) -> None:
    embedder = FakeEmbedder(16)
    with Memory(home=tmp_path / "a", embedder=embedder) as one, Memory(home=tmp_path / "b", embedder=embedder) as two:
        one.add("Met Anna in Oslo", user_id="ann", session_id="s")
        for city in ("Oslo", "Rome"):
            one.add(key="home", value=city, user_id="ann")
        two.import_(list(one.export()))
        for around in ("Anna", "Oslo", "home"):
            graphs = [memory.graph(around, user_id="ann", depth=2, superseded=True) for memory in (one, two)]
            assert graphs[0] == graphs[1]
            assert graphs[0].edges
        with pytest.raises(InvalidInput, match="`depth` must be a whole number from 1 to 2, got 3"):
            one.graph("Anna", user_id="ann", depth=3)
        with pytest.raises(InvalidInput, match="`around` is empty"):
            one.graph(" ", user_id="ann")
