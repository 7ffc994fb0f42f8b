"""Policies on what may enter a prompt: no instructions from files that a model wrote, no withheld tags.

A model may read back its own files unchanged. In the results of a search for a prompt, a file that contains an
instruction is dropped until a person has given the memory high trust.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from recollect.aio.erasable_cache import erasable_cache
from recollect.model.memory import Category, MemoryRecord, Trust
from recollect.model.result import Hit
from recollect.read.rank import SearchCandidate
from recollect.text.instructions import find_instruction

# Long texts are scanned in chunks; an instruction cut at the end of one is complete in the next.
_CHUNK_CHARS, _OVERLAP_CHARS = 16_000, 400


async def separate_instructions(
    candidates: list[SearchCandidate],
) -> tuple[list[SearchCandidate], list[SearchCandidate]]:
    """Return the candidates that may enter a prompt, and the files with instructions that may not."""
    untrusted = [each for each in candidates if _is_untrusted_file(each.record)]
    if not untrusted:
        return candidates, []
    # Scanning long texts takes some milliseconds.
    instruction_ids = await asyncio.to_thread(_instruction_ids, [each.record for each in untrusted])
    instructions = [each for each in untrusted if each.record.id in instruction_ids]
    for each in instructions:
        each.decision = "a file written by a model that contains an instruction"
    return [each for each in candidates if each.record.id not in instruction_ids], instructions


def is_instruction_file(record: MemoryRecord) -> bool:
    """Return whether the memory is a file with an instruction that no person has approved."""
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
    """Return the hits without any of the tags, and a note on how many were withheld."""
    allowed = tuple(hit for hit in hits if tags.isdisjoint(hit.record.tags))
    count = len(hits) - len(allowed)
    return allowed, f"withheld by tag: {count}" if count else ""
