"""Drills come in two forms: the short one in every run, the long one where `-m drill` asks for it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.drills.sizes import LONG, SHORT, Sizes
from tests.support.postgres_server import running_server

_lines = pytest.StashKey[list[str]]()


@pytest.fixture(
    params=[
        pytest.param(SHORT, id="short"),
        pytest.param(LONG, id="long", marks=[pytest.mark.drill, pytest.mark.timeout(7200)]),
    ]
)
def sizes(request: pytest.FixtureRequest) -> Sizes:
    """How large the drill is."""
    return request.param


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The address of an empty ledger."""
    if request.param == "sqlite":
        yield str(tmp_path / "recollect.db")
        return
    async with running_server().database() as address:
        yield address


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Where chance begins; pytest shows it when the drill fails. `pytest tests/drills --drill-seed N` repeats it."""
    number = request.config.getoption("--drill-seed", default=0) or random.SystemRandom().randrange(1, 1 << 31)
    print(f"repeat with --drill-seed {number}")
    return number


@pytest.fixture
def say(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Tell what was measured; it is shown at the end of the run."""

    def tell(line: str) -> None:
        request.config.stash.setdefault(_lines, []).append(f"{request.node.name}: {line}")

    return tell


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--drill-seed", type=int, default=0, help="where the chance in drills begins")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if lines := config.stash.get(_lines, []):
        terminalreporter.section("what the drills measured")
        for line in lines:
            terminalreporter.write_line(line)
