"""Withhold: what a rule of the operator keeps out of prompts, however well it fits."""

from __future__ import annotations

from collections.abc import Sequence

from recollect.model.result import Hit


def exclude_tagged(hits: Sequence[Hit], tags: frozenset[str]) -> tuple[tuple[Hit, ...], str]:
    """The hits that carry none of the tags, and a note of how many do."""
    allowed = tuple(hit for hit in hits if tags.isdisjoint(hit.record.tags))
    count = len(hits) - len(allowed)
    return allowed, f"withheld by tag: {count}" if count else ""
