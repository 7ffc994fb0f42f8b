"""A server with an empty home for tests of the compatible APIs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from recollect.http.app import make_app
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.remember_samples import settings

UNKNOWN = "0198c6f1-5d2a-7c31-9a44-8f5a2f6b1c90"


@contextmanager
def served(
    home: Path, llm: ScriptedLLM | None = None, *, peer: str = "testclient", **more: Any
) -> Iterator[TestClient]:
    """Run a server with these settings and return a client of it with this address."""
    app = make_app(settings(home, llm, **more))
    with TestClient(app, base_url="http://127.0.0.1", client=(peer, 50_000)) as client:
        yield client


def broken(client: TestClient) -> None:
    """Close the ledger, so that it does not answer."""
    client.portal.call(client.app.state.service.deps.ledger.close)  # type: ignore[union-attr, attr-defined]
