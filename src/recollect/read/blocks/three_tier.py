"""The user's profile from keyed facts, the context from compressed turns, and turns word for word."""

from __future__ import annotations

from recollect.model.memory import Category
from recollect.read.blocks.style import MEMORIES, BlockItem, BlockSection, BlockStyle

_EPISODE_CHARS = 150


def _profile_line(item: BlockItem, words: str, _: int) -> str:
    return f"- {item.key}: {words}" if item.key and item.value else f"- {words}"


def _context_line(item: BlockItem, words: str, _: int) -> str:
    # The dots stand for the conversation behind the summary, whether or not the summary itself was shortened.
    return f"- {item.turns or item.date}: {words.rstrip('. ')}..."


THREE_TIER = BlockStyle(
    head="# Long-term Memory\n",
    sections=(
        BlockSection(
            title="## User Profile\n",
            categories=MEMORIES - {Category.EVENT},
            line=_profile_line,
            words=lambda item: item.value if item.key and item.value else item.content,
        ),
        BlockSection(
            title="## Recent Context\n",
            categories=frozenset({Category.EPISODE, Category.SUMMARY, Category.EVENT}),
            line=_context_line,
            max_chars=_EPISODE_CHARS,
        ),
        BlockSection(
            title="# Recent Conversation\n",
            line=lambda item, words, _: f"{item.speaker or 'unknown'}: {words}",
            by_time=True,
        ),
    ),
    between="\n\n",
    foot="\n\nAnswer consistently using the memory and conversation above.",
)
