"""A process that mirrors can be killed at any moment: files and ledger come together, and no edit is lost."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from mirror_kills import Victims, check


async def test_after_a_kill_files_and_ledger_come_together(tmp_path: Path) -> None:
    chance, edits = random.Random(7), dict[str, str]()
    with Victims() as victims:
        for _ in range(3):
            await asyncio.to_thread(victims.kill_one, tmp_path, chance, edits)
    assert edits
    took = await check(tmp_path, edits, start_s=victims.start_s)
    assert took.took_s < took.limit_s, str(took)
