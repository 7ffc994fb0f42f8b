"""Parsers refuse hostile bytes in the documented way: a fixed sample in every run, a search by coverage in drills."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.seeds import SEEDS
from tests.fuzz.targets import TARGETS
from tests.support.linear_time import cpu_seconds

MUTANTS = 150
# In CPU time, so that a busy machine does not matter. Each input is a few kilobytes long.
MAX_CPU_S = 5.0
SEARCH_S = 60
_TOKENS = [
    b"null", b"-1", b"1e999", b"NaN", b'"', b"{", b"}", b"[", b"]", b":", b",", b"\\ud800", b"\\u0000", b"\0",
    b"\xff", b"\r\n", b"\n\n", b"---\n", b"data: ", b"[DONE]", b"../", b"9" * 5000, b"[" * 2000, b"\xe2\x80\xae",
]  # fmt: skip


def _mutate(data: bytes, chance: random.Random) -> bytes:
    """Return the bytes after a few random edits: remove, repeat, replace by a special token, flip a bit."""
    for _ in range(chance.randint(1, 4)):
        start, end = sorted(chance.randint(0, len(data)) for _ in range(2))
        end = min(end, start + chance.choice([0, 1, 8, 64, 1000]))
        match chance.randrange(4):
            case 0:
                data = data[:start] + data[end:]
            case 1:
                data = data[:end] + data[start:end] * chance.choice([1, 2, 50]) + data[end:]
            case 2:
                data = data[:start] + chance.choice(_TOKENS) + data[end:]
            case _ if data:
                at = chance.randrange(len(data))
                data = data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
    return data


def test_every_target_has_seeds() -> None:
    assert SEEDS.keys() == TARGETS.keys()


@pytest.mark.parametrize("name", TARGETS)
def test_hostile_bytes_are_refused_in_bounded_time(name: str) -> None:
    target, chance = TARGETS[name], random.Random(name)
    for data in [b"", *SEEDS[name], *(_mutate(chance.choice(SEEDS[name]), chance) for _ in range(MUTANTS))]:
        try:
            took_s = cpu_seconds(lambda data=data: target(data))  # type: ignore[misc]
        except Exception as error:
            raise AssertionError(f"{name} raises {error!r} for {data!r}") from error
        assert took_s < MAX_CPU_S, f"{name} takes {took_s:.1f} s for {data!r}"


@pytest.mark.drill
@pytest.mark.timeout(7200)
def test_a_search_by_coverage_finds_no_failure(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz.search", str(tmp_path), str(SEARCH_S)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
