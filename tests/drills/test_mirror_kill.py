"""200 kills of a process that mirrors, with a person at work on its files."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from mirror_kills import Restart, check, kill_once, start_s

KILLS = 200


@pytest.mark.drill
@pytest.mark.timeout(3600)
async def test_after_each_of_200_kills_files_and_ledger_come_together_and_no_edit_is_lost(tmp_path: Path) -> None:
    chance, took = random.Random(1), list[Restart]()
    edits: dict[str, str] = {}
    new: dict[str, str] = {}
    for number in range(KILLS):
        await asyncio.to_thread(kill_once, tmp_path, chance, new)
        edits |= new
        # Now and then a process is killed that starts from what another left half done.
        if number % 4 != 2:
            took.append(await check(tmp_path, new, start_s=await asyncio.to_thread(start_s)))
            new = {}
    await check(tmp_path, edits, start_s=0)
    took.sort(key=lambda each: each.took_s)
    print(
        f"\n{KILLS} kills, {len(edits)} memories edited by hand; together again after {took[len(took) // 2]}, "
        f"at worst {took[-1]}"
    )
    assert not [str(each) for each in took if each.took_s > each.limit_s]
