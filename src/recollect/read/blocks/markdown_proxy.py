"""The conversation's summary, then memories with the role of who said them."""

from __future__ import annotations

from recollect.model.memory import Category
from recollect.read.blocks.style import Item, Section, Style


def _line(item: Item, words: str, _: int) -> str:
    said = f"{item.name}: {words}" if item.name else words
    return f"[{item.role or item.category}] {said}"


MARKDOWN_PROXY = Style(
    sections=(
        # On the same line as its name: alone on a line, a summary could pass for a memory of some role.
        Section(
            takes=frozenset({Category.SUMMARY}),
            line=lambda item, words, _: f"Conversation summary: {words}",
        ),
        Section(title="Long-term memory (most relevant first):\n", line=_line),
    ),
    between="\n\n",
)
