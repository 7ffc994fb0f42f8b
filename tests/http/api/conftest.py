"""The server of the tests of the REST API, shared by all of them in a process, and a client of a test's own user."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.support.api_server import as_user, served


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with served(tmp_path_factory.mktemp("home"), llm_api_key="sk-very-secret") as client:
        yield client


@pytest.fixture
def api(server: httpx.Client, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    """A client whose user is the test's own."""
    with as_user(server, request.node.name[:200]) as client:
        yield client
