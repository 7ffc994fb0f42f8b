"""The log in JSON, and the request id in it."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from recollect.http.server import JsonFormatter, TextFormatter
from tests.support.recollect_server import RecollectServer

FORGED = "away\r\n2026-01-01 00:00:00,000 INFO all is well\x1b[2J\x85\u2028"


def record(message: str, **more: Any) -> logging.LogRecord:
    made = logging.LogRecord("recollect", logging.WARNING, "file.py", 1, "%s", (message,), None)
    for name, value in more.items():
        setattr(made, name, value)
    return made


def test_a_text_message_cannot_forge_a_line() -> None:
    line = TextFormatter().format(record(FORGED))
    assert len(line.splitlines()) == 1
    assert re.fullmatch(r"\S+ \S+ WARNING away\\r\\n2026.*well\\x1b\[2J\\x85\\u2028", line)


def test_a_json_line_is_one_ascii_object() -> None:
    line = JsonFormatter().format(record(FORGED, fields={"status": 200}))
    assert line.isascii()
    assert len(line.splitlines()) == 1
    report = json.loads(line)
    assert (report["message"], report["level"], report["logger"], report["status"]) == (
        FORGED,
        "warning",
        "recollect",
        200,
    )
    assert report["time"].endswith("+00:00")


def test_a_traceback_is_part_of_its_json_object() -> None:
    try:
        raise ValueError("wrong")
    except ValueError as error:
        made = record("failed", exc_info=(ValueError, error, error.__traceback__))
    report = json.loads(JsonFormatter().format(made))
    assert report["traceback"].endswith("ValueError: wrong")


@pytest.fixture
def server(tmp_path: Path) -> RecollectServer:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text('log_format = "json"\n')
    return RecollectServer(home)


def requests_in(log: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in log.splitlines()]
    return [line for line in lines if line["logger"] == "recollect.access"]


def test_each_request_is_logged_with_its_id_and_without_content(server: RecollectServer) -> None:
    body = {"model": "m", "user": "zoe", "messages": [{"role": "user", "content": "My locker is heron-77"}]}
    with server:
        inputs = httpx.get(f"{server.url}/live?q=private", headers={"X-Request-Id": "req-1"}, timeout=60)
        assert inputs.headers["x-request-id"] == "req-1"
        chat = httpx.post(
            f"{server.url}/v1/chat/completions", json=body, headers={"Authorization": "Bearer sk-hush"}, timeout=60
        )
        made = chat.headers["x-request-id"]
        assert re.fullmatch("[0-9a-f]{24}", made)
        for bad in ("has space", "x" * 129, "a@b", "é".encode("latin-1")):
            answered = httpx.get(f"{server.url}/live", headers={"X-Request-Id": bad}, timeout=60)
            assert re.fullmatch("[0-9a-f]{24}", answered.headers["x-request-id"])
        refused = httpx.get(f"{server.url}/live", headers={"Host": "evil.example"}, timeout=60)
        assert (refused.status_code, len(refused.headers["x-request-id"])) == (421, 24)
        server.process.terminate()
        assert server.process.wait(300) == 0
    report = {each["request_id"]: each for each in requests_in(server.log)}
    # One more was sent until the server had started.
    assert len(report) == 8
    expected = {"method": "GET", "path": "/live", "route": "/live", "status": 200, "bytes": 15, "whole": True}
    assert expected.items() <= report["req-1"].items()
    assert report[made]["memory"] == "ok"
    assert not re.search("private|zoe|heron|hush|evil", server.log)


def test_ids_in_paths_are_not_logged(server: RecollectServer) -> None:
    paths = (
        *("/recollect/v1/memories/heron-77", "/recollect/v1/jobs/heron-77", "/memory/heron-77", "/heron-77"),
        *(
            "/v1/files/heron-77",
            "/v1/responses/heron-77",
            "/v1/threads/heron-77/x",
            "/recollect/v1/sessions/heron-77",
        ),
        *("/sessions/heron-77/memories", "/recollect/v1/memories/%68eron-77", "/heron%252d77", "/api/heron-77"),
    )
    with server:
        for path in paths:
            httpx.get(f"{server.url}{path}", headers={"X-Memory-User": "zoe"}, timeout=60)
        server.process.terminate()
        assert server.process.wait(300) == 0
    logged = [each["path"] for each in requests_in(server.log) if each["path"] not in ("/health", "/live")]
    assert len(logged) == len(paths)
    assert logged[:4] == ["/recollect/v1/memories/*", "/recollect/v1/jobs/*", "/memory/*", "/*"]
    assert "eron" not in server.log
