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
    """Run a server and return a client of the user alex."""
    with (
        run_embedded_server(load({"home": home, **settings}, environ={}).settings) as url,
        client_of("alex", url) as client,
    ):
        yield client


def client_of(user: str, url: str) -> httpx.Client:
    """Return a client that names its user in each request."""
    return httpx.Client(base_url=f"{url}{PREFIX}", headers={"X-Memory-User": user}, timeout=60)


def as_user(client: httpx.Client, user: str) -> httpx.Client:
    """Return a client of another user of the same server."""
    return client_of(user, f"http://{client.base_url.netloc.decode()}")


def add(client: httpx.Client, content: str, **fields: Any) -> dict[str, Any]:
    """Add a memory and return it."""
    answer = client.post("/memories", json={"content": content, **fields})
    assert answer.status_code == 201, answer.text
    stored: dict[str, Any] = answer.json()
    return stored


def contents(answer: httpx.Response) -> list[str]:
    """Return the texts of the results of an answer."""
    assert answer.status_code == 200, answer.text
    return [each["memory"] for each in answer.json()["results"]]


def problem(answer: httpx.Response) -> tuple[int, str, str]:
    """Return the status, code and message of an error of the REST API."""
    error = answer.json()["error"]
    assert {"code", "message", "retryable"} <= set(error)
    return answer.status_code, error["code"], error["message"]
