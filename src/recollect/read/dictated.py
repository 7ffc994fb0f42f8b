"""What a model wrote into its files and reads back itself may instruct it; no other prompt is told it as a memory.

A file is shown to its model as it is. Where a search finds one for a prompt, a single command in it keeps all of it
out, until a person has given the memory high trust.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from recollect.model.at_hand import at_hand
from recollect.model.memory import Category, MemoryRecord, Trust
from recollect.read.candidate import Candidate
from recollect.write.screening.imperatives import imperative_in

# As much as is looked at in one go; what a cut would part is seen whole in the next piece.
_PIECE, _OVERLAP = 16_000, 400


async def apart(candidates: list[Candidate]) -> tuple[list[Candidate], list[Candidate]]:
    """The candidates that a prompt may be told of, and those that dictate."""
    doubtful = [each for each in candidates if _may_dictate(each.record)]
    if not doubtful:
        return candidates, []
    # Long texts take some milliseconds.
    found = await asyncio.to_thread(_dictating, [each.record for each in doubtful])
    dictated = [each for each in doubtful if each.record.id in found]
    for each in dictated:
        each.fate = "a model wrote this file, and it tells what to do"
    return [each for each in candidates if each.record.id not in found], dictated


def dictates(record: MemoryRecord) -> bool:
    """Whether it is a file that tells what to do, and no person vouches for it."""
    return _may_dictate(record) and _commands(record.content)


def _may_dictate(record: MemoryRecord) -> bool:
    return record.category is Category.FILE and record.trust is not Trust.HIGH


def _dictating(records: Sequence[MemoryRecord]) -> set[str]:
    return {record.id for record in records if _commands(record.content)}


@at_hand(256)
def _commands(text: str) -> bool:
    step = _PIECE - _OVERLAP
    return any(imperative_in(text[start : start + _PIECE]) for start in range(0, max(len(text), 1), step))
