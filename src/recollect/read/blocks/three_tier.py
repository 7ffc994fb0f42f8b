"""The user's profile from keyed facts, the context from compressed turns, and turns word for word."""

from __future__ import annotations

from recollect.model.memory import Category
from recollect.read.blocks.style import MEMORIES, Item, Section, Style

_EPISODE_CHARS = 150


def _profile_line(item: Item, words: str, _: int) -> str:
    return f"- {item.key}: {words}" if item.key and item.value else f"- {words}"


def _context_line(item: Item, words: str, _: int) -> str:
    # The dots stand for the conversation behind the summary, whether or not the summary itself was shortened.
    return f"- {item.turns or item.date}: {words.rstrip('. ')}..."


THREE_TIER = Style(
    head="# Long-term Memory\n",
    sections=(
        Section(
            title="## User Profile\n",
            takes=MEMORIES - {Category.EVENT},
            line=_profile_line,
            words=lambda item: item.value if item.key and item.value else item.content,
        ),
        Section(
            title="## Recent Context\n",
            takes=frozenset({Category.EPISODE, Category.SUMMARY, Category.EVENT}),
            line=_context_line,
            shows=_EPISODE_CHARS,
        ),
        Section(
            title="# Recent Conversation\n",
            line=lambda item, words, _: f"{item.who or 'unknown'}: {words}",
            in_time=True,
        ),
    ),
    between="\n\n",
    foot="\n\nAnswer consistently using the memory and conversation above.",
)
