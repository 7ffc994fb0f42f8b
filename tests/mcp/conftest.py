"""A server with keys of two users, one of them with two projects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.mcp_client import ERAS, make_keys, serving


@dataclass(frozen=True)
class McpServerForTests:
    """The address of the server's MCP, and the keys by name."""

    url: str
    keys: dict[str, str]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpServerForTests]:
    home = tmp_path_factory.mktemp("mcp") / "home"
    keys = make_keys(
        home,
        ann={"user": "ann"},
        bob={"user": "bob"},
        cyd={"user": "cyd"},
        ann_reads={"user": "ann", "writes": False},
        ann_writes={"user": "ann", "reads": False},
        ann_atlas={"user": "ann", "project": "atlas"},
        everyone={"everyone": True},
    )
    with serving(home, mcp_tools="history, sessions, stats, reviews, chatgpt") as url:
        yield McpServerForTests(f"{url}/mcp", keys)


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)
