"""The server application: health routes and the status of each error."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from recollect import __version__, errors
from recollect.config.settings import load
from recollect.http import health as health_monitor
from recollect.http.app import make_app
from recollect.http.auth.address import is_loopback
from recollect.http.errors import status_of
from recollect.model.job import JobKind, NewJob
from recollect.model.scope import Scope
from recollect.model.times import now


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setattr(health_monitor, "CHECK_TIMEOUT_S", 60.0)
    with TestClient(make_app(load({"home": tmp_path}, environ={}).settings), "http://127.0.0.1") as client:
        yield client


def test_health_routes_answer_get_and_head(client: TestClient) -> None:
    health = client.get("/health").json()
    assert (health["status"], health["version"], health["dimensions"] > 0) == ("ok", __version__, True)
    assert client.get("/live").json() == {"status": "ok"}
    assert client.get("/version").json()["version"] == __version__
    for path in ("/live", "/ready", "/health", "/version", "/metrics"):
        head, whole = client.head(path), client.get(path)
        assert (head.status_code, head.headers["content-type"]) == (200, whole.headers["content-type"])
        assert client.put(path).headers["allow"] == "GET, HEAD"


def test_ready_reports_an_unavailable_ledger(client: TestClient) -> None:
    assert client.get("/ready").json() == {
        "status": "ready",
        "checks": {"ledger": "ok", "jobs": "ok"},
        "since": {},
    }
    client.portal.call(client.app.state.service.deps.ledger.close)  # type: ignore[union-attr, attr-defined]
    answer = client.get("/ready")
    assert answer.status_code == 503
    assert answer.json()["status"] == "degraded"
    assert "closed" in answer.json()["checks"]["ledger"]


def test_ready_reports_overdue_jobs(client: TestClient) -> None:
    ledger = client.app.state.service.deps.ledger  # type: ignore[attr-defined]
    late = NewJob(kind=JobKind.EXTRACT, due_at=now() - timedelta(seconds=400))
    client.portal.call(client.app.state.service.jobs.worker.stop)  # type: ignore[union-attr, attr-defined]
    client.portal.call(ledger.enqueue, Scope("ann"), [late])  # type: ignore[union-attr]
    answer = client.get("/ready")
    # Memories are still searched and stored.
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert "has been due for 40" in answer.json()["checks"]["jobs"]


def test_every_error_has_a_status() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    for kind in kinds:
        error = kind("what", "extra") if kind is errors.MissingExtra else kind("what")
        assert 400 <= status_of(error) < 600
    assert status_of(errors.IdempotencyReuse("")) == 409
    assert status_of(errors.DiskFull("")) == 507
    assert status_of(errors.StoreBusy("")) == 503


def test_errors_have_one_format_and_unexpected_ones_reveal_nothing(client: TestClient) -> None:
    @client.app.get("/busy")  # type: ignore[attr-defined, misc]
    async def busy() -> None:
        raise errors.StoreBusy("retry")

    @client.app.get("/broken")  # type: ignore[attr-defined, misc]
    async def broken() -> None:
        raise KeyError("private text")

    answer = client.get("/busy")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json() == {"error": {"code": "StoreBusy", "message": "retry", "retryable": True}}
    tolerant = TestClient(client.app, "http://127.0.0.1", raise_server_exceptions=False)
    answer = tolerant.get("/broken")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "InternalServerError")
    assert "private" not in answer.text


def test_only_loopback_addresses_are_local() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "localhost", "::1")))
    assert not any(map(is_loopback, ("0.0.0.0", "example.org")))
