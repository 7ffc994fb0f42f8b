"""200 kills of a process that mirrors, with a person at work on its files."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from mirror_kills import CONVERGES_S, check, kill_once

KILLS = 200


@pytest.mark.drill
@pytest.mark.timeout(3600)
async def test_200_kills_lose_no_edit_and_files_and_ledger_come_together(tmp_path: Path) -> None:
    chance, took = random.Random(1), []
    edits: dict[str, str] = {}
    for number in range(KILLS):
        await asyncio.to_thread(kill_once, tmp_path, chance, edits)
        if number % 4 == 3:
            took.append(await check(tmp_path, edits))
    took.sort()
    print(
        f"{KILLS} kills, {len(edits)} memories edited by hand; together again in {took[len(took) // 2]:.2f} s "
        f"(at worst {took[-1]:.2f} s)"
    )
    assert took[len(took) // 2] < CONVERGES_S
