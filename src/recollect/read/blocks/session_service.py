"""Each memory with its category and importance, and a sentence that says what for."""

from __future__ import annotations

from recollect.read.blocks.style import Item, Section, Style


def _line(item: Item, words: str, _: int) -> str:
    importance = round(float(item.importance), 2)
    return f"- [{item.category.upper()}] {item.said(words)} (importance: {importance})"


SESSION_SERVICE = Style(
    head="Relevant memories from this session:\n",
    sections=(Section(line=_line),),
    foot="\n\nUse these memories to provide contextually aware responses.",
)
