"""Servers with keys for tests of authentication."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from recollect.config.settings import load
from recollect.http.app import make_app
from recollect.http.auth.caller import CallerDep
from recollect.model.key import new_key

OUTSIDE = "203.0.113.7"
HERE = "http://127.0.0.1"


def app_of(home: Path, **settings: Any) -> FastAPI:
    """Return the application with a route that returns the caller and the scope."""
    # Only requests of callers reach the upstream.
    app = make_app(load({"home": home, "learn_with_upstream": False, **settings}, environ={}).settings)

    @app.get("/whoami")
    async def whoami(caller: CallerDep, user_id: str | None = None, project_id: str | None = None) -> dict[str, Any]:
        scope = caller.scope(user_id, project_id) if caller.kind != "local" or user_id else None
        return {**asdict(caller), "scope": scope and asdict(scope)}

    return app


@contextmanager
def serving(home: Path, *, peer: str = "127.0.0.1", **settings: Any) -> Iterator[TestClient]:
    """Run a server with these settings and return a client with this address."""
    with TestClient(app_of(home, **settings), client=(peer, 4711), base_url=HERE) as client:
        yield client


def make_key(client: TestClient, **options: Any) -> str:
    """Create a key and return its text."""
    keyring = client.app.state.service.api_keys  # type: ignore[attr-defined]

    async def make() -> str:
        return str((await keyring.add(new_key(**options))).text)

    return client.portal.call(make)  # type: ignore[union-attr]


def bearer(key: str) -> dict[str, str]:
    """Return the header with a key."""
    return {"Authorization": f"Bearer {key}"}
