"""A server whose ledger file is deleted or moved: chats go on, turns wait on disk, and readiness says what to do."""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path
from typing import Any

import httpx

from tests.support.recollect_server import START_S, RecollectServer

USER = {"X-Memory-User": "ann", "X-Memory-Session": "monday"}


def chat(server: RecollectServer, text: str) -> httpx.Response:
    body = {"model": "any", "messages": [{"role": "user", "content": text}]}
    return httpx.post(f"{server.url}/v1/chat/completions", json=body, headers=USER, timeout=START_S)


def turns(server: RecollectServer) -> list[str]:
    listed = httpx.get(f"{server.url}/recollect/v1/turns", headers=USER, timeout=START_S)
    return [each["content"] for each in listed.json()["results"]] if listed.status_code == 200 else []


def ready(server: RecollectServer) -> tuple[int, dict[str, Any]]:
    answer = httpx.get(f"{server.url}/ready", timeout=START_S)
    return answer.status_code, answer.json()["checks"]


def wait_for(server: RecollectServer, *texts: str) -> None:
    deadline = time.monotonic() + START_S
    while not {*texts} <= {*turns(server)}:
        assert time.monotonic() < deadline, server.log
        time.sleep(0.1)


def stop(server: RecollectServer) -> None:
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(START_S) == 0, server.log


def test_turns_of_chats_wait_on_disk_until_a_moved_ledger_is_back(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with RecollectServer(home) as server:
        assert chat(server, "I live in Porto").status_code == 200
        wait_for(server, "I live in Porto")
        (home / "recollect.db").rename(tmp_path / "away.db")
        answer = chat(server, "I have a cat named Tom")
        assert (answer.status_code, "X-Memory-Turn" in answer.headers) == (200, True)
        assert answer.headers["X-Memory-Status"].startswith("degraded")
        status, checks = ready(server)
        assert (status, "put it back" in checks["ledger"]) == (503, True)
        stored = httpx.post(f"{server.url}/recollect/v1/memories", json={"content": "I like tea"}, headers=USER)
        assert (stored.status_code, "was moved" in stored.json()["error"]["message"]) == (503, True)
        (tmp_path / "away.db").rename(home / "recollect.db")
        wait_for(server, "I live in Porto", "I have a cat named Tom")
        assert ready(server)[0] == 200
        stop(server)


def test_a_restart_takes_in_the_turns_that_a_deleted_ledger_missed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with RecollectServer(home) as server:
        chat(server, "I live in Porto")
        wait_for(server, "I live in Porto")
        (home / "recollect.db").unlink()
        assert chat(server, "I have a cat named Tom").status_code == 200
        status, checks = ready(server)
        assert (status, "was deleted while in use" in checks["ledger"]) == (503, True)
        stop(server)
    [copy] = home.glob("recollect.db.rescued-*")
    copy.rename(home / "recollect.db")
    with RecollectServer(home) as server:
        wait_for(server, "I live in Porto", "I have a cat named Tom")
        stop(server)


def test_a_home_that_is_gone_is_not_made_anew_and_no_turn_counts_as_stored(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with RecollectServer(home) as server:
        chat(server, "I live in Porto")
        wait_for(server, "I live in Porto")
        shutil.move(home, tmp_path / "away")
        answer = chat(server, "I have a cat named Tom")
        # Without X-Memory-Turn nothing is acknowledged.
        assert (answer.status_code, "X-Memory-Turn" in answer.headers) == (200, False)
        assert not home.exists()
        shutil.move(tmp_path / "away", home)
        chat(server, "I have a dog named Rex")
        wait_for(server, "I live in Porto", "I have a dog named Rex")
        assert "I have a cat named Tom" not in turns(server)
        stop(server)
