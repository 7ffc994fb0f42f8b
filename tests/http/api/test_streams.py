"""Streams of the REST API: exports and imports in bounded memory, and the stream of changes."""

from __future__ import annotations

import json
import os
import signal
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from recollect.http.api import history
from recollect.http.api.transfer import read_lines
from tests.support.api_server import add, as_user, client_of, contents, problem, served
from tests.support.forked import run_forked
from tests.support.recollect_server import RecollectServer, environment

LINES = {"Content-Type": "application/x-ndjson"}


@pytest.fixture(autouse=True)
def short_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the heartbeat: a client that disconnects is noticed when something is sent."""
    monkeypatch.setattr(history, "HEARTBEAT_S", 0.3)


def lines_of(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in answer.text.splitlines()]


def test_an_export_can_be_imported_by_another_user_and_twice(api: httpx.Client) -> None:
    assert lines_of(api.get("/export")) == []
    add(api, "Likes tea\nand coffee", tags=["drink"])
    gone = add(api, "Lives in Oslo")
    api.delete(f"/memories/{gone['id']}")
    exported = api.get("/export")
    assert [line["status"] for line in lines_of(exported)] == ["active", "forgotten"]
    with as_user(api, "zoe") as other:
        body = exported.content
        first = other.post("/import", content=body, headers=LINES).json()
        assert first == {"lines": 2, "added": 2, "present": 0, "kept": 0, "redacted": 0}
        assert other.post("/import", content=body, headers=LINES).json()["present"] == 2
        assert {line["user_id"] for line in lines_of(other.get("/export"))} == {"zoe"}
        assert contents(other.get("/memories")) == ["Likes tea\nand coffee"]


def test_sessions_are_exported_and_imported(api: httpx.Client, tmp_path: Path) -> None:
    user, outside = api.headers["X-Memory-User"], str(api.base_url).removesuffix("/recollect/v1/")
    came_to = {"query": "Book it", "summary": "looked", "result": "booked"}
    report = {"user": user, "conversation_id": "flights", "invocation_summary": came_to}
    answer = api.post(f"{outside}/api/react/conversations/update", json=report)
    assert answer.status_code == 200, answer.text
    session = api.get("/session", params={"session_id": "flights"}).json()
    assert session["invocations"]
    exported = api.get("/export")
    assert [line.get("kind") for line in lines_of(exported)][-1] == "session"
    assert not [line for line in lines_of(api.get("/export", params={"sessions": False})) if "kind" in line]
    with served(tmp_path / "home") as other:
        for _ in range(2):
            other.post("/import", content=exported.content, headers=LINES)
        stored = other.get("/session", params={"session_id": "flights"}).json()
    assert stored["invocations"] == session["invocations"]


def test_an_invalid_line_is_reported_and_earlier_batches_are_imported(api: httpx.Client) -> None:
    good = "".join(json.dumps({"memory": f"Fact {n}"}) + "\n" for n in range(600))
    status, _, message = problem(api.post("/import", content=good + "nonsense\n", headers=LINES))
    assert (status, message) == (400, "Line 601 is not valid JSON; the first 500 lines are imported")
    assert api.get("/stats").json()["stats"]["memories"] == 500
    status, _, message = problem(api.post("/import", content=good + '{"memory": 7}\n', headers=LINES))
    assert message.startswith("line 601: memory must be text")
    assert problem(api.post("/import", content=good, headers={"Content-Type": "text/plain"}))[0] == 400

    def endless() -> Iterator[bytes]:
        for _ in range(80):
            yield b"x" * (1 << 16)

    assert problem(api.post("/import", content=endless(), headers=LINES))[:2] == (413, "TooLarge")


def test_imports_may_be_larger_than_other_requests(tmp_path: Path) -> None:
    def many() -> Iterator[bytes]:
        for n in range(40):
            yield json.dumps({"memory": f"Fact {n}: " + "words " * 10_000}).encode() + b"\n"

    with served(tmp_path, max_body_mb=1) as api:
        report = api.post("/import", content=many(), headers=LINES)
        assert report.json()["added"] == 40, report.text


async def test_lines_are_read_in_bounded_memory() -> None:
    class Sent:
        """A request of 64 MiB in lines of 64 KiB."""

        async def stream(self) -> Any:
            for _ in range(1024):
                yield b"x" * ((1 << 16) - 1) + b"\n"

    tracemalloc.start()
    try:
        count = 0
        async for line in read_lines(Sent()):  # type: ignore[arg-type]
            count += len(line)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 1024 * ((1 << 16) - 1)
    assert most < 4 << 20


class Events:
    """Events of a stream, read in a thread; a context manager."""

    def __init__(self, api: httpx.Client, **more: Any) -> None:
        self._stream = api.stream("GET", "/changes", timeout=60, **more)
        self._came = threading.Condition()
        self.got: list[dict[str, str]] = []
        self.comments = 0
        self.ended = False

    def __enter__(self) -> Events:
        self._answer = self._stream.__enter__()
        assert self._answer.headers["content-type"].startswith("text/event-stream")
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        # Sent first: from then on no event is missed.
        self.until(lambda: self.started)
        return self

    started = False

    def _read(self) -> None:
        event: dict[str, str] = {}
        try:
            for line in self._answer.iter_lines():
                with self._came:
                    name, _, value = line.partition(": ")
                    if line.startswith(":"):
                        self.comments += 1
                    elif line.startswith("retry"):
                        self.started = True
                    elif line:
                        event[name] = value
                    elif event:
                        self.got.append(event)
                        event = {}
                    self._came.notify_all()
        except httpx.HTTPError:
            pass
        with self._came:
            self.ended = True
            self._came.notify_all()

    def until(self, true: Any, *, within_s: float = 30) -> None:
        with self._came:
            assert self._came.wait_for(true, within_s), self.got

    def __exit__(self, *_: object) -> None:
        # The server notices a disconnect when it sends.
        self._answer.close()
        self._thread.join(300)
        self._stream.__exit__(None, None, None)


def test_changes_are_streamed_to_their_user_alone(api: httpx.Client) -> None:
    add(api, "From before")
    with as_user(api, "follower") as reader, as_user(api, "zoe") as zoe:
        reader.headers["X-Memory-User"] = api.headers["X-Memory-User"]
        with Events(reader) as events:
            add(zoe, "Not for you")
            stored = add(api, "Likes tea\nand cake")
            api.patch(f"/memories/{stored['id']}", json={"importance": 1})
            events.until(lambda: len(events.got) == 2)
    assert [event["event"] for event in events.got] == ["add", "update"]
    report = [json.loads(event["data"]) for event in events.got]
    assert {line["memory_id"] for line in report} == {stored["id"]}
    assert [event["id"] for event in events.got] == [f"{line['id']}-0" for line in report]


def test_a_client_that_reconnects_resumes(api: httpx.Client) -> None:
    for n in range(3):
        add(api, f"Fact {n}")
    whole = api.get("/changes", params={"after": 0, "within_s": 0}).text
    ids = [line.removeprefix("id: ") for line in whole.splitlines() if line.startswith("id: ")]
    assert len(ids) == 3
    with as_user(api, api.headers["X-Memory-User"]) as reader:
        with Events(reader, headers={"Last-Event-ID": ids[0]}) as events:
            events.until(lambda: len(events.got) == 2)
        seen = events.got[-1]["id"]
        add(api, "While away")
        with Events(reader, headers={"Last-Event-ID": seen}) as later:
            later.until(lambda: len(later.got) == 1)
            add(api, "Back again")
            later.until(lambda: len(later.got) == 2)
    assert [event["id"] for event in events.got] == ids[1:]


def test_a_long_history_is_streamed_completely(api: httpx.Client) -> None:
    body = "".join(json.dumps({"memory": f"Fact {n}"}) + "\n" for n in range(350))
    api.post("/import", content=body, headers=LINES)
    text = api.get("/changes", params={"after": 0, "within_s": 0}).text
    numbers = [
        int(line.removeprefix("id: ").partition("-")[0]) for line in text.splitlines() if line.startswith("id: ")
    ]
    assert len(numbers) == 350
    assert numbers == sorted(set(numbers))


def test_an_erasure_is_reported_without_content(api: httpx.Client) -> None:
    stored = add(api, "Born in 1970")
    with as_user(api, api.headers["X-Memory-User"]) as reader, Events(reader) as events:
        # The first event names the erasures so far.
        add(api, "Likes tea")
        events.until(lambda: len(events.got) == 1)
        api.post("/erase", json={"target": "memory", "id": stored["id"]})
        events.until(lambda: any(event["event"] == "erased" for event in events.got))
    assert "1970" not in str(events.got)
    [event] = [event for event in events.got if event["event"] == "erased"]
    report = json.loads(event["data"])
    assert [(each["target"], each["ids"]) for each in report["erasures"]] == [("memory", [stored["id"]])]
    assert report["fetch_anew"] is False
    assert "user" not in report["erasures"][0]


def events_since(api: httpx.Client, mark: str) -> list[dict[str, str]]:
    """Return the events for a client that reconnects with this id."""
    text = api.get("/changes", params={"within_s": 0}, headers={"Last-Event-ID": mark}).text
    blocks = [block for block in text.split("\n\n") if "event: " in block]
    return [dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks]


@pytest.mark.parametrize("number_only", [False, True])
def test_a_client_that_reconnects_learns_of_erasures_once(api: httpx.Client, number_only: bool) -> None:
    gone, stays = add(api, "Born in 1970"), add(api, "Likes tea")
    *_, last = events_since(api, "0")
    mark = last["id"].partition("-")[0] if number_only else last["id"]
    assert events_since(api, mark) == []
    api.post("/erase", json={"target": "memory", "id": gone["id"]})
    add(api, "Likes cake")
    erased, added = events_since(api, mark)
    assert erased["event"] == "erased"
    data = json.loads(erased["data"])
    assert [each["ids"] for each in data["erasures"]] == [[gone["id"]]]
    assert data["fetch_anew"] is number_only
    assert stays["id"] not in str(data)
    assert json.loads(added["data"])["verb"] == "add"
    # It is not reported after either event.
    assert [event["event"] for event in events_since(api, erased["id"])] == ["add"]
    assert events_since(api, added["id"]) == []


def test_a_client_that_reconnects_learns_that_the_user_was_erased(api: httpx.Client) -> None:
    add(api, "Born in 1970")
    [last] = events_since(api, "0")
    api.post("/erase", json={"target": "user"})
    for _ in range(2):
        [erased, *rest] = events_since(api, last["id"])
        assert [each["target"] for each in json.loads(erased["data"])["erasures"]] == ["user"]
        assert [event["event"] for event in rest] in ([], ["add"])
        if not rest:
            add(api, "Back again")
    assert events_since(api, rest[0]["id"]) == []


def test_a_new_client_gets_no_erasures(api: httpx.Client) -> None:
    gone = add(api, "Born in 1970")
    add(api, "Likes tea")
    api.post("/erase", json={"target": "memory", "id": gone["id"]})
    assert [event["event"] for event in events_since(api, "0")] == ["add"]
    assert "erased" not in api.get("/changes", params={"within_s": 0}).text


def test_erasures_missing_from_the_log_require_a_reload(api: httpx.Client) -> None:
    add(api, "Likes tea")
    [last] = events_since(api, "0")
    line, _, epoch = last["id"].partition("-")
    # As if two erasures were missing from the log.
    [erased] = events_since(api, f"{line}-{int(epoch) + 2}")
    assert json.loads(erased["data"]) == {"erasures": [], "fetch_anew": True}


def test_an_idle_stream_has_heartbeats(api: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(history, "POLL_INTERVAL_S", 0.01)
    with as_user(api, api.headers["X-Memory-User"]) as reader, Events(reader) as events:
        events.until(lambda: events.comments >= 3)
    assert events.got == []


def test_changes_of_another_process_are_streamed_until_the_server_stops(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text("shutdown_timeout_s = 3600\n")
    with RecollectServer(home) as server, client_of("alex", server.url) as api, Events(api) as events:
        done = run_forked(["add", "Likes tea", "--user", "alex"], environment(home))
        assert done.returncode == 0, done.stderr
        events.until(lambda: len(events.got) == 1)
        # A request that does not end would delay the stop by an hour.
        os.kill(server.process.pid, signal.SIGTERM)
        events.until(lambda: events.ended)
        assert server.process.wait(300) == 0
