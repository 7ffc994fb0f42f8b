"""The server process: TLS, several processes, logging, and a graceful stop."""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path

import httpx
import pytest

from recollect.cli.commands.chat import ChatClient
from recollect.config.settings import load
from recollect.errors import InvalidSettings, Unavailable
from recollect.http.server import BoundSockets, bind_sockets, check_settings
from tests.support.forked import run_forked
from tests.support.paths import ROOT
from tests.support.recollect_server import RecollectServer, environment

SLOW = str(ROOT / "tests" / "support" / "slow_server.py")


def wait_until(true: Callable[[], bool], *, within_s: float = 300) -> None:
    """Wait for a condition."""
    started = time.monotonic()
    while not true():
        assert time.monotonic() - started < within_s
        time.sleep(0.01)


def stream(server: RecollectServer, until: Path) -> AbstractContextManager[httpx.Response]:
    """Open an answer that begins at once and ends when the file exists."""
    return httpx.stream("GET", f"{server.url}/stream", params={"until": str(until)}, timeout=300)


def is_gone(process: int) -> bool:
    try:
        # A zombie still has a process id.
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_signal_stops_accepting_and_lets_requests_finish(tmp_path: Path) -> None:
    end = tmp_path / "end"
    with RecollectServer(tmp_path / "home", script=SLOW) as server:
        with stream(server, end) as answer:
            parts = answer.iter_raw()
            assert next(parts) == b"begun\n"
            server.process.send_signal(signal.SIGTERM)
            wait_until(server.is_refused)
            assert server.process.poll() is None
            end.touch()
            assert b"".join(parts) == b"ended\n"
        assert server.process.wait(300) == 0
        assert "Traceback" not in server.log


def stop_with_two_signals(server: RecollectServer, stop: signal.Signals) -> None:
    """Stop a server during an answer that does not end."""
    with stream(server, Path("/never")) as answer:
        assert next(answer.iter_raw()) == b"begun\n"
        server.process.send_signal(stop)
        wait_until(server.is_refused)
        server.process.send_signal(stop)
        assert server.process.wait(300) == 128 + stop


def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    with RecollectServer(tmp_path / "home", script=SLOW) as server:
        stop_with_two_signals(server, signal.SIGINT)


def processes_of(server: RecollectServer) -> set[int]:
    """Return the two processes that answer; each request is a new connection, which any of them may accept."""
    results: set[int] = set()

    def both() -> bool:
        try:
            results.add(httpx.get(f"{server.url}/process", timeout=300).json())
        except httpx.TransportError:
            pass
        return len({each for each in results if not is_gone(each)}) == 2

    wait_until(both)
    return {each for each in results if not is_gone(each)}


def test_a_process_that_dies_is_replaced_and_a_second_signal_stops_them_all(tmp_path: Path) -> None:
    with RecollectServer(tmp_path / "home", "--workers", "2", script=SLOW) as server:
        first = processes_of(server)
        os.kill(min(first), signal.SIGKILL)
        wait_until(lambda: is_gone(min(first)))
        second = processes_of(server)
        assert max(first) in second
        assert server.process.pid not in first | second
        stop_with_two_signals(server, signal.SIGTERM)
        wait_until(lambda: all(map(is_gone, second)))


def test_no_process_outlives_a_killed_supervisor(tmp_path: Path) -> None:
    with RecollectServer(tmp_path / "home", "--workers", "2", script=SLOW) as server:
        processes = processes_of(server)
        server.process.kill()
        wait_until(lambda: all(map(is_gone, processes)))


def test_a_failed_start_is_reported(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "recollect.db").write_bytes(b"this is no ledger" * 1000)
    serve = ["serve", "--port", "0"]
    command = [sys.executable, "-m", "recollect.cli.main", *serve, "--workers", "2"]
    several = subprocess.run(command, env=environment(home), capture_output=True, text=True, timeout=300)
    for ended in (run_forked(serve, environment(home)), several):
        assert ended.returncode == 5
        assert ended.stderr.endswith("Error: the server could not start; its log has the reason\n")


def make_certificate(folder: Path, *options: str) -> tuple[Path, Path]:
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days", "2"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", "-x509", *kind, *files, *subject, *options], check=True, capture_output=True)
    return certificate, key


def test_a_certificate_enables_https_and_the_access_log_can_be_switched_off(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, "-passout", "pass:open sesame")
    options = ("--no-access-log", "--ssl-certfile", str(certificate), "--ssl-keyfile", str(key))
    options += ("--ssl-keyfile-password", "open sesame")
    with RecollectServer(tmp_path / "home", *options) as server:
        assert server.url.startswith("https://")
        trusting = ssl.create_default_context(cafile=certificate)
        assert httpx.get(f"{server.url}/health", verify=trusting, timeout=300).json()["status"] == "ok"
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.url}/health")
        with (
            closing(ChatClient(server.url, user="alex", certificate=str(certificate))) as talk,
            closing(ChatClient(server.url, user="alex")) as wary,
        ):
            assert (talk.is_reachable(), wary.is_reachable()) == (True, False)
        server.process.terminate()
        assert server.process.wait(300) == 0
        assert "GET" not in server.log
        assert "INFO" in server.log


def test_an_unusable_certificate_is_rejected_before_the_start(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, "-passout", "pass:open sesame")
    for inputs, line in (
        ({"ssl_keyfile": str(key)}, "needs ssl_certfile"),
        ({"ssl_certfile": str(tmp_path / "none.pem")}, "none.pem cannot be used"),
        ({"ssl_certfile": str(certificate)}, "cannot be used"),
        ({"ssl_certfile": str(certificate), "ssl_keyfile": str(key)}, "cannot be used"),
    ):
        with pytest.raises(InvalidSettings, match=line):
            check_settings(load({"home": tmp_path, **inputs}, environ={}).settings)


def test_a_port_in_use_is_reported(tmp_path: Path) -> None:
    with (
        bind_sockets("127.0.0.1", 0) as taken,
        pytest.raises(Unavailable, match=f"port {taken.port}: Address already in use"),
    ):
        bind_sockets("127.0.0.1", taken.port)
    with pytest.raises(InvalidSettings, match="is not an address of this machine"):
        bind_sockets("no.such.host.invalid", 0)


def test_the_url_of_a_server_can_be_used_by_clients() -> None:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
        assert BoundSockets([bound], "::1").url() == f"http://[::1]:{port}"
        assert BoundSockets([bound], "127.0.0.1").url(tls=True) == f"https://127.0.0.1:{port}"
    with bind_sockets("localhost", 0) as listening:
        assert {each.getsockname()[1] for each in listening.sockets} == {listening.port}


def test_the_access_log_has_a_line_for_each_request_without_content(tmp_path: Path) -> None:
    end = tmp_path / "end"
    end.touch()
    with RecollectServer(tmp_path / "home", script=SLOW) as server:
        headers = {"Authorization": "Bearer sk-secret", "X-Memory-User": "alex@example.org"}
        httpx.get(f"{server.url}/stream?until={end}&q=private", headers=headers, timeout=300)
        httpx.get(f"{server.url}/a%0d%0aGET%20/forged%20200", timeout=300)
        evil = {"Origin": "https://evil.example"}
        httpx.post(f"{server.url}/length", content=b"private words", headers=evil, timeout=300)
        with httpx.stream("GET", f"{server.url}/stream?until=/never", timeout=300) as left:
            assert next(left.iter_raw()) == b"begun\n"
        wait_until(lambda: "broken off" in server.log)
        lines = [re.sub(r"^\S+ \S+ |[\d.]+ ms", "", line) for line in server.log.splitlines()]
        assert "INFO GET /stream 200  12 B memory ok" in lines
        assert any(line.startswith("INFO GET /*/* 404 ") for line in lines)
        assert any(line.startswith("INFO POST /length 403 ") for line in lines)
        assert "INFO GET /stream 200  6 B memory ok broken off" in lines
        assert not re.search("secret|alex|private|evil|until", server.log)


def test_bodies_beyond_the_limit_and_requests_beyond_the_stop_timeout_are_cut_off(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text("max_body_mb = 1\nshutdown_timeout_s = 1\n")
    chunk = b"x" * 65_536
    with RecollectServer(home, script=SLOW) as server:
        url = f"{server.url}/length"
        assert httpx.post(url, content=iter([chunk] * 16), timeout=300).json() == 1 << 20
        for content in (iter([chunk] * 800), chunk * 800):
            answer = httpx.post(url, content=content, timeout=300)
            assert (answer.status_code, answer.json()["error"]["code"]) == (413, "TooLarge")
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.settimeout(300)
            client.sendall(b"POST /length HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
            sent = 0
            with suppress(BrokenPipeError, ConnectionResetError):
                while sent < 1 << 30:
                    client.sendall(b"10000\r\n" + chunk + b"\r\n")
                    sent += len(chunk)
            assert 1 << 20 < sent < 1 << 30
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.settimeout(300)
            head = b"POST /length HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50000000\r\n"
            client.sendall(head + b"Expect: 100-continue\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 413"
        assert httpx.get(f"{server.url}/live", timeout=300).status_code == 200
        with stream(server, Path("/never")) as answer:
            assert next(answer.iter_raw()) == b"begun\n"
            server.process.terminate()
            assert server.process.wait(300) == 0


def test_settings_that_cannot_be_served_are_rejected(tmp_path: Path) -> None:
    def check(**settings: object) -> None:
        check_settings(load({"home": tmp_path, "port": 8100, **settings}, environ={}).settings)

    for url in ("http://127.0.0.1:8100/v1", "http://localhost:8100/v1"):
        with pytest.raises(InvalidSettings, match="this server itself"):
            check(upstream_url=url)
    check(upstream_url="http://127.0.0.1:8101/v1")
    with pytest.raises(InvalidSettings, match="belongs to one process"):
        check(database="memory:", server_processes=2)


def test_a_server_that_is_ready_has_built_no_route_and_loaded_no_http_client(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\n"
        "from recollect.config.settings import load\n"
        "from recollect.http.server import make_app\n"
        "async def start():\n"
        "    app = make_app(load(environ={}, overrides={'home': sys.argv[1]}).settings)\n"
        "    async with app.router.lifespan_context(app):\n"
        "        routes = [each for each in app.routes if each.path.startswith('/recollect/v1/')]\n"
        "        assert len(routes) > 40\n"
        "        print(*sys.modules, *(f'route:{each.path}' for each in routes if 'dependant' in vars(each)))\n"
        "asyncio.run(start())\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "recollect.http.proxy.routes" in loaded
    assert not {"httpx", "aiohttp", "rich", "mcp", "asyncpg", "yaml", "numpy.ma"} & loaded
    assert not [name for name in loaded if name.startswith("route:")]
