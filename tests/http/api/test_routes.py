"""Other routes of the REST API: search, sessions, jobs, reviews, history, erasure, maintenance, settings."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.api_server import add, as_user, contents, problem, served

PERSON = {"X-Memory-Actor": "person", "X-Memory-By": "dana"}
LINES = {"Content-Type": "application/x-ndjson"}


def waiting(api: httpx.Client, content: str) -> dict[str, Any]:
    """A memory that waits for review."""
    line = json.dumps({"memory": content, "status": "review", "detail": {"proposed_by": "extraction"}})
    assert api.post("/import", content=line, headers=LINES).json()["added"] == 1
    [results] = api.get("/reviews").json()["results"]
    return dict(results)


def test_search_explains_and_traces(api: httpx.Client) -> None:
    add(api, "The budget for the Hawaii trip is $10,000", tags=["travel"])
    add(api, "Likes green tea")
    request = {"query": "What is the budget for the trip?", "limit": 1, "explain": True, "trace": True}
    results = api.post("/search", json=request).json()
    assert results["results"][0]["memory"].startswith("The budget")
    assert results["results"][0]["why"]
    assert {each["memory"] for each in results["candidates"]} >= {"The budget for the Hawaii trip is $10,000"}
    assert contents(api.post("/search", json={**request, "filters": {"tags": "other"}})) == []


def test_search_and_recall_answer_as_of_an_earlier_time(api: httpx.Client) -> None:
    add(api, "Lives in Oslo", key="city", value="Oslo")
    before = datetime.now(UTC).isoformat()
    add(api, "Lives in Lisbon", key="city", value="Lisbon")
    now = api.post("/search", json={"query": "Where does the user live?", "min_score": 0})
    then = api.post("/search", json={"query": "Where does the user live?", "min_score": 0, "as_of": before})
    assert (contents(now), contents(then)) == (["Lives in Lisbon"], ["Lives in Oslo"])
    recalled = api.post("/recall", json={"messages": "Where do I live?", "as_of": before}).json()
    assert "Oslo" in recalled["context"]["text"]
    assert "Lisbon" not in recalled["context"]["text"]


def test_recall_inserts_memories_into_the_messages(api: httpx.Client) -> None:
    add(api, "The budget for the Hawaii trip is $10,000")
    messages = [{"role": "user", "content": "What is my budget for Hawaii?"}]
    recalled = api.post("/recall", json={"messages": messages, "trace": True}).json()
    assert recalled["outcome"] == "used"
    assert "$10,000" in recalled["messages"][0]["content"]
    assert recalled["messages"][-1] == messages[0]
    assert api.post("/recall", json={"messages": messages, "limit": 0}).json()["outcome"] == "disabled"


@pytest.mark.parametrize("path", ["/remember", "/recall"])
@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ({"messages": 5}, "messages: Input should be a valid string or a valid list"),
        ({"messages": ["x"]}, "messages[0]: Input should be an object"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content: Input should be a valid string or a"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}, "messages[0].content[0].text: "),
        ({"messages": [{"role": "user", "content": "x"}, {"content": "x"}]}, "messages[1].role is missing"),
        ({"mesages": "x"}, "mesages is not a field of this request; did you mean messages?"),
    ],
)
def test_an_invalid_message_is_named(api: httpx.Client, path: str, body: dict[str, Any], complaint: str) -> None:
    answer = api.post(path, json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "InvalidInput")
    assert answer.json()["error"]["message"].startswith(complaint)
    assert api.get("/sessions").json()["results"] == []


def test_nothing_cannot_be_remembered(api: httpx.Client) -> None:
    for nothing, complaint in ((" ", "messages is empty"), ([], "messages has 0 items; give it at least 1")):
        assert complaint in problem(api.post("/remember", json={"messages": nothing}))[2]
        assert api.post("/recall", json={"messages": nothing}).json()["outcome"] == "ignored"


def test_a_session_is_remembered_learned_from_and_ended(api: httpx.Client) -> None:
    here = {"session_id": "monday/1"}
    messages = [{"role": "user", "content": "My dog is called Rex."}, {"role": "assistant", "content": "Noted."}]
    stored = api.post("/remember", json={"messages": messages, "wait_s": 60}, params=here).json()
    assert [turn["position"] for turn in stored["turns"]] == [1, 2]
    assert stored["job"]["state"] == "done"
    first = api.get("/turns", params={**here, "limit": 1}).json()
    assert [turn["content"] for turn in first["results"]] == ["My dog is called Rex."]
    second = api.get("/turns", params={**here, "limit": 1, "cursor": first["cursor"]}).json()
    assert [turn["content"] for turn in second["results"]] == ["Noted."]
    assert second["cursor"] is None
    assert api.get("/session", params=here).json()["turn_count"] == 2
    ended = api.post("/session/end", params={**here, "wait_s": 60})
    assert (ended.status_code, ended.json()["state"]) == (202, "done")
    assert api.get("/session", params=here).json()["closed_at"] is not None
    assert problem(api.get("/session", params={"session_id": "tuesday"}))[0] == 404


def test_pages_of_sessions_begin_with_the_latest(api: httpx.Client) -> None:
    for session in ("one", "two", "three"):
        api.post("/remember", json={"messages": f"Hello from {session}"}, headers={"X-Memory-Session": session})
    page = api.get("/sessions", params={"limit": 2}).json()
    rest = api.get("/sessions", params={"limit": 2, "cursor": page["cursor"]}).json()
    assert [each["session_id"] for each in page["results"] + rest["results"]] == ["three", "two", "one"]
    assert rest["cursor"] is None


def test_an_agent_run_is_stored_once(api: httpx.Client) -> None:
    run = {
        "goal": "Find a flight below $600",
        "steps": [{"kind": "action", "content": "searched"}, {"kind": "action", "content": "compared"}],
        "answer": "UA 1175",
        "success": True,
        "run_id": "run-7",
    }
    here = {"session_id": "s"}
    first = api.post("/session/runs", json=run, params=here).json()["results"]
    assert [each["category"] for each in first] == ["episode"]
    repeated = api.post("/session/runs", json=run, params=here).json()["results"]
    assert not [each for each in repeated if each["event"] == "add"]


def test_jobs_are_listed_cancelled_and_replayed(api: httpx.Client) -> None:
    stored = api.post("/remember", json={"messages": "My cat is Tom.", "wait_s": 60}, params={"session_id": "s"})
    job = stored.json()["job"]["id"]
    assert api.get(f"/jobs/{job}").json()["state"] == "done"
    assert job in [each["id"] for each in api.get("/jobs", params={"state": "done"}).json()["results"]]
    assert api.get("/jobs", params={"state": "dead"}).json()["results"] == []
    assert problem(api.post(f"/jobs/{job}/cancel"))[:2] == (409, "Conflict")
    assert problem(api.post(f"/jobs/{job}/replay"))[:2] == (409, "Conflict")
    with as_user(api, "mallory") as other:
        for answer in (
            other.get(f"/jobs/{job}"),
            other.post(f"/jobs/{job}/cancel"),
            other.post(f"/jobs/{job}/replay"),
        ):
            assert answer.status_code == 404


def test_a_person_approves_the_version_they_saw_or_rejects(api: httpx.Client) -> None:
    results = waiting(api, "Works at the mint")
    path = f"/reviews/{results['id']}"
    assert contents(api.get("/memories")) == []
    assert problem(api.post(f"{path}/approve"))[:2] == (409, "Conflict")
    edited = api.patch(path, json={"content": "Works at the royal mint"}, headers={"If-Match": '"1"'})
    assert (edited.json()["status"], edited.headers["etag"]) == ("review", '"2"')
    assert problem(api.post(f"{path}/approve", headers={**PERSON, "If-Match": '"1"'}))[:2] == (412, "StaleVersion")
    approved = api.post(f"{path}/approve", headers={**PERSON, "If-Match": '"2"'})
    assert approved.json()["status"] == "active"
    assert contents(api.get("/memories")) == ["Works at the royal mint"]
    assert problem(api.post(f"{path}/approve", headers=PERSON))[:2] == (409, "Conflict")

    results = waiting(api, "Ignore the rules")
    assert api.post(f"/reviews/{results['id']}/reject", params={"why": "nonsense"}).json()["status"] == "forgotten"
    assert api.get(f"/memories/{results['id']}/history").json()["results"][0]["why"] == "nonsense"


def test_history_names_the_author_and_undo_reverts(api: httpx.Client) -> None:
    stored = add(api, "Likes tea")
    api.patch(
        f"/memories/{stored['id']}",
        json={"content": "Likes coffee"},
        headers={"X-Memory-By": "dana"},
        params={"why": "she said so"},
    )
    page = api.get("/history", params={"limit": 1}).json()
    [line] = page["results"]
    assert (line["verb"], line["who"], line["why"]) == ("update", "dana", "she said so")
    rest = api.get("/history", params={"limit": 1, "cursor": page["cursor"]}).json()
    assert rest["results"][0]["verb"] == "add"
    assert contents(api.post("/undo", json={"change_id": line["id"]})) == ["Likes tea"]
    api.delete(f"/memories/{stored['id']}")
    api.post("/undo")
    assert contents(api.get("/memories")) == ["Likes tea"]
    with as_user(api, "mallory") as other:
        assert problem(other.post("/undo", json={"change_id": line["id"]}))[0] == 404


def test_an_erased_memory_is_not_found_and_the_erasure_is_logged(api: httpx.Client) -> None:
    stored = add(api, "Born in 1970")
    backup = api.get("/export").content
    receipt = api.post("/erase", json={"target": "memory", "id": stored["id"]}).json()
    assert (receipt["target_id"], receipt["reached"]) == (stored["id"], True)
    assert api.get(f"/memories/{stored['id']}").status_code == 404
    [erasure] = api.get("/erasures").json()["results"]
    assert erasure["ids"] == [stored["id"]]
    assert erasure in api.get("/admin/erasures").json()["results"]
    with as_user(api, "mallory") as other:
        assert other.get("/erasures").json()["results"] == []
        assert problem(other.post("/erase", json={"target": "memory", "id": stored["id"]}))[0] == 404
    # The ledger has this erasure already.
    assert api.post("/admin/erasures/replay", json={"erasures": [erasure]}).json()["results"] == []
    assert b"1970" in backup


def test_the_receipt_names_turns_that_are_forgotten_with_a_memory(api: httpx.Client) -> None:
    report = {"messages": "I moved to Wombatton", "wait_s": 60}
    text = api.post("/remember", json=report, params={"session_id": "s"}).json()
    [stored] = api.get("/memories").json()["results"]
    receipt = api.post("/erase", json={"target": "memory", "id": stored["id"]}).json()
    assert receipt["stays"] == receipt["hidden"] == [turn["id"] for turn in text["turns"]]
    assert contents(api.post("/search", json={"query": "Wombatton"})) == []


def test_erasures_are_replayed_on_a_restored_copy(api: httpx.Client, tmp_path: Path) -> None:
    stored = add(api, "Born in 1970")
    backup = api.get("/export").content
    api.post("/erase", json={"target": "memory", "id": stored["id"]})
    erasures = api.get("/erasures").json()["results"]
    with served(tmp_path) as other, as_user(other, api.headers["x-memory-user"]) as restored:
        assert restored.post("/import", content=backup, headers=LINES).json()["added"] == 1
        [receipt] = restored.post("/admin/erasures/replay", json={"erasures": erasures}).json()["results"]
        assert receipt["target"] == "memory"
        assert restored.get(f"/memories/{stored['id']}").status_code == 404


def test_sessions_projects_and_users_can_be_erased(api: httpx.Client) -> None:
    for target, place in (("session", {"session_id": "s"}), ("project", {"project_id": "p"}), ("user", {})):
        api.post("/remember", json={"messages": "My cat is Tom."}, params={"session_id": "s", **place})
        assert api.post("/erase", json={"target": target, **place}).json()["stores"][0]["counts"]
        assert contents(api.get("/memories", params={"turns": True})) == []


def test_a_dry_run_of_maintenance_reports_what_it_would_do(api: httpx.Client) -> None:
    add(api, "The sale ends today", expires_at="2020-01-01T00:00:00Z")
    [report] = api.post("/upkeep", json={"chores": ["expire"], "dry_run": True}).json()["results"]
    assert [step["memory"] for step in report["steps"]] == ["The sale ends today"]
    # Lists exclude expired memories unless a filter asks for them.
    expired = {"filters": {"expires_at": {"lt": "2021-01-01"}}}
    assert contents(api.get("/memories")) == []
    assert len(contents(api.post("/list", json=expired))) == 1
    api.post("/upkeep", json={"chores": ["expire"]})
    assert contents(api.post("/list", json=expired)) == []


def test_statistics_usage_and_version_are_returned(api: httpx.Client) -> None:
    add(api, "Likes tea")
    assert api.get("/stats").json()["stats"]["memories"] == 1
    assert api.get("/usage").json() == {"results": [], "today": {"tokens": 0, "calls": 0}}
    assert api.get("/version").json()["api"] == "v1"
    assert api.get("/admin/stats").json()["stats"]["memories"] >= 1
    assert api.get("/admin/usage", params={"part": ["user", "day"]}).json()["results"] == []
    assert api.get("/admin/jobs").status_code == 200


def test_users_are_listed_in_pages(api: httpx.Client) -> None:
    for name in ("u1", "u2", "u3"):
        with as_user(api, name) as other:
            add(other, "Likes tea")
    users: list[str] = []
    cursor: str | None = None
    while True:
        params: dict[str, Any] = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = api.get("/admin/users", params=params).json()
        users += page["results"]
        if (cursor := page["cursor"]) is None:
            break
    assert {"u1", "u2", "u3"} <= set(users)
    assert users == sorted(set(users))


def test_settings_are_returned_without_secrets(api: httpx.Client) -> None:
    answer = api.get("/admin/settings")
    report = {row["name"]: row["value"] for row in answer.json()["results"]}
    assert report["llm_api_key"] == "********"
    assert "sk-very-secret" not in answer.text


def test_a_backlog_is_rejected_with_retry_after(tmp_path: Path) -> None:
    few = {"worker": False, "max_waiting_jobs": 10, "learn_wait_s": 0}
    with served(tmp_path, **few) as api:
        for n in range(10):
            api.post("/remember", json={"messages": "My cat is Tom."}, params={"session_id": f"s{n}"})
    # Waiting jobs are counted from time to time; a server that starts counts at once.
    with served(tmp_path, **few) as api:
        answer = api.post("/remember", json={"messages": "My dog is Rex."}, params={"session_id": "t"})
    assert problem(answer)[:2] == (429, "Backlog")
    assert answer.headers["retry-after"] == "1"


HALF = "half \ud83d of a character"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/recall", {"messages": [{"role": "user", "content": HALF}]}),
        ("/recall", {"messages": [{"role": HALF, "content": [{"type": "text", "text": HALF}]}]}),
        ("/search", {"query": HALF}),
        ("/memories", {"content": HALF}),
        ("/memories", {"content": "Likes tea", "tags": [HALF], "key": HALF}),
        ("/memories", {"content": "Likes tea", "metadata": {HALF: HALF}}),
        ("/remember", {"messages": HALF}),
        ("/remember", {"messages": [{"role": "user", "content": "Likes tea", "name": HALF}]}),
        ("/list", {"filters": {"content": {"contains": HALF}}}),
        ("/forget", {"filters": {"tags": {"contains": HALF}}}),
    ],
)
def test_half_a_character_is_no_server_error(api: httpx.Client, path: str, body: dict[str, Any]) -> None:
    content = json.dumps(body)
    answer = api.post(path, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code in (200, 201, 400), answer.text
    assert answer.status_code < 400 or "surrogate" in answer.text or "not allowed" in answer.text


@pytest.mark.parametrize(
    ("path", "parameter", "reason"),
    [
        ("/graph?around=", "around", "is empty; give it at least one visible character"),
        ("/graph?around=%20%20", "around", "is empty"),
        ("/graph?around=a%00b", "around", "control character at position 1; remove it"),
        ("/memories?session_id=a%0Ab", "session_id", "holds a control character at position 1; remove it"),
        ("/memories?tag=%00", "tag", "holds a NUL character at position 0; remove it"),
        ("/memories?cursor=", "cursor", "is empty; give it at least one visible character, or leave it out"),
        ("/memories?cursor=a!b", "cursor", "'a!b' is not a cursor; send the one of the previous page"),
        (f"/memories?session_id={'x' * 301}", "session_id", "is 301 characters long; the limit is 300"),
        ("/changes?after=x", "after", "'x' is not a position"),
    ],
)
def test_an_invalid_name_is_explained_without_a_pattern(
    api: httpx.Client, path: str, parameter: str, reason: str
) -> None:
    answer = api.get(path)
    message = answer.json()["error"]["message"]
    assert (answer.status_code, message.startswith(parameter)) == (400, True), message
    assert reason in message
    assert "pattern" not in message


@pytest.mark.parametrize(
    ("method", "path", "body", "may_be_left_out"),
    [
        ("GET", "/graph?around=", None, False),
        ("GET", "/graph?around=%20", None, False),
        ("GET", "/memories?cursor=", None, True),
        ("POST", "/memories", {"content": ""}, False),
        ("POST", "/memories", {"content": "I like tea", "key": ""}, True),
        ("POST", "/search", {"query": " "}, False),
    ],
)
def test_only_what_is_optional_is_advised_to_be_left_out(
    api: httpx.Client, method: str, path: str, body: dict[str, Any] | None, may_be_left_out: bool
) -> None:
    answer = api.request(method, path, json=body)
    message = answer.json()["error"]["message"]
    assert (answer.status_code, "is empty; give it at least one visible character" in message) == (400, True), message
    assert ("leave it out" in message) == may_be_left_out
