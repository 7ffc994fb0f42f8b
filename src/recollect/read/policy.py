"""What a model wrote into its files and reads back itself may instruct it; no other prompt is told it as a memory.

A file is shown to its model as it is. Where a search finds one for a prompt, a single command in it keeps all of it
out, until a person has given the memory high trust.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from recollect.aio.erasable_cache import erasable_cache
from recollect.model.memory import Category, MemoryRecord, Trust
from recollect.model.result import Hit
from recollect.read.rank import SearchCandidate
from recollect.text.instructions import find_instruction

# As much as is looked at in one go; what a cut would part is seen whole in the next piece.
_CHUNK_CHARS, _OVERLAP_CHARS = 16_000, 400


async def separate_instructions(
    candidates: list[SearchCandidate],
) -> tuple[list[SearchCandidate], list[SearchCandidate]]:
    """The candidates that a prompt may be told of, and those that dictate."""
    untrusted = [each for each in candidates if _is_untrusted_file(each.record)]
    if not untrusted:
        return candidates, []
    # Long texts take some milliseconds.
    instruction_ids = await asyncio.to_thread(_instruction_ids, [each.record for each in untrusted])
    instructions = [each for each in untrusted if each.record.id in instruction_ids]
    for each in instructions:
        each.decision = "a model wrote this file, and it tells what to do"
    return [each for each in candidates if each.record.id not in instruction_ids], instructions


def is_instruction_file(record: MemoryRecord) -> bool:
    """Whether it is a file that tells what to do, and no person vouches for it."""
    return _is_untrusted_file(record) and _has_instruction(record.content)


def _is_untrusted_file(record: MemoryRecord) -> bool:
    return record.category is Category.FILE and record.trust is not Trust.HIGH


def _instruction_ids(records: Sequence[MemoryRecord]) -> set[str]:
    return {record.id for record in records if _has_instruction(record.content)}


@erasable_cache(256)
def _has_instruction(text: str) -> bool:
    step = _CHUNK_CHARS - _OVERLAP_CHARS
    return any(find_instruction(text[start : start + _CHUNK_CHARS]) for start in range(0, max(len(text), 1), step))


def exclude_tagged(hits: Sequence[Hit], tags: frozenset[str]) -> tuple[tuple[Hit, ...], str]:
    """The hits that carry none of the tags, and a note of how many do."""
    allowed = tuple(hit for hit in hits if tags.isdisjoint(hit.record.tags))
    count = len(hits) - len(allowed)
    return allowed, f"withheld by tag: {count}" if count else ""
