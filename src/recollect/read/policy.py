"""Policies on what may enter a prompt: quotations with their source, no instructions from files, no withheld tags.

A model may read back its own files unchanged. In the results of a search for a prompt, a file that contains an
instruction is dropped until a person has given the memory high trust.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from recollect.aio.erasable_cache import erasable_cache
from recollect.model.memory import Category, MemoryRecord, Trust
from recollect.model.result import Hit
from recollect.model.turn import Role
from recollect.quotes.quoted_text import quotes_instruction
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


def quotation_source(record: MemoryRecord) -> str:
    """Return the source of text that is not in the user's own words, nor approved; empty if it is.

    Of a turn that the assistant said the speaker is shown anyway.
    """
    if record.category is Category.TURN:
        is_quoted = record.detail.get("role") == Role.USER and _quotes_instruction(record.content)
        return "text that the user pasted" if is_quoted else ""
    return "" if record.trust is Trust.HIGH else record.source or "an unknown source"


def reads_like_instruction(record: MemoryRecord) -> bool:
    """Return whether a memory that is not the user's own may be taken for an instruction; a long one always may."""
    if record.category in (Category.TURN, Category.LESSON) or len(record.content) > _CHUNK_CHARS:
        return True
    return _has_instruction(record.content)


@erasable_cache(1024)
def _quotes_instruction(text: str) -> bool:
    return quotes_instruction(text)


def exclude_tagged(hits: Sequence[Hit], tags: frozenset[str]) -> tuple[tuple[Hit, ...], str]:
    """Return the hits without any of the tags, and a note on how many were withheld."""
    allowed = tuple(hit for hit in hits if tags.isdisjoint(hit.record.tags))
    count = len(hits) - len(allowed)
    return allowed, f"withheld by tag: {count}" if count else ""
