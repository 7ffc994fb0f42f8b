"""The server of the isolation tests, shared by all of them in a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.isolation_server import World, served


@pytest.fixture(scope="session")
def isolation_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with served(tmp_path_factory.mktemp("isolation")) as world:
        yield world


@pytest.fixture
def world(isolation_server: World) -> World:
    """The shared server, with a new stranger, and a new Bea if anything of hers was changed."""
    isolation_server.restore()
    isolation_server.add_stranger()
    return isolation_server
