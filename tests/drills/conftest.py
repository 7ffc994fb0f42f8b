"""Drills have two forms: a short one in every test run, with a fixed seed, and a long one in `make drill`."""

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
    """Return the size of the drill."""
    return request.param


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Yield the address of an empty ledger."""
    if request.param == "sqlite":
        yield str(tmp_path / "recollect.db")
        return
    async with running_server().database() as address:
        yield address


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Return the seed: random in long drills, where pytest prints it on failure and `--drill-seed N` repeats it."""
    is_long = "long" in request.node.name or request.node.get_closest_marker("drill") is not None
    number = request.config.getoption("--drill-seed", default=0)
    number = number or (random.SystemRandom().randrange(1, 1 << 31) if is_long else 1)
    print(f"repeat with --drill-seed {number}")
    return number


@pytest.fixture
def say(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Return a function that adds a line to the summary of the run."""

    def add_line(line: str) -> None:
        request.config.stash.setdefault(_lines, []).append(f"{request.node.name}: {line}")

    return add_line


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--drill-seed", type=int, default=0, help="the seed of the drills")
    parser.addoption("--soak-minutes", type=float, default=1, help="how long the soak takes")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if lines := config.stash.get(_lines, []):
        terminalreporter.section("results of the drills")
        for line in lines:
            terminalreporter.write_line(line)
