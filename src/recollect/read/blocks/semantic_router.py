"""One list under one heading."""

from __future__ import annotations

from recollect.read.blocks.style import BlockSection, BlockStyle

SEMANTIC_ROUTER = BlockStyle(
    head="## User's Relevant Context\n\n",
    sections=(BlockSection(line=lambda item, words, _: f"- {item.with_speaker(words)}"),),
    foot="\n",
)
