"""What goes before the main clause of a statement, put behind it."""

from __future__ import annotations

import re

_FRONTING = frozenset(
    "on in at for every each next last when if because before after since until during of as".split()
)
_SUBJECT = re.compile(r" (?:the user|user|user's|the user's|I|we|my)(?= )")


def turned(text: str) -> str:
    """The text with what goes before its main clause put behind it: "on Mondays I swim" is "I swim on Mondays"."""
    first, _, _ = text.partition(" ")
    if first.lower() not in _FRONTING or ". " in text:
        return text
    subject = _SUBJECT.search(text)
    at = text.find(", ") + 1 or (subject.start() if subject else 0)
    if not at:
        return text
    front = first.lower() + text[len(first) : at].rstrip(", ")
    return f"{text[at:].strip().rstrip('.')} {front}"
