"""Facts, episodes and the conversation so far, as an agent's prompt lists them."""

from __future__ import annotations

from recollect.model.memory import Category
from recollect.read.blocks.style import MEMORIES, BlockItem, BlockSection, BlockStyle


def _conversation_line(item: BlockItem, words: str, number: int) -> str:
    if item.category is Category.TURN:
        return f"- {item.with_speaker(words)}"
    return f"- Previous invocation {number}: {words}"


REACT_MEM = BlockStyle(
    sections=(
        BlockSection(title="Long-term Facts:\n", categories=MEMORIES, line=lambda item, words, _: f"- {words}"),
        BlockSection(
            title="Relevant Past Episodes:\n",
            categories=frozenset({Category.EPISODE}),
            line=lambda item, words, number: f"- Episode {number}: {words}",
        ),
        BlockSection(title="Conversation History:\n", line=_conversation_line),
    ),
)
