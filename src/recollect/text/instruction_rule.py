"""The one rule on instructions: only what the user said in their own words, or what a person approved, instructs.

Own words and approved memories have high trust. Any other statement that instructs waits for review, whoever writes
it: the ledger applies the rule to every change (`ledger/plan.py`). Turns, files, summaries and episodes record what
happened; they stay, and prompts show them as quoted text (`read/policy.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from recollect.model.memory import Category, MemoryRecord, MemoryType, Status, Trust
from recollect.text.instructions import find_instruction

# Records of what happened; all other memories are statements.
RECORDS = frozenset({Category.TURN, Category.FILE, Category.SUMMARY, Category.EPISODE})
# A change of one of these may make a memory an instruction.
INSTRUCTING_FIELDS = frozenset({"content", "value", "key", "tags", "category", "type", "trust", "status"})


def instruction_reason(text: str) -> str:
    """Return why a person must review a text that the user did not write; empty if it gives no instruction."""
    phrase = find_instruction(text)
    return f"it tells what to do ('{phrase}'), and the user did not say it" if phrase else ""


def review_reason(trust: Trust, category: Category, type: MemoryType, *texts: str | None) -> str:
    """Return why a statement must not be used before a person approves it; empty if it may be."""
    if trust is Trust.HIGH or category in RECORDS:
        return ""
    if category is Category.INSTRUCTION or type is MemoryType.PROCEDURAL:
        return "it is an instruction that the user did not give"
    return next(filter(None, (instruction_reason(text) for text in texts if text)), "")


def hold_for_review(record: MemoryRecord) -> MemoryRecord:
    """Return the memory, in review if it is active and must not be used before a person approves it."""
    if record.status is not Status.ACTIVE:
        return record
    texts = (record.content, record.value, record.key, *record.tags)
    if not (reason := review_reason(record.trust, record.category, record.type, *texts)):
        return record
    detail: Mapping[str, Any] = {**record.detail, "review": reason}
    return replace(record, status=Status.REVIEW, detail=detail)
