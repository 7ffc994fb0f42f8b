"""Memories as a prompt takes them: the text, and what became of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Stands for the conversation's summary, which is shown like a memory but may not be one.
SUMMARY_ID = "summary"


@dataclass(frozen=True, slots=True)
class PromptBlock:
    """A block for a prompt; `text` is empty if there is nothing to say or no room to say it.

    `used` are the ids shown, best first. `cut`, `dropped` and `flagged` say why for each id they name: shortened,
    left out, and shown with something made harmless. Whatever is cut or flagged is also in `used`.
    """

    text: str = ""
    tokens: int = 0
    used: tuple[str, ...] = ()
    cut: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)
    flagged: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a trace, in JSON."""
        return {
            "text": self.text,
            "tokens": self.tokens,
            "used": list(self.used),
            "cut": dict(self.cut),
            "dropped": dict(self.dropped),
            "flagged": dict(self.flagged),
        }
