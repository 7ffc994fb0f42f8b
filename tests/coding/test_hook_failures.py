"""A coding agent never notices more than one line: server down, slow or strange, wrong key, broken input."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.api_server import served
from tests.support.coding_agents import CLIENTS, PATIENT, HookRunner, event

NEUTRAL = {"recall": {"cursor": {"continue": True}}, "brief": {"cursor": {"continue": True}}}


@contextmanager
def listener(answer: bytes | None, *, first: bytes | None = None) -> Iterator[str]:
    """Serve a port that answers these bytes to each request, or never answers; `first` to the first request."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        accepted: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                accepted.append(connection)
                if answer is not None:
                    connection.recv(1 << 16)
                    connection.sendall(first if first is not None and len(accepted) == 1 else answer)
                    connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        for connection in accepted:
            connection.close()
        thread.join(60)


def check(runner: HookRunner, folder: Path, reason: str) -> None:
    """Run every hook of every client; each must print the neutral answer and one line with the reason."""
    for client in CLIENTS:
        for name in ("recall", "keep"):
            done = runner(client, name, event(client, name, folder, "s", prompt="Hello there", answer="Hi"))
            assert done.answer == NEUTRAL.get(name, {}).get(client, {})
            assert done.stderr.startswith("recollect: no memory this time: ")
            assert reason in done.stderr


def test_no_server(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    check(HookRunner(url, tmp_path), tmp_path, "no server at")


def test_a_server_that_does_not_answer(tmp_path: Path) -> None:
    with listener(None) as url:
        check(HookRunner(url, tmp_path, {}), tmp_path, "did not answer in time")


def test_a_server_that_is_something_else(tmp_path: Path) -> None:
    with listener(b"220 mail.example.com ESMTP\r\n") as url:
        check(HookRunner(url, tmp_path), tmp_path, "is not a Recollect server")
    with listener(b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot\nfound") as url:
        check(HookRunner(url, tmp_path), tmp_path, "answered 404: not found")


def test_a_wrong_key(tmp_path: Path) -> None:
    with served(tmp_path / "home") as client:
        url = f"http://{client.base_url.netloc.decode()}"
        runner = HookRunner(url, tmp_path, {**PATIENT, "RECOLLECT_API_KEY": "rk_" + "x" * 43})
        done = runner("claude-code", "recall", event("claude-code", "recall", tmp_path, "s", prompt="Hello there"))
        assert done.answer == {}
        assert "refused the key (401); set RECOLLECT_API_KEY" in done.stderr


def test_a_read_only_home_changes_nothing(tmp_path: Path) -> None:
    with served(tmp_path / "home", memory_timeout_s=30) as client:
        runner = HookRunner(f"http://{client.base_url.netloc.decode()}", Path("/proc"))
        done = runner("codex", "recall", event("codex", "recall", tmp_path, "s", prompt="Hello there"))
        assert done.answer == {}
        assert done.stderr == ""


@pytest.mark.parametrize("payload", ["", "no JSON", "[]", "null", '{"prompt": 7, "session_id": [], "cwd": {}}'])
def test_broken_input(tmp_path: Path, payload: str) -> None:
    with served(tmp_path / "home") as client:
        runner = HookRunner(f"http://{client.base_url.netloc.decode()}", tmp_path)
        assert runner("cursor", "recall", payload).answer == {"continue": True}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("recall", "--client", "emacs"), "--client must be one of claude-code, codex, gemini, cursor, got 'emacs'"),
        (("compact", "--client", "codex"), "the event must be one of recall, brief, keep, save, got 'compact'"),
        ((), "--client must be one of"),
        (("recall", "--client=codex", "--url", "ftp://example.com"), "the server's address must be such as"),
    ],
)
def test_wrong_options(arguments: tuple[str, ...], reason: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "recollect", "hook", *arguments], input="{}", capture_output=True, text=True
    )
    assert done.returncode == 0
    assert done.stdout == "{}\n"
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_client_that_does_not_read_the_answer(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "recollect", "hook", "recall", "--client", "codex", "--url", "http://127.0.0.1:1"],
            input=b"{}",
            stdout=writer,
            stderr=subprocess.PIPE,
        )
    finally:
        os.close(writer)
    assert done.returncode == 0


def test_the_hook_imports_little(tmp_path: Path) -> None:
    code = (
        "import sys, os; os._exit = lambda code: print(*sys.modules); from recollect.coding.hook import main; "
        "main(['recall', '--client', 'codex', '--url', 'http://127.0.0.1:1'], {})"
    )
    done = subprocess.run([sys.executable, "-c", code], input="{}", capture_output=True, text=True, check=True)
    heavy = {"click", "pydantic", "http.client", "email", "urllib.parse", "dataclasses", "typing", "pathlib", "ssl"}
    assert not heavy & set(done.stdout.split())
