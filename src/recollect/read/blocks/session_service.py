"""Each memory with its category and importance, and a sentence that says what for."""

from __future__ import annotations

from recollect.read.blocks.style import BlockItem, BlockSection, BlockStyle


def _importance_line(item: BlockItem, words: str, _: int) -> str:
    importance = round(float(item.importance), 2)
    return f"- [{item.category.upper()}] {item.with_speaker(words)} (importance: {importance})"


SESSION_SERVICE = BlockStyle(
    head="Relevant memories from this session:\n",
    sections=(BlockSection(line=_importance_line),),
    foot="\n\nUse these memories to provide contextually aware responses.",
)
