"""The server process with authentication: public addresses, host names and log injection."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.support.auth_samples import bearer
from tests.support.cli_runner import Cli
from tests.support.recollect_server import START_S, RecollectServer
from tests.support.remember_samples import wait_until


def test_a_public_server_starts_once_a_key_exists(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "home")
    assert "no authentication" in cli("serve", "--host", "0.0.0.0", "--port", "0", code=2).stderr
    key = cli.json("keys", "add", "--user", "ann")["key"]
    with RecollectServer(tmp_path / "home", "--host", "0.0.0.0") as server:
        url = f"http://127.0.0.1:{server.port}"
        assert httpx.get(f"{url}/live", timeout=60).status_code == 200
        assert httpx.get(f"{url}/anything", timeout=60).status_code == 401
        # Headers do not make a request local.
        spoofed = {"X-Forwarded-For": "127.0.0.1", "x-authz-user-id": "ann"}
        assert httpx.get(f"{url}/anything", headers=spoofed, timeout=60).status_code == 401
        assert httpx.get(f"{url}/anything", headers=bearer(key), timeout=60).status_code == 404
        # A key that another process revokes is rejected soon.
        cli("keys", "revoke", "ann")
        wait_until(lambda: httpx.get(f"{url}/anything", headers=bearer(key), timeout=60).status_code == 401)
        # The time of its last use is written when the server stops.
        server.process.terminate()
        assert server.process.wait(START_S) == 0
    [revoked] = cli.json("keys", "list")["results"]
    assert revoked["last_used_at"] is not None
    assert key not in server.log


def test_foreign_hosts_are_rejected_and_no_request_forges_a_log_line(tmp_path: Path) -> None:
    forged = "%0d%0aERROR:    forged"
    with RecollectServer(tmp_path / "home") as server:
        url = server.url
        for path in ("/health", "/v1/chat/completions", "/docs", "/nothing"):
            for host in ("evil.example.org", "127.0.0.1.evil.example.org", "localhost.evil.example.org:80", ""):
                answer = httpx.get(url + path, headers={"Host": host}, timeout=60)
                assert answer.status_code == 421, (path, host)
        for host in ("localhost", "LOCALHOST:8100", "127.0.0.1:1", "[::1]:8100"):
            assert httpx.get(f"{url}/health", headers={"Host": host}, timeout=60).status_code == 200
        httpx.get(f"{url}/nothing{forged}?user_id={forged}", timeout=60)
        httpx.get(f"{url}/v1/models/{forged}", headers={"X-Memory-User": "a"}, timeout=60)
        messages = {"messages": [{"role": "user", "content": "hi"}], "user": "a\r\nERROR:    forged"}
        assert httpx.post(f"{url}/v1/chat/completions", json=messages, timeout=60).status_code == 400
        wait_until(lambda: "POST /v1/chat/completions 400" in server.log)
    assert "GET /* 404" in server.log
    assert "forged" not in server.log
    assert not [line for line in server.log.splitlines() if line.lstrip().startswith("ERROR:    forged")]
