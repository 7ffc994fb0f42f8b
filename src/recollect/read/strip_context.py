"""Recognise and remove blocks that recall injected, so that they are neither learned from nor answered."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from recollect.lazy_pattern import lazy_pattern
from recollect.model.messages import QUESTION_MARK, message_text, strip_injected
from recollect.read.block_styles import MARKDOWN_PROXY, REACT_MEM, SEMANTIC_ROUTER, SESSION_SERVICE, THREE_TIER

_UNFENCED_STYLES = (SEMANTIC_ROUTER, REACT_MEM, SESSION_SERVICE, MARKDOWN_PROXY, THREE_TIER)
# How the lines of these styles begin: a dash, a role in brackets, or who speaks.
_ITEM = lazy_pattern(r"- |\[[^\]\n]{1,80}\] |[^\s:][^:\n]{0,80}: ")
_SUMMARY = "Conversation summary: "


def strip_context(text: str) -> str:
    """Return the text without injected blocks, fenced or not; unchanged if there is none."""
    text = strip_injected(text)
    openings, footers = _block_markers()
    if "\n" in text and _SUMMARY not in text and not any(opening in text for opening in openings):
        return text
    lines = text.split("\n")
    remaining: list[str] = []
    at = 0
    while at < len(lines):
        if lines[at].strip() in openings or lines[at].startswith(_SUMMARY):
            at = _skip_block(lines, at, openings, footers)
        else:
            remaining.append(lines[at])
            at += 1
    return "\n".join(remaining).strip("\n") if len(remaining) < len(lines) else text


def is_context(message: object) -> bool:
    """Return whether the message consists of injected blocks only."""
    text = message_text(message.get("content")) if isinstance(message, Mapping) else ""
    return bool(text.strip()) and not strip_context(text).strip()


@cache
def _block_markers() -> tuple[frozenset[str], frozenset[str]]:
    """Return the lines that open a block or section, and those that end one."""
    openings = {
        line.strip() for style in _UNFENCED_STYLES for line in (style.head, *(part.title for part in style.sections))
    }
    return frozenset(openings - {""}), frozenset({style.foot.strip() for style in _UNFENCED_STYLES} - {""})


def _skip_block(lines: list[str], at: int, openings: frozenset[str], footers: frozenset[str]) -> int:
    """Return the index of the first line after the block; the lead-in to the question is part of the block."""
    end = at
    while at < len(lines):
        line = lines[at]
        if line.startswith(QUESTION_MARK):
            lines[at] = line.removeprefix(QUESTION_MARK).removeprefix(" ")
            return at
        if line.strip() and not (line.strip() in openings or line.strip() in footers or _ITEM.match(line)):
            break
        at += 1
        if line.strip():
            end = at
        if line.strip() in footers:
            break
    return end
