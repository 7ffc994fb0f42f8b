"""One list under one heading."""

from __future__ import annotations

from recollect.read.blocks.style import Section, Style

SEMANTIC_ROUTER = Style(
    head="## User's Relevant Context\n\n",
    sections=(Section(line=lambda item, words, _: f"- {item.said(words)}"),),
    foot="\n",
)
