"""The server application: health routes and the status of each error."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from recollect import __version__, errors
from recollect.config.settings import load
from recollect.http import health_monitor
from recollect.http.app import make_app
from recollect.http.auth.address import is_loopback
from recollect.http.errors import status_of
from recollect.model.job import JobKind, NewJob
from recollect.model.scope import Scope
from recollect.model.times import now


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setattr(health_monitor, "_CHECK_TIMEOUT_S", 60.0)
    with TestClient(make_app(load({"home": tmp_path}, environ={}).settings), "http://127.0.0.1") as client:
        yield client


def test_health_says_how_it_is_set_up(client: TestClient) -> None:
    answer = client.get("/health").json()
    assert answer["status"] == "ok"
    assert answer["version"] == __version__
    assert answer["dimensions"] > 0


def test_live_and_version_answer(client: TestClient) -> None:
    assert client.get("/live").json() == {"status": "ok"}
    assert client.get("/version").json()["version"] == __version__


@pytest.mark.parametrize("path", ["/live", "/ready", "/health", "/version", "/metrics"])
def test_whoever_asks_for_the_head_alone_is_answered_alike(client: TestClient, path: str) -> None:
    head, whole = client.head(path), client.get(path)
    assert (head.status_code, head.headers["content-type"]) == (200, whole.headers["content-type"])
    assert client.put(path).headers["allow"] == "GET, HEAD"


def test_ready_says_degraded_when_the_ledger_is_gone(client: TestClient) -> None:
    assert client.get("/ready").json() == {
        "status": "ready",
        "checks": {"ledger": "ok", "jobs": "ok"},
        "since": {},
    }
    client.portal.call(client.app.state.service._ledger.close)  # type: ignore[union-attr, attr-defined]
    answer = client.get("/ready")
    assert answer.status_code == 503
    assert answer.json()["status"] == "degraded"
    assert "closed" in answer.json()["checks"]["ledger"]


def test_ready_says_degraded_when_work_is_not_done(client: TestClient) -> None:
    ledger = client.app.state.service._ledger  # type: ignore[attr-defined]
    late = NewJob(kind=JobKind.EXTRACT, due_at=now() - timedelta(seconds=400))
    client.portal.call(client.app.state.service.jobs.worker.stop)  # type: ignore[union-attr, attr-defined]
    client.portal.call(ledger.enqueue, Scope("ann"), [late])  # type: ignore[union-attr]
    answer = client.get("/ready")
    # Memories are still found and stored, so it is still ready.
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert "has been due for 40" in answer.json()["checks"]["jobs"]


def test_openapi_describes_every_route(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert {"/health", "/live", "/ready", "/version"} <= set(paths)
    operations = [operation for route in paths.values() for operation in route.values()]
    assert all(operation.get("description") for operation in operations)
    ids = [operation["operationId"] for operation in operations]
    assert len(ids) == len(set(ids))


def test_every_error_has_a_status(client: TestClient) -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    for kind in kinds:
        error = kind("what", "extra") if kind is errors.MissingExtra else kind("what")
        assert 400 <= status_of(error) < 600
    assert status_of(errors.IdempotencyReuse("")) == 409
    assert status_of(errors.DiskFull("")) == 507
    assert status_of(errors.StoreBusy("")) == 503


def test_our_errors_are_answered_in_one_shape(client: TestClient) -> None:
    @client.app.get("/busy")  # type: ignore[attr-defined, misc]
    async def busy() -> None:
        raise errors.StoreBusy("try again")

    answer = client.get("/busy")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.json() == {"error": {"code": "StoreBusy", "message": "try again", "retryable": True}}


def test_a_fault_of_ours_is_answered_in_the_same_shape_and_tells_nothing(client: TestClient) -> None:
    @client.app.get("/broken")  # type: ignore[attr-defined, misc]
    async def broken() -> None:
        raise KeyError("what somebody said")

    patient = TestClient(client.app, "http://127.0.0.1", raise_server_exceptions=False)
    answer = patient.get("/broken")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "InternalServerError")
    assert "somebody" not in answer.text


@pytest.mark.parametrize(
    ("host", "alone"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("example.org", False)],
)
def test_only_loopback_addresses_count_as_private(host: str, alone: bool) -> None:
    assert is_loopback(host) is alone


def test_a_public_address_without_authentication_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "recollect.cli.main", "--home", str(tmp_path), "serve", "--host", "0.0.0.0"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert refused.returncode == 2
    assert "no authentication" in refused.stderr
