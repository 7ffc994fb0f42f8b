"""A server in a thread for tests of the REST API, and clients of its users."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from recollect.config.settings import load
from recollect.http.server import run_embedded_server

PREFIX = "/recollect/v1"


@contextmanager
def served(home: Path, **settings: Any) -> Iterator[httpx.Client]:
    """A server over a home, as alex sees it."""
    with (
        run_embedded_server(load({"home": home, **settings}, environ={}).settings) as url,
        client_of("alex", url) as client,
    ):
        yield client


def client_of(user: str, url: str) -> httpx.Client:
    """A client that names its user in each request."""
    return httpx.Client(base_url=f"{url}{PREFIX}", headers={"X-Memory-User": user}, timeout=60)


def as_user(client: httpx.Client, user: str) -> httpx.Client:
    """Another user of the same server."""
    return client_of(user, f"http://{client.base_url.netloc.decode()}")


def add(client: httpx.Client, content: str, **fields: Any) -> dict[str, Any]:
    """A memory that was kept."""
    answer = client.post("/memories", json={"content": content, **fields})
    assert answer.status_code == 201, answer.text
    stored: dict[str, Any] = answer.json()
    return stored


def contents(answer: httpx.Response) -> list[str]:
    """What the results of an answer say."""
    assert answer.status_code == 200, answer.text
    return [each["memory"] for each in answer.json()["results"]]


def problem(answer: httpx.Response) -> tuple[int, str, str]:
    """What went wrong: the status, the code and the sentence; it must be in our shape."""
    error = answer.json()["error"]
    assert {"code", "message", "retryable"} <= set(error)
    return answer.status_code, error["code"], error["message"]
