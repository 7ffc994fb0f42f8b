"""The conversation's summary, then memories with the role of who said them."""

from __future__ import annotations

from recollect.model.memory import Category
from recollect.read.blocks.style import BlockItem, BlockSection, BlockStyle


def _role_line(item: BlockItem, words: str, _: int) -> str:
    text = f"{item.name}: {words}" if item.name else words
    return f"[{item.role or item.category}] {text}"


MARKDOWN_PROXY = BlockStyle(
    sections=(
        # On the same line as its name: alone on a line, a summary could pass for a memory of some role.
        BlockSection(
            categories=frozenset({Category.SUMMARY}),
            line=lambda item, words, _: f"Conversation summary: {words}",
        ),
        BlockSection(title="Long-term memory (most relevant first):\n", line=_role_line),
    ),
    between="\n\n",
)
