"""The health monitor: problems appear in /ready, in the metrics and in a header of every chat."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from recollect.config.settings import load
from recollect.errors import StoreUnavailable
from recollect.http.app import make_app
from recollect.model.job import JobKind, JobStats, NewJob
from recollect.model.scope import Scope
from recollect.model.times import now

CHAT = {"model": "m", "user": "ann", "messages": [{"role": "user", "content": "What is my name?"}]}


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setattr("recollect.http.health.CHECK_INTERVAL_S", 0.02)
    app = make_app(load({"home": tmp_path, "worker": False}, environ={}).settings)
    with TestClient(app, "http://127.0.0.1") as client:
        yield client


def status(client: TestClient, **headers: str) -> str:
    answer = client.post("/v1/chat/completions", json=CHAT, headers=headers)
    assert answer.status_code == 200
    return str(answer.headers["x-memory-status"])


def wait_for(client: TestClient, expected: str) -> None:
    deadline = time.monotonic() + 30
    while status(client) != expected:
        assert time.monotonic() < deadline


def service(client: TestClient) -> Any:
    return client.app.state.service  # type: ignore[attr-defined]


def test_an_overdue_job_is_reported_with_every_chat(client: TestClient) -> None:
    assert status(client) == "ok"
    late = NewJob(kind=JobKind.EXTRACT, due_at=now() - timedelta(seconds=400))
    client.portal.call(service(client).deps.ledger.enqueue, Scope("ann"), [late])  # type: ignore[union-attr]
    wait_for(client, "degraded; reason=backlog")
    # Chats without memory do not report it.
    assert status(client, **{"X-Memory": "off"}) == "off"
    first, repeated = client.get("/ready").json(), client.get("/ready").json()
    assert first["status"] == "degraded"
    assert "a job has been due for 4" in first["checks"]["jobs"]
    assert first["since"] == repeated["since"]
    assert now() - timedelta(seconds=60) < datetime.fromisoformat(first["since"]["jobs"]) <= now()
    assert 'recollect_degraded{part="jobs"} 1' in client.get("/metrics").text
    client.portal.call(service(client).jobs.run_pending)  # type: ignore[union-attr]
    wait_for(client, "ok")
    ready = client.get("/ready").json()
    assert (ready["status"], ready["since"]) == ("ready", {})
    assert 'recollect_degraded{part="jobs"} 0' in client.get("/metrics").text


@pytest.mark.parametrize(("failures", "expected"), [(4, "ok"), (5, "degraded; reason=backlog")])
def test_five_failed_jobs_in_a_row_are_reported(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, failures: int, expected: str
) -> None:
    jobs = service(client).jobs

    async def job_stats(user: str | None = None) -> JobStats:
        return JobStats(failures_in_a_row=failures)

    monkeypatch.setattr(jobs, "stats", job_stats)
    ready = client.get("/ready")
    assert (ready.status_code, ready.json()["status"]) == (200, "ready" if expected == "ok" else "degraded")
    assert status(client) == expected


def test_a_slow_check_does_not_overwrite_a_later_one(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    first_is_there, first_may_end = asyncio.Event(), asyncio.Event()

    async def job_stats(user: str | None = None) -> JobStats:
        if first_is_there.is_set():
            return JobStats(failures_in_a_row=5)
        first_is_there.set()
        await first_may_end.wait()
        return JobStats()

    async def check_twice() -> str:
        first = asyncio.create_task(monitor.check())
        await first_is_there.wait()
        await monitor.check()
        first_may_end.set()
        await first
        return str(monitor.reason)

    monitor = client.app.state.health_monitor  # type: ignore[attr-defined]
    monkeypatch.setattr(service(client).jobs, "stats", job_stats)
    assert client.portal.call(check_twice) == "backlog"  # type: ignore[union-attr]


def test_an_unavailable_ledger_is_reported_although_a_chat_succeeds(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def job_stats(user: str | None = None) -> JobStats:
        raise StoreUnavailable("it is away")

    monkeypatch.setattr(service(client).jobs, "stats", job_stats)
    ready = client.get("/ready")
    assert (ready.status_code, ready.json()["checks"]) == (503, {"ledger": "it is away"})
    assert status(client) == "degraded; reason=store_unavailable"


def test_the_monitor_survives_unexpected_errors(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = service(client).jobs
    checks = 0

    async def job_stats(user: str | None = None) -> JobStats:
        nonlocal checks
        checks += 1
        if checks < 3:
            raise RuntimeError("a fault of ours")
        return JobStats(failures_in_a_row=9)

    monkeypatch.setattr(jobs, "stats", job_stats)
    wait_for(client, "degraded; reason=backlog")


def test_a_ledger_that_answers_late_is_slow_and_not_unavailable(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_answer = asyncio.Event()

    async def job_stats(user: str | None = None) -> JobStats:
        await may_answer.wait()
        return JobStats()

    monkeypatch.setattr("recollect.http.health.CHECK_TIMEOUT_S", 0.0)
    monkeypatch.setattr(service(client).jobs, "stats", job_stats)
    for _ in range(3):
        client.get("/ready")
    assert status(client) == "ok"
    # One that never answers is.
    monkeypatch.setattr("recollect.http.health.MAX_SILENCE_S", 0.0)
    ready = client.get("/ready")
    assert (ready.status_code, "no answer for" in ready.json()["checks"]["ledger"]) == (503, True)
    assert status(client) == "degraded; reason=store_unavailable"
    monkeypatch.setattr("recollect.http.health.MAX_SILENCE_S", 600.0)
    client.portal.call(may_answer.set)  # type: ignore[union-attr]
    wait_for(client, "ok")
