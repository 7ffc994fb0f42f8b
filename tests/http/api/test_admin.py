"""Administration over REST: API keys, backups, the health of all parts, and the sources of settings."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from recollect.config.settings import load
from recollect.http.server import run_embedded_server
from recollect.service.restore import verify_backup
from tests.support.api_server import add, served
from tests.support.auth_samples import bearer, make_key, serving

V1 = "/recollect/v1"


def test_the_owner_of_a_local_server_creates_the_first_key_and_logs_in(tmp_path: Path) -> None:
    with serving(tmp_path) as client:
        created = client.post(f"{V1}/admin/keys", json={"admin": True, "name": "owner"})
        assert created.status_code == 201, created.text
        assert created.headers["cache-control"] == "no-store"
        assert client.get(f"{V1}/me").status_code == 401
        assert client.post(f"{V1}/login", json={"key": created.json()["key"]}).status_code == 200
        [listed] = client.get(f"{V1}/admin/keys").json()["results"]
        assert listed["name"] == "owner"
        assert "key" not in listed
        assert created.json()["key"] not in client.get(f"{V1}/admin/keys").text


def test_keys_are_created_listed_and_revoked(tmp_path: Path) -> None:
    with serving(tmp_path, auth="keys") as client:
        admin = bearer(make_key(client, admin=True))
        body = {"for_user": "ann", "project_id": "p", "write": False, "name": "phone", "expires_at": "2999-01-01"}
        created = client.post(f"{V1}/admin/keys", json=body, headers=admin).json()
        assert {name: created[name] for name in ("user_id", "project_id", "admin", "read", "write", "person")} == {
            "user_id": "ann", "project_id": "p", "admin": False, "read": True, "write": False, "person": False,
        }  # fmt: skip
        own = bearer(created["key"])
        me = client.get(f"{V1}/me", headers=own).json()
        assert (me["user_id"], me["project_id"], me["write"]) == ("ann", "p", False)
        assert client.get(f"{V1}/admin/keys", headers=own).status_code == 403
        revoked = client.delete(f"{V1}/admin/keys/{created['id']}", headers=admin)
        assert revoked.json()["revoked_at"]
        assert client.get(f"{V1}/me", headers=own).status_code == 401
        assert client.delete(f"{V1}/admin/keys/nosuch", headers=admin).status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"for_user": ""},
        {"for_user": "ann", "everyone": True},
        {"admin": True, "for_user": "ann"},
        {"for_user": "ann", "read": False, "write": False},
        {"for_user": "ann", "expires_at": "2020-01-01"},
        {"for_user": "ann", "name": "x" * 101},
        {"for_user": "ann", "more": 1},
    ],
)
def test_contradictory_keys_are_refused(tmp_path: Path, body: dict[str, object]) -> None:
    with serving(tmp_path) as client:
        assert client.post(f"{V1}/admin/keys", json=body).status_code == 400
        assert client.get(f"{V1}/admin/keys").json()["results"] == []


def test_only_the_key_of_a_person_acts_as_one(tmp_path: Path) -> None:
    with serving(tmp_path, auth="keys") as client:
        admin = bearer(make_key(client, admin=True))
        for person in (True, False):
            body = {"for_user": "ann", "person": person}
            key = client.post(f"{V1}/admin/keys", json=body, headers=admin).json()["key"]
            assert client.get(f"{V1}/me", headers=bearer(key)).json()["acts_as_person"] is person
            headers = {**bearer(key), "X-Memory-Actor": "person"}
            answer = client.post(f"{V1}/memories", json={"content": f"Ann is here {person}"}, headers=headers)
            assert answer.status_code == (201 if person else 403), answer.text


def checks(client: TestClient | httpx.Client, **params: object) -> dict[str, str]:
    answer = client.get(f"{V1}/admin/health" if isinstance(client, TestClient) else "/admin/health", params=params)
    assert answer.status_code == 200, answer.text
    report = answer.json()
    assert report["ok"] is all(each["state"] != "fail" for each in report["checks"])
    return {each["name"]: each["state"] for each in report["checks"]}


def test_health_reports_every_part(tmp_path: Path) -> None:
    with served(tmp_path) as client:
        add(client, "I live in Lisbon")
        states = checks(client)
        assert {"embedder", "learning", "home", "disk", "jobs", "vectors", "full text", "index"} <= states.keys()
        assert states["embedder"] == states["full text"] == "ok"
        assert "integrity" not in states
        assert checks(client, deep=True)["integrity"] == "ok"
        [model] = client.get("/admin/health").json()["models"]
        assert model["state"] == "current"
        assert model["dimensions"] > 0


def test_settings_have_their_sources(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("search_limit = 7\n")
    loaded = load({"home": tmp_path, "chat_user": "ann"}, environ={"RECOLLECT_RECALL_LOG": "20"})
    with run_embedded_server(loaded.settings) as url, httpx.Client(base_url=url, timeout=60) as client:
        rows = {row["name"]: row for row in client.get(f"{V1}/admin/settings").json()["results"]}
    assert rows["search_limit"]["source"] == f"file {tmp_path / 'config.toml'}"
    assert rows["recall_log"]["source"] == "environment RECOLLECT_RECALL_LOG"
    assert rows["chat_user"]["source"] == "command line"
    assert rows["port"]["source"] == "default"


def test_the_history_says_whether_a_person_made_a_change(tmp_path: Path) -> None:
    with served(tmp_path) as client:
        memory = add(client, "Tea is green")
        person = {"X-Memory-Actor": "person", "X-Recollect-Page": "1"}
        path = f"/memories/{memory['id']}"
        assert client.patch(path, json={"content": "Tea is black"}, headers=person).status_code == 200
        entries = client.get(f"{path}/history").json()["results"]
        assert [(each["verb"], each["actor"]) for each in entries] == [("update", "person"), ("add", "agent")]
        client.post("/undo", json={"change_id": entries[0]["id"]}, headers=person)
        assert client.get("/history").json()["results"][0]["actor"] == "person"


def test_a_person_in_the_page_approves_a_review(tmp_path: Path) -> None:
    with serving(tmp_path, auth="keys") as client:
        key = make_key(client, user="ann", person=True)
        client.post(f"{V1}/login", json={"key": key})
        page = {"X-Recollect-Page": "1", "X-Memory-Actor": "person"}
        assert client.post(f"{V1}/sample", headers=page).status_code == 201
        [waiting] = client.get(f"{V1}/reviews").json()["results"]
        program = bearer(make_key(client, user="ann"))
        approve = f"{V1}/reviews/{waiting['id']}/approve"
        assert client.post(approve, headers=program).status_code == 409
        answer = client.post(approve, headers=page)
        assert (answer.status_code, answer.json()["status"]) == (200, "active"), answer.text


def test_backups_are_made_and_listed(tmp_path: Path) -> None:
    with serving(tmp_path) as client:
        client.post(
            f"{V1}/memories", params={"user_id": "alex"}, json={"content": "Lives in Porto"}
        ).raise_for_status()
        assert client.get(f"{V1}/admin/backups").json() == {"results": []}
        answer = client.post(f"{V1}/admin/backups")
        assert answer.status_code == 201, answer.text
        made = answer.json()
        assert made["rows"]["memories"] == 1
        assert verify_backup(Path(made["file"])).digest == made["digest"]
        second = client.post(f"{V1}/admin/backups").json()
        Path(made["file"]).unlink()
        assert client.get(f"{V1}/admin/backups").json() == {"results": [second, {**made, "exists": False}]}
        user = bearer(make_key(client, user="alex"))
        for method in ("GET", "POST"):
            assert client.request(method, f"{V1}/admin/backups", headers=user).status_code == 403
