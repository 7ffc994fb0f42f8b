"""200 kills of a process that mirrors, while its files are edited."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.support.mirror_kills import Restart, Victims, check

KILLS = 200
_ROUND = 20


@pytest.mark.drill
@pytest.mark.timeout(3600)
async def test_after_each_of_200_kills_files_and_ledger_come_together_and_no_edit_is_lost(tmp_path: Path) -> None:
    chance, took = random.Random(1), list[Restart]()
    edits: dict[str, str] = {}
    for _ in range(KILLS // _ROUND):
        # The time of a start is measured in each round.
        with Victims() as victims:
            took += await _round(tmp_path, chance, edits, victims)
    await check(tmp_path, edits, start_s=0)
    took.sort(key=lambda each: each.took_s)
    print(
        f"\n{KILLS} kills, {len(edits)} memories edited by hand; together again after {took[len(took) // 2]}, "
        f"at worst {took[-1]}"
    )
    assert not [str(each) for each in took if each.took_s > each.limit_s]


async def _round(home: Path, chance: random.Random, edits: dict[str, str], victims: Victims) -> list[Restart]:
    took, new = [], dict[str, str]()
    for number in range(_ROUND):
        await asyncio.to_thread(victims.kill_one, home, chance, new)
        edits |= new
        # Some are killed while they complete the work of a killed one.
        if number % 4 != 2:
            took.append(await check(home, new, start_s=victims.start_s))
            new = {}
    return took
