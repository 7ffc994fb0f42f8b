"""The server process with authentication: public addresses, host names and log injection."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.auth_samples import bearer
from tests.support.cli_runner import Cli


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def server(home: Path, *options: str) -> Iterator[str]:
    """Run a server in its own process, with its log in a file of its home."""
    port = free_port()
    command = [sys.executable, "-m", "recollect.cli.main", "--home", str(home), "serve", "--port", str(port)]
    with (home / "log").open("w") as log, subprocess.Popen([*command, *options], stdout=log, stderr=log) as process:
        try:
            wait_until_alive(process, port, home / "log")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)


def wait_until_alive(process: subprocess.Popen[Any], port: int, log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            httpx.get(f"http://127.0.0.1:{port}/live")
            return
        except httpx.TransportError:
            time.sleep(0.05)
    pytest.fail("the server did not start within 60 s")


def test_a_public_server_starts_once_a_key_exists(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    assert "no authentication" in cli("serve", "--host", "0.0.0.0", "--port", "0", code=2).stderr
    key = cli.json("keys", "add", "--user", "ann")["key"]
    with server(tmp_path, "--host", "0.0.0.0") as url:
        assert httpx.get(f"{url}/live").status_code == 200
        assert httpx.get(f"{url}/anything").status_code == 401
        # Headers do not make a request local.
        spoofed = {"X-Forwarded-For": "127.0.0.1", "x-authz-user-id": "ann"}
        assert httpx.get(f"{url}/anything", headers=spoofed).status_code == 401
        assert httpx.get(f"{url}/anything", headers=bearer(key)).status_code == 404
        # A key that another process revokes is rejected soon.
        cli("keys", "revoke", "ann")
        deadline = time.monotonic() + 30
        while httpx.get(f"{url}/anything", headers=bearer(key)).status_code != 401:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    [revoked] = cli.json("keys", "list")["results"]
    assert revoked["last_used_at"] is not None
    assert key not in (tmp_path / "log").read_text()


def test_foreign_hosts_are_rejected_and_no_request_forges_a_log_line(tmp_path: Path) -> None:
    forged = "%0d%0aERROR:    forged"
    with server(tmp_path) as url:
        for path in ("/health", "/v1/chat/completions", "/docs", "/nothing"):
            for host in ("evil.example.org", "127.0.0.1.evil.example.org", "localhost.evil.example.org:80", ""):
                answer = httpx.get(url + path, headers={"Host": host})
                assert answer.status_code == 421, (path, host)
        for host in ("localhost", "LOCALHOST:8100", "127.0.0.1:1", "[::1]:8100"):
            assert httpx.get(f"{url}/health", headers={"Host": host}).status_code == 200
        httpx.get(f"{url}/nothing{forged}?user_id={forged}")
        httpx.get(f"{url}/v1/models/{forged}", headers={"X-Memory-User": "a"})
        messages = {"messages": [{"role": "user", "content": "hi"}], "user": "a\r\nERROR:    forged"}
        assert httpx.post(f"{url}/v1/chat/completions", json=messages).status_code == 400
    log = (tmp_path / "log").read_text()
    assert "nothing" in log
    assert not [line for line in log.splitlines() if line.lstrip().startswith("ERROR:    forged")]
