"""Facts, episodes and the conversation so far, as an agent's prompt lists them."""

from __future__ import annotations

from recollect.model.memory import Category
from recollect.read.blocks.style import MEMORIES, Item, Section, Style


def _conversation_line(item: Item, words: str, number: int) -> str:
    if item.category is Category.TURN:
        return f"- {item.said(words)}"
    return f"- Previous invocation {number}: {words}"


REACT_MEM = Style(
    sections=(
        Section(title="Long-term Facts:\n", takes=MEMORIES, line=lambda item, words, _: f"- {words}"),
        Section(
            title="Relevant Past Episodes:\n",
            takes=frozenset({Category.EPISODE}),
            line=lambda item, words, number: f"- Episode {number}: {words}",
        ),
        Section(title="Conversation History:\n", line=_conversation_line),
    ),
)
