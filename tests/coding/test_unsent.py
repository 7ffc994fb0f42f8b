"""What is said while the server is down is kept, and stored when a later hook reaches the server."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from recollect.coding.unsent import UnsentExchanges
from tests.coding.test_hook_failures import listener
from tests.support.coding_agents import CLIENTS, PATIENT, HookRunner, context_of, event
from tests.support.git_repositories import make_repository
from tests.support.recollect_server import RecollectServer

URL = "http://127.0.0.1:8100"
# An address of its own, where nobody else takes the port while the server is down.
HOST = ("--host", "127.83.71.1")
SERVER = {"RECOLLECT_MEMORY_TIMEOUT_S": "60", "RECOLLECT_RECALL_TIMEOUT_S": "60"}
KEY = "rk_" + "x" * 43


def say(client: str) -> tuple[str, str]:
    return f"The {client} team deploys with make ship-{client}.", f"I use make ship-{client}."


def test_an_exchange_without_a_server_is_stored_by_a_later_hook(tmp_path: Path) -> None:
    home, repository = tmp_path / "home", make_repository(tmp_path / "first", "git@github.com:owner/first.git")
    transcript = tmp_path / "transcript.jsonl"
    with RecollectServer(home, *HOST, **SERVER) as server:
        url, port = server.url, server.port
    run = HookRunner(url, tmp_path, {**PATIENT, "RECOLLECT_HOME": str(home)})
    for client in CLIENTS:
        prompt, answer = say(client)
        hooks = {"recall": event(client, "recall", repository, client, prompt=prompt)}
        hooks["keep"] = event(client, "keep", repository, client, prompt=prompt, answer=answer)
        if client == "claude-code":
            # Its hook before the prompt is by HTTP, so that only the transcript has the prompt.
            transcript.write_text(json.dumps({"type": "user", "message": {"role": "user", "content": prompt}}) + "\n")
            hooks = {"keep": hooks["keep"] | {"transcript_path": str(transcript)}}
        for name, payload in hooks.items():
            assert run(client, name, payload).stderr.endswith("what was said is kept and sent later\n")
    files = sorted((home / "unsent").iterdir())
    assert len(files) == 2 * len(CLIENTS) - 1
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert (home / "unsent").stat().st_mode & 0o777 == 0o700
    with RecollectServer(home, *HOST, "--port", str(port), **SERVER):
        # A recall sends nothing: the user waits for it.
        assert run("codex", "recall", event("codex", "recall", repository, "new", prompt="Hello there")).stderr == ""
        assert len(list((home / "unsent").iterdir())) == len(files)
        context = run("codex", "brief", event("codex", "brief", repository, "new"))
        assert context.stderr == ""
        assert not list((home / "unsent").iterdir())
        for client in CLIENTS:
            answer = httpx.get(
                f"{url}/recollect/v1/turns",
                params={"session_id": client, "project_id": "github.com/owner/first"},
                headers={"X-Memory-User": "default"},
                timeout=60,
            )
            turns = answer.json()["results"]
            assert [turn["content"] for turn in turns] == list(say(client))
        recalled = run("gemini", "recall", event("gemini", "recall", repository, "later", prompt="How do we deploy?"))
        assert "make ship-" in context_of("gemini", recalled.answer)


def test_an_exchange_is_sent_to_its_server_with_its_key_only(tmp_path: Path) -> None:
    environ = {"RECOLLECT_HOME": str(tmp_path), "RECOLLECT_API_KEY": KEY}
    assert UnsentExchanges(environ, URL).add({"client": "codex"})
    assert [exchange for _, exchange in UnsentExchanges(environ, URL).exchanges()] == [{"client": "codex"}]
    assert not list(UnsentExchanges(environ, "http://127.0.0.1:8101").exchanges())
    assert not list(UnsentExchanges({**environ, "RECOLLECT_API_KEY": "another"}, URL).exchanges())
    assert KEY not in "".join(file.read_text() for file in (tmp_path / "unsent").iterdir())


def test_old_exchanges_make_space_for_new_ones(tmp_path: Path) -> None:
    unsent = UnsentExchanges({"RECOLLECT_HOME": str(tmp_path)}, URL)
    assert not unsent.add({"text": "x" * (1 << 20)})
    for number in range(230):
        assert unsent.add({"number": number})
    assert [exchange["number"] for _, exchange in unsent.exchanges()] == list(range(30, 230))
    (tmp_path / "unsent" / "broken.json").write_text("[]")
    for number in range(12):
        assert unsent.add({"number": number, "text": "x" * 500_000})
    assert [exchange["number"] for _, exchange in unsent.exchanges()] == [4, 5, 6, 7, 8, 9, 10, 11]


@pytest.mark.parametrize(("status", "is_kept"), [(429, True), (503, True), (401, True), (404, True), (422, False)])
def test_an_exchange_stays_until_it_is_stored_or_refused_for_good(tmp_path: Path, status: int, is_kept: bool) -> None:
    body = b'{"error": {"message": "no"}}'
    head = f"HTTP/1.1 {status} No\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with listener(head.encode() + body, first=b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") as url:
        run = HookRunner(url, tmp_path, {**PATIENT, "RECOLLECT_HOME": str(tmp_path)})
        payload = {"session_id": "s", "cwd": str(tmp_path), "prompt": "Hello", "last_assistant_message": "Hi"}
        exchange = {"client": "codex", "project": "p", "branch": "", "payload": payload}
        assert UnsentExchanges({"RECOLLECT_HOME": str(tmp_path)}, url).add(exchange)
        run("codex", "keep", event("codex", "keep", tmp_path, "s", answer="Done."))
        assert any((tmp_path / "unsent").iterdir()) == is_kept


def test_a_home_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    run = HookRunner("http://127.0.0.1:1", tmp_path, {**PATIENT, "RECOLLECT_HOME": "/proc/nowhere"})
    done = run("codex", "keep", event("codex", "keep", tmp_path, "s", answer="Done."))
    assert done.answer == {}
    assert "no server at" in done.stderr
    assert "kept" not in done.stderr
